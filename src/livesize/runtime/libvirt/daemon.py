"""A libvirtd of our own, in a mount namespace of its own, which outlives the agent.

libvirt's folders are compiled in. In its namespace each of them is a folder below ``root``, so
that it shares nothing with a libvirtd of the machine:

    root/run    /run/libvirt          sockets, pid files, the state of running domains
    root/lib    /var/lib/libvirt      files of VMs; images/ is the images directory, read-only
    root/etc    /etc/libvirt          settings, persistent definitions
    root/log    /var/log/libvirt      consoles of VMs (vms/), libvirtd's own log
    root/cache  /var/cache/libvirt

It is started when the first VM comes. Killed, it is started again and finds its guests; without
clients and guests it ends by itself. It is known again by the folder it sees as /run/libvirt,
never by its pid alone. Its parent is a process that does nothing but reap: QEMU is not a child of
libvirtd, which waits for a killed one to vanish, and in a container the first process may reap
late or never.
"""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import signal
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import msgspec

from livesize.runtime.interface import RuntimeCallError
from livesize.runtime.process.machine_facts import boot_id
from livesize.runtime.process.processes import open_process
from livesize.runtime.process.records import write_whole

QEMU_USERS = ("libvirt-qemu", "qemu")
_PARTS = {
    "run": "/run/libvirt",
    "lib": "/var/lib/libvirt",
    "etc": "/etc/libvirt",
    "log": "/var/log/libvirt",
    "cache": "/var/cache/libvirt",
}
_NAMESPACE_IMAGES = "/var/lib/libvirt/images"
_IDLE_SECONDS = 120
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.01

_REAP = """\
import ctypes, os, sys
PR_SET_CHILD_SUBREAPER = 36
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
os.chdir(sys.argv[1])
os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""

# $1: root, $2: images directory, $3: "yes" to hide KVM, then pairs of a part and its place. A KVM
# that is not used is hidden: libvirt finds it now usable and now not, asks QEMU again what it can
# do before every call, and that takes seconds.
_START = """\
set -e
cd "$1"
root=$1 images=$2
if [ "$3" = yes ] && [ -e /dev/kvm ]; then
  mount -t tmpfs -o nosuid,mode=755,size=1m devices "$root/dev"
  for name in null zero full random urandom tty console ptmx fd stdin stdout stderr; do
    [ ! -e "/dev/$name" ] || cp -a "/dev/$name" "$root/dev/$name"
  done
  for name in pts shm; do
    mkdir -p "$root/dev/$name"
    [ ! -d "/dev/$name" ] || mount --rbind "/dev/$name" "$root/dev/$name"
  done
  umount --lazy /dev
  mount --move "$root/dev" /dev
fi
shift 3
while [ $# -gt 0 ]; do
  mkdir -p "$2"
  mount --bind "$root/$1" "$2"
  shift 2
done
mount --bind "$images" {images}
mount -o remount,bind,ro {images}
exec libvirtd --config /etc/libvirt/libvirtd.conf --pid-file /run/libvirt/libvirtd.pid \
  --timeout {idle}
"""

_LIBVIRTD_CONF = """\
auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
unix_sock_ro_perms = "0700"
unix_sock_admin_perms = "0700"
host_uuid = "{uuid}"
log_outputs = "3:file:/var/log/libvirt/libvirtd.log"
"""

# Files are given the right owners before QEMU starts, and groups are the agent's business:
# libvirt is to touch neither.
_QEMU_CONF = """\
user = "{user}"
group = "{group}"
security_driver = "none"
dynamic_ownership = 0
remember_owner = 0
stdio_handler = "file"
cgroup_controllers = [ ]
"""


class QemuUser(msgspec.Struct, frozen=True):
    name: str
    group: str
    uid: int
    gid: int


def find_qemu_user() -> QemuUser:
    """The account the distribution made for QEMU; root where there is none."""
    for name in (*QEMU_USERS, "root"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return QemuUser(name, grp.getgrgid(entry.pw_gid).gr_name, entry.pw_uid, entry.pw_gid)
    raise RuntimeCallError(f"none of the accounts {', '.join(QEMU_USERS)} and root exists here")


class LibvirtDaemon:
    """Calls block; whoever uses it does so from one thread at a time."""

    def __init__(self, root: Path, images_dir: Path, *, use_kvm: bool) -> None:
        self.root = root.absolute()
        self.images_dir = images_dir.absolute()
        self._use_kvm = use_kvm
        self.user = find_qemu_user()
        self._pause = threading.Event()  # never set: waiting on it is sleeping
        self._child = 0  # the parent of the libvirtd we started last
        self._children: set[int] = set()  # and of those before, whose guests still run

    @property
    def socket(self) -> Path:
        return self.root / "run" / "libvirt-sock"

    def host_path(self, path: str) -> Path:
        """Where a file of the namespace is for everybody else."""
        for part, place in _PARTS.items():
            if path.startswith(f"{place}/"):
                return self.root / part / path.removeprefix(f"{place}/")
        return Path(path)

    def namespace_path(self, path: Path) -> str:
        """How libvirtd and QEMU name a file of ours."""
        if path.is_relative_to(self.images_dir):
            return f"{_NAMESPACE_IMAGES}/{path.relative_to(self.images_dir)}"
        for part, place in _PARTS.items():
            if path.is_relative_to(self.root / part):
                return f"{place}/{path.relative_to(self.root / part)}"
        return str(path)

    def pid(self) -> int | None:
        """None: it does not run."""
        pid = self._noted_pid()
        descriptor = None if pid is None else open_process(pid, self._is_ours)
        if descriptor is None:
            return None
        os.close(descriptor)
        return pid

    def start(self) -> None:
        """Start it if it does not run. It needs a moment before it answers."""
        self._reap()
        if self.pid() is not None:
            return
        for program in ("unshare", "libvirtd", "qemu-system-x86_64"):
            if shutil.which(program, path=_environment()["PATH"]) is None:
                raise RuntimeCallError(
                    f"virtual machines need {program}, which is not installed here;"
                    " on Debian: apt-get install qemu-system-x86 libvirt-daemon-system"
                )
        self._prepare()
        self._child = self._spawn()
        self._children.add(self._child)

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; guests would go on. Harmless where it does not run."""
        pid = self.pid()
        descriptor = None if pid is None else open_process(pid, self._is_ours)
        if descriptor is None:
            self._reap()
            return
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
                if self._ended_within(_STOP_SECONDS):
                    break
        finally:
            os.close(descriptor)
            self._reap()

    def why_not(self) -> str:
        """The last words of one that ended before it answered."""
        for name in ("start.log", "libvirtd.log"):
            with contextlib.suppress(OSError):
                lines = (self.root / "log" / name).read_text(errors="replace").strip().splitlines()
                if lines:
                    return lines[-1]
        return "it said nothing"

    def ended_early(self) -> bool:
        """The one just started is gone again."""
        self._reap()
        return self._child not in self._children and self.pid() is None

    def _prepare(self) -> None:
        for part in _PARTS:
            (self.root / part).mkdir(parents=True, exist_ok=True)
        if self._text("boot") != boot_id():  # sockets and states of guests that are no more
            shutil.rmtree(self.root / "run")
            (self.root / "run").mkdir()
        for part, mode in (("run", 0o711), ("lib", 0o711), ("log", 0o711), ("etc", 0o700)):
            (self.root / part).chmod(mode)
        for name in ("lib/images", "dev"):
            (self.root / name).mkdir(exist_ok=True)
        self.images_dir.mkdir(parents=True, exist_ok=True)
        self.images_dir.chmod(0o755)
        write_whole(self.root / "boot", boot_id().encode())
        etc = self.root / "etc"
        host = uuid.uuid5(uuid.NAMESPACE_URL, f"livesize:{self.root}:{_machine_id()}")
        write_whole(etc / "libvirtd.conf", _LIBVIRTD_CONF.format(uuid=host).encode())
        user, group = self.user.name, self.user.group
        write_whole(etc / "qemu.conf", _QEMU_CONF.format(user=user, group=group).encode())

    def _spawn(self) -> int:
        script = _START.format(images=_NAMESPACE_IMAGES, idle=_IDLE_SECONDS)
        places = [word for pair in _PARTS.items() for word in pair]
        unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
        command = [sys.executable, "-I", "-S", "-c", _REAP, str(self.root), *unshare]
        log = str(self.root / "log" / "start.log")
        hide_kvm = "no" if self._use_kvm else "yes"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        return os.posix_spawn(
            sys.executable,
            [*command, str(self.root), str(self.images_dir), hide_kvm, *places],
            _environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )

    def _noted_pid(self) -> int | None:
        text = self._text("run/libvirtd.pid").strip()
        return int(text) if text.isdigit() else None

    def _is_ours(self, pid: int) -> bool:
        """Does it see our folder as its own?"""
        try:
            return Path(f"/proc/{pid}/root/run/libvirt").samefile(self.root / "run") and (
                "libvirtd" in Path(f"/proc/{pid}/comm").read_text()
            )
        except OSError:
            return False

    def _reap(self) -> None:
        for child in tuple(self._children):
            try:
                ended, _ = os.waitpid(child, os.WNOHANG)
            except ChildProcessError:
                ended = child
            if ended:
                self._children.discard(child)

    def _ended_within(self, seconds: float) -> bool:
        for _ in self._polls(seconds):
            self._reap()
            if self.pid() is None:
                return True
        return False

    def _polls(self, seconds: float) -> Iterator[None]:
        for _ in range(int(seconds / _POLL_SECONDS)):
            yield
            self._pause.wait(_POLL_SECONDS)

    def _text(self, name: str) -> str:
        try:
            return (self.root / name).read_text()
        except OSError:
            return ""


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""
