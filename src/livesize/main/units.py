"""The systemd unit of each part, as text."""

from __future__ import annotations

from livesize.main.settings_table import Part

CONFIG_DIRECTORY = "/etc/livesize"
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
# They give up root's rights by themselves, after what needs them.
_ONLY_SPEAKS = ("ProtectHome=read-only", "PrivateTmp=yes", "LimitNOFILE=1048576")
_TEMPLATE = """\
[Unit]
Description={meaning}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={program} {part}
Environment=LIVESIZE_CONFIG={folder}/{part}.yaml
Restart=always
RestartSec=1
TimeoutStartSec=60
TimeoutStopSec=60
WatchdogSec=30
{more}

[Install]
WantedBy=multi-user.target
"""


def unit_name(part: Part) -> str:
    return f"livesize-{part}.service"


def unit_text(part: Part, program: str) -> str:
    """``program`` is the absolute path of livesize. Settings come from /etc/livesize/PART.yaml."""
    more = _RUNS_PODS if part in (Part.UP, Part.AGENT) else _ONLY_SPEAKS
    return _TEMPLATE.format(
        meaning=_MEANINGS[part],
        part=part,
        program=program,
        folder=CONFIG_DIRECTORY,
        more="\n".join(more),
    )
