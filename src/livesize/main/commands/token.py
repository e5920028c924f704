"""`livesize token`: makes, shows and revokes tokens, also those with which nodes join."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

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

JOIN_LIFETIME = "24h"
TOKEN_LIFETIME = "90d"  # noqa: S105 - a time, not a secret


@click.group()
def token() -> None:
    """Say who may come in: make, show and revoke tokens."""


@token.command()
@click.argument("name", default="")
@click.option("--role", default="", metavar="ROLE", help="admin, editor, viewer, node:NAME, …")
@namespaces_option
@click.option("--join", is_flag=True, help="A one-time token with which a machine joins as a node.")
@expires_option(f"[default: {TOKEN_LIFETIME}, with --join {JOIN_LIFETIME}]")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write a kubeconfig with the token instead of printing it.",
)
@server_option
@output_option
@data_dir_option
def create(**given: Any) -> None:
    """Make a token. It is shown once; only its hash is kept.

    \b
    Examples:
      livesize token create ann --role editor --namespaces shop,test --expires 30d
      livesize token create ci --role admin --kubeconfig ./ci.kubeconfig
      livesize token create --join
      livesize token create --join --role node:worker-1 --expires 1h
    """
    credentials = _credentials(given["data_dir"])
    if given["join"]:
        _create_join(credentials, given)
    else:
        _create_token(credentials, given)


@token.command("list")
@output_option
@data_dir_option
def list_tokens(output: str, data_dir: Path) -> None:
    """Show whose tokens there are, never the tokens.

    \b
    Examples:
      livesize token list
      livesize token list -o json
    """
    from livesize.main.commands.credential_output import show_all
    from livesize.main.commands.credentials import join_object, token_object

    records = _credentials(data_dir).read()
    tokens = [token_object(one) for one in records.tokens]
    show_all([*tokens, *(join_object(one) for one in records.joins)], output)


@token.command()
@click.argument("name")
@data_dir_option
def revoke(name: str, data_dir: Path) -> None:
    """Revoke a token; the server refuses it within a second.

    \b
    Example:
      livesize token revoke ann
    """
    _credentials(data_dir).revoke_token(name)
    click.echo(f"token of {name} revoked")


def _create_token(credentials: Credentials, given: dict[str, Any]) -> None:
    from livesize.main.commands.credential_output import show_made
    from livesize.main.commands.credentials import identity_object, parse_identity, parse_lifetime

    if not given["role"]:
        raise click.UsageError("say what it is for: --role editor, viewer, admin, node:NAME, …")
    if not given["name"] and not given["role"].startswith("node:"):
        raise click.UsageError("say whose token it is: livesize token create NAME --role …")
    identity = parse_identity(given["name"], given["role"], given["namespaces"])
    lifetime = parse_lifetime(given["expires"] or TOKEN_LIFETIME)
    if given["kubeconfig"] is not None:
        credentials.server(given["server"])  # refused before a token is made for nothing
    made = credentials.create_token(identity, lifetime)
    shown = identity_object(identity, made.expires)
    if given["kubeconfig"] is None:
        show_made({**shown, "token": made.secret}, given["output"], made.secret)
        return
    credentials.write_token_kubeconfig(given["kubeconfig"], made, given["server"])
    written = str(given["kubeconfig"])
    show_made({**shown, "kubeconfig": written}, given["output"], f"{written} written")


def _create_join(credentials: Credentials, given: dict[str, Any]) -> None:
    from livesize.api.times import format_time
    from livesize.main.commands.credential_output import show_made
    from livesize.main.commands.credentials import parse_lifetime

    role = given["role"]
    if given["name"] or given["namespaces"] or given["kubeconfig"]:
        raise click.UsageError("--join goes with --role node:NAME, --expires and --server only")
    if role and not role.startswith("node:"):
        raise click.UsageError("who joins is a node: --role node:NAME, or no role for any node")
    seconds = parse_lifetime(given["expires"] or JOIN_LIFETIME)
    if seconds is None:
        raise click.UsageError("a join token must expire: --expires 1h")
    made = credentials.create_join(role.removeprefix("node:"), seconds, given["server"])
    named = f" --node-name {made.node}" if made.node else ""
    command = f"livesize join {made.server} --token {made.token} --ca-hash {made.ca_hash}{named}"
    shown = {
        "name": made.name,
        "role": "join",
        "token": made.token,
        "caHash": made.ca_hash,
        "server": made.server,
        "expires": format_time(made.expires),
        "command": command,
    }
    show_made(shown, given["output"], command)
    if urlsplit(made.server).hostname in ("127.0.0.1", "::1", "localhost"):
        click.echo(
            f"{made.server} is reached from this machine only: name the address that others reach"
            " with --server, and let `livesize up --listen` listen there",
            err=True,
        )


def _credentials(data_dir: Path) -> Credentials:
    from livesize.machinery.clock import SystemClock
    from livesize.main.commands.credentials import Credentials

    return Credentials(data_dir, SystemClock().now())
