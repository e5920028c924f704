"""`livesize guest build`: makes the guests that VM pods can boot, and puts them where they find
them."""

from __future__ import annotations

from pathlib import Path

import click

from livesize.guest_images.debian import DISTRIBUTIONS
from livesize.machinery.clock import SystemClock
from livesize.main.settings.options import data_dir

_TOLD_SECONDS = 5.0  # between two lines of progress


@click.group()
def guest() -> None:
    """Make images for virtual machines."""


@guest.command()
@data_dir("The data directory of `livesize up`, whose VMs will find the guest by name.")
@click.option(
    "--distribution",
    type=click.Choice(sorted(DISTRIBUTIONS)),
    default=None,
    help="A disk with this distribution as it comes, instead of the small guest: systemd, its own"
    " kernel options, qemu-guest-agent, cloud-init. Takes minutes once, and root.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="With --distribution: build it anew with today's packages, even if one is in the cache.",
)
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
def build(
    data_dir: Path,
    distribution: str | None,
    fresh: bool,
    images_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Build a Linux guest that VM pods can boot: a small, quick one, or a whole distribution.

    \b
    Examples:
      livesize guest build
      livesize guest build --images-dir ./images
      livesize guest build --distribution debian12
    """
    from livesize.guest_images.errors import GuestImageError
    from livesize.guest_images.kernel import default_cache_dir
    from livesize.machinery.data_directory import DataDirectory

    if fresh and distribution is None:
        raise click.UsageError("--fresh goes with --distribution")
    cache = (cache_dir or default_cache_dir()).absolute()
    images = images_dir or DataDirectory(data_dir.absolute()).vm_images
    try:
        if distribution is None:
            _build_small(cache, images)
        else:
            _build_distribution(distribution, cache, images, fresh=fresh)
    except (GuestImageError, OSError) as failure:
        raise click.ClickException(str(failure)) from failure


def _build_small(cache: Path, images: Path) -> None:
    from livesize.guest_images.vm_guest import build_guest, install_guest

    built = build_guest(cache)
    kernel, initrd = install_guest(built, images)
    click.echo(f"Guest with Linux {built.release}:\n  kernel  {kernel}\n  initrd  {initrd}")
    if built.note:
        click.echo(f"  built {built.note}", err=True)
    click.echo(
        f"In a pod: spec.virtualMachine.kernel: {{image: {kernel.name}, initrd: {initrd.name}}}"
    )


def _build_distribution(name: str, cache: Path, images: Path, *, fresh: bool) -> None:
    from livesize.guest_images.disk_guest import build_disk, install_disk

    distribution = DISTRIBUTIONS[name]
    built = build_disk(distribution, cache, _Progress().report, fresh=fresh)
    disk = install_disk(built, distribution, images)
    where = "built" if built.is_new else "from the cache"
    click.echo(f"{distribution.title} with Linux {built.release}, {where}:\n  disk  {disk}")
    if built.note:
        click.echo(f"  not looked for a newer one: {built.note}", err=True)
    click.echo(f"In a pod: spec.virtualMachine.disk: {{image: {disk.name}}}")


class _Progress:
    """Lines with the seconds it has taken; figures that change all the time now and then only."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._told, self._told_at = "", self._began - _TOLD_SECONDS

    def report(self, sentence: str) -> None:
        now = self._clock.monotonic()
        is_figure = any(letter.isdecimal() for letter in sentence)
        if sentence == self._told or (is_figure and now - self._told_at < _TOLD_SECONDS):
            return
        self._told, self._told_at = sentence, now
        click.echo(f"  {now - self._began:4.0f} s  {sentence}", err=True)
