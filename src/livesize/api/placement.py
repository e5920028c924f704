"""Which nodes a pod may go to: nodeSelector, required node affinity, taints and tolerations. Pure.

A pod matches a node when its selector and one of its affinity's terms do; a term without any
requirement matches nothing. A taint keeps away pods that do not tolerate it: NoSchedule and
NoExecute always, PreferNoSchedule where there is another choice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence

from livesize.api.objects import Object, lookup


class Operator(enum.StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class TaintEffect(enum.StrEnum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


_NODE_NAME = "metadata.name"


def affinity_terms(spec: Object) -> tuple[Object, ...] | None:
    """The terms of which one has to match; None where nothing is required."""
    required = lookup(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"
    )
    return None if required is None else tuple(required.get("nodeSelectorTerms") or [])


def matches_terms(terms: Iterable[Object], name: str, labels: Mapping[str, str]) -> bool:
    return any(_matches(term, name, labels) for term in terms)


def untolerated(
    taints: Iterable[Object], tolerations: Sequence[Object], effects: Iterable[TaintEffect]
) -> list[Object]:
    """The taints of these effects that the pod does not tolerate."""
    wanted = set(effects)
    return [
        taint
        for taint in taints
        if taint.get("effect") in wanted
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
    ]


def _matches(term: Object, name: str, labels: Mapping[str, str]) -> bool:
    expressions = term.get("matchExpressions") or []
    fields = term.get("matchFields") or []
    by_name = {_NODE_NAME: name}
    return bool(expressions or fields) and (
        all(holds(one, labels) for one in expressions)
        and all(holds(one, by_name) for one in fields)
    )


def holds(requirement: Object, facts: Mapping[str, str]) -> bool:
    """One of matchExpressions: a key, an operator, values."""
    values = requirement.get("values") or []
    found = facts.get(requirement.get("key", ""))
    check = _CHECKS.get(requirement.get("operator", ""))
    return check is not None and check(found, values)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _compare(found: str | None, values: Sequence[str], larger: bool) -> bool:
    left, right = _number(found), _number(values[0] if values else None)
    if left is None or right is None:
        return False
    return left > right if larger else left < right


_CHECKS: dict[str, Callable[[str | None, Sequence[str]], bool]] = {
    Operator.IN: lambda found, values: found in values,
    Operator.NOT_IN: lambda found, values: found not in values,
    Operator.EXISTS: lambda found, _: found is not None,
    Operator.DOES_NOT_EXIST: lambda found, _: found is None,
    Operator.GREATER: lambda found, values: _compare(found, values, larger=True),
    Operator.LESS: lambda found, values: _compare(found, values, larger=False),
}


def _tolerates(toleration: Object, taint: Object) -> bool:
    """No effect: every effect. No key, with Exists: every taint."""
    effect, key = toleration.get("effect"), toleration.get("key")
    exists = toleration.get("operator") == Operator.EXISTS
    if effect and effect != taint.get("effect"):
        return False
    if not key:
        return exists
    if key != taint.get("key"):
        return False
    return exists or (toleration.get("value") or "") == (taint.get("value") or "")
