"""Errors that keep a process from starting: it prints one sentence and ends with exit code 1."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from livesize.agent.allocation.checkpoint_file import CheckpointError
from livesize.main.wiring.folders import AlreadyRunningError, UnusableDirectoryError
from livesize.runtime.interface import RuntimeCallError
from livesize.store.interface import StoreOpenError

_REFUSALS = (
    AlreadyRunningError,
    CheckpointError,
    RuntimeCallError,
    StoreOpenError,
    UnusableDirectoryError,
)


@contextlib.contextmanager
def reported_startup_errors() -> Iterator[None]:
    """For everything a part does with its data directory."""
    try:
        yield
    except _REFUSALS as refusal:
        raise click.ClickException(str(refusal)) from refusal
    except PermissionError as failure:
        raise click.ClickException(
            f"{failure.filename} may not be written by this user: choose another --data-dir"
        ) from failure
    except (FileExistsError, NotADirectoryError) as failure:
        raise click.ClickException(
            f"{failure.filename} cannot be made: {failure.strerror}; choose another --data-dir"
        ) from failure
