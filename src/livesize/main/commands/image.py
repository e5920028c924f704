"""`livesize image`: shows the container images of this machine, and imports one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from livesize.machinery.data_directory import DataDirectory
from livesize.main.settings.options import data_dir

if TYPE_CHECKING:
    from livesize.runtime.images import ImageStore

_data_dir = data_dir("Where everything is kept: store, keys, checkpoints, logs, kubeconfig.")


@click.group()
def image() -> None:
    """Show and import the container images of this machine."""


@image.command("import")
@click.argument("archive", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--name", default="", help="Known by this name.  [default: what the image says]")
@_data_dir
def import_image(archive: Path, name: str, data_dir: Path) -> None:
    """Import an image from an OCI layout tar file, also while Livesize runs.

    \b
    Examples:
      docker save nginx:1 -o nginx.tar && livesize image import nginx.tar   (docker 25 or newer)
      skopeo copy docker://nginx:1 oci-archive:nginx.tar:nginx:1 && livesize image import nginx.tar
    """
    from livesize.runtime.interface import RuntimeCallError

    try:
        known = _store(data_dir).import_tar(archive, name)
    except PermissionError as failure:
        raise click.ClickException(
            f"{failure.filename} may not be written by this user: run it with sudo"
        ) from failure
    except RuntimeCallError as refusal:
        raise click.ClickException(str(refusal)) from refusal
    click.echo(known)


@image.command("list")
@_data_dir
def list_images(data_dir: Path) -> None:
    """Print the names pods may use."""
    for known in _store(data_dir).names():
        click.echo(known)


def _store(data_dir: Path) -> ImageStore:
    from livesize.runtime.images import ImageStore

    return ImageStore(DataDirectory(data_dir.absolute()).runtime / "images")
