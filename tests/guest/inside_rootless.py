"""Inside the guest: `livesize up` of an ordinary user, a service of the user's own manager.

Root's hands are used to look, never to help: groups, mounts and processes are read as root, and
everything is asked for by the user.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guest.service import PATIENCE, UNIT, Service, systemctl
from system.groups import GroupFiles, start_time
from system.up import container

pytestmark = pytest.mark.cgroup_v2

USER, USER_ID = "ada", 1000
HOME = Path(f"/home/{USER}")
DATA = HOME / ".local/share/livesize"
MANAGER = f"user.slice/user-{USER_ID}.slice/user@{USER_ID}.service"
TREE = Path("/sys/fs/cgroup")
MIB = 1024 * 1024
SETTINGS = """\
node-name: guest
listen: 127.0.0.1:7443
allocatable: {cpu: 2, memory: 1Gi}
keep: true
"""
# There is no bus here, and the folder for it is otherwise made by who answers there.
RUNTIME_DIR = """\
[Service]
ExecStart=
ExecStart=/usr/bin/sh -c "mkdir -p /run/user/%i; chown %i:%i /run/user/%i; chmod 700 /run/user/%i"
ExecStop=
"""
MANAGER_MORE = "[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i\nTimeoutStartSec=300\n"
ENVIRONMENT = {
    "HOME": str(HOME),
    "USER": USER,
    "XDG_RUNTIME_DIR": f"/run/user/{USER_ID}",
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
}


def as_user(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        user=USER_ID,
        group=USER_ID,
        extra_groups=[],
        env=ENVIRONMENT,
        cwd=HOME,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def manager(*words: str) -> str:
    done = as_user("systemctl", "--user", *words)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def below_manager(*words: str) -> str:
    """Run something as a service of the user's, to its end, and hear what it says. There is no bus
    here, by which systemd-run would do the same."""
    said = HOME / "said.log"
    said.unlink(missing_ok=True)
    write(
        HOME / ".config/systemd/user/asked.service",
        f"[Service]\nType=oneshot\nTimeoutStartSec=300\nExecStart={' '.join(words)}\n"
        f"StandardOutput=append:{said}\nStandardError=append:{said}\n",
    )
    manager("daemon-reload")
    as_user("systemctl", "--user", "start", "asked.service")
    return said.read_text()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def prepare_user() -> None:
    """A home, and a manager as after logging in; what Python needs lies below root's home here."""
    Path("/root").chmod(0o755)
    write(Path("/etc/systemd/system/user-runtime-dir@.service.d/guest.conf"), RUNTIME_DIR)
    write(Path("/etc/systemd/system/user@.service.d/guest.conf"), MANAGER_MORE)
    write(HOME / ".config/livesize/up.yaml", SETTINGS)
    write(HOME / f".config/systemd/user/{UNIT}.d/patience.conf", PATIENCE)
    for path in (HOME, *HOME.rglob("*")):
        os.chown(path, USER_ID, USER_ID)
    systemctl("daemon-reload")
    systemctl("start", f"user@{USER_ID}.service")


@pytest.fixture(scope="module")
def up() -> Iterator[Service]:
    prepare_user()
    program = ("--program", "/usr/bin/livesize")
    installed = as_user("livesize", "units", "install", "up", "--user", *program)
    assert installed.returncode == 0, installed.stderr
    manager("daemon-reload")
    manager("start", UNIT)
    service = Service(DATA)
    service.await_ready()
    if service.pod("db").get("kind") != "Pod":  # there again where a test is run once more
        mounts = {"volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
        app = container("app", "500m", "64Mi") | mounts
        service.create_pod(
            "db", [app], volumes=[{"name": "cache", "emptyDir": {"medium": "Memory"}}]
        )
    yield service
    manager("stop", UNIT)


def group_of(up: Service, pod: str) -> GroupFiles:
    uid = up.pod(pod)["metadata"]["uid"]
    node = json.loads((DATA / "agent/node.json").read_text())["group"]
    return GroupFiles(Path(f"{MANAGER}/livesize/{node}/pod-{uid}/c-app"))


def limits(group: GroupFiles) -> list[tuple[int | None, int | None]]:
    """Of the container and of its pod."""
    both = (group, group.pod())
    return [(one.cpu_quota_us(), one.memory_limit_bytes()) for one in both]


def volume_bytes(group: GroupFiles) -> int:
    facts = os.statvfs(f"/proc/{group.main_pid()}/root/cache")
    return facts.f_blocks * facts.f_frsize


def run_in(pod: str, *command: str) -> str:
    """What it says; empty where it was not run: nothing here answers at once."""
    done = as_user("livesize", "exec", pod, "--", *command)
    return done.stdout if done.returncode == 0 else ""


def message_of(up: Service, pod: str) -> str:
    statuses: list[dict[str, Any]] = up.pod(pod).get("status", {}).get("containerStatuses", [])
    return " ".join(str(one.get("state", {}).get("waiting", {}).get("message")) for one in statuses)


def test_a_users_pods_are_resized_in_groups_of_the_users_own(up: Service) -> None:
    group = group_of(up, "db")
    pid = group.main_pid()
    began = start_time(pid)
    assert Path(f"/proc/{pid}").stat().st_uid == USER_ID, "outside it is the user's"
    assert limits(group) == [(50_000, 64 * MIB)] * 2
    for cpu, memory in (("1255m", 96), ("300m", 48)):  # up, then down
        up.resize("db", cpu=cpu, memory=f"{memory}Mi")
        size = (int(cpu[:-1]) * 100, memory * MIB)
        assert limits(group) == [size] * 2
        manager("daemon-reload")
        systemctl("daemon-reload")
        assert limits(group) == [size] * 2
    assert (group.main_pid(), start_time(pid)) == (pid, began), "nothing restarted"


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_service_that_starts_again_finds_pods_volumes_and_namespaces(
    up: Service, how: str
) -> None:
    group = group_of(up, "db")
    pid = group.main_pid()
    began = start_time(pid)
    main = manager("show", "-P", "MainPID", UNIT)
    up.expect_restart()
    if how == "restart":
        manager("restart", UNIT)
    else:
        os.kill(int(main), signal.SIGKILL)
        up.wait_until(
            lambda: manager("show", "-P", "MainPID", UNIT) not in (main, "0"), "it starts again"
        )
    up.await_ready()
    memory = 72 if how == "restart" else 80
    up.resize("db", cpu="500m", memory=f"{memory}Mi")
    assert limits(group) == [(50_000, memory * MIB)] * 2
    assert volume_bytes(group) == memory * MIB, "the memory volume follows, by mount(2)"
    assert (group.main_pid(), start_time(pid)) == (pid, began), "nothing restarted"
    command = ("/bin/sh", "-c", "id -u; echo >/dev/null")
    said = up.wait_until(lambda: run_in("db", *command), "a command runs in it")
    assert said == "0\n"


def test_who_may_be_killed_first_is_told_to_the_kernel(up: Service) -> None:
    app = container("app", "100m", "64Mi")
    app["resources"]["limits"] = {}
    up.delete_pod("burst")  # there again where the test is run once more
    up.create_pod("burst", [app])
    score = Path(f"/proc/{group_of(up, 'burst').main_pid()}/oom_score_adj")
    assert 0 < int(score.read_text()) < 1000
    up.delete_pod("burst")
    assert not score.exists()


def test_another_user_is_refused_in_words(up: Service) -> None:
    app = container("app", "100m", "32Mi") | {"securityContext": {"runAsUser": 7}}
    manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "other", "namespace": "default"},
        "spec": {"containers": [app], "terminationGracePeriodSeconds": 0},
    }
    up.delete_pod("other")  # there again where the test is run once more
    assert up.request("POST", "/api/v1/namespaces/default/pods", manifest)[0] == 201
    up.wait_until(lambda: "without root" in message_of(up, "other"), "it is said why not")
    up.delete_pod("other")


def test_what_cannot_be_had_is_said_before_anything_starts(up: Service) -> None:
    words = ("--data-dir", str(HOME / "second"), "--listen", "127.0.0.1:0", "--node-name", "two")
    static = below_manager("/usr/bin/livesize", "up", *words, "--cpu-policy", "static")
    assert "cpuset" in static
    containerd = below_manager("/usr/bin/livesize", "up", *words, "--runtime", "containerd")
    assert "needs root" in containerd
    elsewhere = as_user("livesize", "up", *words)
    assert "systemd-run --user" in elsewhere.stderr


def test_the_doctor_has_a_line_for_each(up: Service) -> None:
    text = below_manager("/usr/bin/livesize", "doctor")
    assert f"✓ delegation: {TREE / MANAGER} is yours" in text, text
    assert "✓ user-namespaces" in text
    assert "✗ cpuset" in text
    assert "Delegate=cpu cpuset memory pids" in text
    assert f"loginctl enable-linger {USER}" in text
    assert "✗ without-root: neither containerd nor virtual machines" in text
