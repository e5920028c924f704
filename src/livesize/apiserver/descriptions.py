"""What fields mean, for `kubectl explain`: those that are ours, or that a resize is about."""

from __future__ import annotations

from collections.abc import Mapping

DESCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "Pod": {
        "spec": "What is asked for.",
        "status": "What was read back from the machine, and how far a resize is.",
    },
    "PodSpec": {
        "containers": "The containers of the pod; none is added or removed later.",
        "nodeName": "The node the pod runs on; set once, by the scheduler.",
        "resizeRequest": "How far the newest resize is, as one word. Derived, never written.",
        "virtualMachine": "A virtual machine instead of containers.",
    },
    "Container": {
        "resources": (
            "CPU and memory that are asked for. Changing them, here or through pods/resize,"
            " resizes the running container."
        ),
        "resizePolicy": (
            "What a resize of a resource does to the running container. A resource that is not"
            " named is resized without a restart."
        ),
        "resourcesAllocated": "What the node has promised. Derived, written by the node only.",
    },
    "ContainerResizePolicy": {
        "resourceName": "The resource this is about: cpu or memory.",
        "restartPolicy": (
            "NotRequired: the container goes on while it is resized. RestartContainer: it is"
            " restarted with the new size."
        ),
    },
    "ResourceRequirements": {
        "requests": "What is scheduled and kept free for the container.",
        "limits": "What the container can use at most.",
        "resizePolicy": ("By resource: RestartOnly, ContainerRestartOnly or LiveResizeable."),
    },
    "ContainerStatus": {
        "resources": "What the machine itself reports, read back after every change.",
        "allocatedResources": "What the node has promised.",
    },
    "PodStatus": {
        "resizeState": "The one state of a resize, from which all its other signs are derived.",
        "observedGeneration": "The generation of the spec that this status is about.",
    },
    "PersistentVolumeClaimSpec": {
        "storageClassName": "How its volume is made; the default class where it is not given.",
        "volumeName": "The volume it has; given by hand, it gets this one or none.",
        "resources": "How much it asks for; more can be asked for later, never less.",
    },
    "PersistentVolumeSpec": {
        "claimRef": "The claim that has it; nobody else gets it until this is taken off.",
        "nodeAffinity": "The nodes on which pods can have it.",
        "persistentVolumeReclaimPolicy": "Whether it goes with its claim: Delete or Retain.",
    },
    "ObjectMeta": {
        "managedFields": "Which manager owns which fields, for server-side apply.",
        "generation": "Counts changes of the spec.",
        "resourceVersion": "Identifies this state of the object; changes with every write.",
    },
}


def described(shape: str, field: str) -> str:
    return DESCRIPTIONS.get(shape, {}).get(field, "")
