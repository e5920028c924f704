"""The strategy of a kind: the steps of a read or a write at which kinds differ. Pure.

As it is here, it is the strategy of most kinds: no step does anything. Another one derives from it,
and the kind names it (livesize.api.kinds.kind; the list is livesize.apiserver.strategies.lookup).
"""

from __future__ import annotations

from livesize.api.errors import FieldError
from livesize.api.objects import Object
from livesize.apiserver.admission.plan import AdmissionContext, AdmissionRefusal
from livesize.apiserver.auth.identities import Identity


class Strategy:
    update_rule = "object"
    """What a PUT, a PATCH or an apply of the object does (apiserver.subresources.rules)."""
    reads_cluster = False
    """Other objects decide what a new one gets, so that the cache has to be fresh."""
    answers_deleted = False
    """A DELETE answers with the object that is gone, and not with a Status."""

    # Forms

    def served(self, stored: Object) -> Object:
        """What clients see of the stored object."""
        return stored

    def stripped(self, obj: Object) -> Object:
        """``obj`` without what only clients see."""
        return obj

    def editable(self, served: Object) -> Object:
        """What `kubectl edit` is shown."""
        return served

    def applied(self, part: Object, _stored: Object | None) -> tuple[Object, list[FieldError]]:
        """The applied part of an object as it is stored."""
        return part, []

    # Creating

    def check_counts(self, _obj: Object) -> list[FieldError]:
        """Refuses what is too much to be looked at."""
        return []

    def fold_new(self, new: Object) -> tuple[Object, list[FieldError]]:
        """The new object before its defaults, without what stands for something else."""
        return new, []

    def fill(self, new: Object, _context: AdmissionContext) -> Object | AdmissionRefusal:
        """The new object with what admission gives it before it is validated."""
        return new

    def check_derived(self, _sent: Object, _new: Object) -> list[FieldError]:
        """What the client has said of fields that only the server derives."""
        return []

    def completed(self, new: Object) -> Object:
        """The valid new object."""
        return new

    def signed(self, new: Object, _identity: Identity) -> Object:
        """The new object, saying who brings it, where editors are not trusted."""
        return new

    def check_supported(self, _new: Object) -> list[FieldError]:
        """What no part of the system carries out."""
        return []

    # Changing

    def replaced(self, _stored: Object, sent: Object) -> Object:
        """What a PUT has sent, with what clients that do not know of it leave out."""
        return sent

    def adjusted(self, _stored: Object, new: Object, _identity: Identity) -> Object:
        """The changed object, with its defaults, before it is validated."""
        return new

    def remembered(self, _stored: Object, new: Object) -> Object:
        """The changed object as it is committed."""
        return new

    def passed(self, _subresource: str, _stored: Object, _new: Object) -> Object | None:
        """A state between the two that watchers are shown as well."""
        return None

    def grace_seconds(self, _stored: Object, _wanted: int | None) -> int:
        """How long the object may still live once its deletion has begun."""
        return 0
