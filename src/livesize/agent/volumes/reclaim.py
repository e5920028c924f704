"""Removes the folders of volumes that are to go, and lets the volumes go after that.

Follows the volumes whose folders are on this node. Cut off anywhere it begins again: a folder that
is gone is removed once more, which is harmless, and the volume goes last.
"""

from __future__ import annotations

import asyncio

from livesize.agent.outside import Outside
from livesize.agent.volumes.plan import LetGo, Refuse, RemoveFolder, Rest, plan_reclaim
from livesize.api.errors import StatusError
from livesize.api.kinds.persistent_volume import PERSISTENT_VOLUMES
from livesize.api.list_watch import Selection
from livesize.api.objects import Object, evolve, lookup, name_of
from livesize.api.reasons import EventReason
from livesize.api.storage import FOLDER_FINALIZER, NODE_LABEL
from livesize.client.informer import Delta, Informer
from livesize.machinery.queue import WorkQueue, run_workers
from livesize.machinery.steps import Step, run_steps
from livesize.machinery.telemetry import get_logger
from livesize.runtime.interface import RuntimeCallError

log = get_logger("agent.reclaim")

_AGAIN_SECONDS = 2.0
_FINALIZERS = ("metadata", "finalizers")


class FolderReclaimer:
    """``await run()`` until cancelled."""

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._queue: WorkQueue[str] = WorkQueue(outside.context)
        self._volumes = Informer(
            outside.client,
            PERSISTENT_VOLUMES,
            Selection(labels=f"{NODE_LABEL}={outside.settings.node_name}"),
            context=outside.context,
            on_change=self._observe,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._volumes.run())
            await run_workers(self._queue, self._reconcile, 1)

    def _observe(self, delta: Delta) -> None:
        if delta.new is not None and not isinstance(self._plan(delta.new), Rest):
            self._queue.add(name_of(delta.new))

    def _plan(self, volume: Object) -> Rest | LetGo | RemoveFolder | Refuse:
        return plan_reclaim(
            volume, self._outside.settings.node_name, self._outside.volumes.claims_root
        )

    async def _reconcile(self, name: str) -> float | None:
        volume = self._volumes.get("", name)
        if volume is None:
            return None

        async def let_go() -> None:
            await self._let_go(volume)

        match self._plan(volume):
            case Rest():
                pass
            case LetGo():
                return await self._run([Step("let-go", let_go)])
            case RemoveFolder(folder=folder):
                remove = Step("remove", lambda: self._remove(volume, folder))
                return await self._run([remove, Step("let-go", let_go)])
            case Refuse(why=why):
                self._outside.tell(volume, EventReason.VOLUME_FAILED_DELETE, why)
        return None

    async def _run(self, steps: list[Step]) -> float | None:
        """Return when to try again, where something was in the way."""
        outside = self._outside
        outcome = await run_steps(
            "reclaim",
            steps,
            clock=outside.clock,
            points=outside.points,
            errors=(RuntimeCallError, StatusError, ConnectionError),
        )
        return None if outcome.done else _AGAIN_SECONDS

    async def _remove(self, volume: Object, folder: str) -> None:
        try:
            await self._outside.volumes.remove_claim_folder(folder)
            log.info("folder removed", volume=folder)
        except RuntimeCallError as failure:
            self._outside.tell(volume, EventReason.VOLUME_FAILED_DELETE, str(failure))
            raise

    async def _let_go(self, volume: Object) -> None:
        finalizers = lookup(volume, *_FINALIZERS, default=[])
        kept = [one for one in finalizers if one != FOLDER_FINALIZER]
        try:
            await self._outside.client.update(PERSISTENT_VOLUMES, evolve(volume, _FINALIZERS, kept))
        except StatusError as refusal:
            if refusal.code not in (404, 409):  # gone, or changed: then it is seen again
                raise
