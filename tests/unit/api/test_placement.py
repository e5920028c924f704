"""Which nodes a pod may go to, and what may be said about it."""

from __future__ import annotations

from typing import Any

import pytest

from livesize.api.placement import TaintEffect, affinity_terms, matches_terms, untolerated
from livesize.api.validation.placement import validate_placement

LABELS = {"disk": "fast", "cores": "8"}
HARD = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)


def term(key: str, operator: str, *values: str, by: str = "matchExpressions") -> dict[str, Any]:
    return {by: [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param([term("disk", "In", "fast", "slow")], True, id="in"),
        pytest.param([term("disk", "In", "slow")], False, id="not in"),
        pytest.param([term("disk", "NotIn", "slow")], True, id="anything else"),
        pytest.param([term("zone", "NotIn", "a")], True, id="no such label is anything else"),
        pytest.param([term("zone", "Exists")], False, id="no such label"),
        pytest.param([term("zone", "DoesNotExist")], True, id="must not have it"),
        pytest.param([term("cores", "Gt", "4")], True, id="more"),
        pytest.param([term("cores", "Lt", "8")], False, id="not less"),
        pytest.param([term("disk", "Gt", "4")], False, id="not a number"),
        pytest.param(
            [term("zone", "Exists"), term("disk", "Exists")], True, id="one term is enough"
        ),
        pytest.param(
            [{**term("disk", "Exists"), **term("metadata.name", "In", "b", by="matchFields")}],
            False,
            id="all of a term",
        ),
        pytest.param([term("metadata.name", "In", "a", by="matchFields")], True, id="by name"),
        pytest.param([{}], False, id="an empty term matches nothing"),
        pytest.param([], False, id="no term matches nothing"),
    ],
)
def test_required_affinity(terms: list[Any], matches: bool) -> None:
    assert matches_terms(terms, "a", LABELS) is matches


def test_without_affinity_nothing_is_required() -> None:
    assert affinity_terms({}) is None
    assert affinity_terms({"affinity": {"podAffinity": {}}}) is None


TAINT = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        pytest.param({"key": "dedicated", "value": "db"}, True, id="equal"),
        pytest.param({"key": "dedicated", "value": "web"}, False, id="another value"),
        pytest.param({"key": "dedicated", "operator": "Exists"}, True, id="any value"),
        pytest.param({"operator": "Exists"}, True, id="everything"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="another effect"),
        pytest.param({"key": "other", "operator": "Exists"}, False, id="another taint"),
        pytest.param({}, False, id="nothing said"),
    ],
)
def test_tolerations(toleration: dict[str, str], tolerated: bool) -> None:
    assert untolerated([TAINT], [toleration], HARD) == ([] if tolerated else [TAINT])
    assert untolerated([TAINT], [toleration], [TaintEffect.PREFER_NO_SCHEDULE]) == []


def spec(*terms: Any, tolerations: Any = ()) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    node = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    return {"affinity": {"nodeAffinity": node}, "tolerations": list(tolerations)}


GOOD = term("disk", "Exists")


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        pytest.param(spec(GOOD, tolerations=[{"operator": "Exists"}]), [], id="well"),
        pytest.param(spec(), ["nodeSelectorTerms"], id="no terms"),
        pytest.param(spec(term("disk", "Near")), ["operator"], id="no such operator"),
        pytest.param(spec(term("disk", "In")), ["values"], id="in nothing"),
        pytest.param(spec(term("disk", "Gt", "many")), ["values"], id="more than a word"),
        pytest.param(spec(term("disk", "Exists", "x")), ["values"], id="exists has no values"),
        pytest.param(spec(term("", "Exists")), ["key"], id="no key"),
        pytest.param(
            spec(term("spec.x", "Exists", by="matchFields")),
            ["key", "operator", "values"],
            id="only the name of a node is a field",
        ),
        pytest.param(spec(GOOD, tolerations=[{}]), ["operator"], id="tolerates what"),
        pytest.param(
            spec(GOOD, tolerations=[{"key": "a", "operator": "Like"}]), ["operator"], id="like"
        ),
        pytest.param(
            spec(GOOD, tolerations=[{"key": "a", "effect": "Never"}]),
            ["effect"],
            id="no such effect",
        ),
        pytest.param(
            spec(GOOD, tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            ["operator"],
            id="exists with a value",
        ),
    ],
)
def test_what_may_be_said(given: dict[str, Any], fields: list[str]) -> None:
    assert [error.field.rpartition(".")[2] for error in validate_placement(given)] == fields
