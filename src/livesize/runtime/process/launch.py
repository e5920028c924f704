"""Becomes a container: the first process in new namespaces, which ends by being the workload.

Run as ``python -P -S launch.py CONFIG``, first process of a new pid namespace (shim.py); standard
library only. It makes the private root, leaves the old one, joins the control groups, drops what a
workload must not have, and executes the command. Everything is decided by the caller and stands in
CONFIG (launch_config.py).

What an image contains is not trusted (ADR 0071):

- nothing below the new root is opened or mounted upon before ``pivot_root``, so a symbolic link in
  it can only lead to another place in it;
- nothing is imported once this script runs, and nothing raised leaves it, because Python would
  look for what shows an exception in files that are the container's by then;
- the container's files are read by a member of its groups, regular files only, up to a size;
- the container can neither look into this process nor inherit a descriptor of the machine's.

A fifo tells the caller how it went: closed without a word after "started" means that the command
runs; "error SENTENCE" says why not.

Every import counts here, json, re and enum alone doubled the time of a start: hence CONFIG is
marshalled, and neither pathlib, typing, signal nor contextlib is used.
"""

# ruff: noqa: PTH100, PTH101, PTH102, PTH103, PTH104, PTH108, PTH110, PTH113, PTH115, PTH116, PTH120, PTH123
# ruff: noqa: PTH109, PTH211

from __future__ import annotations

import ctypes
import marshal
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from livesize.runtime.process.container_users import LaunchError, find_user
else:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from container_users import LaunchError, find_user

    del sys.path[0]

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWNET = 1 << 17, 1 << 26, 1 << 27, 1 << 30
CLONE_NEWCGROUP, MNT_DETACH = 1 << 25, 2
SYS_OPEN_TREE, SYS_MOVE_MOUNT, AT_FDCWD, AT_RECURSIVE = 428, 429, -100, 0x8000
SYS_FSOPEN, SYS_FSCONFIG, SYS_FSMOUNT = 430, 431, 432
FSOPEN_CLOEXEC, FSCONFIG_CMD_CREATE, FSMOUNT_CLOEXEC = 1, 6, 1
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC, MOVE_MOUNT_F_EMPTY_PATH = 1, 0o2000000, 4
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 4, 22, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
SECCOMP_MODE_FILTER, CAPABILITY_VERSION_3 = 2, 0x20080522
CLOSE_RANGE_CLOEXEC, LAST_DESCRIPTOR = 4, 0xFFFFFFFF
SIGPIPE, SIGXFSZ = 13, 25
START_FAILED = 128

DEVICES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}

libc = ctypes.CDLL(None, use_errno=True)


class SockFprog(ctypes.Structure):
    _fields_ = (("len", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def main(config_path: str) -> None:
    forget_imports()
    libc.close_range(3, ctypes.c_uint(LAST_DESCRIPTOR), 0)
    with open(config_path, "rb") as file:
        config = marshal.load(file)  # noqa: S302 - written by our own agent, in a folder of root
    channel = open_channel(config["ready"])
    try:
        launch(config, channel)
    except BaseException as failure:  # noqa: BLE001 - it must not leave, whatever it is
        give_up(channel, failure, START_FAILED)


def forget_imports() -> None:
    """From here on Python finds no module that it has not loaded."""
    for places in (sys.meta_path, sys.path_hooks, sys.path):
        places.clear()
    sys.path_importer_cache.clear()


def give_up(channel: int, failure: BaseException, status: int) -> None:
    """Say why, and end without Python's own words."""
    try:
        tell(channel, f"error {failure}")
        os.write(2, f"livesize: cannot start: {failure}\n".encode(errors="replace"))
    finally:
        os._exit(status)


def launch(config: dict[str, Any], channel: int) -> None:
    notes: list[str] = []
    os.umask(0o022)
    record_pid(config["pid_file"])
    raise_oom_score(config["oom_score_adj"], notes)
    prctl(PR_SET_DUMPABLE, 0)
    groups = [os.open(path, os.O_WRONLY | os.O_CLOEXEC) for path in config["join"]]
    enter_namespaces(own_network=config["own_network"])
    volumes = [copy_mount(source) for source, _, _ in config["mounts"]]
    own_groups = [copy_mount(source) for source, _ in config["own_groups"]]
    taken = take_along(notes) if config["rootless"] else {}
    mount_root(config, notes)
    enter_root(config["root"])
    mount_kernel_folders(config, taken, notes)
    join(groups)
    call("unshare", CLONE_NEWCGROUP)  # the groups it is in now are the top of all that it sees
    mount_own_groups(config, own_groups)
    take_own_null()
    set_identity(config)
    mount_volumes(config, volumes)
    uid, gid, home = find_user(config)
    environment = {"HOME": home, **config["env"]}
    enter_working_dir(config["cwd"])
    program = find_program(config["argv"][0], environment.get("PATH", ""))
    if config["read_only"]:
        call("mount", b"", b"/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NODEV, None)
    for note in notes:
        tell(channel, f"note {note}")
    tell(channel, "started")
    become_workload(config, uid, gid)
    try:
        os.execve(program, config["argv"], environment)  # noqa: S606 - this is the point
    except OSError as failure:
        raise LaunchError(f"cannot execute {program}: {failure.strerror}") from failure


def open_channel(path: str) -> int:
    """-1 where nobody listens any more: the container starts all the same."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1


def tell(channel: int, line: str) -> None:
    if channel < 0:
        return
    try:
        os.write(channel, line.replace("\n", " ").encode(errors="replace") + b"\n")
    except OSError:
        return  # the caller is gone; it will find the container by its files


def record_pid(path: str) -> None:
    """The pid as the host sees it, and its start time: /proc is still the host's."""
    pid = os.readlink("/proc/self")
    with open("/proc/self/stat", encoding="utf-8") as file:
        start_ticks = file.read().rpartition(")")[2].split()[19]
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(f"{pid} {start_ticks}\n")
    os.rename(f"{path}.new", path)


def raise_oom_score(value: int | None, notes: list[str]) -> None:
    if value is None:
        return
    try:
        write("/proc/self/oom_score_adj", str(value))
    except OSError as failure:
        notes.append(f"oom_score_adj {value} was not set: {failure.strerror}")


def enter_namespaces(*, own_network: bool) -> None:
    call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | own_network * CLONE_NEWNET)
    call("mount", b"", b"/", None, MS_REC | MS_PRIVATE, None)


def mount_root(config: dict[str, Any], notes: list[str]) -> None:
    """The image below, a folder of its own above; a copy where overlay cannot be used."""
    root, lower = config["root"], config["lower"]
    folders = (lower, config["upper"], config["work"])
    try:
        mount_overlay(folders, root, ",userxattr" if config["rootless"] else "")
    except OSError as failure:
        notes.append(f"the image was copied: {failure}")
        copy_tree(lower, root)
        call("mount", root.encode(), root.encode(), None, MS_BIND | MS_REC, None)
        flags = MS_REMOUNT | MS_BIND | MS_NODEV | locked_flags(config, root)
        call("mount", b"", root.encode(), None, flags, None)


def locked_flags(config: dict[str, Any], path: str) -> int:
    """What a mount of the machine's has forbidden, a user namespace may not allow again."""
    if not config["rootless"]:
        return 0
    return os.statvfs(path).f_flag & (MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)


def mount_overlay(folders: tuple[str, ...], root: str, more: str) -> None:
    if any(letter in folder for folder in folders for letter in ",:\\"):
        raise OSError(0, "overlay cannot take paths with comma, colon or backslash")
    options = "lowerdir={},upperdir={},workdir={}".format(*folders) + more
    call("mount", b"overlay", root.encode(), b"overlay", MS_NODEV, options.encode())


def copy_tree(source: str, target: str) -> None:
    pid = os.posix_spawnp("cp", ["cp", "-a", f"{source}/.", target], dict(os.environ))
    _, status = os.waitpid(pid, 0)
    if status:
        raise LaunchError(f"cannot copy the image to {target}")


def enter_root(root: str) -> None:
    """Leave the host's files for good."""
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)
    os.chdir("/")


def mount_kernel_folders(config: dict[str, Any], taken: dict[str, int], notes: list[str]) -> None:
    """``taken``: mounts that were taken along; none: all of them are made here."""
    strict = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if taken:
        place_mount(taken["/proc"], "/proc")
    else:
        mount_new("proc", "/proc", "proc", strict)
    mount_new("tmpfs", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=65536k")
    for name, (major, minor) in DEVICES.items():
        path = f"/dev/{name}"
        if taken:
            place_mount(taken[path], path)
        else:
            make_device(path, major, minor)
    for name, target in DEVICE_LINKS.items():
        os.symlink(target, f"/dev/{name}")
    mount_new("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666")
    mount_new("tmpfs", "/dev/shm", "tmpfs", strict, "mode=1777,size=65536k")  # noqa: S108
    if "/sys" in taken:
        place_mount(taken["/sys"], "/sys")
    elif not taken:
        try:
            mount_new("sysfs", "/sys", "sysfs", strict | MS_RDONLY)
        except OSError as failure:
            notes.append(f"/sys is not mounted: {failure}")
    for path in config["masked_paths"]:
        mask(path)
    for path in config["read_only_paths"]:
        make_read_only(path)


def mount_own_groups(config: dict[str, Any], copies: list[int]) -> None:
    """/sys/fs/cgroup with the container's own groups, to be read: programs that ask how much they
    have find it there. On version 2 that is one mount, on version 1 one for each hierarchy."""
    top = "/sys/fs/cgroup"
    os.makedirs(top, exist_ok=True)  # without root there may be no /sys
    strict = MS_NOSUID | MS_NODEV | MS_NOEXEC
    names = [name for _, name in config["own_groups"]]
    if any(names):
        call("mount", b"tmpfs", top.encode(), b"tmpfs", strict, b"mode=755,size=64k")
    for name, descriptor in zip(names, copies, strict=True):
        target = f"{top}/{name}" if name else top
        place_mount(descriptor, target)
        flags = MS_REMOUNT | MS_BIND | MS_RDONLY | strict | locked_flags(config, target)
        call("mount", b"", target.encode(), None, flags, None)
        for controller in name.split(",") if "," in name else ():
            os.symlink(name, f"{top}/{controller}")
    if any(names):
        call("mount", b"", top.encode(), None, MS_REMOUNT | MS_RDONLY | strict, b"mode=755")


def copy_mount(source: str) -> int:
    """A mount that stands nowhere yet: it is taken along into the new root, where links of the
    image cannot lead it astray."""
    flags = ctypes.c_uint(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    return new_descriptor(SYS_OPEN_TREE, AT_FDCWD, source.encode(), flags, what=source)


def take_along(notes: list[str]) -> dict[str, int]:
    """What a user namespace cannot make inside: devices are the machine's own, and the kernel
    shows a new /proc and /sys only to who still sees the old ones whole."""
    strict = MS_NOSUID | MS_NODEV | MS_NOEXEC  # as attributes of a mount they have the same bits
    taken = {f"/dev/{name}": copy_mount(f"/dev/{name}") for name in DEVICES}
    taken["/proc"] = make_mount("proc", strict)
    try:
        taken["/sys"] = make_mount("sysfs", strict | MS_RDONLY)
    except OSError as failure:
        notes.append(f"/sys is not mounted: {failure}")
    return taken


def make_mount(kind: str, attributes: int) -> int:
    """A new mount that stands nowhere yet."""
    context = new_descriptor(SYS_FSOPEN, kind.encode(), FSOPEN_CLOEXEC, what=kind)
    new_descriptor(SYS_FSCONFIG, context, FSCONFIG_CMD_CREATE, None, None, 0, what=kind)
    mount = new_descriptor(SYS_FSMOUNT, context, FSMOUNT_CLOEXEC, attributes, what=kind)
    os.close(context)
    return mount


def new_descriptor(number: int, *arguments: Any, what: str) -> int:
    answer = libc.syscall(number, *arguments)
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"cannot mount {what}: {os.strerror(code)}")
    return int(answer)


def mount_volumes(config: dict[str, Any], copies: list[int]) -> None:
    for (_, target, read_only), descriptor in zip(config["mounts"], copies, strict=True):
        place_mount(descriptor, target)
        flags = MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | locked_flags(config, target)
        call("mount", b"", target.encode(), None, flags | read_only * MS_RDONLY, None)


def place_mount(descriptor: int, target: str) -> None:
    make_mount_point(target, descriptor)
    place = (AT_FDCWD, target.encode(), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH))
    call("syscall", SYS_MOVE_MOUNT, descriptor, b"", *place)
    os.close(descriptor)


def make_mount_point(target: str, descriptor: int) -> None:
    if os.path.exists(target):
        return
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.makedirs(target)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        write(target, "", os.O_CREAT | os.O_EXCL)


def mount_new(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    os.makedirs(target, exist_ok=True)
    call("mount", source.encode(), target.encode(), kind.encode(), flags, options.encode())


def make_device(path: str, major: int, minor: int) -> None:
    os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    os.chmod(path, 0o666)  # noqa: S103 - as every system has them


def mask(path: str) -> None:
    """An empty file or folder instead of one that tells about, or changes, the host."""
    try:
        folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return
    if folder:
        call("mount", b"tmpfs", path.encode(), b"tmpfs", MS_RDONLY, None)
    else:
        call("mount", b"/dev/null", path.encode(), None, MS_BIND, None)


def make_read_only(path: str) -> None:
    if not os.path.exists(path):
        return
    target = path.encode()
    call("mount", target, target, None, MS_BIND | MS_REC, None)
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    call("mount", b"", target, None, flags, None)


def set_identity(config: dict[str, Any]) -> None:
    name = config["hostname"].encode()
    call("sethostname", name, ctypes.c_size_t(len(name)))
    os.makedirs("/etc", exist_ok=True)
    for path, content in config["files"].items():
        replace(path, content)
    if not os.path.exists("/tmp"):  # noqa: S108
        os.mkdir("/tmp")  # noqa: S108
        os.chmod("/tmp", 0o1777)  # noqa: S103, S108
    if config["own_network"]:
        raise_loopback()


def replace(path: str, content: str) -> None:
    """A file of ours, whatever the image has there."""
    if os.path.lexists(path):
        os.unlink(path)
    write(path, content, os.O_CREAT | os.O_EXCL)


def raise_loopback() -> None:
    """SIOCSIFFLAGS IFF_UP on lo, in a network namespace of our own (netdevice(7))."""
    control = libc.socket(2, 2, 0)
    request = ctypes.create_string_buffer(b"lo".ljust(16, b"\0") + b"\x01\x00".ljust(24, b"\0"))
    call("ioctl", control, ctypes.c_ulong(0x8914), request)
    os.close(control)


def join(groups: list[int]) -> None:
    """Become a member of the container's groups. Python's own memory is charged to nobody: it was
    had before, and goes when the command is executed."""
    for descriptor in groups:
        os.write(descriptor, b"0")
        os.close(descriptor)


def take_own_null() -> None:
    """What is empty is the container's own /dev/null: who may change the mode of an open file of
    the machine's changes it for everybody."""
    places = [one for one in (0, 1, 2) if stat.S_ISCHR(os.fstat(one).st_mode)]
    if not places:
        return
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    null = os.open("/dev/null", flags)
    found = os.fstat(null)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != os.makedev(*DEVICES["null"]):
        raise LaunchError("/dev/null of the container is not the device it should be")
    os.set_blocking(null, True)
    for place in places:
        os.dup2(null, place)
    os.close(null)


def enter_working_dir(path: str) -> None:
    os.makedirs(path, exist_ok=True)
    os.chdir(path)
    try:
        inside = os.getcwd().startswith("/")
    except OSError:
        inside = False
    if not inside:
        raise LaunchError(f"the working folder {path} is not in the container")


def find_program(name: str, search: str) -> str:
    folders = [f"{folder}/{name}" for folder in search.split(":") if folder]
    for path in [name] if "/" in name else folders:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    where = "" if "/" in name else f" on the PATH ({search})"
    raise LaunchError(f"the image has no program {name!r}{where}")


def become_workload(config: dict[str, Any], uid: int, gid: int) -> None:
    """Give up what a workload must not have."""
    os.setsid()
    drop_bounding(config["capabilities"])
    libc.close_range(3, ctypes.c_uint(LAST_DESCRIPTOR), CLOSE_RANGE_CLOEXEC)
    give_outputs(uid, gid)
    if not config.get("rootless"):  # a user namespace of one user forbids it
        os.setgroups([*([] if uid == 0 else [gid]), *config.get("groups", ())])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    set_capabilities(config["capabilities"] if uid == 0 else 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for number in (SIGPIPE, SIGXFSZ):
        libc.signal(number, None)  # Python ignores these, a workload should not
    if config["seccomp"]:
        install_filter(bytes.fromhex(config["seccomp"]))


def give_outputs(uid: int, gid: int) -> None:
    """So that /dev/stdout and /dev/stderr can be opened by who is not root."""
    for descriptor in (0, 1, 2):
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
            os.fchown(descriptor, uid, gid)


def drop_bounding(keep: int) -> None:
    for capability in range(64):
        if not keep >> capability & 1:
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                return  # past the last one this kernel knows


def set_capabilities(mask_bits: int) -> None:
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # twice effective, permitted, inheritable: low and high bits
    call("capget", header, sets)
    low, high = mask_bits & sets[1], mask_bits >> 32 & sets[4]
    call("capset", header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0))


def install_filter(program: bytes) -> None:
    mode, zero = ctypes.c_ulong(SECCOMP_MODE_FILTER), ctypes.c_ulong(0)
    filter_ = SockFprog(len(program) // 8, program)
    call("prctl", PR_SET_SECCOMP, mode, ctypes.byref(filter_), zero, zero)


def prctl(option: int, argument: int) -> None:
    zero = ctypes.c_ulong(0)
    call("prctl", option, ctypes.c_ulong(argument), zero, zero, zero)


def write(path: str, content: str, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def call(name: str, *arguments: Any) -> None:
    """A C call that says -1 when it fails."""
    if getattr(libc, name)(*arguments) == -1:
        number = ctypes.get_errno()
        shown = [value.decode() for value in arguments if isinstance(value, bytes) and value]
        raise OSError(number, f"{name} {' '.join(shown)}: {os.strerror(number)}")


if __name__ == "__main__":
    main(sys.argv[1])
