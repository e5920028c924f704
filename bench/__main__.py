"""Runs the benchmarks, prints a table and writes bench/results.json.

    python -m bench [--only TEXT]

Exits with 1 when a goal was missed.
"""

from __future__ import annotations

import argparse
import sys

from bench.harness import find_benchmarks, format_table, run, write_results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--only", default="", help="only benchmarks whose name contains this")
    wanted = parser.parse_args().only
    chosen = [benchmark for benchmark in find_benchmarks() if wanted in benchmark.name]
    if not chosen:
        parser.error(f"no benchmark is called like {wanted!r}")
    results = []
    for benchmark in chosen:
        print(f"... {benchmark.name}", file=sys.stderr, flush=True)
        results += run(benchmark)
    print(format_table(results))
    write_results(results)
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
