"""Where pods may run: affinity, tolerations, spreading."""

from __future__ import annotations

from livesize.api.schema.fields import Message, integer, list_of, object_of, string, strings
from livesize.api.schema.meta import LabelSelector
from livesize.api.schema.support import POD_AFFINITY, SOFT, TERM, Refused, StoredOnly


class NodeSelectorRequirement(Message):
    key = string(1, support=TERM)
    operator = string(2, support=TERM)
    values = strings(3, support=TERM)


class NodeSelectorTerm(Message):
    matchExpressions = list_of(NodeSelectorRequirement, 1)
    matchFields = list_of(NodeSelectorRequirement, 2)


class NodeSelector(Message):
    nodeSelectorTerms = list_of(NodeSelectorTerm, 1)


class PreferredSchedulingTerm(Message):
    weight = integer(1)
    preference = object_of(NodeSelectorTerm, 2, keeps_zero=True)


class NodeAffinity(Message):
    requiredDuringSchedulingIgnoredDuringExecution = object_of(NodeSelector, 1, keeps_zero=True)
    preferredDuringSchedulingIgnoredDuringExecution = list_of(
        PreferredSchedulingTerm, 2, support=SOFT
    )


class PodAffinityTerm(Message):
    labelSelector = object_of(LabelSelector, 1, keeps_zero=True)
    namespaces = strings(2)
    topologyKey = string(3)
    namespaceSelector = object_of(LabelSelector, 4, keeps_zero=True)
    matchLabelKeys = strings(5)
    mismatchLabelKeys = strings(6)


class WeightedPodAffinityTerm(Message):
    weight = integer(1)
    podAffinityTerm = object_of(PodAffinityTerm, 2, keeps_zero=True)


class PodAffinity(Message):
    requiredDuringSchedulingIgnoredDuringExecution = list_of(
        PodAffinityTerm, 1, support=POD_AFFINITY
    )
    preferredDuringSchedulingIgnoredDuringExecution = list_of(
        WeightedPodAffinityTerm, 2, support=SOFT
    )


class PodAntiAffinity(Message):
    requiredDuringSchedulingIgnoredDuringExecution = list_of(
        PodAffinityTerm, 1, support=POD_AFFINITY
    )
    preferredDuringSchedulingIgnoredDuringExecution = list_of(
        WeightedPodAffinityTerm, 2, support=SOFT
    )


class Affinity(Message):
    nodeAffinity = object_of(NodeAffinity, 1, keeps_zero=True)
    podAffinity = object_of(PodAffinity, 2, keeps_zero=True)
    podAntiAffinity = object_of(PodAntiAffinity, 3, keeps_zero=True)


class Toleration(Message):
    key = string(1, support=TERM)
    operator = string(2, support=TERM)
    value = string(3, support=TERM)
    effect = string(4, support=TERM)
    tolerationSeconds = integer(
        5,
        keeps_zero=True,
        support=StoredOnly("a taint keeps new pods away, and removes none that runs"),
    )


class TopologySpreadConstraint(Message):
    maxSkew = integer(1, support=SOFT)
    topologyKey = string(2, support=SOFT)
    whenUnsatisfiable = string(
        3,
        support=Refused(
            (
                "the scheduler places pods by room and does not spread them: say"
                " ScheduleAnyway, or choose nodes with nodeSelector"
            ),
            ("ScheduleAnyway",),
        ),
    )
    labelSelector = object_of(LabelSelector, 4, keeps_zero=True, support=SOFT)
    minDomains = integer(5, keeps_zero=True, support=SOFT)
    nodeAffinityPolicy = string(6, keeps_zero=True, support=SOFT)
    nodeTaintsPolicy = string(7, keeps_zero=True, support=SOFT)
    matchLabelKeys = strings(8, support=SOFT)
