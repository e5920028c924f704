"""What counts in a quota: whatever the order of changes, the charges add up to the recount."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livesize.api.defaults import default_object
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve
from livesize.api.quota import hard_of, recount, used_of, with_status
from livesize.apiserver.admission.plan import AdmissionRefusal
from livesize.apiserver.admission.quota import CountedChange, plan_charge

HARD = {"requests.cpu": "2", "limits.memory": "2Gi", "pods": "3", "count/pods": "4"}
QUOTA: Object = with_status({"metadata": {"name": "q"}, "spec": {"hard": HARD}}, {})


def pod(name: str, cpu: int, memory: int, *, phase: str = "Running") -> Object:
    size = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
    container = {"name": "c", "image": "i:1", "resources": {"requests": size, "limits": size}}
    body = {"metadata": {"name": name}, "spec": {"containers": [container]}}
    return evolve(default_object(PODS, body), ("status", "phase"), phase)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.one_of(
            st.none(),
            st.builds(
                pod,
                st.just("x"),
                st.integers(1, 1500),
                st.integers(1, 1500),
                phase=st.sampled_from(["Running", "Succeeded"]),
            ),
        ),
        st.booleans(),
    ),
    max_size=30,
)


@given(CHANGES)
def test_used_is_always_the_sum_and_asking_never_exceeds_it(
    changes: list[tuple[str, Object | None, bool]],
) -> None:
    quota, pods = QUOTA, dict[str, Object]()
    for name, new, refusable in changes:
        before = used_of(quota)
        planned = plan_charge([quota], CountedChange(PODS, pods.get(name), new, refusable))
        if isinstance(planned, AdmissionRefusal):
            assert refusable
            continue
        quota = planned[0] if planned else quota
        pods.pop(name, None)
        if new is not None:
            pods[name] = new
        assert recount(QUOTA, [(PODS, one) for one in pods.values()])["status"] == quota["status"]
        after, hard = used_of(quota), hard_of(quota)
        for what in HARD:
            assert not refusable or after[what] <= max(before[what], hard[what])
