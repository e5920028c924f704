"""Launcher and enterer can import nothing from their first word on, whatever happens later."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from livesize.runtime.process import launch

SCRIPTS = str(Path(launch.__file__).parent)
# Each begins by this, and then cannot find what it was to do.
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
sys.argv[0] = sys.argv[1] + "/x"
import {name}
try:
    {name}.main({arguments})
except FileNotFoundError:
    os.write(1, b"began ")
try:
    import calendar
except ImportError:
    os.write(1, b"nothing imported")
os._exit(0)
"""


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("launch", "'/none/launch'"), ("enter", "['/none/launch', '1', '1', '9', '0', 'true']")],
)
def test_nothing_is_imported_once_it_has_begun(name: str, arguments: str) -> None:
    program = PROGRAM.format(name=name, arguments=arguments)
    words = [sys.executable, "-P", "-s", "-S", "-c", program, SCRIPTS]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "began nothing imported"
