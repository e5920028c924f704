"""Does a kubelet use this containerd? Then it is not for us: each would remove the other's pods."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_ENDPOINT_OPTION = "--container-runtime-endpoint"
_KUBELET_POD_LABEL = "io.kubernetes.pod.uid"


def kubelet_at(socket: Path, proc: Path = Path("/proc")) -> str:
    """A sentence about the kubelet of this machine that may use ``socket``; empty: none does.

    Where a kubelet does not say on its command line which runtime it uses, it may be this one.
    """
    for folder in proc.iterdir():
        if not folder.name.isdigit() or _text(folder / "comm").strip() != "kubelet":
            continue
        endpoint = _endpoint(_text(folder / "cmdline").split("\0"))
        if not endpoint or _same_file(endpoint, socket):
            return f"a kubelet runs on this machine (pid {folder.name})"
    return ""


def has_kubelet_pods(labels: Iterable[dict[str, str]], our_label: str) -> bool:
    """Of all sandboxes: is there one that a kubelet made?"""
    return any(_KUBELET_POD_LABEL in one and our_label not in one for one in labels)


def _endpoint(words: list[str]) -> str:
    for position, word in enumerate(words):
        name, separator, value = word.partition("=")
        if name == _ENDPOINT_OPTION:
            return value if separator else "".join(words[position + 1 : position + 2])
    return ""


def _same_file(endpoint: str, socket: Path) -> bool:
    path = Path(endpoint.removeprefix("unix://"))
    try:
        return path.samefile(socket)
    except OSError:
        return path == socket


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
