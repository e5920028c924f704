"""What the tests ask of a client library of Kubernetes; one class for each library answers it.

Objects go in and come out as plain JSON trees, as the library itself wrote and read them: what it
would not take does not get through. A refusal is a ``RefusedError`` with the server's code and
reason, found where the library puts them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias

Tree: TypeAlias = dict[str, Any]

NAMESPACE = "default"
JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class RefusedError(Exception):
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code
        self.reason = reason


class Listing(NamedTuple):
    names: list[str]
    version: str


class Change(NamedTuple):
    type: str
    name: str
    version: str
    pod: Tree


class Library(Protocol):
    """A client for the pods of one namespace, connected as a kubeconfig says."""

    def create(self, pod: Tree) -> Tree: ...

    def get(self, name: str) -> Tree: ...

    def list(self, labels: str = "", fields: str = "") -> Listing: ...

    def paged(self, labels: str, limit: int) -> Iterator[str]:
        """Names, page by page: the next page is asked for when this one is used up."""
        ...

    def replace(self, pod: Tree) -> Tree: ...

    def patch(self, name: str, kind: str, body: Any) -> Tree: ...

    def resize(self, name: str, kind: str, body: Any) -> Tree: ...

    def delete(self, name: str) -> None: ...

    def watch(self, labels: str, version: str) -> Iterator[Change]:
        """From ``version`` on, until the iterator is closed."""
        ...

    def pod_metrics(self) -> list[Tree]: ...

    def close(self) -> None: ...
