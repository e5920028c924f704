"""Each Python that we promise: the packages of uv.lock, `make check`, and `livesize up` on it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from system import up as system_up
from system.groups import group_of
from system.pythons import PROMISED, find_python

pytestmark = [pytest.mark.containers, pytest.mark.matrix]

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
EXTRAS = ("--extra", "containerd", "--extra", "etcd", "--extra", "h2")
HAS_LIBVIRT = importlib.util.find_spec("libvirt") is not None  # its binding is compiled for each


@pytest.fixture(scope="module", params=PROMISED)
def programs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    not_run: Callable[[str], NoReturn],
) -> Path:
    """Where the programs of an environment with that Python are."""
    python = find_python(request.param)
    if python is None:
        not_run(f"needs Python {request.param}")
    folder = tmp_path_factory.mktemp("python") / "environment"
    extras = (*EXTRAS, *(("--extra", "vm") if HAS_LIBVIRT else ()))
    command = [UV, "sync", "--frozen", "--quiet", *extras, "--python", python]
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(folder)}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    asked = [folder / "bin/python", "-c", "import sys; print(sys.version)"]
    version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert version.startswith(f"{request.param}.")
    return folder / "bin"


def test_up_starts_and_resizes(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_up, "LIVESIZE", str(programs / "livesize"))
    with system_up.running_up(tmp_path / "data") as up:
        up.create_pod("one", [system_up.container("app", "100m", "32Mi")])
        up.livesize("resize", "pod/one", "--memory", "64Mi", "--wait")
        assert group_of(up, "one", "app").memory_limit_bytes() == 64 << 20
        assert "hello" in up.kubectl("exec", "one", "--", "echo", "hello").stdout


def test_make_check_passes(programs: Path) -> None:
    done = subprocess.run(
        ["make", "check", f"BIN={programs}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-10_000:]
    assert "check: all good" in done.stdout
