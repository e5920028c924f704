"""A template whose virtual machine has NUMA cells: another size of one is a resize, which reaches
the pods with the cells that it names."""

from __future__ import annotations

from livesize.api.objects import Object
from livesize.api.workload_resize import (
    TemplateChange,
    format_sizes,
    previous_sizes,
    template_change,
    with_sizes,
)
from livesize.controllers.in_place.pod_patches import (
    has_sizes,
    resized_pod,
    size_patch,
    template_sizes,
)


def template(*memory: int) -> Object:
    size = {"cpu": "1", "memory": f"{sum(memory)}Mi"}
    cells = [
        {"id": number, "memory": f"{amount}Mi", "boot": "128Mi"}
        for number, amount in enumerate(memory)
    ]
    vm = {"resources": {"requests": size, "limits": size}, "numa": {"cells": cells}}
    return {"spec": {"virtualMachine": vm}}


SMALL, GROWN, MOVED = template(256, 256), template(256, 512), template(512, 256)


def test_another_size_of_a_cell_is_a_resize() -> None:
    assert template_change(SMALL, GROWN) is TemplateChange.RESIZE
    assert template_change(GROWN, MOVED) is TemplateChange.RESIZE, "the sum is the same"
    assert template_change(SMALL, template(256, 256)) is TemplateChange.NONE
    assert template_change(SMALL, template(256, 128, 128)) is TemplateChange.ROLLOUT


def test_the_patch_of_a_pod_names_the_cells() -> None:
    sizes = template_sizes(GROWN)
    assert has_sizes(GROWN, sizes)
    assert size_patch(GROWN, sizes) is None
    patch = size_patch(SMALL, sizes)
    assert patch is not None
    cells = [{"id": 0, "memory": "256Mi"}, {"id": 1, "memory": "512Mi"}]
    assert patch["spec"]["virtualMachine"] == {"numa": {"cells": cells}}
    (container,) = patch["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "768Mi"}
    assert not has_sizes(GROWN, template_sizes(MOVED))
    assert resized_pod(SMALL, sizes, None) == GROWN


def test_former_sizes_have_their_cells() -> None:
    """The annotation livesize.dev/previous, by which an undo goes back."""
    noted = {"livesize.dev/previous": format_sizes(SMALL)}
    workload = {"metadata": {"annotations": noted}, "spec": {"template": GROWN}}
    sizes = previous_sizes(workload)
    assert sizes is not None
    assert with_sizes(workload, sizes)["spec"]["template"] == SMALL
