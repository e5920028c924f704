"""Checks of a pod as a whole; on create, and again on everything that can change it."""

from __future__ import annotations

from collections.abc import Iterator

from livesize.api.errors import FieldError, FieldErrorKind, nested
from livesize.api.objects import Object
from livesize.api.resources import is_vm, same_quantities, vm_container
from livesize.api.validation.choices import one_of
from livesize.api.validation.hooks import validate_hooks
from livesize.api.validation.lifecycle import validate_lifecycle
from livesize.api.validation.metadata import validate_written
from livesize.api.validation.names import DnsRule, validate_name
from livesize.api.validation.placement import validate_placement
from livesize.api.validation.pod_parts import validate_pod_parts, validate_termination
from livesize.api.validation.resize_annotations import validate_resize_annotations
from livesize.api.validation.resources import (
    validate_quantities,
    validate_resize_policy,
    validate_resources,
)
from livesize.api.validation.vm import validate_vm, validate_vm_overhead
from livesize.api.validation.volumes import validate_mounts, validate_volumes

MAX_GRACE_SECONDS = 2**31 - 1
RESTART_POLICIES = ("Always", "OnFailure", "Never")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_POD_LEVEL = (
    "pod-level resources are not supported: give each container its own in"
    " spec.containers[].resources"
)


def validate_pod(pod: Object) -> list[FieldError]:
    """Everything wrong with a new pod, apart from its metadata."""
    errors = [*validate_pod_spec(pod), *_validate_allocated(pod)]
    errors += validate_pod_parts(pod.get("spec") or {})
    for field, container in containers_by_field(pod):
        errors += validate_termination(container, field)
    if not errors and is_vm(pod):
        return validate_vm_overhead(pod["spec"])
    return errors


def validate_pod_template(template: Object, field: str) -> list[FieldError]:
    """Everything wrong with the template of a kind that makes pods; ``field`` says where it is."""
    return nested([*validate_written(template), *validate_pod(template)], field)


def validate_pod_sizes(pod: Object) -> list[FieldError]:
    """What of ``validate_pod_spec`` has to be looked at again when a stored pod is resized; the
    rest was, when it was stored, and a resize leaves it as it is."""
    spec = pod["spec"]
    never = spec.get("restartPolicy") == "Never"
    errors = _validate_pod_level(spec)
    if is_vm(pod):
        errors += validate_vm(pod, never=never)
    for field, container in containers_by_field(pod):
        errors += _validate_sizes(container, field, never=never)
    return errors


def validate_pod_spec(pod: Object) -> list[FieldError]:
    """Everything that has to hold for a pod at any time."""
    spec: Object = pod.get("spec") or {}
    never = spec.get("restartPolicy") == "Never"
    errors = [*_validate_scalars(spec), *validate_volumes(spec), *validate_placement(spec)]
    errors += [*validate_resize_annotations(pod, never=never), *validate_hooks(pod)]
    if is_vm(pod):
        errors += validate_vm(pod, never=never)
    elif not spec.get("containers"):
        errors.append(FieldError(FieldErrorKind.REQUIRED, "spec.containers", ""))
    seen: set[str] = set()
    volumes = {str(volume.get("name")) for volume in spec.get("volumes") or []}
    for field, container in containers_by_field(pod):
        errors += _validate_container(container, field, never=never)
        errors += validate_mounts(container, volumes, field)
        is_init = field.startswith("spec.initContainers")
        errors += validate_lifecycle(container, field, is_init=is_init)
        name = container.get("name")
        if name and name in seen:
            errors.append(FieldError(FieldErrorKind.DUPLICATE, f"{field}.name", "", name))
        seen.add(str(name))
    return errors


def containers_by_field(pod: Object) -> Iterator[tuple[str, Object]]:
    """Every container and where it stands: spec.containers[0], spec.initContainers[1]."""
    spec: Object = pod.get("spec") or {}
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"spec.{kind}[{index}]", container


def sizes_by_field(pod: Object) -> Iterator[tuple[str, Object]]:
    """Everything that has resources: the containers, and the virtual machine as one of them."""
    if is_vm(pod):
        yield "spec.virtualMachine", vm_container(pod["spec"]["virtualMachine"])
    yield from containers_by_field(pod)


def _validate_scalars(spec: Object) -> list[FieldError]:
    errors = one_of(spec.get("restartPolicy", "Always"), RESTART_POLICIES, "spec.restartPolicy")
    errors += _validate_pod_level(spec)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and not 0 <= grace <= MAX_GRACE_SECONDS:
        field = "spec.terminationGracePeriodSeconds"
        bound = "greater than or equal to 0" if grace < 0 else f"at most {MAX_GRACE_SECONDS}"
        errors.append(FieldError(FieldErrorKind.INVALID, field, f"must be {bound}", grace))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        field = "spec.activeDeadlineSeconds"
        detail = "must be between 1 and 2147483647, inclusive"
        errors.append(FieldError(FieldErrorKind.INVALID, field, detail, deadline))
    if spec.get("nodeName"):
        errors += validate_name(spec["nodeName"], "spec.nodeName", DnsRule.SUBDOMAIN)
    if spec.get("hostname"):
        errors += validate_name(spec["hostname"], "spec.hostname", DnsRule.LABEL)
    return errors + validate_quantities(spec.get("overhead") or {}, "spec.overhead")


def _validate_pod_level(spec: Object) -> list[FieldError]:
    if not spec.get("resources"):
        return []
    return [FieldError(FieldErrorKind.FORBIDDEN, "spec.resources", _POD_LEVEL)]


def _validate_container(container: Object, field: str, *, never: bool) -> list[FieldError]:
    errors = validate_name(container.get("name"), f"{field}.name", DnsRule.LABEL)
    image = container.get("image")
    if not image:
        errors.append(FieldError(FieldErrorKind.REQUIRED, f"{field}.image", ""))
    elif image != image.strip():
        detail = "must not have leading or trailing whitespace"
        errors.append(FieldError(FieldErrorKind.INVALID, f"{field}.image", detail, image))
    pull = container.get("imagePullPolicy", "IfNotPresent")
    errors += one_of(pull, _PULL_POLICIES, f"{field}.imagePullPolicy")
    errors += _validate_ports(container, field)
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name") or "=" in variable["name"]:
            errors.append(_env_error(variable.get("name"), f"{field}.env[{index}].name"))
    return errors + _validate_sizes(container, field, never=never)


def _validate_sizes(container: Object, field: str, *, never: bool) -> list[FieldError]:
    return [
        *validate_resources(container.get("resources") or {}, f"{field}.resources"),
        *validate_resize_policy(container, field, never=never),
    ]


def _env_error(name: str | None, field: str) -> FieldError:
    if not name:
        return FieldError(FieldErrorKind.REQUIRED, field, "")
    return FieldError(FieldErrorKind.INVALID, field, "must not contain '='", name)


def _validate_ports(container: Object, field: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for index, port in enumerate(container.get("ports") or []):
        where = f"{field}.ports[{index}]"
        errors += one_of(port.get("protocol", "TCP"), _PROTOCOLS, f"{where}.protocol")
        number = port.get("containerPort")
        if number is None:
            errors.append(FieldError(FieldErrorKind.REQUIRED, f"{where}.containerPort", ""))
        elif not 1 <= number <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            name = f"{where}.containerPort"
            errors.append(FieldError(FieldErrorKind.INVALID, name, detail, number))
    return errors


def _validate_allocated(pod: Object) -> list[FieldError]:
    """resourcesAllocated of a new pod is its requests; it may say so itself (decisions 4)."""
    errors = []
    for field, container in sizes_by_field(pod):
        given = container.get("resourcesAllocated")
        requests = (container.get("resources") or {}).get("requests")
        if given is not None and not same_quantities(given, requests):
            where = f"{field}.resourcesAllocated"
            detail = "must be equal to requests on create, or absent"
            errors.append(FieldError(FieldErrorKind.INVALID, where, detail, given))
    return errors
