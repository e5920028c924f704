"""What a node's runtime can do that not every one can; the words in which plans ask for it."""

from __future__ import annotations

import msgspec


class RuntimeFeatures(msgspec.Struct, frozen=True):
    privileged: bool = False  # containers that may all that root may
    sysctls: bool = False  # kernel settings of a pod's own
    own_network: bool = False  # a pod without hostNetwork has a network of its own


NO_FEATURES = RuntimeFeatures()
