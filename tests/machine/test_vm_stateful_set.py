"""A StatefulSet of virtual machines whose template gets other sizes, and the former ones again: the
same pods, QEMU processes and guests, which confirm each size; and its revisions are updated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from system.groups import start_time
from system.up import Up
from system.vm import READY_SECONDS, RESIZED_SECONDS, Vm, manifest, running_up_for_vms

pytestmark = [pytest.mark.workloads, pytest.mark.matrix]

PATH = "/apis/apps/v1/namespaces/default/statefulsets"
HELD = "livesize.dev/held"
MEMBERS = ("vm-0", "vm-1")


class Identity(NamedTuple):
    """What a pod keeps as long as nothing of it is restarted."""

    uid: str
    boot_id: str
    qemu_pid: int
    qemu_started: int
    restarts: int


@pytest.fixture
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up_for_vms(tmp_path_factory.mktemp("up")) as running:
        yield running


def make_set(up: Up) -> list[Vm]:
    spec = {
        "replicas": len(MEMBERS),
        "serviceName": "vm",
        "podManagementPolicy": "Parallel",  # their guests boot together
        "selector": {"matchLabels": {"app": "vm"}},
        "template": {
            "metadata": {"labels": {"app": "vm"}},
            "spec": manifest("vm", "1", "512Mi")["spec"],
        },
    }
    metadata = {"name": "vm", "annotations": {"resizeAction": "InPlaceResize"}}
    code, answer = up.request("POST", PATH, {"metadata": metadata, "spec": spec})
    assert code == 201, answer
    guests = [Vm(up, name) for name in MEMBERS]
    made = lambda: all("uid" in guest.pod["metadata"] for guest in guests)  # noqa: E731
    guests[0].until(made, "its pods are there")
    for guest in guests:
        guest.wait_ready(seconds=2 * READY_SECONDS)
    return guests


def read_set(up: Up) -> dict[str, Any]:
    found: dict[str, Any] = up.request("GET", f"{PATH}/vm")[1]
    return found


def resize(up: Up, guests: list[Vm], vcpus: int, memory_mib: int) -> str:
    """Change the template, and wait; the revision that all pods are of then."""
    size = {"cpu": str(vcpus), "memory": f"{memory_mib}Mi"}
    changed = {"resources": {"requests": size, "limits": size}}
    patch = {"spec": {"template": {"spec": {"virtualMachine": changed}}}}
    code, answer = up.request("PATCH", f"{PATH}/vm", patch, "application/merge-patch+json")
    assert code == 200, answer
    assert HELD in answer["metadata"]["annotations"], "in the very write"

    def is_released() -> bool:
        return HELD not in read_set(up)["metadata"]["annotations"]

    guests[0].until(is_released, "the hold is released", len(guests) * RESIZED_SECONDS)
    return wait_updated(up, guests)


def wait_updated(up: Up, guests: list[Vm]) -> str:
    """Its status says so, and so do the labels of its pods; it is as its user left it."""

    def is_updated() -> bool:
        found = read_set(up)
        status, generation = found["status"], found["metadata"]["generation"]
        is_seen = status.get("observedGeneration") == generation
        is_one = status["currentRevision"] == status["updateRevision"]
        counts = {status.get(name) for name in ("readyReplicas", "updatedReplicas")}
        return is_seen and is_one and counts == {len(guests)}

    guests[0].until(is_updated, "its revisions are updated")
    found = read_set(up)
    revision = str(found["status"]["updateRevision"])
    labels = {guest.pod["metadata"]["labels"]["controller-revision-hash"] for guest in guests}
    assert labels == {revision}
    assert found["spec"]["updateStrategy"]["rollingUpdate"] == {"partition": 0}
    return revision


def identity(guest: Vm) -> Identity:
    status, qemu = guest.status, int(guest.status["pid"])
    uid = str(guest.pod["metadata"]["uid"])
    return Identity(uid, guest.boot_id(), qemu, start_time(qemu), status["restartCount"])


def check(guests: list[Vm], vcpus: int, memory_mib: int) -> None:
    for guest in guests:
        guest.check(vcpus, memory_mib)
        told = guest.status["guest"]
        assert (told["vcpusOnline"], told["memoryPlugged"]) == (vcpus, f"{memory_mib}Mi"), told


def test_the_guests_of_a_stateful_set_grow_and_shrink_by_its_template(up: Up) -> None:
    guests = make_set(up)
    before, first = [identity(guest) for guest in guests], wait_updated(up, guests)
    check(guests, 1, 512)
    totals = [guest.memory_total() for guest in guests]

    second = resize(up, guests, 2, 768)
    assert second != first
    check(guests, 2, 768)
    assert [identity(guest) for guest in guests] == before
    grown = [guest.memory_total() for guest in guests]
    assert all(now > was for now, was in zip(grown, totals, strict=True)), (totals, grown)

    assert resize(up, guests, 1, 512) == first, "the template is the former one"
    check(guests, 1, 512)
    assert [identity(guest) for guest in guests] == before
    assert [guest.memory_total() for guest in guests] == totals
