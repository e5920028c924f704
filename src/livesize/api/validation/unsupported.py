"""What of a new pod no node can carry out: refused at its creation, so that it never
runs without.

Looked at after admission: who may not have something at all hears that first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from livesize.api.errors import FieldError, FieldErrorKind
from livesize.api.objects import Object
from livesize.api.resources import ResourceName, is_vm
from livesize.api.schema.fields import Field, schema_of
from livesize.api.schema.pod_template import PodSpec
from livesize.api.schema.support import Refused
from livesize.api.validation.pod import containers_by_field, sizes_by_field

# Charts ask for disk by default. It is counted in quotas, and not enforced: docs/pod-fields.md.
_KNOWN = frozenset({*(name.value for name in ResourceName), "ephemeral-storage"})
_NO_NETWORK = "a virtual machine has no network yet: leave it out"
_WITH_VM = {
    "hostAliases": _NO_NETWORK,
    "hostNetwork": _NO_NETWORK,
    "hostname": "a guest names itself: leave it out",
    "imagePullSecrets": "a guest boots from files of its node: leave it out",
}
_OF_PROCESSES = ("runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "sysctls")
_OWN_USERS = "a guest has users and kernel settings of its own: leave it out"


def validate_supported(pod: Object) -> list[FieldError]:
    """``pod`` is valid otherwise."""
    errors = [
        FieldError(FieldErrorKind.FORBIDDEN, field, detail)
        for field, detail in refused_fields(pod["spec"])
    ]
    for field, container in sizes_by_field(pod):
        resources = container.get("resources") or {}
        errors += validate_resource_names(resources, f"{field}.resources")
    for field, container in containers_by_field(pod):
        errors += _validate_host_ports(container, field)
    return errors + (_validate_with_vm(pod["spec"]) if is_vm(pod) else [])


def refused_fields(spec: Object) -> Iterator[tuple[str, str]]:
    """Each field of a pod's ``spec`` that no node carries out, and why, as a sentence."""
    return _refused(spec, schema_of(PodSpec).root, "spec")


def _refused(value: Any, field: Field, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _refused(item, field.element, f"{where}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            below = field.below(name)
            match below.support:
                case Refused(detail=detail, fine=fine) if not _asks_nothing(item, fine):
                    yield f"{where}.{name}", detail
                case None:
                    yield from _refused(item, below, f"{where}.{name}")
                case _:
                    pass


def _asks_nothing(value: Any, fine: tuple[Any, ...]) -> bool:
    """Null, empty, false where nothing else is said, or one of the values that are fine."""
    if not fine:
        return not value
    return value is None or value in fine


def _validate_with_vm(spec: Object) -> list[FieldError]:
    """What containers have and a guest has not, or has by itself."""
    given = {f"spec.{field}": detail for field, detail in _WITH_VM.items() if spec.get(field)}
    context = spec.get("securityContext") or {}
    for field in _OF_PROCESSES:
        if context.get(field) is not None:
            given[f"spec.securityContext.{field}"] = _OWN_USERS
    return [FieldError(FieldErrorKind.FORBIDDEN, *one) for one in given.items()]


def validate_resource_names(resources: Object, field: str) -> list[FieldError]:
    """Nodes have CPU and memory to give; whatever else is asked for would be run without. Each name
    is complained of once: requests that are absent were filled in from the limits."""
    asked = {
        name: side
        for side in ("requests", "limits")
        for name in resources.get(side) or {}
        if name not in _KNOWN
    }
    return [
        FieldError(FieldErrorKind.FORBIDDEN, f"{field}.{side}[{name}]", _detail(name))
        for name, side in asked.items()
    ]


def _detail(name: str) -> str:
    what = "huge pages" if name.startswith("hugepages-") else name
    return f"nodes have no {what} to give: leave it out, and ask for cpu and memory"


def _validate_host_ports(container: Object, field: str) -> list[FieldError]:
    errors = []
    for index, port in enumerate(container.get("ports") or []):
        host_port = port.get("hostPort")
        if host_port and host_port != port.get("containerPort"):
            detail = (
                "ports are not mapped: give it the number of containerPort, on which the container"
                " is reached where it shares the node's network, or leave it out"
            )
            where = f"{field}.ports[{index}].hostPort"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, host_port))
    return errors
