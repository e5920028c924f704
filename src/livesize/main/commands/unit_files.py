"""The systemd unit of each part, as text: for the machine's manager, or for a user's own."""

from __future__ import annotations

from livesize.main.settings.table import Part

CONFIG_DIRECTORY = "/etc/livesize"
USER_CONFIG_DIRECTORY = "%E/livesize"  # ~/.config/livesize, as systemd writes it
_MEANINGS = {
    Part.UP: "Livesize on one machine",
    Part.APISERVER: "Livesize API server",
    Part.SCHEDULER: "Livesize scheduler",
    Part.CONTROLLERS: "Livesize controllers",
    Part.AGENT: "Livesize node agent",
}
# Containers and virtual machines outlive who started them; their processes are in the service's
# group until they are moved to their own.
_RUNS_PODS = ("KillMode=process", "Delegate=yes", "LimitNOFILE=1048576", "TasksMax=infinity")
_USERS_PODS = ("KillMode=process", "TasksMax=infinity")
# They give up root's rights by themselves, after what needs them.
_ONLY_SPEAKS = ("ProtectHome=read-only", "PrivateTmp=yes", "LimitNOFILE=1048576")
# A restart of the service, for a newer version above all, is no reason to end what it runs; the
# agent keeps pods by itself.
_ARGUMENTS = {Part.UP: " --keep"}
_AFTER_NETWORK = "After=network-online.target\nWants=network-online.target\n"
_TEMPLATE = """\
[Unit]
Description={meaning}
{after}StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={program} {part}{arguments}
Environment=LIVESIZE_CONFIG={folder}/{part}.yaml
Restart=always
RestartSec=1
TimeoutStartSec=60
TimeoutStopSec=60
WatchdogSec=30
{more}

[Install]
WantedBy={target}
"""


def unit_name(part: Part) -> str:
    return f"livesize-{part}.service"


def unit_text(part: Part, program: str, *, user: bool = False) -> str:
    """``program`` is the absolute path of livesize. Settings come from /etc/livesize/PART.yaml, of
    a ``user`` from ~/.config/livesize."""
    runs_pods = part in (Part.UP, Part.AGENT)
    more: tuple[str, ...] = _RUNS_PODS if runs_pods else _ONLY_SPEAKS
    if user:
        more = _USERS_PODS if runs_pods else ()
    return _TEMPLATE.format(
        meaning=_MEANINGS[part],
        part=part,
        program=program,
        arguments=_ARGUMENTS.get(part, ""),
        after="" if user else _AFTER_NETWORK,
        folder=USER_CONFIG_DIRECTORY if user else CONFIG_DIRECTORY,
        more="\n".join(more),
        target="default.target" if user else "multi-user.target",
    )
