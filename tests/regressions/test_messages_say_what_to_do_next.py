"""Sentences of the command line that stopped at what was wrong."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from livesize.api.errors import forbidden, not_found, unauthorized
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.pod import PODS
from livesize.cli.app import cli
from livesize.cli.connection import refusal_sentence
from livesize.cli.targets import parse_pod

CONFIG = Path("admin.conf")


def test_an_object_that_is_not_there() -> None:
    assert refusal_sentence(not_found(PODS, "db"), CONFIG) == (
        'pods "db" not found; `livesize get pods` shows what there is, -n picks the namespace'
    )
    assert refusal_sentence(not_found(NAMESPACES, "team"), CONFIG) == (
        'namespaces "team" not found; `livesize get namespaces` shows what there is'
    )


def test_credentials_that_are_not_accepted() -> None:
    sentence = refusal_sentence(unauthorized(), CONFIG)
    assert "admin.conf" in sentence
    assert "--kubeconfig" in sentence


def test_other_refusals_speak_for_themselves() -> None:
    refusal = forbidden(PODS, "db", "because")
    assert refusal_sentence(refusal, CONFIG) == refusal.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("apiVersion: v1\nkind: Config\n")
    options = ["apply", "-f", str(tmp_path / "none.yaml"), "--kubeconfig", str(tmp_path / "config")]
    result = CliRunner().invoke(cli, options)
    assert result.exit_code == 1
    assert "Errno" not in result.output
    assert "No such file or directory" in result.output


def test_only_pods_are_offered_where_only_pods_will_do() -> None:
    with pytest.raises(click.UsageError, match="only pods can be entered"):
        parse_pod("deployment/web", "entered")
