"""What a resize changed of a pod, found without comparing the rest of it.

Nearly every resize gives other values to sizes that were there, in containers that stay as they
are. For anything else there is ``compare``, which says the same of these.
"""

from __future__ import annotations

from livesize.api.apply.comparison import SAME, Difference
from livesize.api.apply.field_sets import NOTHING, FieldSet
from livesize.api.apply.list_keys import element_name
from livesize.api.objects import Object

_OTHER_PARTS = ("initContainers", "virtualMachine")


def compare_sizes(old: Object, new: Object) -> Difference | None:
    """As ``compare`` of what of both can be resized; None where more than values differs."""
    spec, new_spec = old["spec"], new["spec"]
    for part in _OTHER_PARTS:
        if spec.get(part) is not new_spec.get(part):
            return None
    before, after = spec.get("containers") or [], new_spec.get("containers") or []
    if len(before) != len(after):
        return None
    changed: FieldSet = {}
    for old_one, new_one in zip(before, after, strict=True):
        if old_one is new_one:
            continue
        fields = _changed_sizes(old_one, new_one)
        if fields is None:
            return None
        if fields:
            changed[element_name(new_one["name"])] = {"f:resources": fields}
    return Difference({"f:spec": {"f:containers": changed}}, NOTHING) if changed else SAME


def _changed_sizes(old: Object, new: Object) -> FieldSet | None:
    if old["name"] != new["name"] or old.get("resizePolicy") != new.get("resizePolicy"):
        return None
    was, now = old.get("resources") or {}, new.get("resources") or {}
    if was == now:
        return {}
    if was.keys() != now.keys():
        return None
    changed: FieldSet = {}
    for side, sizes in now.items():
        before = was[side]
        if sizes == before:
            continue
        if not (isinstance(sizes, dict) and isinstance(before, dict)):
            return None
        if sizes.keys() != before.keys():
            return None
        changed[f"f:{side}"] = {
            f"f:{name}": {} for name, size in sizes.items() if before[name] != size
        }
    return changed
