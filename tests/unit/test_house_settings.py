"""docs/settings.md and docs/cli.md name what the program has: no more, no less."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from livesize.main.entry import cli
from livesize.main.settings.options import CONFIG_VARIABLE
from livesize.main.settings.table import SETTINGS as TABLE
from livesize.main.settings.table import Part, Setting, SettingKind

ROOT = Path(__file__).parents[2]
SETTINGS = (ROOT / "docs" / "settings.md").read_text()
PAGE = (ROOT / "docs" / "cli.md").read_text()
VARIABLE = re.compile(r"\bLIVESIZE_[A-Z_]+\b")
# Of the shell's completion, and of a guest's own first process.
NOT_SETTINGS = {"LIVESIZE_COMPLETE", "LIVESIZE_ENTERED"}
CONTEXT = click.Context(cli)
COMMANDS = sorted(cli.list_commands(CONTEXT))


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table, heading
    lines = table[0].replace(r"\|", "¦").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def options_of(name: str) -> dict[str, click.Option]:
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    options = [one for one in command.params if isinstance(one, click.Option)]
    return {one.opts[-1]: one for one in options}


def words(name: str) -> set[str]:
    """Every spelling of every option of a command, and of the commands below it."""
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    below = list(command.commands.values()) if isinstance(command, click.Group) else []
    options = [one for each in (command, *below) for one in each.params]
    return {word for one in options for word in (*one.opts, *one.secondary_opts)}


def documented() -> dict[tuple[str, str], list[str]]:
    """The rows of the table of the parts, by option and by what they are for."""
    return {(row[0].strip("`").split()[0], row[3]): row for row in rows(SETTINGS, "The parts")}


def place(setting: Setting) -> tuple[str, str]:
    return f"--{setting.name}", ", ".join(setting.parts)


def test_every_setting_is_documented_and_no_other() -> None:
    assert list(documented()) == [place(setting) for setting in TABLE], "in the table's order"


@pytest.mark.parametrize("setting", [pytest.param(one, id="/".join(place(one))) for one in TABLE])
def test_a_setting_is_documented_with_its_default_and_variable(setting: Setting) -> None:
    option, default, variable, _, _ = documented()[place(setting)]
    assert variable == f"`{setting.variable}`"
    if setting.default:
        assert default == f"`{setting.default}`"
    if setting.metavar:
        assert option == f"`--{setting.name} {setting.metavar}`"
    if setting.kind is SettingKind.FLAG:
        assert default == "off"
    assert "¦".join(setting.choices) in option


@pytest.mark.parametrize("part", Part)
def test_a_part_has_the_options_of_the_table(part: Part) -> None:
    names = [f"--{setting.name}" for setting in TABLE if part in setting.parts]
    assert list(options_of(part)) == ["--config", *names]


def test_every_variable_is_documented_and_every_documented_one_exists() -> None:
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "scripts").iterdir()]
    used = {name for path in sources for name in VARIABLE.findall(path.read_text())}
    made = {setting.variable for setting in TABLE}
    assert set(VARIABLE.findall(SETTINGS)) == (used | made | {CONFIG_VARIABLE}) - NOT_SETTINGS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section_with_only_options_it_has(name: str) -> None:
    section = PAGE.partition(f"## livesize {name}\n")[2].partition("\n## ")[0]
    assert section, "no section"
    typed = re.findall(rf"(?:livesize {name}\b[^\n]*)", section)
    used = {word for line in typed for word in re.findall(r"(?<!\S)--?[a-z][\w-]*", line)}
    assert used - words(name) - {"-h", "--help"} == set()


def test_no_command_is_documented_that_is_not_there() -> None:
    assert set(re.findall(r"^## livesize (\w+)$", PAGE, re.MULTILINE)) == set(COMMANDS)
