"""Pods: derived fields for every dialect, a virtual machine that looks like a container, the
defaults of admission, and a grace in which the node stops them. Pure."""

from __future__ import annotations

from typing import Any

from livesize.api.defaults import default_object
from livesize.api.dialects import check_derived, derive_dialects, strip_dialects
from livesize.api.errors import FieldError
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object, evolve, lookup, without
from livesize.api.resize_state import (
    accepted_on_the_way,
    bind_allocated,
    is_bound,
    is_terminal,
    remember_request,
)
from livesize.api.resources import is_vm
from livesize.api.validation.counts import too_many_parts
from livesize.api.validation.unsupported import validate_supported
from livesize.api.vm_as_container import fold_container, fold_part, keep_machine
from livesize.apiserver.admission.mutation import fill_pod
from livesize.apiserver.admission.plan import AdmissionContext, AdmissionRefusal
from livesize.apiserver.admission.trust import note_who_brings
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.strategies.strategy import Strategy

DEFAULT_GRACE_SECONDS = 30
_UNKNOWN_TO_KUBECTL = (("spec", "virtualMachine"), ("status", "virtualMachineStatus"))


class PodStrategy(Strategy):
    update_rule = "pod"
    reads_cluster = True
    answers_deleted = True

    def served(self, stored: Object) -> Object:
        return derive_dialects(stored)

    def stripped(self, obj: Object) -> Object:
        return strip_dialects(obj)

    def editable(self, served: Object) -> Object:
        """kubectl computes its patch with the Go types it was built with, and gives up at the first
        object inside a pod that these do not have. So it is shown pods without them; what it does
        not see, its patch does not touch."""
        pod = without(strip_dialects(served), ("status", "resizeState"))
        if is_vm(served):
            pod = evolve(pod, ("spec", "containers"), served["spec"]["containers"])
        for path in _UNKNOWN_TO_KUBECTL:
            pod = without(pod, path)
        containers = lookup(pod, "spec", "containers")
        if not containers:
            return pod
        return evolve(pod, ("spec", "containers"), [_editable_container(one) for one in containers])

    def applied(self, part: Object, stored: Object | None) -> tuple[Object, list[FieldError]]:
        folded, errors = fold_part(part, stored)
        return (folded, errors) if errors else (strip_dialects(folded), errors)

    def check_counts(self, obj: Object) -> list[FieldError]:
        return too_many_parts(obj)

    def fold_new(self, new: Object) -> tuple[Object, list[FieldError]]:
        return fold_container(new, None)

    def fill(self, new: Object, context: AdmissionContext) -> Object | AdmissionRefusal:
        filled = fill_pod(new, context)
        return (
            filled if filled is new or isinstance(filled, AdmissionRefusal) else _defaulted(filled)
        )

    def check_derived(self, sent: Object, new: Object) -> list[FieldError]:
        """Status and resizeRequest of a copied manifest are dropped, not judged."""
        sent = without(sent, ("spec", "resizeRequest"))
        return check_derived(sent, derive_dialects(new), from_own_node=False)

    def completed(self, new: Object) -> Object:
        return bind_allocated(new) if is_bound(new) else new

    def signed(self, new: Object, identity: Identity) -> Object:
        return note_who_brings(identity, new)

    def check_supported(self, new: Object) -> list[FieldError]:
        return validate_supported(new)

    def replaced(self, stored: Object, sent: Object) -> Object:
        return keep_machine(stored, sent)

    def remembered(self, stored: Object, new: Object) -> Object:
        return remember_request(stored, new)

    def passed(self, subresource: str, stored: Object, new: Object) -> Object | None:
        """A resize that was Done at once has been Accepted first."""
        return accepted_on_the_way(stored, new) if subresource == "resizing" else None

    def grace_seconds(self, stored: Object, wanted: int | None) -> int:
        """None where no node runs it, or where it has ended."""
        if not lookup(stored, "spec", "nodeName") or is_terminal(stored):
            return 0
        if wanted is not None:
            return wanted
        grace: int = lookup(
            stored, "spec", "terminationGracePeriodSeconds", default=DEFAULT_GRACE_SECONDS
        )
        return grace


def _defaulted(pod: Object) -> Object:
    return default_object(PODS, pod)


def _editable_container(container: Any) -> Any:
    """Without IBM's map of policies, which stands where Kubernetes has none."""
    return without(container, ("resources", "resizePolicy"))
