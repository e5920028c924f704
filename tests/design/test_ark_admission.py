"""ARK, "Affected Components": the admission controllers, on the real API server and agent.

Each test quotes the sentence it checks. The machine is the fake one: what is refused here must not
reach it, what is granted must.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from design.one_process import NAMESPACE, OneProcess, one_process
from livesize.api.errors import StatusError
from livesize.api.kinds.limit_range import LIMIT_RANGES
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.resource_quota import RESOURCE_QUOTAS
from livesize.api.objects import Object, lookup
from livesize.api.patch import PatchType
from livesize.api.roles import Role
from livesize.apiserver.admission.plan import RULES, guard_allocation, guard_limits


def size(cpu: str) -> Object:
    return {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}


async def used(system: OneProcess) -> str:
    quota = await system.user.get(RESOURCE_QUOTAS, "q", NAMESPACE)
    return str(quota["status"]["used"]["requests.cpu"])


def is_done(pod: Object) -> bool:
    return bool(lookup(pod, "spec", "resizeRequest", "requestStatus") == "Done")


async def test_resource_quota(tmp_path: Path) -> None:
    """for ResourceQuota, podEvaluator.Handler implementation is modified to allow Pod updates,
    and verify that sum of Pod.Spec.Containers[i].Resources for all Pods in the Namespace don't
    exceed quota"""
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "500m"}}}
    async with one_process(tmp_path) as system:
        await system.user.create(RESOURCE_QUOTAS, quota, NAMESPACE)
        await system.run_pod("one", system.container(cpu="200m"))
        await system.run_pod("two", system.container(cpu="200m"))
        before = await system.pod("one")
        with pytest.raises(StatusError) as refused:
            await system.resize("one", {"app": size("400m")})
        assert refused.value.code == 403
        assert "exceeded quota: q, requested: requests.cpu=200m" in refused.value.message
        assert (await system.pod("one"))["spec"] == before["spec"]
        await system.until(await system.resize("two", {"app": size("100m")}), is_done)
        async with asyncio.timeout(5):
            while await used(system) != "300m":  # given back when the machine has let go of it
                await asyncio.sleep(0.01)
        await system.until(await system.resize("one", {"app": size("400m")}), is_done)
        assert await used(system) == "500m"


async def test_limit_ranger(tmp_path: Path) -> None:
    """for LimitRanger we check that a resize request does not violate the min and max limits
    specified in LimitRange for the Pod's namespace."""
    item = {"type": "Container", "min": {"cpu": "50m"}, "max": {"cpu": "500m"}}
    limits = {"metadata": {"name": "lim"}, "spec": {"limits": [item]}}
    async with one_process(tmp_path) as system:
        await system.user.create(LIMIT_RANGES, limits, NAMESPACE)
        await system.run_pod("db", system.container(cpu="100m"))
        for cpu, why in (
            ("600m", "maximum cpu usage per Container is 500m, but limit is 600m"),
            ("20m", "minimum cpu usage per Container is 50m, but request is 20m"),
        ):
            with pytest.raises(StatusError) as refused:
                await system.resize("db", {"app": size(cpu)})
            assert refused.value.message == f'pods "db" is forbidden: {why}'
        await system.until(await system.resize("db", {"app": size("500m")}), is_done)


async def test_pod_resource_allocation(tmp_path: Path) -> None:
    """A new admission controller named 'PodResourceAllocation' is introduced in order to limit
    access to ResourcesAllocated field such that only Kubelet can update this field."""
    async with one_process(tmp_path) as system:
        await system.run_pod("db", system.container(cpu="100m"))
        container = {"name": "app", "resourcesAllocated": {"cpu": "900m", "memory": "32Mi"}}
        patch = {"spec": {"containers": [container]}}
        for role in (Role.EDITOR, Role.ADMIN, Role.CONTROLLER):
            with pytest.raises(StatusError) as refused:
                await system.as_role(role).patch(
                    PODS, "db", patch, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC
                )
            assert refused.value.code == 403


async def test_order(tmp_path: Path) -> None:
    """PodResourceAllocation admission plugin is ordered before ResourceQuota."""
    assert RULES.index(guard_allocation) < RULES.index(guard_limits)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "500m"}}}
    item = {"type": "Container", "max": {"cpu": "500m"}}
    limits = {"metadata": {"name": "lim"}, "spec": {"limits": [item]}}
    async with one_process(tmp_path) as system:
        await system.user.create(RESOURCE_QUOTAS, quota, NAMESPACE)
        await system.user.create(LIMIT_RANGES, limits, NAMESPACE)
        await system.run_pod("db", system.container(cpu="200m"))
        taken = {"name": "app", "resources": size("400m"), "resourcesAllocated": {"cpu": "900m"}}
        with pytest.raises(StatusError) as refused:
            await patch_pod(system, {"spec": {"containers": [taken]}})
        assert "resourcesAllocated" in refused.value.message
        # Each of these is too much for the quota as well, which has the last word.
        with pytest.raises(StatusError) as refused:
            await system.resize("db", {"app": size("900m")})
        assert "maximum cpu usage per Container is 500m" in refused.value.message
        pod = {"metadata": {"name": "new"}, "spec": {"containers": [system.container(cpu="900m")]}}
        with pytest.raises(StatusError) as refused:
            await system.user.create(PODS, pod, NAMESPACE)
        assert "maximum cpu usage per Container is 500m" in refused.value.message
        assert await used(system) == "200m", "nothing was charged for what was refused"


async def patch_pod(system: OneProcess, patch: Object) -> Object:
    return await system.user.patch(
        PODS, "db", patch, namespace=NAMESPACE, patch_type=PatchType.STRATEGIC
    )
