"""What is filled into probes and volumes, as Kubernetes does; and that twice is once."""

from __future__ import annotations

import pytest

from livesize.api.defaults import default_object
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object


def defaulted(spec: Object) -> Object:
    pod = default_object(PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert default_object(PODS, pod) == pod
    found: Object = pod["spec"]
    return found


def test_a_probe() -> None:
    probe = {"httpGet": {"port": 80}, "timeoutSeconds": 0, "periodSeconds": 5}
    (one,) = defaulted({"containers": [{"name": "a", "readinessProbe": probe}]})["containers"]
    assert one["readinessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert "livenessProbe" not in one


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, {"emptyDir": {}}),
        ({"configMap": {"name": "c"}}, {"configMap": {"name": "c", "defaultMode": 420}}),
        ({"hostPath": {"path": "/x"}}, {"hostPath": {"path": "/x", "type": ""}}),
        ({"emptyDir": {"medium": "Memory"}}, {"emptyDir": {"medium": "Memory"}}),
        ({"nfs": {}}, {"nfs": {}}),
    ],
)
def test_a_volume(given: Object, filled: Object) -> None:
    spec = {"containers": [], "volumes": [{"name": "v", **given}]}
    assert defaulted(spec)["volumes"] == [{"name": "v", **filled}]
