"""Where the options of `livesize exec` end, and the command begins."""

from __future__ import annotations

import pytest

from livesize.cli.exec import exec_command


@pytest.mark.parametrize(
    ("words", "command", "container"),
    [
        pytest.param("db ls -l /data", ("ls", "-l", "/data"), "", id="after the pod"),
        pytest.param("-c app db sh -c true", ("sh", "-c", "true"), "app", id="options first"),
        pytest.param("db -c app -- ls -l", ("ls", "-l"), "app", id="as with kubectl"),
        pytest.param("db -- ls -- x", ("ls", "--", "x"), "", id="two dashes of its own"),
    ],
)
def test_the_command_begins(words: str, command: tuple[str, ...], container: str) -> None:
    context = exec_command.make_context("exec", words.split())
    assert context.params["command"] == command
    assert context.params["container"] == container
    assert context.params["pod"] == "db"
