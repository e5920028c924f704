"""The `livesize` command: the command line of cli/, and the commands that start parts of us.

Heavy modules are imported inside the commands, so that `livesize get` does not pay for them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from livesize.cli.app import cli
from livesize.main.commands.cert import cert
from livesize.main.commands.clean import clean
from livesize.main.commands.guest import guest
from livesize.main.commands.join import join
from livesize.main.commands.parts import agent, apiserver, controllers, scheduler
from livesize.main.commands.store import store
from livesize.main.commands.token import token
from livesize.main.commands.units import units
from livesize.main.settings.options import part_options
from livesize.main.settings.shared_options import data_dir
from livesize.main.settings.table import Part

if TYPE_CHECKING:
    from livesize.cli.doctor.checks import Finding

_data_dir = data_dir("Where everything is kept: store, keys, checkpoints, logs, kubeconfig.")


@cli.command()
@part_options(Part.UP)
def up(**settings: Any) -> None:
    """Start Livesize on this machine: API server, scheduler and node agent.

    \b
    Examples:
      livesize up
      livesize up --data-dir ./data --listen 127.0.0.1:0 --allocatable cpu=2,memory=4Gi
      livesize up --store etcd --etcd-endpoints http://10.0.0.1:2379,http://10.0.0.2:2379
      KUBECONFIG=/var/lib/livesize/kubeconfig kubectl get pods
    """
    from livesize.main.wiring.up import UpSettings, run_up

    run_up(UpSettings(**settings))


@cli.command()
def demo() -> None:
    """Show it: a container and a virtual machine grow and shrink while they run, with proof.

    Exit code 3 when only the container could be shown, because QEMU or libvirt is missing.
    """
    from livesize.demo.command import run_demo

    run_demo()


@cli.group()
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
    from livesize.main.commands.images import import_image

    click.echo(import_image(data_dir, archive, name))


@image.command("list")
@_data_dir
def list_images(data_dir: Path) -> None:
    """Print the names pods may use."""
    from livesize.main.commands.images import image_names

    for known in image_names(data_dir):
        click.echo(known)


for _command in (
    *(agent, apiserver, controllers, scheduler, units),
    *(cert, clean, guest, join, store, token),
):
    cli.add_command(_command)


def accelerator() -> list[Finding]:
    """For the doctor: what QEMU would use. Timed anew each time, unlike what an agent keeps."""
    from livesize.cli.doctor.vm_checks import accelerator_finding
    from livesize.runtime.accelerator import observe_accelerator

    found = observe_accelerator()
    return [accelerator_finding(found.accelerator.value, found.why)]


def containerd() -> list[Finding]:
    """For the doctor: what --runtime containerd would find."""
    from livesize.main.commands.containerd_probe import containerd

    return [containerd()]


def rootless() -> list[Finding]:
    """For the doctor: what an ordinary user has, and what cannot be had without root."""
    if os.geteuid() == 0:
        return []
    from livesize.cli.doctor.rootless_checks import observe_user, rootless_findings
    from livesize.runtime.rootless.delegation import find_delegation

    def find_group() -> tuple[str, tuple[str, ...]]:
        found = find_delegation()
        return found.group, found.controllers

    return rootless_findings(observe_user(find_group))


def main() -> None:
    cli(obj=(rootless, containerd, accelerator))
