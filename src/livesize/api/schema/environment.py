"""Variables of containers, and where their values come from."""

from __future__ import annotations

from livesize.api.schema.fields import Message, boolean, object_of, quantity, string
from livesize.api.schema.references import LocalObjectReference
from livesize.api.schema.support import VARIABLES, StoredOnly


class ObjectFieldSelector(Message, is_atomic=True):
    apiVersion = string(1, support=StoredOnly("there is one version of a pod"))
    fieldPath = string(2, support=VARIABLES)


class ResourceFieldSelector(Message, is_atomic=True):
    containerName = string(1, support=VARIABLES)
    resource = string(2, support=VARIABLES)
    divisor = quantity(3, support=VARIABLES)


class ConfigMapKeySelector(Message, inlined={1: LocalObjectReference}, is_atomic=True):
    key = string(2, support=VARIABLES)
    optional = boolean(3, keeps_zero=True, support=VARIABLES)


class SecretKeySelector(Message, inlined={1: LocalObjectReference}, is_atomic=True):
    key = string(2, support=VARIABLES)
    optional = boolean(3, keeps_zero=True, support=VARIABLES)


class EnvVarSource(Message):
    fieldRef = object_of(ObjectFieldSelector, 1)
    resourceFieldRef = object_of(ResourceFieldSelector, 2)
    configMapKeyRef = object_of(ConfigMapKeySelector, 3)
    secretKeyRef = object_of(SecretKeySelector, 4)


class EnvVar(Message):
    name = string(1, support=VARIABLES)
    value = string(2, support=VARIABLES)
    valueFrom = object_of(EnvVarSource, 3, keeps_zero=True)


class ConfigMapEnvSource(Message, inlined={1: LocalObjectReference}):
    optional = boolean(2, keeps_zero=True, support=VARIABLES)


class SecretEnvSource(Message, inlined={1: LocalObjectReference}):
    optional = boolean(2, keeps_zero=True, support=VARIABLES)


class EnvFromSource(Message):
    prefix = string(1, support=VARIABLES)
    configMapRef = object_of(ConfigMapEnvSource, 2)
    secretRef = object_of(SecretEnvSource, 3, is_atomic=True)
