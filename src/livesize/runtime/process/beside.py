"""Runs a command beside a container's first process: same namespaces, groups, user and powers.

Run as ``python -I -S beside.pyc LAUNCH PID START_TICKS COUNT NAME=VALUE… COMMAND…`` with COUNT
variables; standard library only, and the launcher's own functions. LAUNCH is what the container
itself was launched with. A pid namespace counts for children only, so this process stays outside,
waits, and ends as its child did; the child does not outlive it.
"""

# ruff: noqa: PTH100, PTH120, PTH123

from __future__ import annotations

import marshal
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from livesize.runtime.process import launch
else:
    import launch

NAMESPACES = ("ipc", "uts", "net", "pid", "mnt")  # the last hides the files of the others
PR_SET_PDEATHSIG, SIGKILL = 1, 9
CANNOT_RUN = 126


def main(arguments: list[str]) -> int:
    path, pid, start_ticks, number, *words = arguments
    with open(path, "rb") as file:
        config = marshal.load(file)  # noqa: S302 - written by our own agent, in a folder of root
    variables, command = words[: int(number)], words[int(number) :]
    config["env"] = {**config["env"], **dict(one.split("=", 1) for one in variables)}
    config["argv"] = command
    try:
        return enter(config, pid, start_ticks)
    except (OSError, launch.LaunchError) as failure:
        return give_up(failure)


def enter(config: dict[str, Any], pid: str, start_ticks: str) -> int:
    die_with_parent()
    namespaces = [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        if file.read().rpartition(")")[2].split()[19] != start_ticks:
            raise launch.LaunchError("the container has ended")
    groups = [os.open(one, os.O_WRONLY | os.O_CLOEXEC) for one in config["join"]]
    for namespace in namespaces:
        launch.call("setns", namespace, 0)
        os.close(namespace)
    child = os.fork()
    if child == 0:
        become(config, groups)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def become(config: dict[str, Any], groups: list[int]) -> None:
    try:
        os.chdir("/")
        uid, gid, home = launch.find_user(config)
        environment = {"HOME": home, **config["env"]}
        launch.enter_working_dir(config["cwd"])
        program = launch.find_program(config["argv"][0], environment.get("PATH", ""))
        launch.become_workload(config, uid, gid, groups)
        die_with_parent()  # a new user forgets it
        os.execve(program, config["argv"], environment)  # noqa: S606 - this is the point
    except (OSError, launch.LaunchError) as failure:
        os._exit(give_up(failure))


def die_with_parent() -> None:
    launch.prctl(PR_SET_PDEATHSIG, SIGKILL)


def give_up(failure: Exception) -> int:
    os.write(2, f"livesize: cannot run: {failure}\n".encode())
    return CANNOT_RUN


if __name__ == "__main__":
    os.umask(0o022)
    os._exit(main(sys.argv[1:]))
