"""Becomes a process beside a container's first: same namespaces, groups, user and powers.

Run as ``python -P -S enter.pyc LAUNCH PID START_TICKS CHANNEL TTY ARGUMENT…``; standard library
only, and the launcher's own functions. LAUNCH is what the container itself was launched with.
A pid namespace counts for children only, so this process stays outside and waits: it ends as its
child did, ends it when it is told to, and the child does not outlive it. CHANNEL is a descriptor
that tells the caller how it went, as the launcher's fifo does; with TTY 1 it also carries the
terminal, which is one of the container's own. What the launcher says about a container's files
holds here from the first ``setns``.
"""

# ruff: noqa: PTH100, PTH115, PTH120, PTH123

from __future__ import annotations

import fcntl
import marshal
import os
import signal
import socket
import sys
import termios

sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from livesize.runtime.process import launch
    from livesize.runtime.process.container_users import LaunchError, find_user
else:
    import launch
    from container_users import LaunchError, find_user

NAMESPACES = ("cgroup", "ipc", "uts", "net", "pid", "mnt")  # the last hides the others' files
PR_SET_PDEATHSIG = 1
SIGTERM, SIGKILL = 15, 9
KILL_SECONDS = 2  # less than our caller waits
CANNOT_EXECUTE, NOT_FOUND = 126, 127


def main(arguments: list[str]) -> int:
    path, pid, start_ticks, channel, tty, *command = arguments
    launch.forget_imports()
    launch.libc.close_range(int(channel) + 1, launch.LAST_DESCRIPTOR, 0)
    with open(path, "rb") as file:
        config = marshal.load(file)  # noqa: S302 - written by our own agent, in a folder of root
    config["argv"] = command
    die_with_parent()
    with socket.socket(fileno=int(channel)) as report:
        report.set_inheritable(False)
        try:
            return enter(config, (int(pid), start_ticks), report, tty == "1")
        except BaseException as failure:  # noqa: BLE001 - it must not leave, whatever it is
            launch.tell(report.fileno(), f"error {failure}")
            return CANNOT_EXECUTE


def enter(config: dict[str, Any], first: tuple[int, str], report: socket.socket, tty: bool) -> int:
    pid, start_ticks = first
    theirs = [f"/proc/{pid}/ns/{name}" for name in NAMESPACES if not is_shared(pid, name)]
    namespaces = [os.open(path, os.O_RDONLY) for path in theirs]
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        if file.read().rpartition(")")[2].split()[19] != start_ticks:
            raise LaunchError("the container has ended")
    groups = [os.open(one, os.O_WRONLY | os.O_CLOEXEC) for one in config["join"]]
    launch.prctl(launch.PR_SET_DUMPABLE, 0)  # not to be looked into from within
    for namespace in namespaces:
        launch.call("setns", namespace, 0)
        os.close(namespace)
    terminal = open_terminal(report) if tty else -1
    child = os.fork()
    if child == 0:
        become(config, groups, report, terminal)
    for descriptor in (0, 1, 2, *groups, *([terminal] if tty else [])):
        os.close(descriptor)
    report.close()
    return await_end(child)


def is_shared(pid: int, name: str) -> bool:
    """Ours already, as the host's network: without root it could not even be entered again."""
    return os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}")


def open_terminal(report: socket.socket) -> int:
    """The slave; the caller gets the master."""
    master = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(master, 0x40045431, b"\0\0\0\0")  # TIOCSPTLCK: unlock
    number = int.from_bytes(fcntl.ioctl(master, 0x80045430, b"\0\0\0\0"), sys.byteorder)
    slave = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)
    rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, master.to_bytes(4, sys.byteorder))
    report.sendmsg([b"terminal\n"], [rights])  # socket.send_fds would import
    os.close(master)
    return slave


def become(config: dict[str, Any], groups: list[int], report: socket.socket, terminal: int) -> None:
    try:
        run_command(config, groups, report, terminal)
    except BaseException as failure:  # noqa: BLE001 - it must not leave, whatever it is
        missing = isinstance(failure, LaunchError)
        launch.give_up(report.fileno(), failure, NOT_FOUND if missing else CANNOT_EXECUTE)


def run_command(
    config: dict[str, Any], groups: list[int], report: socket.socket, terminal: int
) -> None:
    die_with_parent()
    launch.join(groups)
    launch.take_own_null()
    os.chdir("/")
    uid, gid, home = find_user(config)
    environment = {"HOME": home, **config["env"]}
    if terminal >= 0:
        environment.setdefault("TERM", "xterm")
        os.fchown(terminal, uid, gid)
    launch.enter_working_dir(config["cwd"])
    program = launch.find_program(config["argv"][0], environment.get("PATH", ""))
    launch.become_workload(config, uid, gid)
    die_with_parent()  # a new user forgets it
    if terminal >= 0:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        for descriptor in (0, 1, 2):
            os.dup2(terminal, descriptor)
    launch.tell(report.fileno(), "started")
    os.execve(program, config["argv"], environment)  # noqa: S606 - this is the point


def die_with_parent() -> None:
    launch.prctl(PR_SET_PDEATHSIG, SIGKILL)


def await_end(child: int) -> int:
    """Its status. SIGTERM ends it and what it has started, soon if not at once."""

    def end(*_: object) -> None:
        signal_group(child, SIGTERM)
        signal.alarm(KILL_SECONDS)

    signal.signal(signal.SIGALRM, lambda *_: signal_group(child, SIGKILL))
    signal.signal(SIGTERM, end)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def signal_group(leader: int, number: int) -> None:
    try:
        os.killpg(leader, number)
    except ProcessLookupError:  # it does not lead one yet
        os.kill(leader, number)


if __name__ == "__main__":
    os.umask(0o022)
    status = CANNOT_EXECUTE
    try:
        status = main(sys.argv[1:])
    finally:
        os._exit(status)
