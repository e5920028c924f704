"""The Pythons of this machine that we promise to run on, wherever they are."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

PROMISED = ("3.11", "3.12", "3.13")
_ASK = "import os, sys; print(os.path.realpath(sys.executable))"


@functools.cache
def find_python(version: str) -> str | None:
    """The program itself, not what may stand before it; None: it is not here."""
    name = shutil.which(f"python{version}")
    if name is None:
        return None
    for chosen in ({}, *({"PYENV_VERSION": one} for one in _pyenv_versions(version))):
        answer = subprocess.run(
            [name, "-I", "-c", _ASK],
            capture_output=True,
            text=True,
            env={**os.environ, **chosen},
            check=False,
        )
        if answer.returncode == 0:
            return answer.stdout.strip()
    return None


def _pyenv_versions(version: str) -> list[str]:
    """What pyenv has installed, and shows only when it is told to."""
    if shutil.which("pyenv") is None:
        return []
    command = ["pyenv", "versions", "--bare"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    return [one for one in listed.stdout.split() if one.startswith(f"{version}.")]
