"""What is asked of one pod or workload, asking it, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from livesize.api.errors import StatusError
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object
from livesize.api.patch import PatchType
from livesize.api.requested_action import RequestedAction
from livesize.api.resources import ResourceName
from livesize.api.write_options import WriteOptions
from livesize.cli.connection import CommandFailure
from livesize.cli.output import Format, Table
from livesize.cli.resize.plan import RequestedSize, ResizePatch, ResizeRefusal
from livesize.cli.resize.workload_plan import WorkloadPatch
from livesize.cli.targets import label_of

if TYPE_CHECKING:
    from livesize.client.interface import Client

AnyPatch = TypeVar("AnyPatch", ResizePatch, WorkloadPatch)

_CONFLICT = 409
_TRIES = 10


class ResizeCommand(msgspec.Struct, frozen=True):
    """The command, read, for one object."""

    resource: Resource
    name: str
    namespace: str
    container: str
    sizes: dict[ResourceName, RequestedSize]
    form: Format
    patience_seconds: float | None  # None: do not wait
    dry_run: bool
    undo: bool = False
    action: RequestedAction | None = None
    cells: Mapping[int, str] = {}  # by number what each NUMA cell is to have

    @property
    def label(self) -> str:
        return label_of(self.resource, self.name)


class ResizeOutcome(msgspec.Struct, frozen=True):
    """What to show: the object as it is now, a sentence that goes on after its name, tables."""

    request: ResizeCommand
    after: Object
    sentence: str
    tables: tuple[Table, ...] = ()


class ResizeFailure(CommandFailure):
    """It did not happen, or is not waited for; ``tables`` show how far it came."""

    def __init__(self, message: str, tables: tuple[Table, ...] = ()) -> None:
        super().__init__(message)
        self.tables = tables


class Interrupted(ResizeFailure):
    """Ctrl-C, as a shell tells it."""

    exit_code = 130


async def ask(
    client: Client,
    request: ResizeCommand,
    plan: Callable[[Object], AnyPatch | ResizeRefusal],
    subresource: str = "",
) -> tuple[Object, AnyPatch, Object]:
    """The object before, what was sent, and the object as the server has it then. A change of what
    is there is worked out anew where somebody else has changed the object meanwhile."""
    for left in reversed(range(_TRIES)):
        before = await client.get(request.resource, request.name, request.namespace)
        patch = plan(before)
        if isinstance(patch, ResizeRefusal):
            raise ResizeFailure(f"{request.label}: {patch.sentence}")
        try:
            answer = await client.patch(
                request.resource,
                request.name,
                patch.body(),
                namespace=request.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource=subresource,
                options=WriteOptions(dry_run=request.dry_run),
            )
        except StatusError as refusal:
            if refusal.code != _CONFLICT or not patch.version or not left:
                raise
        else:
            return before, patch, answer
    raise AssertionError("the last try answers or raises")
