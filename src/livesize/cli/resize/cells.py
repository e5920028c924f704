"""Which NUMA cells of a virtual machine are to have what (`livesize resize --numa 1=1Gi`). Pure.

A cell gets a size, or with a sign more or less than it is asked to have now. The memory of the VM
follows: it is the sum of its cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from livesize.api.objects import Object, version_of
from livesize.api.quantity import QuantityError, canonical, format_memory, memory_bytes
from livesize.api.resources import ResourceName, is_vm
from livesize.cli.resize.plan import (
    SMALLEST_MEMORY_BYTES,
    RequestedSize,
    ResizePatch,
    ResizeRefusal,
    likely_memory,
    plan_patch,
    sign_of,
)
from livesize.cli.vm_words import desired_cells


class CellSizes(msgspec.Struct, frozen=True):
    """``cells``: those that change, as the patch has them; ``before``: what each of them has been
    asked to have; ``memory``: the size of the VM that follows."""

    cells: tuple[Object, ...]
    before: Mapping[int, int]
    memory: RequestedSize


def parse_cells(words: Sequence[str]) -> dict[int, str] | ResizeRefusal:
    """``words`` are CELL=SIZE; the sizes by the number of the cell."""
    wanted: dict[int, str] = {}
    for word in words:
        number, equals, size = word.partition("=")
        if not equals or not (number.isascii() and number.isdigit()):
            return ResizeRefusal(f"{word!r} is not CELL=SIZE such as 1=1Gi or 0=+512Mi")
        if int(number) in wanted:
            return ResizeRefusal(f"cell {int(number)} is named twice")
        amount = size.removeprefix(sign_of(size))
        try:
            bytes_ = memory_bytes(amount)
            wanted[int(number)] = sign_of(size) + str(canonical(amount))
        except QuantityError:
            return ResizeRefusal(f"{size!r} is not a quantity such as 512Mi or 4Gi")
        if sign_of(amount):
            return ResizeRefusal(f"{size!r} has two signs; a change is one, such as +512Mi")
        if 0 < bytes_ < SMALLEST_MEMORY_BYTES:
            meant = f"{sign_of(size)}{likely_memory(bytes_)}"
            return ResizeRefusal(f"memory of {bytes_} bytes; did you mean {number}={meant}?")
    return wanted


def plan_cells(
    pod: Object, wanted: Mapping[int, str], memory: RequestedSize
) -> CellSizes | ResizeRefusal:
    """``memory``: what was said of the VM's memory besides."""
    now = desired_cells(pod)
    if not now:
        what = "the virtual machine has no NUMA cells" if is_vm(pod) else "it is no virtual machine"
        return ResizeRefusal(f"{what}: say the size with --memory")
    after = dict(now)
    for number, text in wanted.items():
        if number not in now:
            known = " and ".join(map(str, now))
            return ResizeRefusal(f"there is no cell {number}; the virtual machine has {known}")
        after[number] = _changed(now[number], text)
        if after[number] <= 0:
            shown = format_memory(now[number])
            return ResizeRefusal(f"cell {number} has {shown}, and {text} would leave nothing of it")
    total = format_memory(sum(after.values()))
    said = memory.both or memory.limit
    if sign_of(said) or (said and memory_bytes(said) != sum(after.values())):
        return ResizeRefusal(
            f"--memory {said} is not what the cells come to, {total}: leave it out"
        )
    both = RequestedSize(both=total)
    size = both if not memory.request else RequestedSize(request=memory.request, limit=total)
    cells = tuple({"id": number, "memory": format_memory(after[number])} for number in wanted)
    return CellSizes(cells, {number: now[number] for number in wanted}, size)


def plan_vm_patch(
    pod: Object,
    container: str,
    sizes: Mapping[ResourceName, RequestedSize],
    wanted: Mapping[int, str],
) -> ResizePatch | ResizeRefusal:
    """The patch that gives the pod these sizes and its cells theirs. It is a change of just this
    version of the pod, for the sum depends on the cells that it does not name."""
    if not wanted:
        return plan_patch(pod, container, sizes)
    cells = plan_cells(pod, wanted, sizes.get(ResourceName.MEMORY, RequestedSize()))
    if isinstance(cells, ResizeRefusal):
        return cells
    patch = plan_patch(pod, container, {**sizes, ResourceName.MEMORY: cells.memory})
    if isinstance(patch, ResizeRefusal):
        return patch
    return msgspec.structs.replace(
        patch, version=version_of(pod), cells=cells.cells, cells_before=cells.before
    )


def _changed(now_bytes: int, text: str) -> int:
    sign = sign_of(text)
    amount = memory_bytes(text.removeprefix(sign))
    match sign:
        case "+":
            return now_bytes + amount
        case "-":
            return now_bytes - amount
        case _:
            return amount
