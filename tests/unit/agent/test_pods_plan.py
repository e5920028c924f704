"""What happens next to one pod: table by rule, and that a plan never restarts without a reason."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.pods.plan import (
    GO_ON,
    ContainerFacts,
    CrashBackoff,
    Exited,
    FinishPod,
    Idle,
    Missing,
    PodFacts,
    PodPlan,
    RemovePod,
    Running,
    RunPod,
    Standing,
    StartContainer,
    StopContainer,
    is_initialized,
    plan_pod,
    starts_at,
    stop_order,
)
from livesize.api.restart_policy import RestartPolicy, RestartRule

NOW = 1000.0
BACKOFF = CrashBackoff(10.0, 300.0)
ALWAYS, ON_FAILURE, NEVER = RestartPolicy.ALWAYS, RestartPolicy.ON_FAILURE, RestartPolicy.NEVER


def facts(
    *containers: ContainerFacts,
    policy: RestartPolicy = ALWAYS,
    standing: Standing = Standing.ADMITTED,
    has_group: bool = True,
) -> PodFacts:
    return PodFacts(standing, policy, containers, has_group, NOW, BACKOFF)


def running(name: str = "app", **more: object) -> ContainerFacts:
    return ContainerFacts(name, Running(), **more)  # type: ignore[arg-type]


def missing(name: str = "app", **more: object) -> ContainerFacts:
    return ContainerFacts(name, Missing(), **more)  # type: ignore[arg-type]


def exited(code: int = 1, ago: float = 0.0, name: str = "app", **more: object) -> ContainerFacts:
    return ContainerFacts(name, Exited(code, NOW - ago), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        pytest.param(
            facts(missing(), has_group=False),
            RunPod(True, (StartContainer("app", 0),), None),
            id="new pod",
        ),
        pytest.param(facts(running()), RunPod(False, (), None), id="all is well"),
        pytest.param(
            facts(exited(exits_in_a_row=1)),
            RunPod(False, (StartContainer("app", 1),), None),
            id="the first exit restarts at once",
        ),
        pytest.param(
            facts(exited(ago=4, exits_in_a_row=2, attempt=1)),
            RunPod(False, (), 6.0),
            id="the second waits ten seconds from the exit",
        ),
        pytest.param(
            facts(exited(ago=20, exits_in_a_row=3, attempt=2)),
            RunPod(False, (StartContainer("app", 3),), None),
            id="the third twenty",
        ),
        pytest.param(
            facts(exited(ago=0, exits_in_a_row=50)),
            RunPod(False, (), 300.0),
            id="never more than five minutes",
        ),
        pytest.param(
            facts(missing(not_before=NOW + 7)),
            RunPod(False, (), 7.0),
            id="a start that failed waits before the next try",
        ),
        pytest.param(
            facts(exited(0), running("side"), policy=ON_FAILURE),
            RunPod(False, (), None),
            id="OnFailure leaves a success alone",
        ),
        pytest.param(
            facts(exited(0), exited(0, name="side"), policy=ON_FAILURE),
            FinishPod(succeeded=True),
            id="all succeeded",
        ),
        pytest.param(
            facts(exited(0), exited(3, name="side"), policy=NEVER),
            FinishPod(succeeded=False),
            id="one failed for good",
        ),
        pytest.param(
            facts(running(definition_changed=True, attempt=4)),
            RunPod(False, (StartContainer("app", 5, stop_first=True),), None),
            id="a changed definition restarts",
        ),
        pytest.param(
            facts(exited(0, definition_changed=True), policy=NEVER),
            RunPod(False, (StartContainer("app", 1),), None),
            id="what a resize stopped starts again whatever the policy",
        ),
        pytest.param(facts(running(), standing=Standing.LEAVING), RemovePod(), id="deleted"),
        pytest.param(facts(missing(), standing=Standing.REJECTED), Idle(), id="rejected"),
        pytest.param(facts(exited(), standing=Standing.ENDED), Idle(), id="ended for good"),
    ],
)
def test_rules(given: PodFacts, plan: PodPlan) -> None:
    assert plan_pod(given) == plan


def first(one: ContainerFacts, *, stays: bool = False, **more: object) -> ContainerFacts:
    """An init container."""
    return msgspec.structs.replace(one, is_init=True, stays=stays, **more)


def with_init(
    starting: list[ContainerFacts], *apps: ContainerFacts, policy: RestartPolicy = ALWAYS
) -> PodFacts:
    return msgspec.structs.replace(facts(*apps, policy=policy), starting=tuple(starting))


def lost() -> ContainerFacts:
    """It ran when the machine went down."""
    return exited(255, exits_in_a_row=1, before_boot=True)


SIDECAR = first(running("side"), stays=True)


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        pytest.param(
            with_init([first(missing("one")), first(missing("two"))], missing()),
            RunPod(False, (StartContainer("one", 0),), None),
            id="the first init container alone",
        ),
        pytest.param(
            with_init([first(exited(0, name="one")), first(missing("two"))], missing()),
            RunPod(False, (StartContainer("two", 0),), None),
            id="then the second",
        ),
        pytest.param(
            with_init([first(running("one")), first(missing("two"))], missing()),
            RunPod(False, (), None),
            id="which waits for the first",
        ),
        pytest.param(
            with_init([first(exited(0, name="one"))], missing()),
            RunPod(False, (StartContainer("app", 0),), None),
            id="then the others",
        ),
        pytest.param(
            with_init([first(exited(2, name="one", exits_in_a_row=1))], missing()),
            RunPod(False, (StartContainer("one", 1),), None),
            id="one that failed is tried again",
        ),
        pytest.param(
            with_init([first(exited(2, name="one"))], missing(), policy=NEVER),
            FinishPod(succeeded=False),
            id="unless the pod never restarts anything",
        ),
        pytest.param(
            with_init([first(missing("one"))], running()),
            RunPod(False, (), None),
            id="not again once the pod has begun",
        ),
        pytest.param(
            with_init([first(running("side"), stays=True, has_started=False)], missing()),
            RunPod(False, (), None),
            id="a sidecar has to have started",
        ),
        pytest.param(
            with_init([SIDECAR], missing()),
            RunPod(False, (StartContainer("app", 0),), None),
            id="and is not waited for any longer",
        ),
        pytest.param(
            with_init([first(exited(0, name="side", exits_in_a_row=1), stays=True)], running()),
            RunPod(False, (StartContainer("side", 1),), None),
            id="a sidecar restarts whatever its exit code",
        ),
        pytest.param(
            with_init([SIDECAR, first(running("log"), stays=True)], exited(0), policy=NEVER),
            RunPod(
                False,
                (),
                None,
                (
                    StopContainer("log", "the pod's containers have ended"),
                    StopContainer("side", "the pod's containers have ended"),
                ),
            ),
            id="sidecars are stopped last, the last one first",
        ),
        pytest.param(
            with_init([first(exited(143, name="side"), stays=True)], exited(0), policy=NEVER),
            FinishPod(succeeded=True),
            id="and do not count",
        ),
        pytest.param(
            with_init([first(exited(0, name="one"), before_boot=True)], lost()),
            RunPod(False, (StartContainer("one", 1),), None),
            id="after a start of the machine they run again, before the others",
        ),
        pytest.param(
            with_init([first(exited(0, name="one", attempt=1))], lost()),
            RunPod(False, (StartContainer("app", 1),), None),
            id="and then the others",
        ),
        pytest.param(
            with_init([first(exited(0, name="one"), before_boot=True)], lost(), policy=NEVER),
            FinishPod(succeeded=False),
            id="but not where nothing may restart",
        ),
        pytest.param(
            facts(running(unhealthy="its liveness probe failed")),
            RunPod(False, (), None, (StopContainer("app", "its liveness probe failed"),)),
            id="what is not alive is stopped, and its exit counts as any other",
        ),
    ],
)
def test_rules_of_init_containers_and_probes(given: PodFacts, plan: PodPlan) -> None:
    assert plan_pod(given) == plan


ON_42 = (RestartRule(True, frozenset({42})),)
NOT_ON_42 = (RestartRule(False, frozenset({42})),)


@pytest.mark.parametrize("code", [0, 1])
def test_an_init_container_that_has_succeeded_waits_for_no_restart(code: int) -> None:
    """Its status would otherwise say CrashLoopBackOff, where a rule fits its exit code."""
    ended = first(exited(code, name="one", exits_in_a_row=3), rules=NOT_ON_42)
    assert (starts_at(ended, NEVER, BACKOFF) == float("inf")) is (code == 0)


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        pytest.param(
            facts(exited(1, own_policy=NEVER)),
            FinishPod(succeeded=False),
            id="its own policy: never",
        ),
        pytest.param(
            facts(exited(0, own_policy=NEVER), running("other")),
            RunPod(False, (), None),
            id="which does not end the others",
        ),
        pytest.param(
            facts(exited(0, own_policy=ALWAYS, exits_in_a_row=1), policy=NEVER),
            RunPod(False, (StartContainer("app", 1),), None),
            id="its own policy: always",
        ),
        pytest.param(
            facts(exited(0, own_policy=ON_FAILURE)), FinishPod(succeeded=True), id="on failure only"
        ),
        pytest.param(
            facts(exited(42, own_policy=NEVER, rules=ON_42, exits_in_a_row=1), policy=NEVER),
            RunPod(False, (StartContainer("app", 1),), None),
            id="a rule goes before either policy",
        ),
        pytest.param(
            facts(exited(42, ago=4, own_policy=NEVER, rules=ON_42, exits_in_a_row=2)),
            RunPod(False, (), 6.0),
            id="and waits like any other restart",
        ),
        pytest.param(
            facts(exited(1, own_policy=NEVER, rules=ON_42), policy=NEVER),
            FinishPod(succeeded=False),
            id="a rule for another exit code",
        ),
        pytest.param(
            facts(exited(42, own_policy=NEVER, rules=NOT_ON_42), policy=NEVER),
            FinishPod(succeeded=False),
            id="not in: the code",
        ),
        pytest.param(
            facts(exited(1, own_policy=NEVER, rules=NOT_ON_42, exits_in_a_row=1), policy=NEVER),
            RunPod(False, (StartContainer("app", 1),), None),
            id="not in: all others",
        ),
        pytest.param(
            with_init([first(exited(2, name="one"), own_policy=NEVER)], missing()),
            FinishPod(succeeded=False),
            id="an init container that never restarts fails its pod",
        ),
        pytest.param(
            with_init(
                [first(exited(2, name="one", exits_in_a_row=1), own_policy=ON_FAILURE)],
                missing(),
                policy=NEVER,
            ),
            RunPod(False, (StartContainer("one", 1),), None),
            id="one that restarts on failure does so in a pod that never does",
        ),
        pytest.param(
            with_init([first(exited(0, name="one"), own_policy=NEVER, rules=NOT_ON_42)], missing()),
            RunPod(False, (StartContainer("app", 0),), None),
            id="one that has succeeded is done, whatever its rules say",
        ),
        pytest.param(
            with_init(
                [first(exited(42, name="one", exits_in_a_row=1), own_policy=NEVER, rules=ON_42)],
                missing(),
            ),
            RunPod(False, (StartContainer("one", 1),), None),
            id="one that fails by a rule is tried again",
        ),
    ],
)
def test_rules_of_a_containers_own_restarts(given: PodFacts, plan: PodPlan) -> None:
    assert plan_pod(given) == plan


def test_sidecars_stop_after_the_others_in_reverse() -> None:
    assert stop_order(("a", "b", "x", "y"), ("x", "y", "z")) == (("a", "b"), ("y",), ("x",))
    assert stop_order(("x",), ("x",)) == (("x",),)


def test_a_pod_that_runs_goes_on() -> None:
    assert plan_pod(facts(running("app"), running("side"))) == GO_ON


states = st.sampled_from([Running(), Missing(), Exited(0, NOW - 5), Exited(2, NOW - 5)])
containers = st.lists(
    st.builds(
        ContainerFacts,
        st.sampled_from("abc"),
        states,
        attempt=st.integers(0, 3),
        exits_in_a_row=st.integers(0, 4),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda one: one.name,
)


@given(containers, st.sampled_from(list(RestartPolicy)))
def test_what_runs_is_left_alone_and_every_wait_ends(
    found: list[ContainerFacts], policy: RestartPolicy
) -> None:
    plan = plan_pod(facts(*found, policy=policy))
    states_of = {one.name: one.state for one in found}
    match plan:
        case RunPod(starts=starts, wait_seconds=wait_seconds):
            assert all(not isinstance(states_of[start.container], Running) for start in starts)
            assert wait_seconds is None or 0 < wait_seconds <= BACKOFF.maximum_seconds
        case FinishPod():
            assert all(isinstance(state, Exited) for state in states_of.values())
            assert policy is not ALWAYS
        case RemovePod() | Idle():
            pytest.fail("an admitted pod is neither removed nor left alone")


starting = st.lists(
    st.builds(
        ContainerFacts,
        st.sampled_from("xyz"),
        states,
        is_init=st.just(True),
        stays=st.booleans(),
        has_started=st.booleans(),
        before_boot=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
)


@given(starting, containers, st.sampled_from(list(RestartPolicy)))
def test_nothing_starts_before_all_that_comes_before_it(
    found: list[ContainerFacts], apps: list[ContainerFacts], policy: RestartPolicy
) -> None:
    given = with_init(found, *apps, policy=policy)
    plan = plan_pod(given)
    if not isinstance(plan, RunPod):
        assert isinstance(plan, FinishPod)
        assert not any(isinstance(one.state, Running) for one in found)
        return
    begun = any(not isinstance(one.state, Missing) for one in apps)
    started = {start.container for start in plan.starts}
    assert is_initialized(given) or not started & {one.name for one in apps}
    init = [one.name for one in found if not one.stays]
    assert len(started & set(init)) <= 1
    assert not (begun and started & set(init))
    order = [one.name for one in found]
    for name in started & set(init):
        before = found[: order.index(name)]
        assert all(one.stays or isinstance(one.state, Exited) for one in before)
