"""The `livesize` program: the command line of cli/ and the commands of this machine, together.

Every command imports heavy modules inside its function, so that `livesize get` does not pay for
them.
"""

from __future__ import annotations

from livesize.cli.app import cli
from livesize.main.commands.cert import cert
from livesize.main.commands.clean import clean
from livesize.main.commands.demo import demo
from livesize.main.commands.doctor_probes import accelerator, containerd, rootless
from livesize.main.commands.guest import guest
from livesize.main.commands.image import image
from livesize.main.commands.join import join
from livesize.main.commands.parts import agent, apiserver, controllers, scheduler, up
from livesize.main.commands.sim import sim
from livesize.main.commands.store import store
from livesize.main.commands.token import token
from livesize.main.commands.units import units

for _command in (
    *(up, agent, apiserver, controllers, scheduler, units),
    *(cert, clean, demo, guest, image, join, sim, store, token),
):
    cli.add_command(_command)


def main() -> None:
    cli(obj=(rootless, containerd, accelerator))
