"""The tier plugin itself: order, second chances, what was not run, budgets, limits, leaks."""

from __future__ import annotations

import os
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

import leaks
import tiers

Run = Callable[..., pytest.RunResult]
FAILS_ONCE = """
    import pathlib, pytest
    pytestmark = pytest.mark.apiserver
    def once(name):
        mark = pathlib.Path(name)
        if not mark.exists():
            mark.touch()
            raise AssertionError(name + " was unlucky")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a file of tests in a session of its own, with only our plugins."""
    markers = "\n".join(f"    {tier.name}: tier" for tier in tiers.TIERS)
    pytester.makeini(f"[pytest]\nmarkers =\n{markers}\n    matrix: long\n")
    monkeypatch.setattr(leaks, "_claims", {})
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_file(source: str, *more: str, options: tuple[str, ...] = ()) -> pytest.RunResult:
        pieces = [textwrap.dedent(piece).strip("\n") for piece in (source, *more)]
        pytester.makepyfile(test_it="\n".join(pieces))
        ours = ("-p", "tiers", "-p", "leaks")
        return pytester.runpytest_inprocess(*ours, *options, no_reraise_ctrlc=True)

    return run_file


def test_a_machine_test_that_passes_when_run_again_is_flaky_and_green(run: Run) -> None:
    result = run(FAILS_ONCE, "def test_a(): once('a')\ndef test_b(): pass")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["flaky: test_it.py::test_a * first: AssertionError: a was unlucky"]
    )
    result.stdout.fnmatch_lines(["*1 passed, 1 flaky in *"])


def test_a_machine_test_that_fails_twice_is_red(run: Run) -> None:
    result = run(FAILS_ONCE, "def test_a(): assert 1 == 2")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("flaky:*")


def test_second_chances_come_last_and_alone_with_fixtures_made_anew(run: Run) -> None:
    source = """
        order = []
        @pytest.fixture(scope="module")
        def server():
            order.append("up")
            yield
            order.append("down")
        def test_a(server):
            order.append("a")
            once("a")
        def test_b(server): order.append("b")
        def test_c(server): order.append("c")
        def teardown_module(): pathlib.Path("order").write_text(" ".join(order))
    """
    result = run(FAILS_ONCE, source)
    assert result.ret == 0
    assert Path("order").read_text().startswith("up a b c down up a")


def test_a_fixture_that_fails_once_gets_its_second_chance_too(run: Run) -> None:
    source = """
        @pytest.fixture(scope="module")
        def server(): once("server")
        def test_a(server): pass
    """
    result = run(FAILS_ONCE, source)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*1 flaky in *"])


def test_two_flaky_tests_are_green_and_three_are_red(run: Run) -> None:
    tests = "\n".join(f"def test_{name}(): once('{name}')" for name in "abc")
    result = run(FAILS_ONCE, tests)
    assert result.ret == 1
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["3 flaky tests are too many: red"])
    for name in "ab":
        Path(name).unlink()
    again = run(FAILS_ONCE, tests)
    assert again.ret == 0
    again.stdout.fnmatch_lines(["*1 passed, 2 flaky in *"])


def test_a_unit_test_gets_no_second_chance(run: Run) -> None:
    source = FAILS_ONCE.replace("pytestmark", "unused")
    result = run(source, "def test_a(): once('a')")
    assert result.ret == 1
    result.assert_outcomes(failed=1)


def test_what_was_held_back_is_red_when_the_session_is_interrupted(run: Run) -> None:
    result = run(FAILS_ONCE, "def test_a(): once('a')\ndef test_b(): raise KeyboardInterrupt")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*AssertionError: a was unlucky*"])


def test_a_test_that_cannot_run_here_is_listed_with_its_reason(run: Run) -> None:
    source = """
        def test_a(not_run): not_run("needs kubectl 1.32")
        def test_b(): pass
    """
    result = run(source)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["not run: needs kubectl 1.32 (1 tests)", "*test_it.py::test_a"])
    result.stdout.fnmatch_lines(["*1 passed, 1 not run in *"])


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("def test_a(): pytest.skip('no time')", id="in a test"),
        pytest.param("@pytest.mark.skip\ndef test_a(): pass", id="by a mark"),
        pytest.param("pytest.importorskip('no_such_module')", id="of a whole file"),
    ],
)
def test_a_plain_skip_is_an_error(run: Run, source: str) -> None:
    result = run("import pytest", source)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*say not_run(reason)*"])


def test_without_root_machine_tests_say_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    source = """
        import pytest
        @pytest.mark.containers
        def test_a(): raise AssertionError
        @pytest.mark.apiserver
        def test_b(): pass
    """
    result = run(source)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["not run: needs root (1 tests)", "*1 passed, 1 not run in *"])


TIERED = """
    import pytest
    @pytest.mark.containers
    def test_containers(): pass
    @pytest.mark.apiserver
    def test_apiserver(): pass
    @pytest.mark.apiserver
    @pytest.mark.matrix
    def test_long(): pass
    def test_unit(): pass
"""


@pytest.mark.parametrize(
    ("options", "names"),
    [
        pytest.param(
            (), ["unit", "apiserver", "containers"], id="all but the matrix, cheapest first"
        ),
        pytest.param(("--tier", "none"), ["unit"], id="unit tests"),
        pytest.param(("--tier", "machine"), ["apiserver", "containers"], id="machine tests"),
        pytest.param(("--tier", "apiserver"), ["apiserver"], id="one tier"),
        pytest.param(
            ("--tier", "apiserver", "--matrix"), ["apiserver", "long"], id="one tier, all of it"
        ),
    ],
)
def test_which_tests_run_in_which_order(
    run: Run, options: tuple[str, ...], names: list[str], needs_root: None
) -> None:
    result = run(TIERED, options=("-v", *options))
    ran = [line.split()[0] for line in result.outlines if " PASSED" in line]
    assert ran == [f"test_it.py::test_{name}" for name in names]


def test_a_matrix_test_must_name_its_tier(run: Run) -> None:
    result = run("import pytest\n@pytest.mark.matrix\ndef test_a(): pass")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*marked matrix but names no tier*"])


@pytest.mark.parametrize(
    ("budget_seconds", "code", "line"),
    [
        pytest.param(60, 0, "time: apiserver 0.0* of 1 minutes", id="within"),
        pytest.param(0.9, 0, "time: apiserver * warning, over its budget", id="over"),
        pytest.param(0.02, 1, "time: apiserver * more than twice its budget, red", id="twice over"),
    ],
)
def test_the_time_of_a_tier_is_held_against_its_budget(
    run: Run, monkeypatch: pytest.MonkeyPatch, budget_seconds: float, code: int, line: str
) -> None:
    tier = tiers.Tier("apiserver", budget_seconds / 60, needs_root=False)
    monkeypatch.setattr(tiers, "TIERS", (tier,))
    result = run("import pytest, time\n@pytest.mark.apiserver\ndef test_a(): time.sleep(1.0)")
    assert result.ret == code
    result.stdout.fnmatch_lines([line])


def test_a_test_that_hangs_fails_and_the_next_one_runs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "UNIT_LIMIT_SECONDS", 0.1)
    result = run("import time\ndef test_a(): time.sleep(60)\ndef test_b(): pass")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*took longer than 0.1 s*"])


def test_a_process_left_behind_fails_the_test_and_is_ended(run: Run, needs_root: None) -> None:
    source = """
        import pathlib, subprocess, pytest
        @pytest.mark.containers
        def test_a(tmp_path):
            process = subprocess.Popen(["sleep", "1000"], cwd=tmp_path)
            process.returncode = 0  # so that nobody else waits for it
            with pathlib.Path("pids").open("a") as pids:
                pids.write(f"{process.pid} ")
    """
    result = run(source)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*left behind:*", "*process *: sleep 1000*"])
    pids = [int(pid) for pid in Path("pids").read_text().split()]
    assert len(pids) == 2
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 9


def test_a_test_that_leaves_nothing_passes(run: Run, needs_root: None) -> None:
    result = run("import pytest\n@pytest.mark.containers\ndef test_a(tmp_path, root_group): pass")
    result.assert_outcomes(passed=1)


def test_a_group_left_behind_is_found_named_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Plain directories stand in for the cgroup file system: rmdir works alike.
    hierarchy = tmp_path / "cgroup"
    ours = hierarchy / "memory" / "livesize" / "mine"
    theirs = hierarchy / "memory" / "livesize" / "theirs"
    for group in (ours / "pod" / "app", theirs):
        group.mkdir(parents=True)
    monkeypatch.setattr(leaks, "CGROUPS", hierarchy)
    monkeypatch.setattr(leaks, "_claims", {})
    leaks.claim("mine", tmp_path / "data" / "up")
    leaks.claim("theirs", tmp_path / "elsewhere")
    found = leaks.sweep(tmp_path / "data")
    assert found == [f"cgroup {path}" for path in (ours, ours / "pod", ours / "pod" / "app")]
    assert not ours.exists()
    assert theirs.exists()
    assert leaks.sweep(tmp_path / "data") == []


def test_a_process_is_found_by_its_command_line(tmp_path: Path) -> None:
    command = ["sh", "-c", "read x", "--data-dir", tmp_path, "--listen"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        assert leaks.processes_of(tmp_path, []) == [process.pid]
        process.kill()
    assert leaks.processes_of(tmp_path, []) == []
