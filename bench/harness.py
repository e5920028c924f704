"""What a benchmark is, and the tools it gets.

A benchmark measures the product and, in the same run and taking turns with it, the bare thing
underneath: the machine's noise hits both, so their ratio can be trusted where neither number can.

    @bench("store: durable commit, 1 client, p50", unit="ms", goal=Goal(ratio_at_most=2.0))
    async def commit_alone(context: Context) -> Measured:
        product, raw = await context.interleave(commit, insert, rounds=5)
        return Measured(context.percentile(product, 50), context.percentile(raw, 50))

``ratio`` says how many times worse than raw the product is, whichever way the unit counts. One
run may fill several rows of the table: ``@bench_rows(Row(...), Row(...))`` returns one Measured
for each.
Modules named bench_*.py in this folder are found by themselves.
"""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec
import uvloop

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"
LATENCY_REQUEST = Path("/dev/cpu_dma_latency")
SCRATCH = FOLDER.parent / ".cache"
"""On the project's own disk: a temporary folder in memory would make fsync free."""

T = TypeVar("T")
Samples: TypeAlias = Sequence[float]
Sampler: TypeAlias = Callable[[], Samples | Awaitable[Samples]]


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """What has been promised; what is not set is not judged."""

    ratio_at_most: float | None = None
    value_at_most: float | None = None
    value_at_least: float | None = None

    def is_met(self, value: float, ratio: float | None) -> bool:
        return (
            (self.ratio_at_most is None or (ratio is not None and ratio <= self.ratio_at_most))
            and (self.value_at_most is None or value <= self.value_at_most)
            and (self.value_at_least is None or value >= self.value_at_least)
        )

    def describe(self) -> str:
        parts = [
            ("ratio <= ", self.ratio_at_most),
            ("<= ", self.value_at_most),
            (">= ", self.value_at_least),
        ]
        return ", ".join(f"{words}{limit:g}" for words, limit in parts if limit is not None)


NO_GOAL = Goal()


class Measured(msgspec.Struct, frozen=True):
    """``raw`` is the same measure of the bare thing; None where there is none."""

    value: float
    raw: float | None = None


class Result(msgspec.Struct, frozen=True):
    name: str
    value: float
    unit: str
    raw: float | None
    ratio: float | None
    goal: str
    ok: bool


class Context:
    """Given to each benchmark: an empty folder of its own, and arithmetic."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def percentile(samples: Samples, percent: float) -> float:
        """The smallest sample that ``percent`` of all are not above."""
        ordered = sorted(samples)
        return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]

    @classmethod
    def median(cls, samples: Samples) -> float:
        return cls.percentile(samples, 50)

    @staticmethod
    async def interleave(product: Sampler, raw: Sampler, rounds: int) -> tuple[Samples, Samples]:
        """Let both take samples in turn, each going first every other round."""
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(rounds):
            turns = [(taken[0], product), (taken[1], raw)]
            for samples, sampler in turns if number % 2 == 0 else reversed(turns):
                more = sampler()
                samples.extend(await more if isinstance(more, Awaitable) else more)
        return taken


Several: TypeAlias = Sequence[Measured]
Function: TypeAlias = Callable[[Context], Several | Awaitable[Several]]
Single: TypeAlias = Callable[[Context], Measured | Awaitable[Measured]]


class Row(msgspec.Struct, frozen=True):
    """One line of the table."""

    name: str
    unit: str
    goal: Goal = NO_GOAL
    more_is_better: bool = False


class Benchmark(msgspec.Struct, frozen=True):
    """``function`` gives one Measured for each row."""

    rows: tuple[Row, ...]
    function: Function

    @property
    def name(self) -> str:
        return "; ".join(row.name for row in self.rows)


BENCHMARKS: list[Benchmark] = []


def bench_rows(*rows: Row) -> Callable[[Function], Function]:
    """Register a benchmark. It may be async; either way it runs on uvloop as the product does."""

    def register(function: Function) -> Function:
        taken = {row.name for benchmark in BENCHMARKS for row in benchmark.rows}
        for row in rows:
            assert row.name not in taken, f"two rows are called {row.name}"
        BENCHMARKS.append(Benchmark(rows, function))
        return function

    return register


def bench(
    name: str, *, unit: str, goal: Goal = NO_GOAL, more_is_better: bool = False
) -> Callable[[Single], Single]:
    """Register a benchmark of a single row."""

    def register(function: Single) -> Single:
        async def alone(context: Context) -> Several:
            return [await _awaited(function(context))]

        bench_rows(Row(name, unit, goal, more_is_better))(alone)
        return function

    return register


def find_benchmarks() -> list[Benchmark]:
    for path in sorted(FOLDER.glob("bench_*.py")):
        importlib.import_module(f"bench.{path.stem}")
    return list(BENCHMARKS)


def run(benchmark: Benchmark) -> list[Result]:
    SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=SCRATCH) as folder, cores_awake():
        measured = uvloop.run(_measure(benchmark, Context(Path(folder))))
    return [judge(row, one) for row, one in zip(benchmark.rows, measured, strict=True)]


@contextmanager
def cores_awake() -> Iterator[None]:
    """Keep the cores from sleeping, for the product and for the raw thing alike.

    A resize passes through half a dozen processes and threads, and each time a core that had
    nothing to do must wake. In a virtual machine that is up to the host, and was measured to take
    5 ms one time in a hundred; on hardware it takes microseconds. This is how the kernel is told
    that latency matters (PM QoS); without root, or where there is no such file, nothing happens.
    """
    try:
        request = LATENCY_REQUEST.open("wb", buffering=0)
    except OSError:
        yield
        return
    with request:
        request.write(bytes(4))  # no microseconds at all, for as long as the file is open
        yield


def judge(row: Row, measured: Measured) -> Result:
    value, raw = measured.value, measured.raw
    ratio = None
    if raw:
        ratio = raw / value if row.more_is_better else value / raw
    return Result(
        name=row.name,
        value=value,
        unit=row.unit,
        raw=raw,
        ratio=ratio,
        goal=row.goal.describe(),
        ok=row.goal.is_met(value, ratio),
    )


async def _measure(benchmark: Benchmark, context: Context) -> Several:
    return await _awaited(benchmark.function(context))


async def _awaited(given: T | Awaitable[T]) -> T:
    return await given if isinstance(given, Awaitable) else given


def format_table(results: Sequence[Result]) -> str:
    header = ("benchmark", "value", "raw", "ratio", "unit", "goal", "")
    rows = [header, *(_row(result) for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in {1, 2, 3} else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _row(result: Result) -> tuple[str, ...]:
    return (
        result.name,
        _format_number(result.value),
        _format_number(result.raw),
        _format_number(result.ratio),
        result.unit,
        result.goal,
        "ok" if result.ok else "MISSED",
    )


def _format_number(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}" if number >= 1000 else f"{number:.3g}"


def write_results(results: Sequence[Result], path: Path = RESULTS) -> None:
    """Replace the results of the same names; those of benchmarks not run now stay."""
    written: list[Result] = []
    if path.exists():
        written = msgspec.json.decode(path.read_bytes(), type=list[Result])
    new = {result.name for result in results}
    merged = [*(result for result in written if result.name not in new), *results]
    path.write_bytes(msgspec.json.format(msgspec.json.encode(merged), indent=2) + b"\n")
