"""Which requests and limits `livesize resize` sends for what a person typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.api.objects import Object
from livesize.api.resources import ResourceName, parse_resources
from livesize.cli.resize.plan import (
    RequestedSize,
    ResizePatch,
    ResizeRefusal,
    describe,
    parse_requested_size,
    plan_patch,
    undo_options,
)

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY


def pod(*containers: tuple[str, str, str]) -> Object:
    """Containers as (name, cpu request, cpu limit)."""
    made = []
    for name, request, limit in containers:
        resources: Object = {}
        if request:
            resources["requests"] = {"cpu": request}
        if limit:
            resources["limits"] = {"cpu": limit}
        made.append({"name": name, "resources": resources})
    return {"spec": {"containers": made}}


def wish(word: str = "", request: str = "", limit: str = "") -> RequestedSize:
    read = parse_requested_size(word, request, limit)
    assert isinstance(read, RequestedSize)
    return read


@pytest.mark.parametrize(
    ("request_", "limit", "asked", "sent"),
    [
        ("1", "1", "2", {"requests": "2", "limits": "2"}),
        ("1", "1000m", "500m", {"requests": "500m", "limits": "500m"}),
        ("500m", "1", "2", {"limits": "2"}),
        ("500m", "1", "600m", {"limits": "600m"}),
        ("500m", "1", "500m", {"limits": "500m"}),
        ("500m", "1", "200m", {"requests": "200m", "limits": "200m"}),
        ("500m", "", "2", {"requests": "2"}),
        ("500m", "1", "250m:2", {"requests": "250m", "limits": "2"}),
        ("500m", "1", "250m:", {"requests": "250m"}),
        ("500m", "1", ":2", {"limits": "2"}),
        ("1", "1", "2000m", {"requests": "2", "limits": "2"}),
    ],
    ids=[
        "guaranteed grows on both sides",
        "guaranteed shrinks on both sides, equal by value",
        "burstable grows its limit only",
        "burstable shrinks its limit only",
        "a limit may come down to the request",
        "a request above the new limit follows it",
        "only a request: the request",
        "request and limit by name",
        "request by name",
        "limit by name",
        "quantities are sent as Kubernetes writes them",
    ],
)
def test_a_size_keeps_the_shape(
    request_: str, limit: str, asked: str, sent: dict[str, str]
) -> None:
    patch = plan_patch(pod(("app", request_, limit)), "", {CPU: wish(asked)})
    assert isinstance(patch, ResizePatch)
    resources = {side: {"cpu": quantity} for side, quantity in sent.items()}
    assert patch.body() == {"spec": {"containers": [{"name": "app", "resources": resources}]}}


@pytest.mark.parametrize(
    ("request_", "limit", "asked", "sent"),
    [
        ("1", "1", "+500m", {"requests": "1500m", "limits": "1500m"}),
        ("1", "1", "-250m", {"requests": "750m", "limits": "750m"}),
        ("500m", "1", "+1", {"limits": "2"}),
        ("500m", "1", "-600m", {"requests": "400m", "limits": "400m"}),
        ("500m", "", "+100m", {"requests": "600m"}),
        ("500m", "1", "+100m:", {"requests": "600m"}),
        ("500m", "1", "-100m:+1", {"requests": "400m", "limits": "2"}),
        ("500m", "1", "250m:+1", {"requests": "250m", "limits": "2"}),
    ],
    ids=[
        "guaranteed grows on both sides",
        "guaranteed shrinks on both sides",
        "burstable: the limit",
        "a request above the new limit follows it",
        "only a request: the request",
        "one side by name",
        "both sides by name",
        "one side is a size, the other a change",
    ],
)
def test_a_sign_is_a_change_of_what_is_desired_now(
    request_: str, limit: str, asked: str, sent: dict[str, str]
) -> None:
    made = pod(("app", request_, limit))
    made["metadata"] = {"resourceVersion": "17"}
    patch = plan_patch(made, "", {CPU: wish(asked)})
    assert isinstance(patch, ResizePatch)
    resources = {side: {"cpu": quantity} for side, quantity in sent.items()}
    assert patch.resources == resources
    assert patch.body()["metadata"] == {"resourceVersion": "17"}, "a change of just this version"


@pytest.mark.parametrize(
    ("request_", "limit", "asked", "words"),
    [
        ("500m", "500m", "-500m", "the cpu size is 500m, and -500m would leave nothing of it"),
        ("500m", "500m", "-2", "the cpu size is 500m, and -2 would leave nothing of it"),
        ("500m", "", ":+1", "there is no cpu limit that +1 could change; say how large it is"),
    ],
)
def test_a_change_that_cannot_be(request_: str, limit: str, asked: str, words: str) -> None:
    refusal = plan_patch(pod(("app", request_, limit)), "", {CPU: wish(asked)})
    assert refusal == ResizeRefusal(words)


def test_a_change_of_memory_without_a_unit() -> None:
    made: Object = {"spec": {"containers": [{"name": "app"}]}}
    refusal = plan_patch(made, "", {MEMORY: wish("+64")})
    assert refusal == ResizeRefusal("memory of 64 bytes; did you mean +64Gi?")


@pytest.mark.parametrize("word", ["+", "-", "++1", "+-1", "--1", "+x"])
def test_signs_that_say_nothing(word: str) -> None:
    assert isinstance(parse_requested_size(word, "", ""), ResizeRefusal)


@pytest.mark.parametrize(
    ("word", "request_", "limit", "sentence"),
    [
        ("1", "1", "", "not both"),
        (":", "", "", "':' needs"),
        ("1:2:3", "", "", "not a quantity"),
        ("much", "", "", "'much' is not a quantity"),
        ("", "", "2 Gi", "not a quantity"),
    ],
)
def test_words_that_say_no_size_are_refused(
    word: str, request_: str, limit: str, sentence: str
) -> None:
    read = parse_requested_size(word, request_, limit)
    assert isinstance(read, ResizeRefusal)
    assert sentence in read.sentence


@pytest.mark.parametrize(
    ("given_pod", "container", "sentence"),
    [
        (pod(("a", "1", ""), ("b", "1", "")), "", "say which with -c (a, b)"),
        (pod(("a", "1", "")), "z", "no container 'z'; it has a"),
        (pod(("a", "", "")), "", "--request-cpu or --limit-cpu"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_do(
    given_pod: Object, container: str, sentence: str
) -> None:
    refusal = plan_patch(given_pod, container, {CPU: wish("1")})
    assert isinstance(refusal, ResizeRefusal)
    assert sentence in refusal.sentence


def test_only_the_named_container_and_the_named_resources_are_sent() -> None:
    both = {CPU: wish("2"), ResourceName.MEMORY: wish(limit="1Gi")}
    patch = plan_patch(pod(("a", "1", "1"), ("b", "1", "1")), "b", both)
    assert patch == ResizePatch(
        "b", {"requests": {"cpu": "2"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    )
    assert describe(patch) == "cpu request 2, cpu limit 2, memory limit 1Gi"


def test_the_way_back_names_the_old_size() -> None:
    patch = ResizePatch("b", {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}})
    before = parse_resources({"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}})
    assert undo_options(patch, before) == "-c b --request-cpu 500m --limit-cpu 1"


Milli = st.integers(1, 64_000)


@given(request_=Milli, room=st.integers(0, 64_000), has_limit=st.booleans(), wanted=Milli)
def test_whatever_is_asked_request_stays_within_limit_and_guaranteed_stays_so(
    request_: int, room: int, has_limit: bool, wanted: int
) -> None:
    limit = f"{request_ + room}m" if has_limit else ""
    before = pod(("app", f"{request_}m", limit))
    patch = plan_patch(before, "", {CPU: wish(f"{wanted}m")})
    assert isinstance(patch, ResizePatch)
    old = before["spec"]["containers"][0]["resources"]
    merged = {side: {**old.get(side, {}), **patch.resources.get(side, {})} for side in old}
    assert patch.resources.keys() <= old.keys()
    new = parse_resources(merged)
    assert new.requests.cpu_milli is not None
    if has_limit:
        assert new.limits.cpu_milli == wanted
        assert new.requests.cpu_milli <= wanted
        assert (new.requests == new.limits) or room > 0
    else:
        assert new.requests.cpu_milli == wanted


def test_a_virtual_machine_needs_no_name_and_is_patched_in_its_own_place() -> None:
    size = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    vm = {"spec": {"containers": [], "virtualMachine": {"resources": size}}}
    patch = plan_patch(vm, "", {CPU: wish("4")})
    assert isinstance(patch, ResizePatch)
    wanted = {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}}
    assert patch.body() == {"spec": {"virtualMachine": {"resources": wanted}}}
    assert plan_patch(vm, "vm", {CPU: wish("4")}) == patch
    assert undo_options(patch, parse_resources(size)) == "--request-cpu 1 --limit-cpu 1"
    # A container that happens to have that name is still a container.
    container = plan_patch(pod(("vm", "1", "1")), "", {CPU: wish("4")})
    assert isinstance(container, ResizePatch)
    assert container.body() == {"spec": {"containers": [{"name": "vm", "resources": wanted}]}}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("1", "memory of 1 byte; did you mean 1Gi?"),
        ("4", "memory of 4 bytes; did you mean 4Gi?"),
        ("512", "memory of 512 bytes; did you mean 512Mi?"),
        ("1024", "memory of 1024 bytes; did you mean 1024Mi?"),
        ("512m", "memory of a fraction of a byte; write it like 512Mi or 4Gi"),
        ("0.5", "memory of a fraction of a byte; write it like 512Mi or 4Gi"),
        ("100k", "memory of 100000 bytes; did you mean 100Mi?"),
        ("512Ki", "memory of 524288 bytes; did you mean 512Mi?"),
        ("64Mi:2", "memory of 2 bytes; did you mean 2Gi?"),
        ("2:64Mi", "memory of 2 bytes; did you mean 2Gi?"),
    ],
)
def test_a_forgotten_unit_of_memory_is_noticed(asked: str, sentence: str) -> None:
    sized = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]}}
    assert plan_patch(sized, "", {MEMORY: wish(asked)}) == ResizeRefusal(sentence)


@pytest.mark.parametrize("asked", ["1Mi", "1M:2M", "0:1Mi", "1048576"])
def test_small_memory_that_may_be_meant_is_sent(asked: str) -> None:
    sized = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"memory": "1Gi"}}}]}}
    assert isinstance(plan_patch(sized, "", {MEMORY: wish(asked)}), ResizePatch)


def test_a_sidecar_is_named_and_patched_in_its_own_place() -> None:
    seen = pod(("db", "1", "1"))
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    seen["spec"]["initContainers"] = [
        {"name": "init", "resources": resources},
        {"name": "proxy", "restartPolicy": "Always", "resources": resources},
    ]
    alone = plan_patch(seen, "", {CPU: wish("2")})
    assert isinstance(alone, ResizePatch)
    assert alone.container == "db"
    patch = plan_patch(seen, "proxy", {CPU: wish("2")})
    assert isinstance(patch, ResizePatch)
    sent = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
    assert patch.body() == {"spec": {"initContainers": [{"name": "proxy", "resources": sent}]}}
    refusal = plan_patch(seen, "init", {CPU: wish("2")})
    assert refusal == ResizeRefusal("the pod has no container 'init'; it has db, proxy")
