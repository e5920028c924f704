"""Who owns which field is not printed, as with kubectl."""

from __future__ import annotations

import json

import pytest

from livesize.cli.output import Format, list_object, print_value


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML])
def test_owners_are_left_out(form: Format, capsys: pytest.CaptureFixture[str]) -> None:
    owned = {"metadata": {"name": "web", "managedFields": [{"manager": "kubectl"}]}, "spec": {}}
    print_value(owned, form)
    print_value(list_object([owned]), form)
    assert "managedFields" not in capsys.readouterr().out
    print_value(owned, Format.JSON)
    assert json.loads(capsys.readouterr().out) == {"metadata": {"name": "web"}, "spec": {}}
