"""Once a container's files are around it, our Python takes nothing from them: on each Python.

The container has a file for every module of the standard library, at the place where the machine
has its own. Whichever of them were imported would say so in a file.
"""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from livesize.api.kernel_units import KernelLimits
from livesize.runtime import oci
from livesize.runtime.images import Image
from livesize.runtime.interface import ContainerConfig
from livesize.runtime.process import launch as launch_module
from livesize.runtime.process.launch_config import LaunchPaths, plan_launch
from system.pythons import PROMISED, find_python

pytestmark = pytest.mark.security

SCRIPTS = Path(launch_module.__file__).parent
TRAP = "open('/trap', 'a').write(__name__ + ' ')\n"
_PLACES = "import os, sys; print(os.path.dirname(os.__file__), *sorted(sys.stdlib_module_names))"


class Bare(NamedTuple):
    """A launcher without a runtime around it."""

    python: str
    folder: Path
    image: Path

    def plan(self, **changes: object) -> dict[str, Any]:
        folders = {name: str(self.folder / name) for name in ("upper", "work", "root")}
        paths = LaunchPaths(
            ready=str(self.folder / "ready"), pid_file=str(self.folder / "pid"), join=(), **folders
        )
        image = Image("sha256:0", str(self.image), (), (), (), "/")
        wanted = ContainerConfig(
            pod_uid="u",
            name="main",
            image="i",
            command=("/bin/sh", "-c", "echo began; exec sleep 100"),
            args=(),
            env=(),
            working_dir="/",
            hostname="h",
            limits=KernelLimits(2, None, None),
        )
        return {**plan_launch(wanted, image, paths, "", ""), **changes}

    def spawn(self, script: str, *words: str, **more: Any) -> subprocess.Popen[bytes]:
        command = [self.python, "-P", "-s", "-S", str(SCRIPTS / script), *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)

    def launch(self, **changes: object) -> subprocess.Popen[bytes]:
        (self.folder / "launch").write_bytes(marshal.dumps(self.plan(**changes)))
        (self.folder / "ready").write_bytes(b"")
        command = [self.python, "-P", "-s", "-S", str(SCRIPTS / "launch.py")]
        return subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", *command, str(self.folder / "launch")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def trapped(self) -> str:
        trap = self.folder / "upper" / "trap"
        return trap.read_text() if trap.exists() else ""


class Trapped(NamedTuple):
    python: str
    root: Path


@pytest.fixture(scope="module", params=PROMISED)
def trapped(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> Trapped:
    """The files of an image that lies in wait for that Python."""
    python = find_python(request.param)
    if python is None:
        not_run(f"needs Python {request.param}")
    root = tmp_path_factory.mktemp("image")
    (root / "bin").mkdir()
    (root / "bin/busybox").write_bytes(oci.find_static_busybox().read_bytes())
    (root / "bin/busybox").chmod(0o755)
    for name in ("sh", "sleep"):
        (root / "bin" / name).symlink_to("busybox")
    ask = [python, "-I", "-S", "-c", _PLACES]
    answer = subprocess.run(ask, capture_output=True, text=True, check=True)
    library, *modules = answer.stdout.split()
    folder = root / library.lstrip("/")
    folder.mkdir(parents=True)
    for name in modules:
        (folder / f"{name}.py").write_text(TRAP)
    return Trapped(python, root)


@pytest.fixture
def bare(trapped: Trapped, tmp_path: Path) -> Bare:
    for name in ("upper", "work", "root"):
        (tmp_path / name).mkdir()
    return Bare(trapped.python, tmp_path, trapped.root)


@pytest.fixture
def running(bare: Bare) -> Iterator[tuple[Bare, list[str]]]:
    """A container that runs: its pid and start time, as the machine sees them."""
    shell = bare.launch()
    assert shell.stdout is not None
    assert shell.stdout.readline() == b"began\n"
    yield bare, (bare.folder / "pid").read_text().split()
    shell.kill()
    shell.wait()
    shell.stdout.close()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"argv": ["nothing-of-that-name"]}, id="a refusal of our own"),
        pytest.param({"cwd": None}, id="a mistake of our own"),
        pytest.param({"argv": ["/bin/\udcff"]}, id="a name that is no text"),
        pytest.param({"cwd": "/bin/busybox/x"}, id="a refusal of the kernel"),
    ],
)
def test_a_start_that_fails_imports_nothing(bare: Bare, changes: dict[str, object]) -> None:
    said, _ = bare.launch(**changes).communicate(timeout=30)
    assert said.startswith(b"livesize: cannot start: ")
    assert b"Traceback" not in said
    assert (bare.folder / "ready").read_bytes().startswith(b"error ")
    assert bare.trapped() == ""


@pytest.mark.parametrize(("tty", "command"), [("1", "nothing-of-that-name"), ("0", "\udcff")])
def test_a_command_inside_imports_nothing(
    running: tuple[Bare, list[str]], tty: str, command: str
) -> None:
    bare, first = running
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [str(bare.folder / "launch"), *first, str(theirs.fileno()), tty]
        entered = bare.spawn("enter.py", *words, f"/bin/{command}", pass_fds=[theirs.fileno()])
        theirs.close()
        said, _ = entered.communicate(timeout=30)
        told, descriptors, _, _ = socket.recv_fds(ours, 4096, 1)
        while piece := ours.recv(4096):
            told += piece
    for descriptor in descriptors:
        os.close(descriptor)
    assert len(descriptors) == int(tty)
    assert b"error the image has no program" in told
    assert b"Traceback" not in said
    assert bare.trapped() == ""


def test_a_mistake_inside_imports_nothing(running: tuple[Bare, list[str]]) -> None:
    bare, first = running
    (bare.folder / "launch").write_bytes(marshal.dumps(bare.plan(cwd=None)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [str(bare.folder / "launch"), *first, str(theirs.fileno()), "0", "/bin/sleep"]
        entered = bare.spawn("enter.py", *words, pass_fds=[theirs.fileno()])
        theirs.close()
        said, _ = entered.communicate(timeout=30)
        assert ours.recv(4096).startswith(b"error ")
    assert b"Traceback" not in said
    assert bare.trapped() == ""


def test_the_trap_would_spring(trapped: Trapped) -> None:
    """What the tests above rely on: those files are where this Python would look."""
    python, place = trapped
    ask = "import os, sys; os.chroot(sys.argv[1]); import traceback"
    command = [python, "-I", "-S", "-c", ask, str(place)]
    subprocess.run(command, check=True, timeout=30)
    assert "traceback" in (place / "trap").read_text()
