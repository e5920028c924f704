"""Which web server the door stands on, and what may not be asked of it.

granian speaks HTTP/2 and does not show the application who has proven to be whom by a client
certificate. So it is not started where somebody has one that is still good, or may still get one.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

SHOWN = 3


def check_http(http: str, tokens: Path, now: float) -> None:
    """Raise where the web server is missing, or could not let in everybody who may come in."""
    if http != "granian":
        return
    if importlib.util.find_spec("granian") is None:
        raise click.ClickException(
            "--http granian needs the extra: pip install 'livesize[h2]', or leave --http out"
        )
    locked_out = _by_certificate(tokens, now)
    if locked_out:
        more = "" if len(locked_out) <= SHOWN else f" and {len(locked_out) - SHOWN} more"
        raise click.ClickException(
            "--http granian cannot see client certificates, and some come in by one:"
            f" {', '.join(locked_out[:SHOWN])}{more}; leave --http out, or give them tokens"
            " (`livesize token create`) and revoke what they have (`livesize cert revoke NAME`,"
            " `livesize token revoke NAME`)"
        )


def _by_certificate(tokens: Path, now: float) -> list[str]:
    """Who has a good certificate, and join tokens, which become one."""
    from livesize.apiserver.auth.records import (
        Records,
        TokensUnreadableError,
        read_records,
        without_expired,
    )

    try:
        records = without_expired(read_records(tokens) if tokens.exists() else Records(), now)
    except TokensUnreadableError as failure:
        raise click.ClickException(str(failure)) from failure
    certified = {one.name for one in records.certificates if not one.revoked}
    return sorted(certified) + sorted(one.name for one in records.joins)
