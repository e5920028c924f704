"""`livesize cert`: makes, shows and revokes client certificates of the cluster's authority."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from livesize.main.settings.options import (
    data_dir_option,
    expires_option,
    namespaces_option,
    output_option,
    server_option,
)

if TYPE_CHECKING:
    from livesize.main.commands.credentials import Credentials

LIFETIME = "365d"


@click.group()
def cert() -> None:
    """Say who may come in: make, show and revoke client certificates."""


@cert.command()
@click.argument("name", default="")
@click.option("--role", required=True, metavar="ROLE", help="admin, editor, viewer, node:NAME, …")
@namespaces_option
@expires_option(f"[default: {LIFETIME}]")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="Where NAME.crt, NAME.key and NAME.kubeconfig are written.",
)
@server_option
@output_option
@data_dir_option
def create(**given: Any) -> None:
    """Make a client certificate with its key and a kubeconfig, all readable by their owner only.

    \b
    Examples:
      livesize cert create ann --role editor --namespaces shop
      livesize cert create --role node:worker-1 --expires 30d --directory ./worker-1
    """
    from livesize.main.commands.credential_output import show_made
    from livesize.main.commands.credentials import identity_object, parse_identity, parse_lifetime

    if not given["name"] and not given["role"].startswith("node:"):
        raise click.UsageError("say whose certificate it is: livesize cert create NAME --role …")
    identity = parse_identity(given["name"], given["role"], given["namespaces"])
    seconds = parse_lifetime(given["expires"] or LIFETIME)
    if seconds is None:
        raise click.UsageError("a certificate must expire: --expires 365d")
    stem = given["name"] or identity.node
    if "/" in stem or stem.startswith("."):
        raise click.UsageError(f"{stem!r} cannot be the name of files")
    credentials = _credentials(given["data_dir"])
    server = credentials.server(given["server"])
    certificate, key, expires = credentials.create_certificate(identity, seconds)
    files = [given["directory"] / f"{stem}.{end}" for end in ("crt", "key", "kubeconfig")]
    given["directory"].mkdir(parents=True, exist_ok=True)
    _write(files[0], certificate)
    _write(files[1], key)
    credentials.write_certificate_kubeconfig(files[2], identity, (certificate, key), server)
    shown = {**identity_object(identity, expires), "files": [str(file) for file in files]}
    show_made(shown, given["output"], "\n".join(f"{file} written" for file in files))


@cert.command("list")
@output_option
@data_dir_option
def list_certificates(output: str, data_dir: Path) -> None:
    """Show the certificates that were given out and have not expired, nodes' too.

    \b
    Example:
      livesize cert list
    """
    from livesize.main.commands.credential_output import show_all
    from livesize.main.commands.credentials import certificate_object

    entries = _credentials(data_dir).read().certificates
    show_all([certificate_object(one) for one in entries], output, wide=("serial", "revoked"))


@cert.command()
@click.argument("name", metavar="NAME|SERIAL")
@data_dir_option
def revoke(name: str, data_dir: Path) -> None:
    """Revoke certificates, by serial or all of one name; the server refuses them within a second.

    \b
    Examples:
      livesize cert revoke ann
      livesize cert revoke system:node:worker-1
    """
    number = _credentials(data_dir).revoke_certificates(name)
    click.echo(f"{number} certificate{'s' if number != 1 else ''} of {name} revoked")


def _write(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _credentials(data_dir: Path) -> Credentials:
    from livesize.machinery.clock import SystemClock
    from livesize.main.commands.credentials import Credentials

    return Credentials(data_dir, SystemClock().now())
