"""Which objects of a kind the agent of a node reaches, within what its role may do (design 5.6).

A kind says it (api/kinds); the API server carries it out: what a node reads in
livesize.apiserver.auth.node_reads, what it writes in livesize.apiserver.admission.node_restriction.
"""

from __future__ import annotations

import enum


class NodeScope(enum.Enum):
    READ_ALL = "reads any, writes none"
    ALL = "reads and writes any"
    ITSELF = "the Node of its own name"
    OWN_LEASE = "the Lease of its own name among those of nodes"
    OWN_PODS = "the pods that are bound to it"
    USED_BY_PODS = "reads what its pods refer to, writes none"
    OWN_VOLUMES = "reads the volumes of its pods' claims, and those whose folders it has"
