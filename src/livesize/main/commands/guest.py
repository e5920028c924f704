"""`livesize guest build`: makes the guest that VM pods can boot, and puts it where they find it."""

from __future__ import annotations

from pathlib import Path

import click

from livesize.main.settings.options import data_dir


@click.group()
def guest() -> None:
    """Make images for virtual machines."""


@guest.command()
@data_dir("The data directory of `livesize up`, whose VMs will find the guest by name.")
@click.option(
    "--images-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Put the guest here instead.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    help="Where downloads and built images are kept.  [default: the user's cache]",
)
def build(data_dir: Path, images_dir: Path | None, cache_dir: Path | None) -> None:
    """Build the Linux guest that VM pods can boot: small, quick, and resized while it runs.

    \b
    Examples:
      livesize guest build
      livesize guest build --images-dir ./images
    """
    from livesize.guest_images.errors import GuestImageError
    from livesize.guest_images.kernel import default_cache_dir
    from livesize.guest_images.vm_guest import build_guest, install_guest
    from livesize.machinery.data_directory import DataDirectory

    try:
        built = build_guest(cache_dir or default_cache_dir())
        kernel, initrd = install_guest(
            built, images_dir or DataDirectory(data_dir.absolute()).vm_images
        )
    except (GuestImageError, OSError) as failure:
        raise click.ClickException(str(failure)) from failure
    click.echo(f"Guest with Linux {built.release}:\n  kernel  {kernel}\n  initrd  {initrd}")
    if built.note:
        click.echo(f"  built {built.note}", err=True)
    click.echo(
        f"In a pod: spec.virtualMachine.kernel: {{image: {kernel.name}, initrd: {initrd.name}}}"
    )
