"""A virtual machine as the one container of its pod, for clients that know only containers.

On the wire a VM pod has a container named "vm", derived from spec.virtualMachine and never stored
(decisions 39). What a client sends of it is folded back before anything else looks at the pod:

    absent, null, or as it is served      ignored; a policy that is named and taken out goes
    other resources, or another policy    the virtual machine's, unless its own say something else
    anything else                         refused: it is derived
"""

from __future__ import annotations

from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object, lookup, without
from livesize.api.resources import VM_NAME, is_vm, same_size

FIELD = "spec.containers[0]"
_SIZE = ("resources", "resizePolicy")
_IGNORED = frozenset({"name", "resourcesAllocated"})
_TWICE = "spec.virtualMachine.{} asks for something else: change one of the two"
_DERIVED = (
    "is derived from spec.virtualMachine: of a virtual machine's container only resources and"
    " resizePolicy can be changed"
)


def derived_container(vm: Object) -> Object:
    """What is served beside spec.virtualMachine."""
    image = lookup(vm, "kernel", "image") or lookup(vm, "disk", "image") or ""
    container: Object = {"name": VM_NAME, "image": image}
    return container | {key: vm[key] for key in _SIZE if vm.get(key) is not None}


def is_derived(containers: Any) -> bool:
    """The list is what a VM pod is served with, or was made from it."""
    if not isinstance(containers, list) or len(containers) > 1:
        return False
    return all(isinstance(one, dict) and one.get("name") == VM_NAME for one in containers)


def keep_machine(before: Object, sent: Object) -> Object:
    """``sent``, a whole pod in place of ``before``, with its virtual machine and the status of it,
    which a client that knows only containers has dropped, as all fields that it does not know."""
    if not is_vm(before):
        return sent
    kept = _with_dropped(before, sent, "spec", "containers", "virtualMachine")
    return _with_dropped(before, kept, "status", "containerStatuses", "virtualMachineStatus")


def _with_dropped(before: Object, sent: Object, part: str, derived: str, own: str) -> Object:
    """``sent`` with the field ``own``, where only what is ``derived`` from it is left."""
    given, now = sent.get(part), lookup(before, part, own)
    if not isinstance(given, dict) or own in given or now is None:
        return sent
    if not given.get(derived) or not is_derived(given[derived]):
        return sent
    return {**sent, part: {**given, own: now}}


def fold_container(
    pod: Object, before: Object | None, *, knows_policies: bool = False
) -> tuple[Object, list[FieldError]]:
    """``pod``, which is a whole one, without the container and with what it asks. ``before``: the
    pod that is stored; None: it is new. ``knows_policies``: a policy that is left out is meant to
    go (ADR 0074)."""
    spec = pod.get("spec")
    if not is_vm(pod) or not isinstance(spec, dict) or not is_derived(spec.get("containers")):
        return pod, []
    kept = {key: value for key, value in spec.items() if key != "containers"}
    if not spec["containers"]:
        return {**pod, "spec": kept}, []
    given, vm = spec["containers"][0], spec["virtualMachine"]
    old = vm if before is None or not is_vm(before) else before["spec"]["virtualMachine"]
    derived = derived_container(old)
    errors = _other_errors(given, derived)
    for key in _SIZE:
        wanted = given.get(key)
        is_said = wanted is not None or (knows_policies and key == "resizePolicy")
        if not is_said or _same(wanted, derived.get(key)):
            continue
        own = vm.get(key)
        is_free = not own if before is None else _same(own, old.get(key))
        if is_free:
            vm = without(vm, (key,)) if wanted is None else {**vm, key: wanted}
        elif not _same(wanted, own):
            errors.append(_twice(key, wanted))
    return {**pod, "spec": {**kept, "virtualMachine": vm}}, errors


def fold_part(part: Object, before: Object | None) -> tuple[Object, list[FieldError]]:
    """The same of a part of a pod that is applied: it may name single amounts, and whoever applies
    owns them where they are stored, in spec.virtualMachine."""
    spec = part.get("spec")
    target = part if before is None else before
    if not isinstance(spec, dict) or not is_vm(target) or not spec.get("containers"):
        return part, []
    if not is_derived(spec["containers"]):
        return part, []
    given, vm = spec["containers"][0], spec.get("virtualMachine")
    vm = vm if isinstance(vm, dict) else {}
    old = {} if before is None else before["spec"]["virtualMachine"]
    errors = _other_errors(given, derived_container(old or vm))
    for key in _SIZE:
        if given.get(key) is None:
            continue
        path = f"{FIELD}.{key}"
        vm = {**vm, key: _joined(given[key], vm.get(key), old.get(key), path, errors)}
    kept = {key: value for key, value in spec.items() if key != "containers"}
    return {**part, "spec": {**kept, "virtualMachine": vm}}, errors


def _joined(wanted: Any, own: Any, old: Any, path: str, errors: list[FieldError]) -> Any:
    """Of two parts of one value all that either says; where they differ, what is not as before."""
    if own is None or wanted == own:
        return wanted
    if isinstance(wanted, dict) and isinstance(own, dict):
        before = old if isinstance(old, dict) else {}
        joined = {
            key: _joined(value, own.get(key), before.get(key), f"{path}.{key}", errors)
            for key, value in wanted.items()
        }
        return {**own, **joined}
    if own == old:
        return wanted
    if wanted != old:
        detail = "spec.virtualMachine says something else: say one of the two"
        errors.append(FieldError(FieldErrorKind.INVALID, path, detail, wanted))
    return own


def _other_errors(given: Object, derived: Object) -> list[FieldError]:
    return [
        FieldError(FieldErrorKind.FORBIDDEN, f"{FIELD}.{key}", _DERIVED)
        for key, value in given.items()
        if key not in _IGNORED
        and key not in _SIZE
        and value not in (None, {}, [])
        and value != derived.get(key)
    ]


def _same(left: Any, right: Any) -> bool:
    if (left or None) == (right or None):
        return True
    if not (isinstance(left, dict) and isinstance(right, dict)):
        return False
    if left.get("resizePolicy") != right.get("resizePolicy"):
        return False
    sides = (left.get("requests"), left.get("limits"), right.get("requests"), right.get("limits"))
    return all(side is None or isinstance(side, dict) for side in sides) and same_size(left, right)


def _twice(key: str, wanted: Any) -> FieldError:
    return FieldError(FieldErrorKind.INVALID, f"{FIELD}.{key}", _TWICE.format(key), wanted)
