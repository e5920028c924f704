"""A containerd of our own, which outlives the agent and is found again by the next one.

    root/config.toml      what it is told, written anew at each start
    root/containerd.pid   written by the process that becomes containerd
    root/containerd.log
    root/lib, root/run    containerd's own root and state
    /run/livesize/<digest of root>/containerd.sock

The socket stands apart because the kernel takes only short names for one. containerd shares none
of this with another containerd of the machine. It is known again by the configuration file in
its command line, never by its pid alone. Killed, it is started again and finds its containers,
which belong to shims and go on meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import hashlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.process.processes import (
    ProcessWatch,
    has_argument,
    open_process,
    signal_process,
)
from livesize.runtime.process.records import write_whole

SOCKETS = Path("/run/livesize")
_STOP_SECONDS = 10.0
_LARGEST_LOG_BYTES = 4 << 20
_CAP_SYS_RESOURCE = 24
_SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The pid is noted before containerd begins, so that no agent killed at the wrong moment leaves a
# containerd that nobody knows of.
_START = """\
printf '%s\\n' "$$" > "$1.new" && mv "$1.new" "$1" || exit 125
shift
exec "$@"
"""

_CONFIG = """\
version = 2
root = {root}
state = {state}
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]

[grpc]
  address = {socket}

[ttrpc]
  address = {ttrpc}

[debug]
  level = "warn"

[plugins."io.containerd.internal.v1.opt"]
  path = {opt}

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {sandbox_image}
  restrict_oom_score_adj = {restrict_oom_score_adj}
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  BinaryName = {runc}
  SystemdCgroup = {systemd_cgroup}

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = {cni_bin}
  conf_dir = {cni_conf}

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = {registries}
"""


class GroupDriver(enum.StrEnum):
    """Who makes and writes the control groups of containers: runc itself, or systemd for it."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class ContainerdPrograms(msgspec.Struct, frozen=True):
    """Where they are; empty: not installed."""

    containerd: str
    runc: str
    shim: str
    ctr: str

    def missing(self) -> list[str]:
        names = {
            "containerd": self.containerd,
            "runc": self.runc,
            "containerd-shim-runc-v2": self.shim,
            "ctr": self.ctr,
        }
        return [name for name, path in names.items() if not path]


class CniFolders(msgspec.Struct, frozen=True):
    """Where the machine's network plugins and their configuration are."""

    plugins: str = "/opt/cni/bin"
    configuration: str = "/etc/cni/net.d"


def socket_of(root: Path) -> Path:
    """Where the containerd answers that keeps its files in ``root``."""
    digest = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return SOCKETS / digest / "containerd.sock"


def find_programs() -> ContainerdPrograms:
    """On PATH, where systems keep them, or beside this Python."""
    beside = Path(sys.executable).parent
    path = f"{os.environ.get('PATH', '')}:{_SEARCH_PATH}:{beside}"
    names = ("containerd", "runc", "containerd-shim-runc-v2", "ctr")
    return ContainerdPrograms(*(shutil.which(name, path=path) or "" for name in names))


class ContainerdDaemon:
    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        sandbox_image: str,
        cni: CniFolders | None = None,
        group_driver: GroupDriver = GroupDriver.CGROUPFS,
    ) -> None:
        self.root = root.absolute()
        self.programs = find_programs()
        self._clock = clock
        self._sandbox_image = sandbox_image
        self._cni = cni or CniFolders()
        self._group_driver = group_driver
        self._watch: ProcessWatch | None = None
        self._ended = asyncio.Event()
        self.socket = socket_of(self.root)

    @property
    def config_file(self) -> Path:
        return self.root / "config.toml"

    def pid(self) -> int | None:
        """None: it does not run."""
        descriptor, pid = self._open_noted()
        if descriptor is not None:
            os.close(descriptor)
        return pid

    def start(self) -> None:
        """Find it or start it, and watch it; it needs a moment before it answers."""
        self.let_go()
        descriptor, pid = self._open_noted()
        if descriptor is None:
            self._prepare()
            pid = self._spawn()
            descriptor = os.pidfd_open(pid)  # our child: nobody else can have its pid yet
        assert pid is not None
        self._ended = asyncio.Event()
        self._watch = ProcessWatch(pid, descriptor, self._ended.set)

    def has_old_settings(self) -> bool:
        """It was started by an agent that wanted something else of it."""
        try:
            return self.config_file.read_text() != self._configuration()
        except OSError:
            return True

    async def wait_ended(self) -> None:
        await self._ended.wait()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def let_go(self) -> None:
        """It goes on; we watch it no more."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def stop(self) -> None:
        """SIGTERM, then SIGKILL; containers would go on. Harmless where it does not run."""
        pid = self.pid()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if pid is None or not signal_process(pid, self._is_ours, number):
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._ended.wait()
        self.let_go()
        for path in (self.socket, self._ttrpc):
            path.unlink(missing_ok=True)
        for folder in (self.socket.parent, SOCKETS):
            with contextlib.suppress(OSError):  # another agent's, or not there
                folder.rmdir()

    def why_not(self) -> str:
        """Its last words."""
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    @property
    def _log(self) -> Path:
        return self.root / "containerd.log"

    @property
    def _pid_file(self) -> Path:
        return self.root / "containerd.pid"

    @property
    def _ttrpc(self) -> Path:
        return self.socket.with_name("containerd.sock.ttrpc")

    @property
    def _is_ours(self) -> Callable[[int], bool]:
        return has_argument(str(self.config_file))

    def _open_noted(self) -> tuple[int | None, int | None]:
        """A descriptor of the one that runs, which the caller closes, and its pid."""
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None, None
        descriptor = open_process(pid, self._is_ours)
        return descriptor, None if descriptor is None else pid

    def _prepare(self) -> None:
        missing = self.programs.missing()
        if missing:
            raise RuntimeCallError(
                f"--runtime containerd needs {', '.join(missing)}, not installed here;"
                " on Debian: apt-get install containerd runc"
            )
        self.root.mkdir(parents=True, exist_ok=True)
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > _LARGEST_LOG_BYTES:
                self._log.replace(self._log.with_name("containerd.log.1"))
        write_whole(self.config_file, self._configuration().encode())

    def _configuration(self) -> str:
        values = {
            "root": str(self.root / "lib"),
            "state": str(self.root / "run"),
            "opt": str(self.root / "opt"),
            "registries": str(self.root / "registries"),
            "socket": str(self.socket),
            "ttrpc": str(self._ttrpc),
            "sandbox_image": self._sandbox_image,
            "runc": self.programs.runc,
            "cni_bin": self._cni.plugins,
            "cni_conf": self._cni.configuration,
        }
        # A string of JSON is one of TOML. Without the capability a lower score cannot be given,
        # and containerd would start nothing at all.
        quoted = {name: json.dumps(value) for name, value in values.items()}
        restrict = "false" if _may_lower_oom_scores() else "true"
        systemd = "true" if self._group_driver is GroupDriver.SYSTEMD else "false"
        return _CONFIG.format(**quoted, restrict_oom_score_adj=restrict, systemd_cgroup=systemd)

    def _spawn(self) -> int:
        programs = self.programs
        folders = {str(Path(path).parent): None for path in (programs.shim, programs.runc)}
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        command = (programs.containerd, "--config", str(self.config_file))
        return os.posix_spawn(
            "/bin/sh",
            ("/bin/sh", "-c", _START, "sh", str(self._pid_file), *command),
            {**_passed_on(), "PATH": ":".join((*folders, _SEARCH_PATH))},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self._log), append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )


def _passed_on() -> dict[str, str]:
    """A registry may only be reachable through a proxy."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    return {name: os.environ[name] for name in names if name in os.environ}


def _may_lower_oom_scores() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value, 16) >> _CAP_SYS_RESOURCE & 1)
    return False
