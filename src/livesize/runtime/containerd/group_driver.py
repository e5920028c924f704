"""Who makes and writes the control groups of containers: runc itself, or systemd for it.

containerd 2.0 and newer say so when asked (CRI RuntimeConfig); older ones only show the settings of
the runtime that they use.
"""

from __future__ import annotations

import json

from livesize.runtime.containerd.daemon import GroupDriver
from livesize.runtime.containerd.link import Link, RefusedError

_SYSTEMD = 0  # CRI's CgroupDriver


async def find_group_driver(link: Link) -> GroupDriver:
    """Of the containerd at the other end."""
    try:
        answer = await link.call("RuntimeConfig")
    except RefusedError:  # it does not know the call
        return await _from_settings(link)
    if not answer.HasField("linux"):
        return await _from_settings(link)
    systemd = answer.linux.cgroup_driver == _SYSTEMD
    return GroupDriver.SYSTEMD if systemd else GroupDriver.CGROUPFS


async def _from_settings(link: Link) -> GroupDriver:
    """As the default runtime's options say."""
    status = await link.call("Status", verbose=True)
    try:
        config = json.loads(status.info["config"])["containerd"]
        runtime = config["runtimes"][config["defaultRuntimeName"]]
        systemd = bool((runtime.get("options") or {}).get("SystemdCgroup", False))
    except (ValueError, KeyError, TypeError):
        systemd = False
    return GroupDriver.SYSTEMD if systemd else GroupDriver.CGROUPFS
