"""Settings of the parts: option before variable before file before default; wrong ones named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from livesize.main.entry import cli
from livesize.main.settings.config_file import ConfigError, read_config
from livesize.main.settings.options import part_options
from livesize.main.settings.table import SETTINGS, Part, settings_of


def taken(part: Part, *words: str, **variables: str) -> dict[str, Any]:
    """What a command of ``part`` gets."""
    found: dict[str, Any] = {}

    @click.command()
    @part_options(part)
    def command(**given: Any) -> None:
        found.update(given)

    done = CliRunner(env=variables).invoke(command, list(words))
    assert done.exit_code == 0, done.output
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "part.yaml"


def test_the_option_counts_before_the_variable_before_the_file(file: Path) -> None:
    file.write_text("listen: 1.1.1.1:1\nlog-level: error\nhttp: granian\n")
    given = taken(
        Part.APISERVER,
        *("--config", str(file), "--listen", "3.3.3.3:3"),
        LIVESIZE_LISTEN="2.2.2.2:2",
        LIVESIZE_LOG_LEVEL="debug",
    )
    assert given["listen"] == "3.3.3.3:3"
    assert given["log_level"] == "debug"
    assert given["http"] == "granian"
    assert given["store"] == "sqlite"


def test_the_file_can_be_named_by_a_variable(file: Path) -> None:
    file.write_text("stop-pods: true\n")
    assert taken(Part.AGENT, LIVESIZE_CONFIG=str(file))["stop_pods"] is True


def test_lists_and_pairs_may_be_written_as_such(file: Path) -> None:
    file.write_text("server: [https://a:1, https://b:2]\nallocatable: {cpu: 2, memory: 4Gi}\n")
    given = taken(Part.AGENT, "--config", str(file))
    assert given["server"] == "https://a:1,https://b:2"
    assert given["allocatable"] == "cpu=2,memory=4Gi"


def test_a_file_may_be_empty(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert taken(Part.SCHEDULER, "--config", str(file))["log_format"] == "text"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(
            "lisen: a:1", "lisen: `livesize apiserver` has no such .*mean listen", id="typo"
        ),
        pytest.param("runtime: fake", "runtime: .*no such setting", id="of another part"),
        pytest.param("log-level: loud", "log-level: 'loud' is not one of debug, info", id="choice"),
        pytest.param("stop-delay: soon", "stop-delay: 'soon' is not a number", id="number"),
        pytest.param("stop-delay: -1", "stop-delay: -1 is not a number", id="negative"),
        pytest.param("listen: [a, b]", r"listen: \['a', 'b'\] is not a text", id="list"),
        pytest.param("listen: {a: b}", "listen: .* is not a text", id="mapping"),
        pytest.param("- listen", "must be a mapping", id="no mapping"),
        pytest.param("a: [", "is not YAML", id="no YAML"),
        pytest.param("\x00", "is not YAML", id="binary"),
    ],
)
def test_what_is_wrong_is_named(file: Path, text: str, why: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=why) as refusal:
        read_config(file, Part.APISERVER)
    assert str(file) in str(refusal.value)


def test_a_flag_is_true_or_false(file: Path) -> None:
    file.write_text("keep: perhaps\n")
    with pytest.raises(ConfigError, match="keep: 'perhaps' is neither true nor false"):
        read_config(file, Part.UP)


@pytest.mark.parametrize("part", Part)
def test_every_command_refuses_a_wrong_file_with_a_sentence(file: Path, part: Part) -> None:
    file.write_text("nonsense: 1\n")
    done = CliRunner().invoke(cli, [part, "--config", str(file)])
    assert done.exit_code == 2
    assert "nonsense" in done.output
    done = CliRunner().invoke(cli, [part, "--config", str(file.parent / "gone")])
    assert done.exit_code == 2
    assert "cannot be read" in done.output


def test_a_part_has_each_setting_once() -> None:
    for part in Part:
        names = [setting.name for setting in settings_of(part)]
        assert len(names) == len(set(names))
    assert {setting.name for setting in SETTINGS if setting.choices} <= {
        setting.name for setting in SETTINGS if setting.default
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["scheduler"], "livesize cert create scheduler --role scheduler"),
        (["controllers"], "livesize cert create controllers --role controller"),
        (["scheduler", "--kubeconfig", "/no/such"], "/no/such cannot be read"),
        (["agent", "--runtime", "fake", "--data-dir", "/no/such"], "livesize join"),
        (["agent", "--allocatable", "cpu=-1"], "cpu must be more than 0"),
        (["apiserver", "--listen", "nowhere"], "is not HOST:PORT"),
        (["apiserver", "--store", "etcd"], "--etcd-endpoints"),
    ],
)
def test_what_is_missing_ends_in_one_sentence(words: list[str], why: str) -> None:
    done = CliRunner().invoke(cli, words)
    assert done.exit_code in (1, 2)
    assert why in done.output.replace("\n", " ")
    assert isinstance(done.exception, SystemExit)
