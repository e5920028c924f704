"""The data directory of a Livesize process: the path of everything that it keeps.

Nothing is read or made here: main/wiring/folders.py makes the folders and locks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

DEFAULT_DATA_DIR = "/var/lib/livesize"
"""Of root; ``user_data_dir`` is an ordinary user's."""


def user_data_dir(environment: Mapping[str, str], home: Path) -> Path:
    """Where `livesize up` of an ordinary user keeps everything (XDG base directories)."""
    given = environment.get("XDG_DATA_HOME", "")
    return (Path(given) if given.startswith("/") else home / ".local/share") / "livesize"


class DataDirectory(NamedTuple):
    """A plain tuple: every command imports this file when it starts."""

    root: Path

    @property
    def kubeconfig(self) -> Path:
        """The admin's way in."""
        return self.root / "kubeconfig"

    @property
    def control(self) -> Path:
        """All the control plane may write: the store, its keys, hashed tokens."""
        return self.root / "control"

    @property
    def store(self) -> Path:
        return self.control / "store.db"

    @property
    def tls(self) -> Path:
        return self.control / "tls"

    @property
    def tokens(self) -> Path:
        return self.control / "tokens.json"

    @property
    def agent(self) -> Path:
        """All the node agent writes; root only."""
        return self.root / "agent"

    @property
    def checkpoint(self) -> Path:
        return self.agent / "checkpoint.db"

    @property
    def node_kubeconfig(self) -> Path:
        """How a node that has joined a cluster reaches it."""
        return self.agent / "kubeconfig"

    @property
    def node(self) -> Path:
        """The uid that all carries which this node has on the machine."""
        return self.agent / "node.json"

    @property
    def runtime(self) -> Path:
        return self.agent / "runtime"

    @property
    def containerd(self) -> Path:
        """What the driver of containerd keeps; a private containerd's own files too."""
        return self.agent / "containerd"

    @property
    def volumes(self) -> Path:
        """The volumes of pods."""
        return self.agent / "volumes"

    @property
    def claims(self) -> Path:
        """The volumes of claims, which outlive pods."""
        return self.agent / "claims"

    @property
    def vms(self) -> Path:
        """What the driver of virtual machines keeps."""
        return self.agent / "vms"

    @property
    def vm_images(self) -> Path:
        """Kernels and disks that virtual machines boot from, by name."""
        return self.agent / "vm-images"

    @property
    def endpoint(self) -> Path:
        """The socket at which the agent answers an API server on the same machine. It lies where
        the control plane, and nobody else but root, can reach it."""
        return self.control / "endpoint.sock"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def lock(self) -> Path:
        """Held by the one API server here."""
        return self.root / "lock"

    @property
    def control_plane_lock(self) -> Path:
        """Held by `livesize up` and, because it inherits it, by its control plane."""
        return self.root / "control-plane.lock"

    @property
    def agent_lock(self) -> Path:
        """Held by the one agent here."""
        return self.agent / "lock"
