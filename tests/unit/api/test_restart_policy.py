"""A container's own restart rules, as a pod says them: they go before its policy and its pod's."""

from __future__ import annotations

import pytest

from livesize.api.objects import Object
from livesize.api.restart_policy import starts_again


def rule(operator: str, *exit_codes: int) -> Object:
    return {"action": "Restart", "exitCodes": {"operator": operator, "values": list(exit_codes)}}


@pytest.mark.parametrize(
    ("container", "exit_code", "again"),
    [
        pytest.param({}, 0, True, id="the pod's policy"),
        pytest.param({"restartPolicy": "Never"}, 1, False, id="its own"),
        pytest.param({"restartPolicy": "OnFailure"}, 0, False, id="on failure, which this is not"),
        pytest.param({"restartPolicy": "OnFailure"}, 1, True, id="on failure"),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [rule("In", 41, 42)]},
            42,
            True,
            id="a code that is named",
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [rule("In", 42)]},
            1,
            False,
            id="another than is named",
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [rule("NotIn", 42)]},
            1,
            True,
            id="any but one, and it is another",
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [rule("NotIn", 42)]},
            42,
            False,
            id="any but one, and it is that one",
        ),
        pytest.param(
            {"restartPolicy": "Never", "restartPolicyRules": [rule("In", 1), rule("In", 2)]},
            2,
            True,
            id="the second rule",
        ),
    ],
)
def test_whether_a_container_starts_again(container: Object, exit_code: int, again: bool) -> None:
    pod: Object = {"spec": {"restartPolicy": "Always"}}
    assert starts_again(pod, container, exit_code) is again
