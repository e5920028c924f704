"""Requests made up from our own OpenAPI documents: never a 5xx, never a hang, and no leak.

Design 6, "Safe: bad input gets a clear 4xx with the field and the reason, never a 5xx".
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from design.test_identity_matrix import OBJECTS
from livesize.api.kinds.registry import REGISTRY
from system.up import Up

pytestmark = [pytest.mark.apiserver, pytest.mark.filterwarnings("ignore")]

QUARTER = 1500
NAMES = ("a", "b", "c")


@pytest.fixture
def fuzzed_up(tmp_path: Path) -> Iterator[Up]:
    """Of its own: a made-up Deployment asks for as many pods as it likes, which fill the node."""
    made = Up(tmp_path / "data", runtime="fake", allocatable="cpu=8,memory=8Gi")
    try:
        made.start()
        yield made
    finally:
        made.end()


def furnish(up: Up) -> None:
    """Something of each kind, under each of the names, where it is not there by now."""
    for resource in REGISTRY.stored():
        _, body = OBJECTS[resource.plural]
        for name in NAMES:
            named = {**body, "metadata": {**body["metadata"], "name": name}}
            code, answer = up.request("POST", resource.path("default"), named)
            assert code in (201, 409, 403), answer


def known_place(case: Any, name: str) -> None:
    """Most that is made up is nowhere. Here it is where things are: few names, one namespace."""
    for parameter, word in (("namespace", "default"), ("name", name)):
        if parameter in (case.path_parameters or {}):
            case.path_parameters[parameter] = word
    if case.method in ("POST", "PUT"):
        case.media_type = "application/json"
    if isinstance(case.body, dict) and isinstance(case.body.get("metadata"), dict):
        case.body["metadata"] |= {"name": name, "namespace": "default"}
        for version in ("resourceVersion", "uid", "generateName"):
            case.body["metadata"].pop(version, None)


def fuzz(up: Up, examples: int, seed_of_cases: st.SearchStrategy[Any]) -> Counter[int]:
    """How often it was answered what."""
    furnish(up)
    config = yaml.safe_load(up.kubeconfig.read_text())
    url = config["clusters"][0]["cluster"]["server"]
    token = config["users"][0]["user"]["token"]
    session = requests.Session()
    answers: Counter[int] = Counter()
    authority = str(up.directory / "control" / "tls" / "ca.crt")

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=seed_of_cases, name=st.sampled_from(["", *NAMES]))
    def run(case: Any, name: str) -> None:
        if name:
            known_place(case, name)
        query = dict(case.query or {})
        query.pop("watch", None)  # a watch stays open, as it should
        case.query = query
        headers = {"Authorization": f"Bearer {token}"}
        try:
            answer = case.call(
                base_url=url, headers=headers, session=session, timeout=10, verify=authority
            )
        except (requests.exceptions.InvalidHeader, UnicodeEncodeError):
            return  # cannot be sent at all
        answers[answer.status_code] += 1
        if answer.status_code == 504 and "resource version" in answer.text:
            return  # one that is still to come, as Kubernetes answers it
        assert answer.status_code < 500, (case.method, case.formatted_path, case.body, answer.text)

    with session, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run()
    assert answers[200] > examples / 20, answers  # not all of it is nonsense
    return answers


def cases(up: Up) -> st.SearchStrategy[Any]:
    """Of every document that is served, each operation as often as any other."""
    strategies = []
    code, index = up.request("GET", "/openapi/v3")
    assert code == 200
    for place in index["paths"].values():
        code, document = up.request("GET", place["serverRelativeURL"])
        assert code == 200
        schema = schemathesis.openapi.from_dict(document)
        strategies += [one.ok().as_strategy() for one in schema.get_all_operations()]
    assert len(strategies) > 80
    return st.one_of(strategies)


def test_no_5xx(fuzzed_up: Up) -> None:
    fuzz(fuzzed_up, 80, cases(fuzzed_up))


@pytest.mark.matrix
def test_no_5xx_and_no_leak_in_a_long_run(fuzzed_up: Up) -> None:
    strategy = cases(fuzzed_up)
    server = fuzzed_up.control_plane_pid()
    rss = []
    for _ in range(4):
        fuzz(fuzzed_up, QUARTER, strategy)
        rss.append(rss_bytes(server))
    assert rss[3] <= rss[1] * 1.10, rss
    assert fuzzed_up.control_plane_pid() == server, "it has not died in between"


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
