"""The `livesize` program: the command line of cli/ and the commands of this machine, together.

Every command is imported when it runs, and imports heavy modules inside its function, so that
`livesize get` does not pay for them.
"""

from __future__ import annotations

from livesize.cli.app import cli
from livesize.main.commands.doctor_probes import accelerator, containerd, rootless

_HERE = "livesize.main.commands"
cli.defer(
    {
        "agent": (
            f"{_HERE}.parts:agent",
            "Run the pods of this machine for API servers elsewhere.",
        ),
        "apiserver": (
            f"{_HERE}.parts:apiserver",
            "Run the API server alone; scheduler, controllers and agents speak...",
        ),
        "cert": (
            f"{_HERE}.cert:cert",
            "Say who may come in: make, show and revoke client certificates.",
        ),
        "clean": (
            f"{_HERE}.clean:clean",
            "Show, or remove with --yes, what a data directory that no longer...",
        ),
        "controllers": (
            f"{_HERE}.parts:controllers",
            "Run the controllers: garbage, quotas, silent nodes.",
        ),
        "demo": (
            f"{_HERE}.demo:demo",
            "Show it: a container and a virtual machine grow and shrink while...",
        ),
        "guest": (f"{_HERE}.guest:guest", "Make images for virtual machines."),
        "image": (
            f"{_HERE}.image:image",
            "Show and import the container images of this machine.",
        ),
        "join": (
            f"{_HERE}.join:join",
            "Join a cluster: get a certificate for this machine, and a...",
        ),
        "scheduler": (f"{_HERE}.parts:scheduler", "Run a scheduler."),
        "sim": (
            f"{_HERE}.sim:sim",
            "Run API server, scheduler, controllers and agents on virtual time,...",
        ),
        "store": (
            f"{_HERE}.store:store",
            "Back up, restore and copy what the API server keeps.",
        ),
        "token": (
            f"{_HERE}.token:token",
            "Say who may come in: make, show and revoke tokens.",
        ),
        "units": (
            f"{_HERE}.units:units",
            "Print or install systemd units, one for each part.",
        ),
        "up": (
            f"{_HERE}.parts:up",
            "Start Livesize on this machine: API server, scheduler and node agent.",
        ),
    }
)


def main() -> None:
    cli(obj=(rootless, containerd, accelerator))
