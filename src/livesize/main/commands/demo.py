"""`livesize demo`: starts the demo of livesize.demo."""

from __future__ import annotations

import click


@click.command()
def demo() -> None:
    """Show it: a container and a virtual machine grow and shrink while they run, with proof.

    Exit code 3 when only the container could be shown, because QEMU or libvirt is missing.
    """
    from livesize.demo.command import run_demo

    run_demo()
