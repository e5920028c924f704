"""`livesize doctor`: looks at this machine and at the server, and says what to do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from livesize.cli.connection import kubeconfig_option, run_with_client
from livesize.cli.doctor.checks import (
    DoctorProbe,
    Finding,
    check_busybox,
    check_cgroups,
    check_cgroups_writable,
    check_kubectl,
    check_machine,
    check_python,
    check_root,
)
from livesize.cli.doctor.vm_checks import observe_vm_tools, vm_findings

if TYPE_CHECKING:
    from livesize.client.http import HttpClient

_KUBECTL_SECONDS = 5.0


@click.command()
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@kubeconfig_option
@click.pass_obj
def doctor(probes: Sequence[DoctorProbe] | None, output: str, kubeconfig: str) -> None:
    """Check what this machine needs, and say how to get it.

    Exit code 1 when something that `livesize up` needs is missing. What only virtual machines
    need may be missing.

    \b
    Examples:
      livesize doctor
      livesize doctor -o json
    """
    findings = [
        *machine_findings(),
        *(finding for probe in probes or () for finding in _findings_of(probe)),
        *server_findings(kubeconfig),
    ]
    if output == "json":
        click.echo(json.dumps([msgspec.to_builtins(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            _print(finding)
    if not all(finding.ok or finding.optional for finding in findings):
        raise SystemExit(1)


def _findings_of(probe: DoctorProbe) -> Sequence[Finding]:
    """What this user may not look at is a finding too; the other probes go on."""
    try:
        return probe()
    except OSError as failure:
        what = f"cannot be looked at: {failure.strerror or failure}"
        if failure.filename:
            what += f" ({failure.filename})"
        name = getattr(probe, "__name__", "machine")
        return [Finding(name, False, what, "run `livesize doctor` as root", optional=True)]


def machine_findings() -> list[Finding]:
    root = Path("/")
    writable = [check_cgroups_writable(root)] if os.geteuid() == 0 else []
    return [
        check_python(sys.version_info[:3]),
        check_root(os.geteuid()),
        check_cgroups(root),
        *writable,
        check_machine(root),
        check_busybox(shutil.which("busybox")),
        check_kubectl(_kubectl_version()),
        *vm_findings(observe_vm_tools()),
    ]


def server_findings(kubeconfig: str) -> list[Finding]:
    """A server need not run yet, so these are optional unless one was named."""
    named = bool(kubeconfig)

    async def ask(client: HttpClient) -> list[Finding]:
        from livesize.api.conditions import is_true
        from livesize.api.kinds.node import NODES
        from livesize.api.objects import name_of

        listing = await client.list(NODES)
        reachable = Finding("server", True, f"{client.server} answers", optional=not named)
        ready = [name_of(node) for node in listing.items if is_true(node, "Ready")]
        if ready:
            return [
                reachable,
                Finding("node", True, f"ready: {', '.join(ready)}", optional=not named),
            ]
        remedy = "see the log of `livesize up`; it runs the node agent"
        return [reachable, Finding("node", False, "no node is Ready", remedy, optional=not named)]

    try:
        return run_with_client(kubeconfig, ask)
    except click.ClickException as failure:
        remedy = "start one with `livesize up`"
        what = failure.format_message()
        return [Finding("server", False, what, remedy, optional=not named)]


def _kubectl_version() -> str | None:
    if shutil.which("kubectl") is None:
        return None
    try:
        answer = subprocess.run(
            ["kubectl", "version", "--client", "-o", "json"],
            capture_output=True,
            timeout=_KUBECTL_SECONDS,
            check=True,
        )
        return str(json.loads(answer.stdout)["clientVersion"]["gitVersion"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return "unknown"


def _print(finding: Finding) -> None:
    mark, colour = ("✓", "green") if finding.ok else ("✗", "yellow" if finding.optional else "red")
    click.echo(f"{click.style(mark, fg=colour)} {finding.name}: {finding.what}")
    if not finding.ok and finding.remedy:
        click.echo(f"    {finding.remedy}")
