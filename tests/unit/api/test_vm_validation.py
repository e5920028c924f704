"""What is wrong with a virtual machine is said with the field, the reason and the remedy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.defaults import default_object
from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.validation.objects import validate_create, validate_update
from livesize.api.validation.resize import (
    keep_policies,
    prepare_resize,
    validate_pod_resize,
)
from livesize.api.validation.vm import host_paths
from livesize.api.write_options import PLAIN_WRITE
from livesize.apiserver.request_body import take_object
from unit.api.refusals import create_errors

VM = "spec.virtualMachine"
SIZE = {"cpu": "1", "memory": "512Mi"}
APP = {"name": "app", "image": "busybox:1", "resources": {"limits": SIZE}}


def raw_pod(vm: Any, **spec: Any) -> Object:
    metadata = {"name": "vm1", "namespace": "default"}
    return {"kind": "Pod", "metadata": metadata, "spec": {"virtualMachine": vm, **spec}}


def raw_vm(**more: Any) -> Object:
    vm = {"kernel": {"image": "guest"}, "resources": {"limits": SIZE}, **more}
    return {name: part for name, part in vm.items() if part is not None}


def sentences(pod: Object) -> list[str]:
    return [error.sentence() for error in create_errors(PODS, pod)]


def limits(**quantities: Any) -> Object:
    return {"resources": {"limits": {**SIZE, **quantities}}}


def cells(*memory: str) -> Object:
    return {"cells": [{"id": index, "memory": text} for index, text in enumerate(memory)]}


LIMITS, REQUESTS = f"{VM}.resources.limits", f"{VM}.resources.requests"
WHOLE = "a virtual machine has whole CPUs"
REFUSED = [
    (
        "a fraction of a cpu",
        raw_vm(**limits(cpu="1500m")),
        {f'limits[cpu]: Invalid value: "1500m": {WHOLE}: the nearest sizes are 1 and 2'},
    ),
    (
        "a fraction in the request alone",
        raw_vm(resources={"requests": {"cpu": "1500m"}, **limits(cpu="2")["resources"]}),
        {f'requests[cpu]: Invalid value: "1500m": {WHOLE}: the nearest sizes are 1 and 2'},
    ),
    (
        "a fraction too small for a thousandth",
        raw_vm(resources={"requests": {"cpu": "0.9999999", "memory": "512Mi"}}),
        {f'requests[cpu]: Invalid value: "999999900n": {WHOLE}: the nearest size is 1'},
    ),
    (
        "no cpu at all",
        raw_vm(**limits(cpu="0")),
        {'limits[cpu]: Invalid value: "0": must be at least 1: the nearest size is 1'},
    ),
    (
        "cells that do not come to the memory",
        raw_vm(numa=cells("256Mi", "128Mi")),
        {
            (
                'limits[memory]: Invalid value: "512Mi": its NUMA cells have 384Mi together: a'
                " change of the memory names its cell. For example: livesize resize pod/vm1 --numa"
                ' 1=256Mi; or set numa.cells to [{"id": 1, "memory": "256Mi"}] beside the memory in'
                " resources"
            )
        },
    ),
    (
        "no cells",
        raw_vm(numa={"cells": []}),
        {"numa.cells: Required value: name the cells, or leave numa out: the VM has one then"},
    ),
    (
        "nine cells",
        raw_vm(**limits(memory="576Mi"), numa=cells(*["64Mi"] * 9)),
        {"numa.cells: Too many: 9: a virtual machine has at most 8 cells"},
    ),
    (
        "cells without number and memory",
        raw_vm(numa={"cells": [{"memory": "512Mi"}, {"id": 1}]}),
        {
            "numa.cells[0].id: Required value: a cell is told apart by its number, from 0",
            "numa.cells[1].memory: Required value: a cell says how much of the memory it has",
        },
    ),
    (
        "cells with one number, and with one there is not",
        raw_vm(
            numa={"cells": [{"id": number, "memory": "256Mi"} for number in (0, 0, 3)]},
            **limits(memory="768Mi"),
        ),
        {
            "numa.cells[1].id: Duplicate value: 0",
            ("numa.cells[2].id: Invalid value: 3: cells are numbered from 0: 3 of them up to 2"),
        },
    ),
    (
        "a cell that is too small, and one of no whole step",
        raw_vm(numa=cells("32Mi", "245763Ki"), **limits(memory="278531Ki")),
        {
            (
                'memory.boot: Invalid value: "285215744": must be a multiple of 2Mi: the'
                " nearest sizes"
                " are 272Mi and 274Mi"
            ),
        },
    ),
    (
        "a cell below the least",
        raw_vm(numa=cells("32Mi", "480Mi")),
        {
            (
                'numa.cells[0].boot: Invalid value: "32Mi": must be at least 64Mi: the'
                " nearest size is"
                " 64Mi"
            )
        },
    ),
    (
        "a cell below what it boots with",
        raw_vm(
            numa={
                "cells": [
                    {"id": 0, "memory": "256Mi", "boot": "256Mi"},
                    {"id": 1, "memory": "256Mi", "boot": "384Mi"},
                ]
            },
        ),
        {
            (
                'numa.cells[1].memory: Invalid value: "256Mi": must be at least 384Mi, the'
                " memory that"
                " the cell boots with (numa.cells[1].boot): the nearest size is 384Mi"
            ),
        },
    ),
    (
        "cells that boot with something else than the VM",
        raw_vm(numa=cells("256Mi", "256Mi"), memory={"boot": "256Mi"}),
        {
            (
                'memory.boot: Invalid value: "256Mi": its cells boot with 512Mi together:'
                " leave it out,"
                " or say that"
            )
        },
    ),
    (
        "vCPUs that do not go into the cells",
        raw_vm(numa=cells("256Mi", "128Mi", "128Mi"), cpu={"max": "4"}),
        {
            (
                'cpu.max: Invalid value: "4": vCPUs go to 3 cells in equal blocks: the'
                " nearest sizes"
                " are 3 and 6"
            )
        },
    ),
    (
        "a balloon with cells",
        raw_vm(numa=cells("256Mi", "256Mi"), memory={"technology": "balloon"}),
        {
            (
                "memory.technology: Forbidden: a balloon takes memory of whichever cell has it: say"
                " auto, virtio-mem or dimm, or leave numa out"
            )
        },
    ),
    (
        "a technology there is not",
        raw_vm(memory={"technology": "magic"}),
        {
            (
                'memory.technology: Unsupported value: "magic": supported values: "auto",'
                ' "virtio-mem", "dimm", "balloon"'
            )
        },
    ),
    (
        "the least of a balloon without one",
        raw_vm(memory={"technology": "dimm", "min": "256Mi"}),
        {
            (
                "memory.min: Forbidden: is what a balloon leaves, and technology dimm has"
                " none: leave"
                " it out"
            )
        },
    ),
    (
        "a balloon that boots with less than the maximum",
        raw_vm(memory={"technology": "balloon", "boot": "512Mi", "max": "1Gi"}),
        {
            (
                'memory.boot: Invalid value: "512Mi": with a balloon the guest boots with its'
                " maximum:"
                " leave it out, or say 1Gi"
            )
        },
    ),
    (
        "less than a balloon leaves",
        raw_vm(**limits(memory="256Mi"), memory={"technology": "balloon"}),
        {
            (
                'limits[memory]: Invalid value: "256Mi": must be at least 512Mi, the least that its'
                " balloon leaves (memory.min): the nearest size is 512Mi"
            )
        },
    ),
    (
        "a least above what it boots with",
        raw_vm(memory={"technology": "auto", "min": "1Gi", "boot": "512Mi"}),
        {
            (
                'memory.min: Invalid value: "1Gi": must be at most 512Mi, the memory it boots with'
                " (memory.boot): the nearest size is 512Mi"
            )
        },
    ),
    (
        "no whole modules",
        raw_vm(**limits(memory="1000Mi"), memory={"technology": "dimm", "boot": "512Mi"}),
        {
            (
                'limits[memory]: Invalid value: "1000Mi": what is above the 512Mi it boots with'
                " comes in modules of 128, 512, 1024 and 2048Mi: the nearest sizes are 896Mi"
                " and 1Gi"
            )
        },
    ),
    (
        "more modules than slots",
        raw_vm(
            **limits(memory="33408Mi"),
            memory={"technology": "dimm", "boot": "512Mi", "max": "64Gi"},
        ),
        {
            (
                'limits[memory]: Invalid value: "33408Mi": above the 512Mi it boots with'
                " there are 16"
                " slots for modules of 128, 512, 1024 and 2048Mi: the nearest size is"
                " 33280Mi"
            )
        },
    ),
    (
        "no whole modules in a cell",
        raw_vm(
            **limits(memory="712Mi"),
            memory={"technology": "dimm", "max": "4Gi"},
            numa={
                "cells": [
                    {"id": 0, "memory": "256Mi", "boot": "256Mi"},
                    {"id": 1, "memory": "456Mi", "boot": "256Mi"},
                ]
            },
        ),
        {
            (
                'numa.cells[1].memory: Invalid value: "456Mi": what is above the 256Mi it'
                " boots with"
                " comes in modules of 128, 512, 1024 and 2048Mi: the nearest sizes are 384Mi"
                " and 512Mi"
            )
        },
    ),
    (
        "no whole sockets",
        raw_vm(**limits(cpu="3"), cpu={"cores": 2, "max": "5"}),
        {
            (
                'cpu.max: Invalid value: "5": vCPUs come in whole sockets of 2 (cpu.cores times'
                " threads): the nearest sizes are 4 and 6"
            )
        },
    ),
    (
        "a size of no whole sockets",
        raw_vm(**limits(cpu="3"), cpu={"cores": 2, "threads": 2, "max": "8"}),
        {
            (
                'limits[cpu]: Invalid value: "3": vCPUs come in whole sockets of 4 (cpu.cores times'
                " threads): the nearest size is 4"
            )
        },
    ),
    (
        "a socket without cores",
        raw_vm(cpu={"cores": 0}),
        {"cpu.cores: Invalid value: 0: must be between 1 and 255, inclusive"},
    ),
    (
        "not a multiple of 2Mi",
        raw_vm(**limits(memory="513Mi")),
        {
            (
                'limits[memory]: Invalid value: "513Mi": must be a multiple of 2Mi: the nearest'
                " sizes are 512Mi and 514Mi"
            )
        },
    ),
    (
        "over the cpu maximum",
        raw_vm(**limits(cpu="5"), cpu={"max": 4}),
        {
            (
                'limits[cpu]: Invalid value: "5": must be at most 4, the maximum it was made with'
                " (cpu.max; for more, make it again with more): the nearest size is 4"
            )
        },
    ),
    (
        "over the memory maximum",
        raw_vm(**limits(memory="4Gi"), memory={"max": "3Gi"}),
        {
            (
                'limits[memory]: Invalid value: "4Gi": must be at most 3Gi, the maximum it was made'
                " with (memory.max; for more, make it again with more): the nearest size is 3Gi"
            )
        },
    ),
    (
        "below what it boots with",
        raw_vm(memory={"boot": "1Gi", "technology": "virtio-mem"}),
        {
            (
                'limits[memory]: Invalid value: "512Mi": must be at least 1Gi, the memory it boots'
                " with (memory.boot): the nearest size is 1Gi"
            )
        },
    ),
    (
        "a maximum that is none",
        raw_vm(cpu={"max": "2.5"}, memory={"max": "1000001Ki", "boot": "2Mi"}),
        {
            f'cpu.max: Invalid value: "2500m": {WHOLE}: the nearest sizes are 2 and 3',
            (
                'memory.max: Invalid value: "1000001Ki": must be a multiple of 2Mi: the nearest'
                " sizes are 976Mi and 978Mi"
            ),
            ('memory.boot: Invalid value: "2Mi": must be at least 64Mi: the nearest size is 64Mi'),
        },
    ),
    (
        "more vCPUs than any VM has",
        raw_vm(**limits(cpu="300")),
        {
            'cpu.max: Invalid value: "300": must be at most 255: the nearest size is 255',
        },
    ),
    (
        "no size",
        raw_vm(resources=None),
        {
            "limits[cpu]: Required value: a virtual machine says how many CPUs it has",
            "limits[memory]: Required value: a virtual machine says how much memory it has",
        },
    ),
    (
        "nothing to boot from",
        raw_vm(kernel=None),
        {
            (
                "kernel: Required value: a virtual machine boots from a kernel or from a disk:"
                " give one of the two"
            )
        },
    ),
    (
        "two things to boot from",
        raw_vm(disk={"image": "d"}),
        {
            (
                "disk: Forbidden: a virtual machine boots from a kernel or from a disk: give one"
                " of the two"
            )
        },
    ),
    ("a kernel without an image", raw_vm(kernel={}), {"kernel.image: Required value"}),
    (
        "an image outside the directory",
        raw_vm(kernel={"image": "../secret"}),
        {
            (
                'kernel.image: Invalid value: "../secret": must be the name of an image, such as'
                " guest.qcow2, or for an admin an absolute path"
            )
        },
    ),
    (
        "a command line of two lines",
        raw_vm(kernel={"image": "guest", "commandLine": "a\nb"}),
        {'kernel.commandLine: Invalid value: "a\\nb": must be one line of text'},
    ),
    (
        "a command line nobody reads to its end",
        raw_vm(kernel={"image": "guest", "commandLine": "a" * 2001}),
        {"kernel.commandLine: Too long: may not be more than 2000 characters"},
    ),
    (
        "a policy that does not exist",
        raw_vm(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "Perhaps"}]),
        {
            (
                'resizePolicy: Unsupported value: "Perhaps": supported values: "NotRequired",'
                ' "RestartContainer"'
            )
        },
    ),
]


@pytest.mark.parametrize(
    ("vm", "expected"), [pytest.param(vm, said, id=name) for name, vm, said in REFUSED]
)
def test_refused(vm: Object, expected: set[str]) -> None:
    said = {
        sentence.replace(f"{VM}.resources.", "").replace(f"{VM}.", "")
        for sentence in sentences(raw_pod(vm))
    }
    assert said == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"containers": [APP]},
            "spec.containers: Forbidden: a pod has either containers or a virtual machine: leave"
            " one of the two out",
            id="both",
        ),
        pytest.param(
            {"initContainers": [APP]},
            "spec.initContainers: Forbidden: a virtual machine's pod has no init containers",
            id="init containers",
        ),
        pytest.param(
            {"overhead": {"memory": "10Mi"}},
            'spec.overhead[memory]: Invalid value: "10Mi": a virtual machine of this maximum needs'
            " 232Mi, or leave it out",
            id="too little overhead",
        ),
        pytest.param(
            {"virtualMachine": {"kernel": 5}},
            "spec.virtualMachine.kernel: Invalid value: 5: must be an object",
            id="the wrong shape",
        ),
        pytest.param({"virtualMachine": None}, "spec.containers: Required value", id="none"),
    ],
)
def test_refused_pods(spec: Object, expected: str) -> None:
    assert expected in sentences(evolve(raw_pod(raw_vm()), ("spec",), {
        "virtualMachine": raw_vm(), **spec,
    }))  # fmt: skip


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(raw_pod(raw_vm()), id="a kernel"),
        pytest.param(raw_pod(raw_vm(kernel=None, disk={"image": "d.qcow2"})), id="a disk"),
        pytest.param(raw_pod(raw_vm(kernel={"image": "/boot/vmlinuz"})), id="a path"),
        pytest.param(raw_pod(raw_vm(), containers=[]), id="an empty list of containers"),
        pytest.param(raw_pod(raw_vm(), overhead={"memory": "1Gi"}), id="more overhead"),
        pytest.param(raw_pod(raw_vm(**limits(memory="500Mi"))), id="a multiple of 2Mi"),
    ],
)
def test_accepted(pod: Object) -> None:
    assert sentences(pod) == []
    defaulted = default_object(PODS, pod)
    assert default_object(PODS, defaulted) == defaulted


def test_host_paths_are_found() -> None:
    vm = raw_vm(kernel={"image": "/boot/vmlinuz", "initrd": "/boot/initrd"})
    assert host_paths(vm) == [f"{VM}.kernel.image", f"{VM}.kernel.initrd"]
    assert host_paths(raw_vm()) == host_paths({}) == []


STORED = default_object(PODS, raw_pod(raw_vm(), nodeName="n1"))


def changed(*path: str, to: Any) -> Object:
    return evolve(STORED, ("spec", "virtualMachine", *path), to)


BIGGER = {"requests": {"cpu": "4", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}
ONLY = (
    "updates of a virtual machine's pod may not change fields other than"
    f" `{VM}.resources`,`{VM}.numa.cells[*].memory`,`{VM}.resizePolicy`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations):"
    " images, maxima, boot memory, technology and topology are fixed when the VM is made"
)
QOS = "Pod QOS Class may not change as a result of resizing"


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        pytest.param(changed("resources", to=BIGGER), [], id="resources"),
        pytest.param(changed("resizePolicy", to=[]), [], id="the policy"),
        pytest.param(
            changed("cpu", "max", to="8"),
            [f"spec: Forbidden: {ONLY}; changed: {VM}.cpu"],
            id="a maximum",
        ),
        pytest.param(
            changed("kernel", "image", to="other"),
            [f"spec: Forbidden: {ONLY}; changed: {VM}.kernel"],
            id="the image",
        ),
        pytest.param(
            changed("resources", "requests", "memory", to="256Mi"),
            [f'spec: Invalid value: "Guaranteed": {QOS}'],
            id="the class",
        ),
        pytest.param(
            without(STORED, ("spec", "virtualMachine", "resources", "limits", "cpu")),
            [
                f"{LIMITS}: Forbidden: resource limits cannot be removed",
                f'spec: Invalid value: "Guaranteed": {QOS}',
            ],
            id="a limit removed",
        ),
    ],
)
def test_updates_and_resizes(new: Object, expected: list[str]) -> None:
    assert [error.sentence() for error in validate_update(PODS, new, STORED)] == expected
    if not any("changed:" in sentence for sentence in expected):
        assert [error.sentence() for error in validate_pod_resize(new, STORED)] == expected


@pytest.mark.parametrize(
    ("resources", "field"),
    [
        ({"cpu": "1500m"}, f"{LIMITS}[cpu]"),
        ({"cpu": "5"}, f"{LIMITS}[cpu]"),
        ({"memory": "3Gi"}, f"{LIMITS}[memory]"),
        ({"memory": "513Mi"}, f"{LIMITS}[memory]"),
        ({"memory": "256Mi"}, f"{LIMITS}[memory]"),
    ],
)
def test_a_resize_to_a_size_the_vm_cannot_have(resources: Object, field: str) -> None:
    both = {**SIZE, **resources}
    new = changed("resources", to={"requests": both, "limits": both})
    for errors in (validate_pod_resize(new, STORED), validate_update(PODS, new, STORED)):
        assert field in [error.field for error in errors]


def test_a_vm_does_not_become_containers_nor_containers_a_vm() -> None:
    containers = default_object(PODS, evolve(raw_pod(None), ("spec", "containers"), [APP]))
    for new, old in ((STORED, containers), (containers, STORED)):
        said = [error.field for error in validate_pod_resize(new, old)]
        assert said == [VM, "spec.containers"]
        assert validate_update(PODS, new, old) != []


def test_a_resize_takes_resources_and_the_policy_and_drops_the_rest() -> None:
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    sent = {"resources": BIGGER, "resizePolicy": policy, "cpu": {"max": "64"}, "kernel": {}}
    prepared = prepare_resize(STORED, {"spec": {"virtualMachine": sent, "nodeName": "n2"}})
    expected = changed("resources", to=BIGGER)
    assert prepared == evolve(expected, ("spec", "virtualMachine", "resizePolicy"), policy)
    assert prepare_resize(STORED, {"spec": {}}) == STORED
    forgotten = prepare_resize(prepared, {"spec": {"virtualMachine": {"resources": BIGGER}}})
    assert forgotten == prepared
    assert keep_policies(prepared, expected) == prepared


def test_a_patch_with_an_unreadable_quantity() -> None:
    broken = changed("resources", "limits", "cpu", to="many")
    with pytest.raises(StatusError) as refused:
        take_object(PODS, broken, PLAIN_WRITE, patch=broken)
    assert [cause.field for cause in refused.value.causes] == ["patch"]


quantities = st.one_of(
    st.integers(-5, 300), st.sampled_from(["1", "1500m", "2Gi", "513Mi", "-1", "x", "", "1e3"]),
    st.none(), st.booleans(), st.lists(st.just(1), max_size=1),
)  # fmt: skip
parts = st.dictionaries(st.sampled_from(["max", "boot", "image", "cpu", "memory"]), quantities)
machines = st.dictionaries(
    st.sampled_from(["kernel", "disk", "cpu", "memory", "resources", "resizePolicy"]),
    st.one_of(
        parts,
        quantities,
        st.fixed_dictionaries({}, optional={"limits": parts, "requests": parts}),
    ),
)


@given(machines)
def test_anything_is_refused_with_a_field_or_accepted_and_never_raises(vm: Object) -> None:
    errors = create_errors(PODS, raw_pod(vm))
    assert all(error.field.startswith("spec") for error in errors)
    if not errors:
        assert lookup(default_object(PODS, raw_pod(vm)), "spec", "overhead", "memory")


@given(
    st.integers(1, 8000).filter(lambda milli: milli % 1000), st.integers(0, 3 * 2**30 + 12345)
)  # fmt: skip
def test_the_nearest_sizes_named_are_accepted(milli: int, amount: int) -> None:
    """Whoever follows the remedy gets the VM."""
    wished = {"cpu": f"{milli}m", "memory": str(amount)}
    size = {"cpu": {"max": 4}, "memory": {"max": "2Gi", "boot": "512Mi"}}
    pod = default_object(PODS, raw_pod(raw_vm(resources={"limits": wished}, **size)))
    for error in validate_create(PODS, pod):
        name = error.field.rpartition("[")[2].rstrip("]")
        for remedy in error.detail.rpartition(" nearest size")[2].split(" ", 2)[2].split(" and "):
            wish = {**SIZE, name: remedy}
            assert sentences(raw_pod(raw_vm(resources={"limits": wish}, **size))) == []
