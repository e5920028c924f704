"""POST of pods/X/eviction (policy/v1): a pod is asked to leave, as ``kubectl drain`` asks. Pure.

What is asked for is a deletion with its grace; besides, the pod says of itself that it was
disrupted, so that whoever counts its failures can leave this one out.
"""

from __future__ import annotations

import msgspec

from livesize.api.conditions import set_condition
from livesize.api.errors import bad_request
from livesize.api.objects import Object, evolve, generation_of, lookup
from livesize.api.reasons import ConditionType, Reason
from livesize.api.write_options import WriteOptions
from livesize.apiserver.deletion_plan import DeletionOptions, parse_delete_options
from livesize.apiserver.request_types import Target

EVICTED: Object = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
"""The answer to an eviction that was accepted."""


def parse_eviction(target: Target, body: Object, options: WriteOptions) -> DeletionOptions:
    """How the pod is to be deleted; raises StatusError 400."""
    metadata = body.get("metadata") or {}
    for field, expected in (("name", target.name), ("namespace", target.namespace)):
        given = metadata.get(field) or expected
        if given != expected:
            raise bad_request(
                f"{field} in URL does not match {field} in Eviction object: "
                f'"{expected}" and "{given}"'
            )
    deletion = parse_delete_options(body.get("deleteOptions") or {})
    return msgspec.structs.replace(deletion, dry_run=deletion.dry_run or options.dry_run)


def with_disruption(pod: Object, now: str) -> Object:
    """``pod`` saying that it leaves because it was evicted."""
    condition: Object = {
        "type": ConditionType.DISRUPTION_TARGET.value,
        "status": "True",
        "reason": Reason.EVICTED_BY_API.value,
        "message": "Eviction API: evicting",
        "observedGeneration": generation_of(pod),
    }
    conditions = lookup(pod, "status", "conditions", default=[])
    return evolve(pod, ("status", "conditions"), set_condition(conditions, condition, now))
