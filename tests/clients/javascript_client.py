"""The JavaScript client, spoken to through a bridge that runs in node."""

from __future__ import annotations

import itertools
import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clients.interface import NAMESPACE, Change, Listing, RefusedError, Tree

FOLDER = Path(__file__).parent / "javascript"
_WAIT_SECONDS = 30


class JavaScript:
    def __init__(self, kubeconfig: Path) -> None:
        command = ["node", "bridge.mjs", str(kubeconfig), NAMESPACE]
        self._process = subprocess.Popen(
            command, cwd=FOLDER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answers: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        self._changes: dict[int, queue.SimpleQueue[Tree]] = {}
        self._numbers = itertools.count()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_WAIT_SECONDS)
        self._thread.join(_WAIT_SECONDS)
        self._process.stdout.close()

    def create(self, pod: Tree) -> Tree:
        return self._ask("create", pod=pod)

    def get(self, name: str) -> Tree:
        return self._ask("get", name=name)

    def replace(self, pod: Tree) -> Tree:
        return self._ask("replace", pod=pod)

    def list(self, labels: str = "", fields: str = "") -> Listing:
        found = self._ask("list", labels=labels, fields=fields)
        return Listing(found["names"], found["version"])

    def paged(self, labels: str, limit: int) -> Iterator[str]:
        page = self._ask("list", labels=labels, limit=limit)
        while True:
            assert len(page["names"]) <= limit
            yield from page["names"]
            if not page["token"]:
                return
            page = self._ask("list", labels=labels, limit=limit, token=page["token"])

    def patch(self, name: str, kind: str, body: Any) -> Tree:
        return self._ask("patch", name=name, kind=kind, body=body)

    def resize(self, name: str, kind: str, body: Any) -> Tree:
        return self._ask("resize", name=name, kind=kind, body=body)

    def delete(self, name: str) -> None:
        self._ask("delete", name=name)

    def watch(self, labels: str, version: str) -> Iterator[Change]:
        number = next(self._numbers)
        self._changes[number] = queue.SimpleQueue()
        self._ask("watch", watch=number, labels=labels, version=version)
        try:
            while True:
                line = self._changes[number].get(timeout=_WAIT_SECONDS)
                if "event" not in line:
                    if line["ended"] is not None:
                        raise RefusedError(line["ended"]["code"], line["ended"]["reason"])
                    return
                pod = line["event"]["pod"]
                if line["event"]["type"] == "ERROR":
                    raise RefusedError(pod["code"], pod["reason"])
                metadata = pod["metadata"]
                yield Change(
                    line["event"]["type"], metadata["name"], metadata["resourceVersion"], pod
                )
        finally:
            self._ask("unwatch", watch=number)

    def informed(self, name: str, labels: str, version: str) -> list[str]:
        """What an informer that stands at ``version`` knows once it has seen ``name``."""
        names: list[str] = self._ask("inform", name=name, labels=labels, version=version)
        return names

    def pod_metrics(self) -> list[Tree]:
        items: list[Tree] = self._ask("pod_metrics")
        return items

    def _ask(self, do: str, **words: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self._process.stdin.flush()
        answer = self._answers.get(timeout=_WAIT_SECONDS)
        if "refused" in answer:
            raise RefusedError(answer["refused"]["code"], answer["refused"]["reason"])
        return answer["result"]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            if "watch" in line:
                self._changes[line["watch"]].put(line)
            else:
                self._answers.put(line)
