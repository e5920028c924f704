"""A grace period that ends after the year 9999 was a 500, for ever where a pod had it in its spec;
and a number of 64 bits without a sign was stored, which no client in Go could read back."""

from __future__ import annotations

from typing import Any

import pytest

from unit.apiserver.conftest import pod

PODS = "/api/v1/namespaces/default/pods"
TOO_LONG = [2**31, 10**12, 2**62, 2**63 - 1]


@pytest.mark.parametrize("grace", TOO_LONG)
async def test_a_grace_period_has_an_end(rig: Any, grace: int) -> None:
    await rig.add_pod("web", node="n1")
    asked = await rig.request("DELETE", f"{PODS}/web", {"gracePeriodSeconds": grace})
    assert (asked.status, "gracePeriodSeconds" in asked.json["message"]) == (400, True)
    number = str(grace)[:18]
    assert (await rig.request("DELETE", f"{PODS}/web", gracePeriodSeconds=number)).status == 400
    made = await rig.request("POST", PODS, pod("new", terminationGracePeriodSeconds=grace))
    assert made.status == 422
    (cause,) = made.json["details"]["causes"]
    assert cause["field"] == "spec.terminationGracePeriodSeconds"
    assert cause["message"].endswith("must be at most 2147483647")


async def test_the_longest_grace_period(rig: Any) -> None:
    await rig.add_pod("web", node="n1", terminationGracePeriodSeconds=2**31 - 1)
    deleted = await rig.request("DELETE", f"{PODS}/web")
    assert deleted.json["metadata"]["deletionTimestamp"] == "2095-02-02T11:14:07Z"


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 2**64, -(2**63) - 1])
async def test_a_number_that_64_bits_do_not_hold(rig: Any, number: int) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    for space in (b"", b" "):  # as our own encoder writes it, and as others do
        body = b'{"metadata":{"name":"x"},"unknown":%s%d}' % (space, number)
        answer = await rig.request("POST", maps, body)
        assert (answer.status, "64 bits" in answer.json["message"]) == (400, True)


async def test_long_runs_of_digits_that_are_no_such_number(rig: Any) -> None:
    maps = "/api/v1/namespaces/default/configmaps"
    body = b'{"metadata":{"name":"x"},"data":{"a":"%s"},"n":%d}' % (b"9" * 60, 2**63 - 1)
    assert (await rig.request("POST", maps, body)).status == 201
