"""kubectl 1.32 and a VM pod with NUMA cells: how a change is said, and what refusals say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from system.up import Up

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

NAME = "numa1"
FORCED = ("--server-side", "--force-conflicts")


@pytest.fixture(scope="module")
def up(fake_up: Up) -> Up:
    return fake_up


def both(memory: str) -> dict[str, Any]:
    size = {"cpu": "1", "memory": memory}
    return {"requests": size, "limits": size}


def manifest(total: str = "512Mi", second: str = "256Mi", **vm: Any) -> dict[str, Any]:
    cells = [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": second}]
    machine = {
        "kernel": {"image": "guest.vmlinuz"},
        "cpu": {"max": "4"},
        "memory": {"max": "2Gi"},
        "numa": {"cells": cells},
        "resources": both(total),
        **vm,
    }
    spec = {"terminationGracePeriodSeconds": 0, "virtualMachine": machine}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec}


def change(memory: str, *cells: tuple[int, str]) -> dict[str, Any]:
    vm: dict[str, Any] = {"resources": both(memory)}
    if cells:
        vm["numa"] = {"cells": [{"id": number, "memory": text} for number, text in cells]}
    return {"spec": {"virtualMachine": vm}}


@pytest.fixture
def vm(up: Up) -> Any:
    up.kubectl("apply", "-f", "-", stdin=json.dumps(manifest()))
    yield NAME
    up.kubectl("delete", "pod", NAME, "--now")


def cells(up: Up) -> list[tuple[int, str, str]]:
    pod = json.loads(up.kubectl("get", "pod", NAME, "-o", "json").stdout)
    listed = pod["spec"]["virtualMachine"]["numa"]["cells"]
    return [(one["id"], one["memory"], one["boot"]) for one in listed]


BEFORE = [(0, "256Mi", "256Mi"), (1, "256Mi", "256Mi")]
AFTER = [(0, "256Mi", "256Mi"), (1, "512Mi", "256Mi")]


def test_a_patch_of_the_resize_subresource_names_its_cell(up: Up, vm: str) -> None:
    assert cells(up) == BEFORE
    patch = json.dumps(change("768Mi", (1, "512Mi")))
    up.kubectl("patch", "pod", vm, "--subresource=resize", "-p", patch)
    assert cells(up) == AFTER
    up.kubectl("patch", "pod", vm, "-p", json.dumps(change("512Mi", (1, "256Mi"))))
    assert cells(up) == BEFORE


@pytest.mark.parametrize("how", [(), FORCED], ids=["client", "server"])
def test_apply_of_another_size_of_a_cell(up: Up, vm: str, how: tuple[str, ...]) -> None:
    """The manifest does not say what the cells boot with."""
    text = json.dumps(manifest("768Mi", "512Mi"))
    up.kubectl("apply", *how, "-f", "-", stdin=text)
    assert cells(up) == AFTER
    again = up.kubectl("apply", *how, "-f", "-", stdin=text).stdout
    assert "unchanged" in again or "serverside-applied" in again


def test_server_side_apply_of_one_cell(up: Up, vm: str) -> None:
    part = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": vm}}
    part |= change("768Mi", (1, "512Mi"))
    words = ("apply", *FORCED, "--field-manager=sizer", "-f", "-")
    up.kubectl(*words, stdin=json.dumps(part))
    assert cells(up) == AFTER


def test_set_resources_cannot_say_the_cell(up: Up, vm: str) -> None:
    words = ("--limits=memory=768Mi", "--requests=memory=768Mi")
    done = up.kubectl("set", "resources", f"pod/{vm}", *words, check=False)
    assert done.returncode == 1
    assert f"livesize resize pod/{vm} --numa 1=512Mi" in done.stderr
    assert cells(up) == BEFORE


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        (change("768Mi"), "livesize resize pod/numa1 --numa 1=512Mi"),
        (change("768Mi", (1, "768Mi")), "its NUMA cells have 1Gi together"),
        (change("768Mi", (4, "256Mi")), "cells may not be added or removed"),
        (change("384Mi", (1, "128Mi")), "the nearest size is 256Mi"),
    ],
    ids=["names no cell", "wrong sum", "unknown cell", "below boot"],
)
def test_a_refused_patch_says_how(up: Up, vm: str, patch: dict[str, Any], why: str) -> None:
    done = up.kubectl(
        *("patch", "pod", vm, "--subresource=resize", "-p", json.dumps(patch)), check=False
    )
    assert done.returncode == 1
    assert why in done.stderr
    assert cells(up) == BEFORE


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({"memory": {"technology": "magic"}}, 'supported values: "auto", "virtio-mem"'),
        ({"memory": {"technology": "balloon"}}, "a balloon takes memory of whichever cell has it"),
        (
            {"numa": None, "memory": {"technology": "dimm", "boot": "500Mi"}},
            "comes in modules of 128, 512, 1024 and 2048Mi: the nearest sizes are 500Mi and 628Mi",
        ),
        (
            {"numa": None, "memory": {"technology": "balloon", "min": "1Gi"}},
            "must be at least 1Gi, the least that its balloon leaves",
        ),
        (
            {"cpu": {"max": "3"}},
            "vCPUs go to 2 cells in equal blocks: the nearest sizes are 2 and 4",
        ),
        ({"cpu": {"max": "6", "cores": 4}}, "whole sockets of 4"),
    ],
    ids=["no technology", "balloon", "modules", "least", "blocks", "sockets"],
)
def test_a_vm_that_cannot_be_is_not_made(up: Up, machine: dict[str, Any], why: str) -> None:
    text = json.dumps(manifest(**machine))
    done = up.kubectl("create", "-f", "-", stdin=text, check=False)
    assert done.returncode == 1
    assert why in done.stderr


def test_every_field_is_explained(up: Up) -> None:
    for field, words in {
        "numa.cells.memory": "What the guest has in this cell",
        "numa.cells.boot": "What the cell boots with",
        "memory.technology": "How the memory changes",
        "memory.min": "The least that a balloon leaves",
        "cpu.cores": "whole sockets",
    }.items():
        told = up.kubectl("explain", f"pod.spec.virtualMachine.{field}").stdout
        assert words in " ".join(told.split())
    told = up.kubectl("explain", "pod.spec.virtualMachine", "--recursive").stdout
    assert "cells" in told
