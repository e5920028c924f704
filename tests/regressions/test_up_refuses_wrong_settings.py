"""`livesize up` took names and amounts with which the node never came up, and said it was ready;
a node name like ../../x even led the control groups elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from livesize.main.entry import cli

HERE = ["up", "--runtime", "fake", "--listen", "127.0.0.1:0"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--node-name", "../../x"], "'../../x' cannot be the name of a node"),
        (["--node-name", "Big_Host"], "'Big_Host' cannot be the name of a node"),
        (["--node-name", "n" * 64], "at most 63 characters"),
        (["--allocatable", "cpu=-1"], "cpu must be more than 0"),
        (["--allocatable", "memory=0"], "memory must be more than 0"),
        (["--allocatable", "cpu=1,cpu=2"], "cpu is given twice"),
        (["--runtime-endpoint", "/run/x.sock"], "it is for --runtime containerd"),
        (
            ["--runtime", "containerd", "--runtime-endpoint", "/etc/passwd"],
            "/etc/passwd is not the socket of a containerd",
        ),
    ],
)
def test_a_wrong_setting_ends_in_one_sentence(
    tmp_path: Path, options: list[str], says: str
) -> None:
    result = CliRunner().invoke(cli, [*HERE, "--data-dir", str(tmp_path / "data"), *options])
    assert result.exit_code == 2, result.output
    assert says in result.output
    assert not (tmp_path / "data").exists(), "nothing was started"


def test_a_host_name_that_is_no_node_name_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "my_host")
    result = CliRunner().invoke(cli, [*HERE, "--data-dir", str(tmp_path / "data")])
    assert result.exit_code == 2
    assert "--node-name" in result.output


def test_a_data_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, [*HERE, "--data-dir", str(tmp_path / "file" / "below")])
    assert result.exit_code == 1
    assert "--data-dir" in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


@pytest.mark.parametrize("folder", ["/proc/foo", "/proc/self/fd/foo"])
def test_a_data_directory_where_no_file_system_keeps_anything(folder: str) -> None:
    """It ended in a traceback."""
    result = CliRunner().invoke(cli, [*HERE, "--data-dir", folder])
    assert result.exit_code == 1
    assert result.output == (
        f"Error: {folder} cannot be made: No such file or directory; choose another --data-dir\n"
    )
