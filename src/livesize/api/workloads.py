"""What the kinds that make pods have in common: what of them is read, who may do what, and the
columns that show their template. Pure."""

from __future__ import annotations

from livesize.api import roles
from livesize.api.columns import NONE, Column
from livesize.api.objects import Object, lookup
from livesize.api.pod_template import default_pod_template
from livesize.api.resources import is_vm
from livesize.api.selectors import format_label_selector, parse_selector
from livesize.api.vm_as_container import derived_container
from livesize.api.workload_resize import template_of as template_of

WORKLOAD_ROLES = roles.combine(
    roles.EDITED, roles.STATUS, roles.SCALE, {roles.Role.CONTROLLER: {"": roles.ALL}}
)
"""Users make them, and controllers make some of them from others."""


def replicas_of(workload: Object) -> int:
    """How many pods it wants."""
    return int(lookup(workload, "spec", "replicas", default=1))


def selects(workload: Object, labelled: Object) -> bool:
    """Whether its selector matches the labels of a pod, of its template or of another workload."""
    selector = lookup(workload, "spec", "selector", default={})
    return parse_selector(selector).matches(lookup(labelled, "metadata", "labels", default={}))


def default_template(spec: Object) -> Object:
    """The spec with the defaults of the pods in its template; one without any gets them too, so
    that validation has a template to speak of."""
    template = spec.get("template", {})
    if not isinstance(template, dict):
        return spec
    return {**spec, "template": default_pod_template({"spec": {}, **template})}


def _containers(workload: Object) -> list[Object]:
    template = template_of(workload)
    if is_vm(template):
        return [derived_container(template["spec"]["virtualMachine"])]
    containers: list[Object] = lookup(template, "spec", "containers", default=[])
    return containers


def _selector_cell(workload: Object, _now: float) -> str:
    return format_label_selector(lookup(workload, "spec", "selector", default={})) or NONE


def ready_cell(workload: Object, _now: float) -> str:
    return f"{lookup(workload, 'status', 'readyReplicas', default=0)}/{replicas_of(workload)}"


CONTAINERS = Column(
    "Containers",
    lambda workload, _now: ",".join(str(one.get("name")) for one in _containers(workload)),
    priority=1,
)
IMAGES = Column(
    "Images",
    lambda workload, _now: ",".join(str(one.get("image")) for one in _containers(workload)),
    priority=1,
)
SELECTOR = Column("Selector", _selector_cell, priority=1)
