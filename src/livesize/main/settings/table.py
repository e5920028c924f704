"""Every setting of the commands that run parts of Livesize, once: option, variable, file's field.

The options of the commands (options.py), what a config file may say (config_file.py) and the
check of docs/settings.md are made from this table. A setting ``etcd-ca`` is the option --etcd-ca,
the variable LIVESIZE_ETCD_CA and the field etcd-ca.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from livesize.machinery.data_directory import DEFAULT_DATA_DIR

DEFAULT_LISTEN = "127.0.0.1:7443"
STORES = ("sqlite", "etcd")


class Part(enum.StrEnum):
    UP = "up"
    APISERVER = "apiserver"
    SCHEDULER = "scheduler"
    CONTROLLERS = "controllers"
    AGENT = "agent"


class SettingKind(enum.Enum):
    TEXT = "text"
    CHOICE = "choice"
    FLAG = "flag"
    SECONDS = "seconds"
    FILE = "file"
    FOLDER = "folder"
    LIST = "list"  # in a file also a list
    PAIRS = "pairs"  # in a file also a mapping


class Setting(NamedTuple):
    """``otherwise`` says what is done where there is no default value. A plain tuple: every
    command reads this table when it starts, and most need nothing heavier."""

    name: str
    parts: tuple[Part, ...]
    meaning: str
    kind: SettingKind = SettingKind.TEXT
    default: str = ""
    otherwise: str = ""
    choices: tuple[str, ...] = ()
    metavar: str = ""

    @property
    def variable(self) -> str:
        return f"LIVESIZE_{self.name.upper().replace('-', '_')}"


ALL = tuple(Part)
SERVERS = (Part.UP, Part.APISERVER)
NODES = (Part.UP, Part.AGENT)
CLIENTS = (Part.SCHEDULER, Part.CONTROLLERS, Part.AGENT)

SETTINGS: tuple[Setting, ...] = (
    Setting(
        "data-dir",
        (Part.UP, Part.APISERVER, Part.AGENT),
        "Where everything is kept: store, keys, checkpoints, logs, kubeconfig.",
        SettingKind.FOLDER,
        DEFAULT_DATA_DIR,
    ),
    Setting(
        "listen",
        SERVERS,
        "Where the API server answers; port 0 takes a free one.",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
    ),
    Setting(
        "tls-names",
        SERVERS,
        "Further names and addresses by which others reach the API server.",
        SettingKind.LIST,
        metavar="NAME,NAME…",
    ),
    Setting(
        "http",
        SERVERS,
        "The web server; granian, an extra, also speaks HTTP/2.",
        SettingKind.CHOICE,
        "uvicorn",
        choices=("uvicorn", "granian"),
    ),
    Setting(
        "kubeconfig",
        (Part.SCHEDULER, Part.CONTROLLERS),
        "How to reach the API server, and who we are to it. Must be given.",
        SettingKind.FILE,
        metavar="FILE",
    ),
    Setting(
        "kubeconfig",
        (Part.AGENT,),
        "How to reach the API server, and which node we are.",
        SettingKind.FILE,
        otherwise="the one that `livesize join` wrote",
        metavar="FILE",
    ),
    Setting(
        "server",
        CLIENTS,
        "Where API servers answer; one that does not is left for the next.",
        SettingKind.LIST,
        otherwise="as the kubeconfig says",
        metavar="URL,URL…",
    ),
    Setting(
        "metrics-listen",
        (Part.SCHEDULER, Part.CONTROLLERS),
        "Where GET /metrics is answered, over plain HTTP; port 0 takes a free one.",
        otherwise="nowhere",
        metavar="HOST:PORT",
    ),
    Setting(
        "runtime",
        NODES,
        "process: containers of our own. containerd: through a private one (root)."
        " fake: in memory, to try the API.",
        SettingKind.CHOICE,
        "process",
        choices=("process", "containerd", "fake"),
    ),
    Setting(
        "runtime-endpoint",
        NODES,
        "With containerd: use the one that answers there.",
        otherwise="a private one",
        metavar="SOCKET",
    ),
    Setting(
        "cgroup-driver",
        NODES,
        "With containerd: who writes the control groups. auto: as a containerd that is there"
        " says; a private one writes them itself.",
        SettingKind.CHOICE,
        "auto",
        choices=("auto", "cgroupfs", "systemd"),
    ),
    Setting("node-name", (Part.UP,), "", otherwise="host name", metavar="NAME"),
    Setting(
        "node-name",
        (Part.AGENT,),
        "",
        otherwise="as it has joined, else the host name",
        metavar="NAME",
    ),
    Setting(
        "node-ip",
        (Part.AGENT,),
        "The address of this machine.",
        otherwise="the one that reaches the API server",
        metavar="ADDRESS",
    ),
    Setting(
        "allocatable",
        NODES,
        "What pods may use of this machine.",
        SettingKind.PAIRS,
        otherwise="all CPUs, memory less 10 %",
        metavar="cpu=…,memory=…",
    ),
    Setting(
        "cpu-policy",
        NODES,
        "static: Guaranteed pods that ask for whole CPUs have them alone.",
        SettingKind.CHOICE,
        "none",
        choices=("none", "static"),
    ),
    Setting(
        "reserved-cpus",
        NODES,
        "With static: the CPUs that no container has alone.",
        SettingKind.LIST,
        otherwise="the first one",
        metavar="0,2-3",
    ),
    Setting(
        "vm-memory-technology",
        NODES,
        "How the memory of VMs that do not say it grows and shrinks. auto: by virtio-mem, and below"
        " what they boot with by their balloon.",
        SettingKind.CHOICE,
        "auto",
        choices=("auto", "virtio-mem", "dimm", "balloon"),
    ),
    Setting(
        "container-log-max-size",
        NODES,
        "How long a container's log becomes before a new part of it begins.",
        default="10Mi",
        metavar="AMOUNT",
    ),
    Setting(
        "container-log-max-files",
        NODES,
        "How many parts of a container's log are kept.",
        default="5",
        metavar="NUMBER",
    ),
    Setting(
        "endpoint-listen",
        (Part.AGENT,),
        "Where API servers ask for logs and exec of this node's pods; port 0 takes a free one.",
        otherwise="the node's address, a free port",
        metavar="HOST:PORT",
    ),
    Setting(
        "store",
        SERVERS,
        "sqlite: a file in the data directory. etcd: one that several API servers share.",
        SettingKind.CHOICE,
        "sqlite",
        choices=STORES,
    ),
    Setting(
        "etcd-endpoints",
        SERVERS,
        "Where etcd answers, for instance https://10.0.0.1:2379.",
        SettingKind.LIST,
        metavar="URL,URL…",
    ),
    Setting(
        "etcd-ca",
        SERVERS,
        "The authority that etcd's certificates are from.",
        SettingKind.FILE,
        otherwise="the system's",
    ),
    Setting("etcd-cert", SERVERS, "Our certificate, where etcd asks for one.", SettingKind.FILE),
    Setting("etcd-key", SERVERS, "The key of our certificate.", SettingKind.FILE),
    Setting("keep", (Part.UP,), "Leave workloads running when stopped.", SettingKind.FLAG),
    Setting("stop-pods", (Part.AGENT,), "Stop this node's pods when stopped.", SettingKind.FLAG),
    Setting(
        "stop-delay",
        (Part.APISERVER,),
        "When stopped, first answer this long that we are not ready, and serve on.",
        SettingKind.SECONDS,
        "0",
        metavar="SECONDS",
    ),
    Setting(
        "resize-judge",
        (Part.UP, Part.SCHEDULER, Part.AGENT),
        "Who says first whether there is room for a resize. The node has the last word.",
        SettingKind.CHOICE,
        "node",
        choices=("node", "scheduler"),
    ),
    Setting(
        "controllers",
        (Part.UP, Part.CONTROLLERS),
        "Which controllers run. ours: without those that every Kubernetes cluster has; another"
        " program does their work, such as kube-controller-manager.",
        SettingKind.CHOICE,
        "all",
        choices=("all", "ours"),
    ),
    Setting(
        "trust-editors",
        SERVERS,
        "Let editors run containers as processes of a machine, though the API server answers other"
        " machines.",
        SettingKind.FLAG,
    ),
    Setting(
        "audit-log",
        SERVERS,
        "Write a line of JSON for each request there.",
        otherwise="no log",
        metavar="FILE",
    ),
    Setting(
        "audit-level",
        SERVERS,
        "metadata: who did what. request: also what was sent, never of Secrets.",
        SettingKind.CHOICE,
        "metadata",
        choices=("none", "metadata", "request"),
    ),
    Setting(
        "log-level",
        ALL,
        "How much is logged.",
        SettingKind.CHOICE,
        "info",
        choices=("debug", "info", "warning", "error"),
    ),
    Setting(
        "log-format",
        ALL,
        "text: key=value. json: an object to a line.",
        SettingKind.CHOICE,
        "text",
        choices=("text", "json"),
    ),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}


def listed(value: str) -> tuple[str, ...]:
    """What a setting of the kind LIST names."""
    return tuple(filter(None, (one.strip() for one in value.split(","))))


def setting_named(name: str) -> Setting:
    return _BY_NAME[name]


def settings_of(part: Part) -> tuple[Setting, ...]:
    return tuple(setting for setting in SETTINGS if part in setting.parts)
