"""Pytest plugin: a folder for private containerds, and a word where there is no containerd.

The folder is shared by the tests of a session, one after the other, because an image that one
has brought is there for the next. Nothing of a test may run in it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from leaks import claim


@pytest.fixture(scope="session")
def needs_containerd(not_run: Callable[[str], NoReturn]) -> None:
    from livesize.runtime.containerd.daemon import find_programs

    missing = find_programs().missing()
    if missing:
        not_run(f"needs {', '.join(missing)}")


@pytest.fixture(scope="session")
def containerd_folder(needs_containerd: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("containerd")
    claim("livesize-test-containerd", folder)
    return folder
