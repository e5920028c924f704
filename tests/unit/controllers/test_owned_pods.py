"""What workloads have in common: pods counted and ranked, objects claimed, writes in batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from livesize.api.errors import StatusError
from livesize.api.kinds.config_map import CONFIG_MAPS
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, lookup, name_of
from livesize.api.times import format_time
from livesize.apiserver.direct_client import DirectClient
from livesize.client.informer import Delta
from livesize.controllers.kit.batches import at_once, slow_start
from livesize.controllers.kit.loop import Controller
from livesize.controllers.kit.owned_pods import (
    DELETION_COST,
    first_to_go,
    is_active,
    make_pod,
    next_available_seconds,
    seconds_to_available,
)
from livesize.controllers.kit.ownership import Claim, member_keys
from livesize.controllers.kit.reader import Reader
from livesize.controllers.kit.result import Done, Result
from livesize.controllers.kit.watches import Watch, own_key
from livesize.controllers.kit.writer import ApiWriter
from livesize.machinery.context import Context
from unit.apiserver.conftest import IDENTITIES, Rig
from unit.controllers.at_work import at_work

NOW = 1_700_000_000.0
LISTED = "/api/v1/namespaces/default/pods"
OWNERS = "/api/v1/namespaces/default/configmaps"


def pod(name: str = "a", **facts: Any) -> Any:
    """``node``, ``phase``, ``ready`` (for so many seconds), ``cost``, ``restarts``, ``age``."""
    metadata: Object = {"name": name, "uid": name}
    metadata["creationTimestamp"] = format_time(NOW - facts.get("age", 1000))
    if "cost" in facts:
        metadata["annotations"] = {DELETION_COST: facts["cost"]}
    if facts.get("leaving"):
        metadata["deletionTimestamp"] = format_time(NOW)
    status: Object = {"phase": facts.get("phase", "Running")}
    ready = facts.get("ready", 1000)
    since = {} if ready is None else {"lastTransitionTime": format_time(NOW - ready)}
    status["conditions"] = [{"type": "Ready", "status": str(ready is not None), **since}]
    status["containerStatuses"] = [{"name": "app", "restartCount": facts.get("restarts", 0)}]
    return {"metadata": metadata, "spec": {"nodeName": facts.get("node", "n1")}, "status": status}


@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param({"node": ""}, {"phase": "Pending", "ready": None}, id="unassigned"),
        pytest.param({"phase": "Pending"}, {"phase": "Unknown"}, id="pending"),
        pytest.param({"phase": "Unknown"}, {"ready": None}, id="unknown"),
        pytest.param({"ready": None, "cost": "9"}, {"cost": "-9"}, id="not ready"),
        pytest.param({"cost": "-1"}, {"ready": 1}, id="cheap"),
        pytest.param({"cost": "no"}, {"cost": "1", "ready": 1}, id="no number is no cost"),
        pytest.param({}, {"node": "n2", "ready": 1}, id="doubled up"),
        pytest.param({"ready": 10}, {"restarts": 5}, id="ready for a shorter time"),
        pytest.param({"restarts": 2, "age": 10**6}, {"restarts": 1}, id="restarted more often"),
        pytest.param({"age": 1}, {"age": 1000}, id="younger"),
    ],
)
def test_which_pod_goes_first(first: Object, last: Object) -> None:
    pods = [pod("b", **last), pod("c", **first)]
    related = [*pods, pod("other"), pod("another")]
    assert first_to_go(pods, related, NOW) == [pods[1], pods[0]]


def test_among_pods_of_about_one_age_chance_decides() -> None:
    pods = [pod("b", ready=400, age=600), pod("a", ready=500, age=900)]
    assert first_to_go(pods, pods, NOW) == [pods[1], pods[0]]


FACTS = st.fixed_dictionaries(
    {},
    optional={
        "node": st.sampled_from(["", "n1", "n2"]),
        "phase": st.sampled_from(["Pending", "Running", "Unknown"]),
        "ready": st.sampled_from([None, 1, 100]),
        "cost": st.sampled_from(["-5", "0", "7", "words"]),
        "restarts": st.integers(0, 2),
    },
)


@settings(max_examples=50)
@given(st.lists(FACTS, max_size=6))
def test_no_pod_that_serves_goes_before_one_that_does_not(facts: list[Object]) -> None:
    pods = [pod(str(index), **one) for index, one in enumerate(facts)]
    ordered = first_to_go(pods, pods, NOW)
    assert sorted(map(name_of, ordered)) == [str(index) for index in range(len(facts))]
    placed = [bool(one["spec"]["nodeName"]) for one in ordered]
    assert placed == sorted(placed)


@pytest.mark.parametrize(("facts", "seconds", "left"), [
    ({"ready": 5}, 0, 0.0),
    ({"ready": 5}, 5, 0.0),
    ({"ready": 5}, 8, 3.0),
    ({"ready": None}, 0, None),
])  # fmt: skip
def test_when_a_pod_is_available(facts: Object, seconds: int, left: float | None) -> None:
    assert seconds_to_available(pod(**facts), seconds, NOW) == left


def test_the_next_pod_to_be_available_says_when_to_look_again() -> None:
    pods = [pod("a", ready=9), pod("b", ready=7), pod("c", ready=None), pod("d", ready=2)]
    assert next_available_seconds(pods, 8, NOW) == 1.0
    assert next_available_seconds(pods, 1, NOW) is None


@pytest.mark.parametrize(("facts", "active"), [
    ({}, True),
    ({"phase": "Failed"}, False),
    ({"phase": "Succeeded"}, False),
    ({"leaving": True}, False),
])  # fmt: skip
def test_which_pods_are_active(facts: Object, active: bool) -> None:
    assert is_active(pod(**facts)) is active


def test_a_pod_has_what_its_template_says_and_an_owner() -> None:
    template = {
        "metadata": {"labels": {"app": "a"}, "annotations": {"b": "c"}, "name": "x", "uid": "y"},
        "spec": {"containers": []},
    }
    owner = {"metadata": {"name": "web", "uid": "u"}}
    assert make_pod(CONFIG_MAPS, owner, template) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-",
            "labels": {"app": "a"},
            "annotations": {"b": "c"},
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": "web",
                    "uid": "u",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"containers": []},
    }


class Writes:
    """Counts how many writes are under way at once; those of ``refused`` fail."""

    def __init__(self, refused: set[int]) -> None:
        self.refused, self.begun, self.most = refused, 0, []  # type: ignore[var-annotated]

    async def write(self, item: int) -> None:
        self.begun += 1
        before = self.begun
        await asyncio.sleep(0)
        self.most.append(self.begun if before == 1 else 0)
        self.begun = 0
        if item in self.refused:
            raise StatusError(403, "Forbidden", f"{item} is refused")


@pytest.mark.parametrize(("refused", "batches"), [
    (set(), [1, 2, 4, 3]),
    ({0}, [1]),
    ({1, 2}, [1, 2]),
    ({5}, [1, 2, 4]),
])  # fmt: skip
async def test_batches_grow_until_one_fails(refused: set[int], batches: list[int]) -> None:
    writes = Writes(refused)
    expected = pytest.raises(StatusError, match=str(min(refused))) if refused else nullcontext()
    with expected:
        await slow_start(range(10), writes.write)
    assert [size for size in writes.most if size] == batches


async def test_one_that_fails_keeps_no_other_from_being_written() -> None:
    writes = Writes({0})
    with pytest.raises(StatusError):
        await at_once(range(5), writes.write)
    assert len(writes.most) == 5


def selects(owner: Object, obj: Object) -> bool:
    wanted = lookup(owner, "data", "selector")
    return bool(wanted and lookup(obj, "metadata", "labels", "app") == wanted)


def claiming(_context: Context) -> Controller[tuple[str, str]]:
    """Each config map claims the pods whose label ``app`` is its data's ``selector``."""

    async def reconcile(key: tuple[str, str], read: Reader, write: ApiWriter) -> Result:
        owner = read.get(CONFIG_MAPS, key[1], key[0])
        if owner is not None:
            await Claim(CONFIG_MAPS, owner, PODS, selects).take(read, write)
        return Done()

    watches = (Watch(CONFIG_MAPS, own_key), Watch(PODS, member_keys(CONFIG_MAPS, selects)))
    return Controller(name="claiming", component="test", watches=watches, reconcile=reconcile)


@pytest.fixture
async def rig(rig: Rig) -> AsyncIterator[Rig]:
    client = DirectClient(rig.service, IDENTITIES["controller"])
    task = asyncio.create_task(at_work(client, claiming))
    yield rig
    task.cancel()
    await asyncio.wait([task])


async def owners(rig: Rig, name: str) -> list[str]:
    found = (await rig.get(f"{LISTED}/{name}")).json
    return [one["name"] for one in lookup(found, "metadata", "ownerReferences", default=[])]


async def until_owned(rig: Rig, name: str, expected: list[str]) -> None:
    async with asyncio.timeout(5):
        while await owners(rig, name) != expected:
            await asyncio.sleep(0.01)


async def add_owner(rig: Rig, name: str, selector: str, **metadata: Any) -> None:
    body = {"metadata": {"name": name, **metadata}, "data": {"selector": selector}}
    assert (await rig.request("POST", OWNERS, body)).status == 201


async def test_orphans_are_adopted_and_released_as_labels_say(rig: Rig) -> None:
    await rig.add_pod("a")
    await add_owner(rig, "first", "a")
    await until_owned(rig, "a", ["first"])
    await rig.patch(f"{LISTED}/a", {"metadata": {"labels": {"app": "b"}}})
    await until_owned(rig, "a", [])
    await add_owner(rig, "second", "b")
    await until_owned(rig, "a", ["second"])
    await rig.patch(f"{LISTED}/a", {"metadata": {"labels": {"app": "a"}}})
    await until_owned(rig, "a", ["first"])


async def test_an_owner_that_goes_adopts_and_releases_nothing(rig: Rig) -> None:
    await rig.add_pod("mine")
    await add_owner(rig, "leaving", "mine", finalizers=["example.com/stay"])
    await until_owned(rig, "mine", ["leaving"])
    await rig.request("DELETE", f"{OWNERS}/leaving")
    await rig.patch(f"{LISTED}/mine", {"metadata": {"labels": {"app": "other"}}})
    await rig.add_pod("new")
    await rig.patch(f"{LISTED}/new", {"metadata": {"labels": {"app": "mine"}}})
    await rig.add_pod("free")
    await add_owner(rig, "staying", "free")
    await until_owned(rig, "free", ["staying"])
    assert (await owners(rig, "mine"), await owners(rig, "new")) == (["leaving"], [])


async def test_an_owner_that_a_cache_shows_and_the_server_does_not_adopts_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    async def newest(*given: Any) -> Object | None:
        asked.append(given)
        return None if len(asked) < 3 else {"metadata": {"name": "first", "uid": "another"}}

    monkeypatch.setattr(Reader, "newest", newest)
    await rig.add_pod("a")
    await add_owner(rig, "first", "a")
    async with asyncio.timeout(5):
        while len(asked) < 5:
            await asyncio.sleep(0.01)
    assert await owners(rig, "a") == []


async def test_an_orphan_that_only_reports_brings_no_key(rig: Rig) -> None:
    """1,000 workloads beside a pod that nobody owns: its status is not matched against each."""
    asked = []

    def noted(owner: Object, obj: Object) -> bool:
        asked.append(name_of(owner))
        return True

    class OneOwner:
        def list(self, *_given: Any) -> list[Object]:
            return [{"metadata": {"name": "first"}}]

    keys: Any = member_keys(CONFIG_MAPS, noted)
    old, new = pod("a", ready=None), pod("a")
    assert list(keys(Delta(old, new), OneOwner())) == []
    assert not asked
    labelled = {**new, "metadata": {**new["metadata"], "labels": {"app": "b"}}}
    assert list(keys(Delta(new, labelled), OneOwner())) == [("", "first")]
