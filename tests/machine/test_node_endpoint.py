"""kubectl's logs, exec, attach, cp and port-forward against a real `livesize up`: what users type,
and what they see."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import time
import urllib.request
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any

import pytest

from system.groups import group_of
from system.up import LIVESIZE, Up, container

TALKER = (
    "echo hello; echo oops >&2; mkdir -p /www; echo served > /www/index.html;"
    " httpd -p $PORT -h /www; i=0; trap 'exit 0' TERM;"
    " while :; do i=$((i+1)); echo line $i; sleep 0.2; done"
)
OPTIONS = ("--container-log-max-size", "32Ki", "--container-log-max-files", "2")
RUNTIMES = [
    pytest.param("process", marks=pytest.mark.containers),
    pytest.param("containerd", marks=[pytest.mark.containers, pytest.mark.matrix]),
]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


PORT = free_port()


@pytest.fixture(scope="module", params=RUNTIMES)
def up(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One system for all, with one pod that talks and serves."""
    made = Up(tmp_path_factory.mktemp("up"), runtime=request.param)
    try:
        made.start(*OPTIONS, "--audit-log", str(made.directory / "control" / "audit.log"))
        talker = container("app", "500m", "128Mi", command=TALKER.replace("$PORT", str(PORT)))
        talker["env"] = [{"name": "COLOUR", "value": "blue"}]
        made.create_pod("talker", [talker], hostNetwork=True)
        made.wait_until(lambda: "line 1" in logs(made), "the pod talks")
        yield made
    finally:
        made.end()


def logs(up: Up, *words: str) -> str:
    return up.kubectl("logs", "talker", *words).stdout


def is_containerd(up: Up) -> bool:
    node = up.request("GET", f"/api/v1/nodes/{up.node}")[1]
    version = str(node["status"]["nodeInfo"]["containerRuntimeVersion"])
    return version.startswith("containerd")


@contextlib.contextmanager
def running(up: Up, *words: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """kubectl that goes on until it is ended."""
    command = ["kubectl", "--kubeconfig", str(up.kubeconfig), *words]
    with subprocess.Popen(command, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(stream: Any, wanted: bytes, seconds: float = 15.0) -> bytes:
    """What comes until ``wanted`` is among it."""
    descriptor = stream if isinstance(stream, int) else stream.fileno()
    seen, deadline = b"", time.monotonic() + seconds
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        assert ready, f"{wanted!r} did not come: {seen!r}"
        piece = os.read(descriptor, 65536)
        assert piece, f"it ended before {wanted!r} came: {seen!r}"
        seen += piece
    return seen


def token(up: Up, *words: str) -> None:
    command = [LIVESIZE, "token", *words, "--data-dir", str(up.directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr


def command_lines() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


def exec_processes() -> list[bytes]:
    """Our side of exec, in our own runtime."""
    return [line for line in command_lines() if b"enter.pyc" in line]


def sleepers() -> list[bytes]:
    """What the tests below have running in the container."""
    return [line for line in command_lines() if line == b"sleep\x004321\x00"]


def test_logs_show_what_was_written_to_both_outputs(up: Up) -> None:
    lines = logs(up).splitlines()
    assert sorted(lines[:2]) == ["hello", "oops"]  # two outputs, in whichever order they are read
    assert lines[2] == "line 1"


def test_logs_tail_since_and_times(up: Up) -> None:
    before = time.time()
    up.wait_until(lambda: len(logs(up).splitlines()) > 8, "there are several lines")
    two = logs(up, "--tail", "2").splitlines()
    assert len(two) == 2
    assert two[0].startswith("line ")
    stamped = logs(up, "--tail", "1", "--timestamps")
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{9}Z line \d+\n", stamped)
    assert found, stamped
    written = time.mktime(time.strptime(found[1], "%Y-%m-%dT%H:%M:%S")) - time.timezone
    assert before - 2 < written <= time.time() + 1
    recent = logs(up, "--since", "1s").splitlines()
    assert 0 < len(recent) < 10
    assert "hello" not in recent
    assert len(logs(up, "--limit-bytes", "7")) == 7


def test_logs_follow_goes_on_by_itself(up: Up) -> None:
    with running(up, "logs", "-f", "--tail", "1", "talker", stdout=subprocess.PIPE) as following:
        first = read_until(following.stdout, b"\n")
        number = int(first.split()[1])
        read_until(following.stdout, f"line {number + 3}\n".encode())


def write_lines(up: Up, word: str) -> None:
    """12,000 lines of the pod's own output, about 130 KB."""
    lines = f"i=0; while [ $i -lt 12000 ]; do echo {word} $i; i=$((i+1)); done"
    up.kubectl("exec", "talker", "--", "sh", "-c", f"{lines} >> /proc/1/fd/1")


def test_a_log_is_rotated_and_following_misses_nothing(up: Up) -> None:
    """32Ki in two parts are kept; far more is written, and each line of it is seen."""
    with running(up, "logs", "-f", "--tail", "1", "talker", stdout=subprocess.PIPE) as following:
        read_until(following.stdout, b"line")
        write_lines(up, "many")
        seen = read_until(following.stdout, b"many 11999\n", 30)
    assert [int(one) for one in re.findall(rb"many (\d+)\n", seen)] == list(range(12_000))
    for _ in range(2 if is_containerd(up) else 0):  # it is looked at every ten seconds
        time.sleep(11)
        write_lines(up, "more")
    up.wait_until(lambda: "many 0\n" not in logs(up), "the oldest part has gone", 25)
    folder = next(up.directory.glob("agent/*/logs/*/app"))
    held = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
    assert is_containerd(up) or held < 100_000


def test_logs_of_the_start_before(up: Up) -> None:
    again = container("app", "100m", "32Mi", command="echo start $(cat /proc/uptime); sleep 1")
    up.create_pod("again", [again], hostNetwork=True)

    def restarted() -> bool:
        statuses = up.pod("again")["status"]["containerStatuses"]
        return bool(statuses[0]["restartCount"]) and "running" in statuses[0]["state"]

    first = up.kubectl("logs", "again", check=False)
    assert "start" in first.stdout or "waiting to start" in first.stderr
    refused = up.kubectl("logs", "-p", "talker", check=False)
    assert 'previous terminated container "app" in pod "talker" not found' in refused.stderr
    up.wait_until(restarted, "it is started again", 40)
    previous, current = (
        up.kubectl("logs", "again", *words).stdout for words in (("--previous",), ())
    )
    assert previous.startswith("start")
    assert previous != current
    up.delete_pod("again")


@pytest.mark.parametrize("size", [9_000, 67_000, 120_000])
def test_a_long_command_is_run(up: Up, size: int) -> None:
    done = up.kubectl("exec", "talker", "--", "sh", "-c", "echo ${#0}", "x" * size)
    assert done.stdout.split() == [str(size)]


def test_exec_is_in_the_container_and_its_exit_code_arrives(up: Up) -> None:
    namespaces = "readlink /proc/self/ns/cgroup; readlink /proc/1/ns/cgroup"
    groups = "cat /proc/self/cgroup; echo; cat /proc/1/cgroup"
    script = f"echo out $COLOUR; echo err >&2; {namespaces}; {groups}; exit 7"
    done = up.kubectl("exec", "talker", "--", "sh", "-c", script, check=False)
    assert done.returncode == 7
    assert done.stdout.startswith("out blue\n")
    assert done.stderr.startswith("err\n")
    own, first, *listed = done.stdout.splitlines()[1:]
    assert own == first  # the container's own view of groups ...
    middle = listed.index("")
    assert listed[:middle] == listed[middle + 1 :]  # ... and in its groups, not above
    if up.runtime == "process":  # on v1 containerd shows containers the machine's view of groups
        assert {line.rpartition(":")[2] for line in listed[:middle]} == {"/"}
    assert up.kubectl("exec", "talker", "--", "true").returncode == 0


def test_who_ran_something_is_in_the_audit_log(up: Up) -> None:
    up.kubectl("exec", "talker", "--", "echo", "audited")

    def told() -> list[Any]:
        lines = (up.directory / "control" / "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines if "command=audited" in line]

    (line,) = up.wait_until(told, "it is in the log")
    assert (line["verb"], line["user"]["username"]) == ("create", "admin")
    assert line["objectRef"]["subresource"] == "exec"
    assert line["responseStatus"]["code"] == 101


@pytest.mark.matrix
def test_a_token_that_is_revoked_ends_what_it_began(up: Up) -> None:
    editor = ("ed", "--role", "editor", "--kubeconfig", str(up.directory / "ed.kubeconfig"))
    token(up, "create", *editor)
    command = ["kubectl", "--kubeconfig", editor[-1], "exec", "talker", "--", "sleep", "4321"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as going:
        time.sleep(1)
        assert going.poll() is None
        token(up, "revoke", "ed")
        assert going.wait(20) != 0


def test_exec_passes_stdin_and_its_end(up: Up) -> None:
    text = "one\ntwo\n" * 50_000
    assert up.kubectl("exec", "-i", "talker", "--", "cat", stdin=text).stdout == text


def test_exec_with_a_terminal_and_its_size(up: Up) -> None:
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    with running(
        up, "exec", "-it", "talker", "--", "sh",
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    ) as shell:  # fmt: skip
        os.close(slave)
        read_until(master, b"# ")
        os.write(master, b"tty; stty size\n")
        assert b"/dev/pts/" in read_until(master, b"33 99")
        ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))
        os.killpg(shell.pid, signal.SIGWINCH)
        time.sleep(0.3)
        os.write(master, b"stty size; exit 5\n")
        read_until(master, b"20 70")
        assert shell.wait(10) == 5
    os.close(master)


def test_attach_shows_what_comes(up: Up) -> None:
    with running(
        up, "attach", "talker", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as attached:
        read_until(attached.stdout, b"line ")


def test_attach_passes_stdin_to_a_container_that_has_one(up: Up) -> None:
    script = "while read word; do echo got $word; done"
    reader = {**container("app", "100m", "32Mi", command=script), "stdin": True}
    up.create_pod("reader", [reader], hostNetwork=True)
    pipe = subprocess.PIPE
    with running(
        up, "attach", "-i", "reader", stdin=pipe, stdout=pipe, stderr=pipe
    ) as attached:  # fmt: skip
        assert attached.stdin is not None
        read_until(attached.stderr, b"command prompt")
        attached.stdin.write(b"this\n")
        attached.stdin.flush()
        read_until(attached.stdout, b"got this\n")
    assert up.pod("reader")["status"]["containerStatuses"][0]["restartCount"] == 0
    up.delete_pod("reader")


def test_cp_both_ways(up: Up, tmp_path: Path) -> None:
    content = os.urandom(2_000_000)
    (tmp_path / "there").write_bytes(content)
    up.kubectl("cp", str(tmp_path / "there"), "talker:/tmp/copied")
    up.kubectl("cp", "talker:/tmp/copied", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == content


def test_port_forward_to_a_server_in_the_pod(up: Up) -> None:
    ours, unused = free_port(), free_port()
    ports = (f"{ours}:{PORT}", f"{free_port()}:{unused}")
    with running(
        up, "port-forward", "talker", *ports, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as forwarding:
        read_until(forwarding.stdout, b"Forwarding from 127.0.0.1")
        for _ in range(3):
            with urllib.request.urlopen(f"http://127.0.0.1:{ours}/", timeout=10) as answer:
                assert answer.read() == b"served\n"
        with socket.create_connection(("127.0.0.1", int(ports[1].split(":")[0])), 10) as nobody:
            assert nobody.recv(1) == b""
        assert str(unused).encode() in read_until(forwarding.stderr, b"refused")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("exec", "talker", "-c", "nope", "--", "true"), "container nope is not valid for pod"),
        (("logs", "talker", "-c", "nope"), "container nope is not valid for pod"),
        (("exec", "nobody", "--", "true"), 'pods "nobody" not found'),
        (("exec", "talker", "--", "no-such-program"), "no-such-program"),
        (("exec", "stuck", "--", "true"), 'container not found ("app")'),
        (("logs", "stuck"), 'container "app" in pod "stuck" is waiting to start'),
    ],
)
def test_what_cannot_be_is_said_as_users_know_it(
    up: Up, words: tuple[str, ...], sentence: str
) -> None:
    if "stuck" in words and not up.pod("stuck").get("spec"):
        missing = {**container("app", "100m", "32Mi"), "image": "localhost/not/here:1"}
        spec = {"containers": [missing], "hostNetwork": True}
        manifest = {"metadata": {"name": "stuck"}, "spec": spec}
        assert up.request("POST", "/api/v1/namespaces/default/pods", manifest)[0] == 201

        def waits() -> bool:
            return bool(up.pod("stuck").get("status", {}).get("containerStatuses"))

        up.wait_until(waits, "its image is missing")
    done = up.kubectl(*words, check=False)
    assert done.returncode == 1
    assert sentence in done.stderr


def test_a_viewer_reads_logs_and_runs_nothing(up: Up) -> None:
    path = up.directory / "viewer.kubeconfig"
    if not path.exists():
        token(up, "create", "vi", "--role", "viewer", "--kubeconfig", str(path))
    for verb, words, allowed in (
        ("log", ("logs", "talker", "--tail", "1"), True),
        ("exec", ("exec", "talker", "--", "true"), False),
        ("attach", ("attach", "talker"), False),
        ("portforward", ("port-forward", "talker", f"{free_port()}:{PORT}"), False),
    ):
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(path), *words],
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) is allowed, (verb, done)
        if not allowed:
            assert f'cannot create resource "pods/{verb}"' in done.stderr


def test_a_client_that_goes_leaves_nothing_behind(up: Up) -> None:
    group = group_of(up, "talker", "app")
    for words in (
        # What it has started goes with it, though it does not want to.
        ("exec", "talker", "--", "sh", "-c", "trap '' TERM; echo on; sleep 4321; true"),
        # Nobody reads this stdin: the client goes while its input has nowhere to go.
        ("exec", "-i", "talker", "--", "sh", "-c", "echo on; exec sleep 4321"),
    ):
        with running(up, *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as going:
            read_until(going.stdout, b"on\n")
            up.wait_until(sleepers, "it runs")
            assert going.stdin is not None
            os.set_blocking(going.stdin.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                while "-i" in words:
                    os.write(going.stdin.fileno(), bytes(65536))
        up.wait_until(lambda: not sleepers() and not exec_processes(), "it has ended", 20)
        assert group.main_pid() > 0


def held_bytes(up: Up) -> int:
    """What both processes hold in memory."""
    pages = 0
    for pid in (up.pid, up.control_plane_pid()):
        pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.matrix
def test_who_does_not_read_slows_the_command_and_fills_no_memory(up: Up) -> None:
    before = held_bytes(up)
    with running(
        up, "exec", "talker", "--", "cat", "/dev/zero", stdout=subprocess.PIPE
    ) as unread:  # fmt: skip
        time.sleep(5)
        assert unread.poll() is None
        assert held_bytes(up) - before < 20 << 20


def test_livesize_logs_and_exec(up: Up) -> None:
    assert up.livesize("logs", "talker", "--tail", "1").stdout.startswith("line ")
    script = "cat; echo err >&2; exit 3"
    words = ("exec", "-i", "pod/talker", "sh", "-c", script)
    command = [LIVESIZE, "exec", "--kubeconfig", str(up.kubeconfig), *words[1:]]
    done = subprocess.run(
        command, input="typed\n", capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "typed\n", "err\n")


def test_the_agent_is_killed_during_an_exec(up: Up) -> None:
    """The last one: it takes the agent away. kubectl ends, and so does what it ran."""
    with running(
        up, "exec", "talker", "--", "sh", "-c", "echo on; exec sleep 4321",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as going:  # fmt: skip
        read_until(going.stdout, b"on\n")
        up.kill()
        assert going.wait(20) != 0
    deadline = time.monotonic() + 10
    while exec_processes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not exec_processes()
    up.start(*OPTIONS)
    assert "line" in logs(up, "--tail", "2")
    assert up.kubectl("exec", "talker", "--", "echo", "again").stdout == "again\n"
    assert up.pod("talker")["status"]["containerStatuses"][0]["restartCount"] == 0
