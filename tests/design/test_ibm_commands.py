"""IBM on the real system: every kubectl way to change a pod, and what restarts a container.

Each test quotes the sentence of the document it checks; the kernel's files are the witness.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livesize.api.hashes import container_hash_without_resources
from livesize.runtime.images import ImageStore
from livesize.runtime.oci import write_busybox_image
from system.groups import GroupFiles, group_of, start_time
from system.up import Up, container, running_up

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("kubectl_1_32")]


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running_up(tmp_path_factory.mktemp("up"), allocatable="cpu=4,memory=1Gi") as running:
        yield running


@pytest.fixture
def db(up: Up) -> Iterator[GroupFiles]:
    up.kubectl("apply", "-f", "-", stdin=manifest("200m"))
    up.wait_running("db")
    yield group_of(up, "db", "app")
    up.delete_pod("db")


def manifest(cpu: str, **more: Any) -> str:
    spec = {"containers": [{**container("app", cpu, "32Mi"), **more}]}
    spec["terminationGracePeriodSeconds"] = 0
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db"}, "spec": spec}
    return json.dumps(pod)


def lives(group: GroupFiles) -> tuple[int, int]:
    pid = group.main_pid()
    return pid, start_time(pid)


def test_the_oom_score_follows_the_request(up: Up) -> None:
    """For Burstable pods, a request value for memory resource determines the value of a score for
    the OOM killer [...] So, the change to a memory request value doesn't take effect for Burstable
    pods on the OOM killer's behavior. (It does here.)"""
    app = container("app", "200m", "64Mi")
    app["resources"] = {"requests": {"memory": "64Mi"}, "limits": {"memory": "700Mi"}}
    spec = {"containers": [app], "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "burst"}, "spec": spec}
    up.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    up.wait_running("burst")
    group = group_of(up, "burst", "app")
    before, first = lives(group), oom_scores(group)
    up.livesize("resize", "pod/burst", "--memory", "640Mi:700Mi", "--wait")
    later = oom_scores(group)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert first == {1000 - 1000 * (64 << 20) // memory}
    assert later == {1000 - 1000 * (640 << 20) // memory}
    assert lives(group) == before
    up.delete_pod("burst")


def oom_scores(group: GroupFiles) -> set[int]:
    """Of every process in the container's group."""
    return {int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in group.processes()}


def by_set(up: Up) -> None:
    up.kubectl("set", "resources", "pod/db", "--requests=cpu=300m", "--limits=cpu=300m")


def by_patch(up: Up) -> None:
    resources = {"requests": {"cpu": "300m"}, "limits": {"cpu": "300m"}}
    change = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    up.kubectl("patch", "pod", "db", "--patch", json.dumps(change))


def by_apply(up: Up) -> None:
    up.kubectl("apply", "-f", "-", stdin=manifest("300m"))


EDITOR = """
import sys, yaml
pod = yaml.safe_load(open(sys.argv[1]))
resources = pod["spec"]["containers"][0]["resources"]
resources["requests"]["cpu"] = resources["limits"]["cpu"] = "300m"
yaml.safe_dump(pod, open(sys.argv[1], "w"))
"""


def by_edit(up: Up) -> None:
    """The editor is a script that changes the desired size and saves everything else as it is."""
    script = up.directory / "editor.py"
    script.write_text(EDITOR)
    command = ["kubectl", "--kubeconfig", str(up.kubeconfig), "edit", "pod", "db"]
    environment = {**os.environ, "KUBE_EDITOR": f"{sys.executable} {script}"}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ask", [by_set, by_patch, by_apply, by_edit])
def test_any_valid_method(up: Up, db: GroupFiles, ask: Any) -> None:
    """Any valid method to update the pod spec should be applicable for vertical scaling, e.g.,
    using kubectl commands set, patch, apply, edit. Logs associated with the pod will capture the
    failure/success of the resize command."""
    before = lives(db)
    ask(up)
    up.wait_until(lambda: db.cpu_quota_us() == 30_000, "the quota has changed")
    up.wait_resized("db")
    assert lives(db) == before

    def told() -> bool:
        return "ResizeCompleted" in up.kubectl("events", "--for", "pod/db").stdout

    up.wait_until(told, "the event is there")


def test_two_hashes(up: Up, db: GroupFiles) -> None:
    """This is a change on something other than resource requirements, so it needs to restart a
    container [...] This is a change only on resource requirements."""
    before, hashes = lives(db), hashes_kept(up)
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    patch = {"spec": {"containers": [{"name": "app", "resizePolicy": policy}]}}
    up.kubectl("patch", "pod", "db", "--patch", json.dumps(patch))
    up.livesize("resize", "pod/db", "--cpu", "300m", "--wait")
    assert up.pod("db")["spec"]["containers"][0]["resizePolicy"] == policy
    assert db.cpu_quota_us() == 30_000
    assert lives(db) == before
    container = up.pod("db")["spec"]["containers"][0]
    assert container_hash_without_resources(container) == hashes["hash_without_resources"]

    archive, name = up.directory / "image.tar", "localhost/livesize/other:1"
    write_busybox_image(archive, name)
    ImageStore(up.directory / "agent" / "runtime" / "images").import_tar(archive)
    image = {"spec": {"containers": [{"name": "app", "image": name}]}}
    up.kubectl("patch", "pod", "db", "--patch", json.dumps(image))
    up.wait_until(lambda: restarts(up) == 1, "it was started again")
    assert lives(group_of(up, "db", "app")) != before


def hashes_kept(up: Up) -> dict[str, str]:
    """In the runtime's own record of the container."""
    uid = up.pod("db")["metadata"]["uid"]
    folder = up.directory / "agent" / "runtime" / "pods" / uid / "containers" / "app" / "0"
    kept: dict[str, str] = json.loads((folder / "record.json").read_text())["config"]
    assert kept["hash"] != kept["hash_without_resources"]
    return kept


def restarts(up: Up) -> int:
    return int(up.pod("db")["status"]["containerStatuses"][0]["restartCount"])
