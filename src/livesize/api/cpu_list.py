"""CPUs by number, and the kernel's way to write them: ``0-2,5``. Pure."""

from __future__ import annotations

from collections.abc import Iterable

MOST_CPUS = 8192  # as the kernel: a number beyond is a slip, not a machine
_CHARACTERS = 8  # of one CPU in a list: its number, a comma, a space


def parse_cpu_list(text: str, most: int = MOST_CPUS) -> tuple[int, ...]:
    """The numbers in order, each once, all below ``most``; raises ValueError with a sentence.
    The work is bounded by ``most``, whoever wrote the list."""
    if len(text) > _CHARACTERS * most:
        raise ValueError(f"a list of {len(text)} characters does not name at most {most} CPUs")
    found: set[int] = set()
    named = 0
    for part in filter(None, (one.strip() for one in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ValueError(f"{part!r} is neither a CPU's number nor a range such as 2-5")
        start, end = int(first), int(last or first)
        if end < start or end >= most:
            raise ValueError(f"{part!r} is not a range of CPUs: from the lower to the higher")
        named += end - start + 1
        if named > 2 * most:
            raise ValueError("the list names the same CPUs over and over")
        found.update(range(start, end + 1))
    return tuple(sorted(found))


def format_cpu_list(cpus: Iterable[int]) -> str:
    parts: list[str] = []
    run: list[int] = []
    for cpu in sorted(set(cpus)):
        if run and cpu != run[-1] + 1:
            parts.append(_format_run(run))
            run = []
        run.append(cpu)
    if run:
        parts.append(_format_run(run))
    return ",".join(parts)


def _format_run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
