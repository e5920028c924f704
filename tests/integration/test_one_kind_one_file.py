"""A kind that one file defines (integration.widget) and the registry takes: clients get everything
of it, without another line in the program."""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

pytestmark = [pytest.mark.apiserver, pytest.mark.usefixtures("kubectl_1_32")]

PATH = "/apis/shop.example/v1/namespaces/default/widgets"
VIEWER = ["--as", "ann", "--as-group", "livesize:viewer"]
EDITOR = ["--as", "ann", "--as-group", "livesize:editor"]
RED, BLUE = {"name": "lid", "color": "red"}, {"name": "box", "color": "blue"}


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "shop.example/v1",
        "kind": "Widget",
        "metadata": {"name": name, "labels": {"tier": "front"}},
        "spec": spec,
    }


class Shop:
    """A server that knows widgets, in a process of its own: a registry is for good."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "integration.widget", str(folder)]
        tests = Path(__file__).parents[1]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tests, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "serving\n"
        self._config = json.loads((folder / "kubeconfig").read_text())

    def end(self) -> None:
        self._process.communicate(timeout=30)

    def kubectl(self, *words: str, stdin: Any = None, fails: bool = False) -> str:
        config = ["--kubeconfig", str(self.folder / "kubeconfig")]
        done = subprocess.run(
            ["kubectl", *config, "--cache-dir", str(self.folder / "cache"), *words],
            input=None if stdin is None else json.dumps(stdin),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stderr if fails else done.stdout

    def read(self, name: str) -> Any:
        return json.loads(self.kubectl("get", "widget", name, "-o", "json"))

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> Any:
        cluster = self._config["clusters"][0]["cluster"]
        token = self._config["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": kind or "application/json"}
        request = Request(cluster["server"] + path, body, headers, method=method)
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        with urlopen(request, context=context, timeout=10) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    serving = Shop(tmp_path_factory.mktemp("shop"))
    yield serving
    serving.end()


def test_apply_get_and_delete(shop: Shop) -> None:
    shop.kubectl("apply", "-f", "-", stdin=widget("plain", parts=[RED]))
    heads, row = (line.split() for line in shop.kubectl("get", "wd", "plain").splitlines())
    assert heads == ["NAME", "DESIRED", "CURRENT", "AGE"]
    assert row[:3] == ["plain", "1", "0"], "the default is one"
    assert "color: red" in shop.kubectl("get", "widgets.shop.example", "plain", "-o", "yaml")
    assert "widget.shop.example/plain" in shop.kubectl("get", "all")
    # Applied again with another part: the list is merged by name, and the old part goes.
    shop.kubectl("apply", "-f", "-", stdin=widget("plain", parts=[BLUE]))
    assert shop.read("plain")["spec"]["parts"] == [BLUE]
    assert shop.read("plain")["metadata"]["generation"] == 2
    assert "deleted" in shop.kubectl("delete", "widget", "plain")
    assert "not found" in shop.kubectl("get", "widget", "plain", fails=True)


def test_what_is_wrong_is_named(shop: Shop) -> None:
    many = widget("many", replicas=101)
    assert "the shop has room for 100" in shop.kubectl("create", "-f", "-", stdin=many, fails=True)
    typo = widget("typo", replica=1)
    answer = shop.kubectl("create", "-f", "-", stdin=typo, fails=True)
    assert 'unknown field "spec.replica"' in answer
    text = widget("text", replicas="three")
    answer = shop.kubectl("create", "--validate=ignore", "-f", "-", stdin=text, fails=True)
    assert "spec.replicas" in answer


def test_the_template_is_a_pods(shop: Shop) -> None:
    template = {"spec": {"containers": [{"name": "app", "image": "busybox:1"}]}}
    shop.kubectl("create", "-f", "-", stdin=widget("made", template=template))
    spec = shop.read("made")["spec"]["template"]["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    nameless = widget("nameless", template={"spec": {"containers": [{"image": "busybox:1"}]}})
    answer = shop.kubectl("create", "-f", "-", stdin=nameless, fails=True)
    assert "spec.template.spec.containers[0].name" in answer


def test_server_side_apply_and_its_conflict(shop: Shop) -> None:
    applied = ("apply", "--server-side", "-f", "-")
    shop.kubectl(*applied, "--field-manager=ann", stdin=widget("owned", parts=[RED]))
    # Another manager owns another part of the same list.
    shop.kubectl(*applied, "--field-manager=bob", stdin=widget("owned", parts=[BLUE]))
    assert shop.read("owned")["spec"]["parts"] == [RED, BLUE]
    green = widget("owned", parts=[{**RED, "color": "green"}])
    answer = shop.kubectl(*applied, "--field-manager=bob", stdin=green, fails=True)
    assert 'conflict with "ann"' in answer
    assert '.spec.parts[name="lid"].color' in answer
    forced = (*applied, "--field-manager=bob", "--force-conflicts")
    shop.kubectl(*forced, stdin=green)
    assert shop.read("owned")["spec"]["parts"][0]["color"] == "green"


def test_patches(shop: Shop) -> None:
    shop.kubectl("create", "-f", "-", stdin=widget("patched", parts=[RED, BLUE]))

    def patch(kind: str, body: Any) -> Any:
        shop.kubectl("patch", "widget", "patched", f"--type={kind}", "-p", json.dumps(body))
        return shop.read("patched")["spec"]

    assert patch("merge", {"spec": {"parts": [RED]}})["parts"] == [RED]
    assert patch("json", [{"op": "replace", "path": "/spec/replicas", "value": 5}])["replicas"] == 5
    # kubectl knows no Go type of it and refuses strategic patches itself; other clients send them.
    body = json.dumps({"spec": {"parts": [{"name": "box", "color": "white"}]}}).encode()
    kind = "application/strategic-merge-patch+json"
    parts = shop.ask("PATCH", f"{PATH}/patched", body, kind)["spec"]["parts"]
    assert sorted(one["name"] for one in parts) == ["box", "lid"]


def test_scale(shop: Shop) -> None:
    labels = {"matchLabels": {"app": "shop"}}
    shop.kubectl("create", "-f", "-", stdin=widget("scaled", selector=labels))
    assert "scaled" in shop.kubectl("scale", "--replicas=3", "widget/scaled")
    assert shop.read("scaled")["spec"]["replicas"] == 3
    assert shop.read("scaled")["metadata"]["generation"] == 2
    shop.kubectl("scale", "--current-replicas=2", "--replicas=4", "widget/scaled", fails=True)
    seen = shop.ask("GET", f"{PATH}/scaled/scale")
    assert (seen["apiVersion"], seen["kind"]) == ("autoscaling/v1", "Scale")
    assert seen["spec"] == {"replicas": 3}
    assert seen["status"] == {"replicas": 0, "selector": "app=shop"}
    seen["spec"]["replicas"] = 7
    assert shop.ask("PUT", f"{PATH}/scaled/scale", json.dumps(seen).encode())["spec"] == {
        "replicas": 7
    }
    with pytest.raises(HTTPError) as stale:  # the version it was read with is not the newest
        shop.ask("PUT", f"{PATH}/scaled/scale", json.dumps(seen).encode())
    stale.value.close()
    assert stale.value.code == 409
    answer = shop.kubectl("scale", "--replicas=101", "widget/scaled", fails=True)
    assert "the shop has room for 100" in answer


def test_status_apart_from_the_object(shop: Shop) -> None:
    given = {**widget("told"), "status": {"replicas": 9}}
    shop.kubectl("create", "-f", "-", stdin=given)
    assert "status" not in shop.read("told"), "a create does not bring it"
    told = json.dumps({"status": {"replicas": 2}, "spec": {"replicas": 50}})
    shop.kubectl("patch", "widget", "told", "--subresource=status", "--type=merge", "-p", told)
    after = shop.read("told")
    assert after["status"] == {"replicas": 2}
    assert after["spec"]["replicas"] == 1
    assert after["metadata"]["generation"] == 1


def test_watch(shop: Shop) -> None:
    shop.kubectl("create", "-f", "-", stdin=widget("watched"))
    shop.kubectl("scale", "--replicas=2", "widget/watched")
    jsonpath = "--for=jsonpath={.spec.replicas}=2"
    assert "condition met" in shop.kubectl("wait", jsonpath, "widget/watched", "--timeout=10s")
    since = "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Dwatched"
    assert shop.ask("GET", f"{PATH}{since}")["object"]["spec"]["replicas"] == 2


def test_discovery_openapi_and_explain(shop: Shop) -> None:
    listed = shop.kubectl("api-resources", "--api-group=shop.example", "--no-headers").split()
    assert listed == ["widgets", "wd", "shop.example/v1", "true", "Widget"]
    served = shop.ask("GET", "/apis/shop.example/v1")["resources"]
    assert [one["name"] for one in served] == ["widgets", "widgets/scale", "widgets/status"]
    assert (served[1]["group"], served[1]["kind"]) == ("autoscaling", "Scale")
    explained = shop.kubectl("explain", "widget.spec.parts")
    assert "A part of a widget." in explained
    assert "told from each other" in explained
    v3 = shop.ask("GET", "/openapi/v3/apis/shop.example/v1")
    spec = v3["components"]["schemas"]["example.shop.v1.WidgetSpec"]["properties"]
    assert spec["parts"]["x-kubernetes-patch-merge-key"] == "name"
    scales = v3["components"]["schemas"]["io.k8s.api.autoscaling.v1.Scale"]
    assert scales["x-kubernetes-group-version-kind"][0]["group"] == "autoscaling"
    assert "example.shop.v1.Widget" in shop.ask("GET", "/openapi/v2")["definitions"]


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def test_protobuf(shop: Shop) -> None:
    spec = _field(1, 6) + _field(2, _field(1, b"lid") + _field(2, b"red"))
    raw = _field(1, _field(1, b"binary")) + _field(2, spec)
    named = _field(1, _field(1, b"shop.example/v1") + _field(2, b"Widget"))
    body = b"k8s\0" + named + _field(2, raw)
    shop.ask("POST", PATH, body, "application/vnd.kubernetes.protobuf")
    made = shop.read("binary")["spec"]
    assert (made["replicas"], made["parts"]) == (6, [RED])


def test_roles(shop: Shop) -> None:
    shop.kubectl("create", "-f", "-", *EDITOR, stdin=widget("ruled"))
    assert "ruled" in shop.kubectl("get", "widgets", *VIEWER)
    answer = shop.kubectl("delete", "widget", "ruled", *VIEWER, fails=True)
    assert 'cannot delete resource "widgets" in API group "shop.example"' in answer
    shop.kubectl("scale", "--replicas=2", "widget/ruled", *EDITOR)
    shop.kubectl("scale", "--replicas=3", "widget/ruled", *VIEWER, fails=True)
    may = shop.kubectl("auth", "can-i", "--list", *VIEWER)
    assert "widgets.shop.example/scale" in may


def test_quotas_count_them(shop: Shop) -> None:
    shop.kubectl("create", "namespace", "small")
    shop.kubectl("create", "quota", "one", "--hard=count/widgets.shop.example=1", "-n", "small")
    shop.kubectl("create", "-n", "small", "-f", "-", stdin=widget("first"))
    second = shop.kubectl("create", "-n", "small", "-f", "-", stdin=widget("second"), fails=True)
    assert "exceeded quota: one" in second
