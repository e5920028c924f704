"""The harness: rows, ratios and goals say what they should."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import harness
from bench.harness import (
    NO_GOAL,
    Benchmark,
    Context,
    Goal,
    Measured,
    Result,
    Row,
    bench,
    bench_rows,
    format_table,
    judge,
    run,
    write_results,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> list[Benchmark]:
    found: list[Benchmark] = []
    monkeypatch.setattr(harness, "BENCHMARKS", found)
    return found


@pytest.mark.parametrize(
    ("percent", "value"),
    [(0, 1.0), (1, 1.0), (50, 2.0), (51, 3.0), (75, 3.0), (99, 4.0), (100, 4.0)],
)
def test_a_percentile_is_the_smallest_that_so_many_are_not_above(
    percent: float, value: float
) -> None:
    assert Context.percentile([3.0, 1.0, 4.0, 2.0], percent) == value


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 100))
def test_a_percentile_is_a_sample_and_bounds_its_share(
    samples: list[float], percent: float
) -> None:
    value = Context.percentile(samples, percent)
    assert value in samples
    below = sum(sample <= value for sample in samples)
    assert below >= len(samples) * percent / 100 - 1e-9


@pytest.mark.parametrize(
    ("more_is_better", "value", "raw", "ratio"),
    [(False, 6.0, 3.0, 2.0), (True, 3.0, 6.0, 2.0), (False, 6.0, None, None), (True, 5.0, 0, None)],
    ids=["time: value by raw", "rate: raw by value", "nothing to compare", "raw of zero"],
)
def test_the_ratio_says_how_many_times_worse(
    more_is_better: bool, value: float, raw: float | None, ratio: float | None
) -> None:
    row = Row("x", "u", NO_GOAL, more_is_better)
    assert judge(row, Measured(value, raw)).ratio == ratio


@pytest.mark.parametrize(
    ("goal", "value", "raw", "ok"),
    [
        (NO_GOAL, 1e9, None, True),
        (Goal(value_at_most=8.0), 8.0, None, True),
        (Goal(value_at_most=8.0), 8.1, None, False),
        (Goal(value_at_least=100.0), 99.0, None, False),
        (Goal(ratio_at_most=2.0), 4.0, 2.0, True),
        (Goal(ratio_at_most=2.0), 4.1, 2.0, False),
        (Goal(ratio_at_most=2.0), 4.0, None, False),
    ],
)
def test_a_goal_is_met_or_missed(goal: Goal, value: float, raw: float | None, ok: bool) -> None:
    result = judge(Row("x", "ms", goal), Measured(value, raw))
    assert result.ok is ok
    assert ("MISSED" in format_table([result])) is not ok


def test_one_run_fills_several_rows(registry: list[Benchmark]) -> None:
    @bench_rows(Row("a", "ms"), Row("b", "/s", more_is_better=True))
    async def both(context: Context) -> list[Measured]:
        assert context.folder.is_dir()
        return [Measured(1.0, 2.0), Measured(3.0, 6.0)]

    @bench("c", unit="ms")
    def alone(context: Context) -> Measured:
        return Measured(5.0)

    results = [result for benchmark in registry for result in run(benchmark)]
    assert [(one.name, one.value, one.ratio) for one in results] == [
        ("a", 1.0, 0.5),
        ("b", 3.0, 2.0),
        ("c", 5.0, None),
    ]
    assert both is not alone


def test_a_name_is_given_once(registry: list[Benchmark]) -> None:
    bench("a", unit="ms")(lambda _: Measured(1.0))
    with pytest.raises(AssertionError, match="two rows are called a"):
        bench_rows(Row("b", "ms"), Row("a", "ms"))(lambda _: [])


async def test_product_and_raw_take_turns_and_each_goes_first_every_other_time() -> None:
    order: list[str] = []

    def product() -> list[float]:
        order.append("p")
        return [1.0]

    async def raw() -> list[float]:
        order.append("r")
        return [2.0, 3.0]

    taken = await Context.interleave(product, raw, rounds=3)
    assert "".join(order) == "prrppr"
    assert taken == ([1.0] * 3, [2.0, 3.0] * 3)


def test_results_of_what_was_not_run_stay(tmp_path: Path) -> None:
    def result(name: str, value: float) -> Result:
        return Result(name, value, "ms", None, None, "", ok=True)

    path = tmp_path / "results.json"
    write_results([result("a", 1.0), result("b", 2.0)], path)
    write_results([result("b", 3.0)], path)
    text = path.read_text()
    assert text.count('"name"') == 2
    assert '"value": 1.0' in text
    assert '"value": 3.0' in text
