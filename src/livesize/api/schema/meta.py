"""What all kinds have: metadata, conditions, label selectors, options of a deletion."""

from __future__ import annotations

from livesize.api.schema.fields import (
    META,
    Message,
    Type,
    anything,
    boolean,
    integer,
    list_of,
    object_of,
    scalar,
    string,
    string_map,
    string_set,
    strings,
)


class OwnerReference(Message, package=META):
    kind = string(1)
    name = string(3)
    uid = string(4)
    apiVersion = string(5)
    controller = boolean(6, keeps_zero=True)
    blockOwnerDeletion = boolean(7, keeps_zero=True)


class ManagedFieldsEntry(Message, package=META):
    manager = string(1)
    operation = string(2)
    apiVersion = string(3)
    time = scalar(Type.TIME, 4)
    fieldsType = string(6)
    fieldsV1 = scalar(Type.FIELDS, 7)
    subresource = string(8)


class ObjectMeta(Message, package=META):
    name = string(1)
    generateName = string(2)
    namespace = string(3)
    uid = string(5)
    resourceVersion = string(
        6, description="Identifies this state of the object; changes with every write."
    )
    generation = integer(7, description="Counts changes of the spec.")
    creationTimestamp = scalar(Type.TIME, 8)
    deletionTimestamp = scalar(Type.TIME, 9)
    deletionGracePeriodSeconds = integer(10, keeps_zero=True)
    labels = string_map(11)
    annotations = string_map(12)
    ownerReferences = list_of(OwnerReference, 13, key="uid")
    finalizers = string_set(14)
    managedFields = list_of(
        ManagedFieldsEntry,
        17,
        description="Which manager owns which fields, for server-side apply.",
    )
    selfLink = anything()


class Condition(Message, package=META):
    type = string(1)
    status = string(2)
    observedGeneration = integer(3)
    lastTransitionTime = scalar(Type.TIME, 4)
    reason = string(5)
    message = string(6)


class Preconditions(Message, package=META):
    uid = string(1, keeps_zero=True)
    resourceVersion = string(2, keeps_zero=True)


class DeleteOptions(Message, package=META):
    gracePeriodSeconds = integer(1, keeps_zero=True)
    preconditions = object_of(Preconditions, 2)
    orphanDependents = boolean(3, keeps_zero=True)
    propagationPolicy = string(4, keeps_zero=True)
    dryRun = strings(5)
    ignoreStoreReadErrorWithClusterBreakingPotential = anything()


class LabelSelectorRequirement(Message, package=META):
    key = string(1)
    operator = string(2)
    values = strings(3)


class LabelSelector(Message, package=META, is_atomic=True):
    matchLabels = string_map(1)
    matchExpressions = list_of(LabelSelectorRequirement, 2)


class TypedObject(Message):
    """The fields of every kind."""

    apiVersion = string()
    kind = string()
    metadata = object_of(ObjectMeta, 1)
