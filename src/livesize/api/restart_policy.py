"""Whether a container that has ended starts again: by its own rules, by its own policy, else by its
pod's (Kubernetes 1.35, container restart rules). Pure.

    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]

An init container that has succeeded has done its work, whatever its rules say; one that has failed
and does not start again fails its pod. A sidecar always starts again.
"""

from __future__ import annotations

import enum

import msgspec

from livesize.api.objects import Object, lookup


class RestartPolicy(enum.StrEnum):
    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


class RestartRule(msgspec.Struct, frozen=True):
    """Restart on these exit codes (``is_in``), or on all others."""

    is_in: bool
    exit_codes: frozenset[int]

    def matches(self, exit_code: int) -> bool:
        return (exit_code in self.exit_codes) is self.is_in


def policy_of_pod(pod: Object) -> RestartPolicy:
    return RestartPolicy(lookup(pod, "spec", "restartPolicy", default=RestartPolicy.ALWAYS))


def own_policy(container: Object) -> RestartPolicy | None:
    """The container's own; None: its pod's counts."""
    given = container.get("restartPolicy")
    return None if given is None else RestartPolicy(given)


def own_rules(container: Object) -> tuple[RestartRule, ...]:
    return tuple(
        RestartRule(
            lookup(rule, "exitCodes", "operator") == "In",
            frozenset(lookup(rule, "exitCodes", "values", default=())),
        )
        for rule in container.get("restartPolicyRules") or ()
    )


def restarts(policy: RestartPolicy, exit_code: int, rules: tuple[RestartRule, ...] = ()) -> bool:
    if any(rule.matches(exit_code) for rule in rules):
        return True
    match policy:
        case RestartPolicy.ALWAYS:
            return True
        case RestartPolicy.ON_FAILURE:
            return exit_code != 0
        case RestartPolicy.NEVER:
            return False


def starts_again(pod: Object, container: Object, exit_code: int) -> bool:
    """An app container or a sidecar of the pod, after it has ended so."""
    policy = own_policy(container) or policy_of_pod(pod)
    return restarts(policy, exit_code, own_rules(container))
