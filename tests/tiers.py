"""Pytest plugin: tiers of tests, their time budgets, second chances, and what was not run.

A test without a tier marker is a unit test: pure, fast, no second chance. A test with one is a
machine test: it uses the real machine, in the order of TIERS, and

- when it fails it is run once more, alone, after all the others. If it passes then, it is flaky:
  printed, and green. Three flaky ones in a session are red;
- the time of its tier is printed beside the tier's budget. Over budget is a warning, over twice
  the budget is red;
- it may say ``not_run("needs kubectl 1.32")``, which is listed at the end. A plain skip is an
  error: nothing is left out silently.

``--tier none|machine|NAME`` picks tests, ``--matrix`` adds the long ones. No test may hang: each
phase of it has a limit.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import pytest
from _pytest.runner import runtestprotocol


class Tier(NamedTuple):
    name: str
    budget_minutes: float
    needs_root: bool


TIERS = (
    Tier("simulation", 1.5, needs_root=False),
    Tier("apiserver", 3, needs_root=False),
    Tier("security", 1.5, needs_root=True),
    Tier("containers", 4, needs_root=True),
    Tier("cgroup_v2", 2, needs_root=True),
    Tier("vms", 5, needs_root=True),
    Tier("workloads", 2.5, needs_root=True),
    Tier("screens", 2, needs_root=False),
)
FLAKY_ALLOWED = 2
UNIT_LIMIT_SECONDS = 30
MACHINE_LIMIT_SECONDS = 180
MATRIX_LIMIT_SECONDS = 3600


class NotRunError(pytest.skip.Exception):
    """This test cannot run here, for the reason given."""


class Held(NamedTuple):
    """A failed machine test that waits for its second chance."""

    item: pytest.Item
    reports: list[pytest.TestReport]


# ---- fixtures


@pytest.fixture(scope="session")
def not_run() -> Callable[[str], NoReturn]:
    """Ends the test and lists it at the end: ``not_run("needs kubectl 1.32")``."""

    def give_up(reason: str) -> NoReturn:
        raise NotRunError(reason)

    return give_up


@pytest.fixture
def needs_root(not_run: Callable[[str], NoReturn]) -> None:
    if os.geteuid() != 0:
        not_run("needs root")


@pytest.fixture(scope="session")
def kubectl_1_32(not_run: Callable[[str], NoReturn]) -> None:
    if _kubectl_minor() < 32:
        not_run("needs kubectl 1.32 or newer")


def _kubectl_minor() -> int:
    """The client's minor version; 0 when there is none."""
    if shutil.which("kubectl") is None:
        return 0
    command = ["kubectl", "version", "--client", "-o", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return 0
    digits = re.match(r"\d+", json.loads(answer.stdout)["clientVersion"]["minor"])
    return int(digits[0]) if digits else 0


# ---- hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    names = ["none", "machine", *(tier.name for tier in TIERS)]
    group.addoption("--tier", choices=names, help="none: unit tests; machine: every tier")
    group.addoption("--matrix", action="store_true", help="also run the tests marked matrix")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(TierPlugin(config), "livesize-tiers")


def tier_of(item: pytest.Item) -> Tier | None:
    return next((tier for tier in TIERS if item.get_closest_marker(tier.name)), None)


class TierPlugin:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier: str | None = config.getoption("--tier")
        self._with_matrix: bool = config.getoption("--matrix")
        self._is_worker = hasattr(config, "workerinput")
        self._held: list[Held] = []
        self._flaky: list[tuple[str, str]] = []
        self._not_run: dict[str, list[str]] = {}
        self._seconds: dict[str, float] = {}

    # Which tests, in which order.

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if item.get_closest_marker("matrix") and tier_of(item) is None:
                raise pytest.UsageError(f"{item.nodeid} is marked matrix but names no tier")
        chosen = [item for item in items if self._is_chosen(item)]
        left_out = [item for item in items if not self._is_chosen(item)]
        if left_out:
            self._config.hook.pytest_deselected(items=left_out)
        items[:] = sorted(chosen, key=_position)

    def _is_chosen(self, item: pytest.Item) -> bool:
        if item.get_closest_marker("matrix") and not self._with_matrix:
            return False
        tier = tier_of(item)
        if self._tier is None:
            return True
        if self._tier == "none":
            return tier is None
        return tier is not None and self._tier in {"machine", tier.name}

    # One test.

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        if tier_of(item) is None or self._is_worker:
            return None
        with _announced(item):
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if any(report.failed for report in reports):
                self._held.append(Held(item, reports))
                self._log(item, [_held_report(item)])
                self._spend(reports)
            else:
                self._log(item, reports)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        tier = tier_of(item)
        if tier is not None and tier.needs_root and os.geteuid() != 0:
            raise NotRunError("needs root")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        tier = tier_of(item)
        report.tier = tier.name if tier else ""
        if report.skipped and not hasattr(report, "wasxfail"):
            assert call.excinfo is not None
            if isinstance(call.excinfo.value, NotRunError):
                report.not_run = str(call.excinfo.value)
            else:
                report.outcome = "failed"
                report.longrepr = f"skipped ({call.excinfo.value}): say not_run(reason) instead"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self,
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.skipped:
            report.outcome = "failed"
            report.longrepr = "a whole file is skipped: say not_run(reason) in a fixture instead"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._spend([report])
        reason = getattr(report, "not_run", None)
        if reason is not None:
            self._not_run.setdefault(reason, []).append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
        if getattr(report, "held", False):
            return "", "?", ("RUN AGAIN LATER", {"yellow": True})
        if getattr(report, "flaky", False):
            return "flaky", "~", ("FLAKY", {"yellow": True})
        if getattr(report, "not_run", None) is not None:
            return "not run", "n", ("NOT RUN", {"yellow": True})
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with _limited(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, specname="pytest_runtest_setup")
    def limit_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with _limited(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, specname="pytest_runtest_teardown")
    def limit_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        with _limited(item):
            return (yield)

    # The end.

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        try:
            result = yield
        except BaseException:
            for held in self._held:  # interrupted: what failed, failed
                self._log(held.item, held.reports)
            raise
        self._give_second_chances()
        return result

    def _give_second_chances(self) -> None:
        passed_now: list[tuple[Held, list[pytest.TestReport]]] = []
        for held in self._held:
            with _announced(held.item):
                reports = runtestprotocol(held.item, nextitem=None, log=False)
                if any(report.failed for report in reports):
                    self._log(held.item, reports)
                else:
                    passed_now.append((held, reports))
        too_many = len(passed_now) > FLAKY_ALLOWED
        for held, reports in passed_now:
            first_failure = next(report for report in held.reports if report.failed)
            self._flaky.append((held.item.nodeid, _last_line(first_failure)))
            for report in reports:
                report.flaky = report.when == "call"
            self._log(held.item, held.reports if too_many else reports)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if any(self._is_red(tier) for tier in TIERS) and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        line = terminalreporter.write_line
        for tier in TIERS:
            if tier.name in self._seconds:
                line(self._budget_line(tier), red=self._is_red(tier))
        for nodeid, why in self._flaky:
            line(f"flaky: {nodeid} passed when run again; first: {why}", yellow=True)
        if len(self._flaky) > FLAKY_ALLOWED:
            line(f"{len(self._flaky)} flaky tests are too many: red", red=True)
        for reason, nodeids in sorted(self._not_run.items()):
            line(f"not run: {reason} ({len(nodeids)} tests)", yellow=True)
            for nodeid in nodeids:
                line(f"    {nodeid}")

    def _budget_line(self, tier: Tier) -> str:
        minutes = self._seconds[tier.name] / 60
        verdict = ""
        if self._is_red(tier):
            verdict = ": more than twice its budget, red"
        elif minutes > tier.budget_minutes and not self._with_matrix:
            verdict = ": warning, over its budget"
        return f"time: {tier.name} {minutes:.2f} of {tier.budget_minutes:g} minutes{verdict}"

    def _is_red(self, tier: Tier) -> bool:
        """Budgets are for `make test`; a run with the matrix may take as long as it needs."""
        seconds = self._seconds.get(tier.name, 0.0)
        return not self._with_matrix and seconds > 2 * 60 * tier.budget_minutes

    def _spend(self, reports: list[pytest.TestReport]) -> None:
        for report in reports:
            tier: str = getattr(report, "tier", "")
            if tier:
                self._seconds[tier] = self._seconds.get(tier, 0.0) + report.duration

    def _log(self, item: pytest.Item, reports: list[pytest.TestReport]) -> None:
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)


def _position(item: pytest.Item) -> int:
    tier = tier_of(item)
    return -1 if tier is None else TIERS.index(tier)


@contextmanager
def _announced(item: pytest.Item) -> Iterator[None]:
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    yield
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _held_report(item: pytest.Item) -> pytest.TestReport:
    report = pytest.TestReport(
        item.nodeid, item.location, {}, outcome="passed", longrepr=None, when="call"
    )
    report.held = True
    return report


def _last_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else report.longreprtext
    return (text.strip().splitlines() or ["?"])[0]


def _limit_seconds(item: pytest.Item) -> int:
    if item.get_closest_marker("matrix"):
        return MATRIX_LIMIT_SECONDS
    return UNIT_LIMIT_SECONDS if tier_of(item) is None else MACHINE_LIMIT_SECONDS


@contextmanager
def _limited(item: pytest.Item) -> Iterator[None]:
    """Fail what runs inside when it takes too long, wherever it waits."""
    seconds = _limit_seconds(item)

    def too_long(_number: int, _frame: object) -> NoReturn:
        pytest.fail(f"took longer than {seconds} s")

    handler_before = signal.signal(signal.SIGALRM, too_long)
    timer_before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer_before)
        signal.signal(signal.SIGALRM, handler_before)
