"""Reads the termination messages of containers: terminationMessagePath and its policy.

Each start gets an empty file of its own, mounted at the path; when the container has ended, the end
of that file is the message of its terminated state. With FallbackToLogsOnError the end of its log
stands in for an empty file, where it has failed. Bounded as Kubernetes bounds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing

from livesize.agent.dependencies import AgentDependencies
from livesize.api.objects import Object, uid_of
from livesize.api.resources import containers_of, init_containers_of
from livesize.runtime.interface import ContainerPhase, ContainerView, Mount, RuntimeCallError
from livesize.runtime.streams import LogQuery

MOST_BYTES = 4096
_MOST_OF_ALL = 12 * 1024  # of all containers of a pod together
_MOST_OF_LOG = 2048
_MOST_LINES = 80
_WRITABLE_BY_ALL = 0o666


class TerminationMessages:
    """``messages``: by the id of each container that has ended; only of those the last
    ``collect`` saw."""

    def __init__(self, dependencies: AgentDependencies) -> None:
        self._dependencies = dependencies
        self.messages: dict[str, str] = {}

    async def mount(self, pod: Object, container: Object, attempt: int) -> tuple[Mount, ...]:
        """The file of this start; those of the starts before the last one go."""
        path = container.get("terminationMessagePath")
        taken = {one.get("mountPath") for one in container.get("volumeMounts") or ()}
        if not path or path in taken:
            return ()
        store, uid = self._dependencies.volumes, uid_of(pod)
        name = container["name"]
        if attempt > 1:
            await store.remove_file(uid, _file(name, attempt - 2))
        file = await store.prepare_file(uid, _file(name, attempt), b"", _WRITABLE_BY_ALL)
        return (Mount(file, path),)

    async def collect(self, pod: Object, views: Iterable[ContainerView]) -> None:
        """Read the messages of those that have ended, each once."""
        ended = {view.id: view for view in views if view.phase is ContainerPhase.EXITED}
        messages = {one: said for one, said in self.messages.items() if one in ended}
        containers = [*containers_of(pod), *init_containers_of(pod)]
        most = min(MOST_BYTES, _MOST_OF_ALL // max(len(containers), 1))
        for view_id, view in ended.items():
            container = next((one for one in containers if one["name"] == view.name), None)
            if view_id not in messages and container is not None:
                messages[view_id] = await self._read(pod, container, view, most)
        self.messages = messages

    async def _read(self, pod: Object, container: Object, view: ContainerView, most: int) -> str:
        store = self._dependencies.volumes
        said = b""
        if container.get("terminationMessagePath"):
            said = store.read_file(uid_of(pod), _file(view.name, view.attempt), most)
        falls_back = container.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if not said and falls_back and view.exit_code:
            said = await self._end_of_log(pod, view, min(most, _MOST_OF_LOG))
        return said.decode(errors="replace")

    async def _end_of_log(self, pod: Object, view: ContainerView, most: int) -> bytes:
        newest = self._dependencies.runtime.pod(uid_of(pod))
        attempts = {} if newest is None else {one.name: one.attempt for one in newest.containers}
        previous = attempts.get(view.name, view.attempt) > view.attempt
        query = LogQuery(uid_of(pod), view.name, previous=previous, tail_lines=_MOST_LINES)
        said = b""
        try:
            async with aclosing(self._dependencies.runtime.read_log(query)) as log:
                async for lines in log:
                    said = (said + b"".join(line.data for line in lines))[-most:]
        except RuntimeCallError:
            return b""  # the log is gone: there is nothing to tell
        return said


def _file(container: str, attempt: int) -> str:
    return f"{container}-{attempt}.message"
