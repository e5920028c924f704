"""Volumes of pods."""

from __future__ import annotations

from livesize.api.schema.environment import ObjectFieldSelector, ResourceFieldSelector
from livesize.api.schema.fields import (
    Message,
    anything,
    boolean,
    integer,
    list_of,
    object_of,
    quantity,
    string,
)
from livesize.api.schema.references import LocalObjectReference
from livesize.api.schema.support import FILES, NODE, used


class HostPathVolumeSource(Message):
    path = string(1, support=FILES)
    type = string(2, keeps_zero=True, support=FILES)


class EmptyDirVolumeSource(Message):
    medium = string(1, support=FILES)
    sizeLimit = quantity(2, support=FILES)


class KeyToPath(Message):
    key = string(1, support=FILES)
    path = string(2, support=FILES)
    mode = integer(3, keeps_zero=True, support=FILES)


class SecretVolumeSource(Message):
    secretName = string(1, support=FILES)
    items = list_of(KeyToPath, 2)
    defaultMode = integer(3, keeps_zero=True, support=FILES)
    optional = boolean(4, keeps_zero=True, support=FILES)


class NFSVolumeSource(Message):
    server = string(1)
    path = string(2)
    readOnly = boolean(3)


class PersistentVolumeClaimVolumeSource(Message):
    claimName = string(1, support=used("agent.volumes.claims"))
    readOnly = boolean(2, support=used("agent.volumes.keeper"))


class DownwardAPIVolumeFile(Message):
    path = string(1, support=FILES)
    fieldRef = object_of(ObjectFieldSelector, 2)
    resourceFieldRef = object_of(ResourceFieldSelector, 3)
    mode = integer(4, keeps_zero=True, support=FILES)


class DownwardAPIVolumeSource(Message):
    items = list_of(DownwardAPIVolumeFile, 1)
    defaultMode = integer(2, keeps_zero=True, support=FILES)


class ConfigMapVolumeSource(Message, inlined={1: LocalObjectReference}):
    items = list_of(KeyToPath, 2)
    optional = boolean(4, keeps_zero=True, support=FILES)
    defaultMode = integer(3, keeps_zero=True, support=FILES)


class SecretProjection(Message, inlined={1: LocalObjectReference}):
    items = list_of(KeyToPath, 2)
    optional = boolean(4, keeps_zero=True, support=FILES)


class ConfigMapProjection(Message, inlined={1: LocalObjectReference}):
    items = list_of(KeyToPath, 2)
    optional = boolean(4, keeps_zero=True, support=FILES)


class DownwardAPIProjection(Message):
    items = list_of(DownwardAPIVolumeFile, 1)


class ServiceAccountTokenProjection(Message):
    audience = string(1)
    expirationSeconds = integer(2, keeps_zero=True)
    path = string(3)


class VolumeProjection(Message):
    secret = object_of(SecretProjection, 1, keeps_zero=True)
    downwardAPI = object_of(DownwardAPIProjection, 2, keeps_zero=True)
    configMap = object_of(ConfigMapProjection, 3, keeps_zero=True)
    serviceAccountToken = object_of(ServiceAccountTokenProjection, 4, keeps_zero=True, support=NODE)
    clusterTrustBundle = anything(support=NODE)
    podCertificate = anything(support=NODE)


class ProjectedVolumeSource(Message):
    sources = list_of(VolumeProjection, 1)
    defaultMode = integer(2, keeps_zero=True, support=FILES)


_OTHER = anything(support=NODE)
"""What Kubernetes has and no node of ours: each node refuses it with a sentence."""


class VolumeSource(Message, refuses_unknown=True):
    hostPath = object_of(HostPathVolumeSource, 1, keeps_zero=True)
    emptyDir = object_of(EmptyDirVolumeSource, 2, keeps_zero=True)
    secret = object_of(SecretVolumeSource, 6, keeps_zero=True)
    nfs = object_of(NFSVolumeSource, 7, keeps_zero=True, support=NODE)
    persistentVolumeClaim = object_of(PersistentVolumeClaimVolumeSource, 10, keeps_zero=True)
    downwardAPI = object_of(DownwardAPIVolumeSource, 16, keeps_zero=True)
    configMap = object_of(ConfigMapVolumeSource, 19, keeps_zero=True)
    projected = object_of(ProjectedVolumeSource, 26, keeps_zero=True)
    awsElasticBlockStore = _OTHER
    azureDisk = _OTHER
    azureFile = _OTHER
    cephfs = _OTHER
    cinder = _OTHER
    csi = _OTHER
    ephemeral = _OTHER
    fc = _OTHER
    flexVolume = _OTHER
    flocker = _OTHER
    gcePersistentDisk = _OTHER
    gitRepo = _OTHER
    glusterfs = _OTHER
    image = _OTHER
    iscsi = _OTHER
    photonPersistentDisk = _OTHER
    portworxVolume = _OTHER
    quobyte = _OTHER
    rbd = _OTHER
    scaleIO = _OTHER
    storageos = _OTHER
    vsphereVolume = _OTHER


class Volume(Message, inlined={2: VolumeSource}):
    name = string(1, support=FILES)
