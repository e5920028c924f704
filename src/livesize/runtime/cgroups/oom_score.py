"""How readily the kernel kills the processes of a group when memory runs short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from livesize.machinery.telemetry import get_logger

log = get_logger("runtime.oom")

_ROUNDS = 5  # a process that forks while the others are told is found in the next round


def set_oom_scores(members: Callable[[], tuple[int, ...]], score: int) -> None:
    """Give every process the score, those that come meanwhile too."""
    done: set[int] = set()
    for _ in range(_ROUNDS):
        new = set(members()) - done
        if not new:
            return
        for pid in new:
            _set(pid, score)
        done |= new


def _set(pid: int, score: int) -> None:
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(score))
    except PermissionError as failure:
        # Below zero it takes CAP_SYS_RESOURCE, which root in a container may not have.
        log.warning("oom score not set", pid=pid, score=score, reason=failure.strerror)
    except (FileNotFoundError, ProcessLookupError):
        return
