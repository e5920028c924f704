"""`livesize image`: which images this machine has, and how to bring one."""

from __future__ import annotations

from pathlib import Path

import click

from livesize.machinery.data_directory import DataDirectory
from livesize.runtime.images import ImageStore
from livesize.runtime.interface import RuntimeCallError


def import_image(data_dir: Path, archive: Path, name: str) -> str:
    """Import an OCI layout tar, also while the agent runs; the name it is known by."""
    try:
        return _store(data_dir).import_tar(archive, name)
    except PermissionError as failure:
        raise click.ClickException(
            f"{failure.filename} may not be written by this user: run it with sudo"
        ) from failure
    except RuntimeCallError as refusal:
        raise click.ClickException(str(refusal)) from refusal


def image_names(data_dir: Path) -> tuple[str, ...]:
    return _store(data_dir).names()


def _store(data_dir: Path) -> ImageStore:
    return ImageStore(DataDirectory(data_dir.absolute()).runtime / "images")
