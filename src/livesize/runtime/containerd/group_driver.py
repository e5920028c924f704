"""Who makes and writes the control groups of containers: runc itself, or systemd for it.

containerd 2.0 and newer say so when asked (CRI RuntimeConfig); older ones only show the settings of
the runtime that they use.
"""

from __future__ import annotations

import json

from livesize.runtime.containerd.cri_client import CriClient, CriRefusedError
from livesize.runtime.containerd.daemon import GroupDriver

_SYSTEMD = 0  # CRI's CgroupDriver


async def find_group_driver(client: CriClient) -> GroupDriver:
    """Of the containerd at the other end."""
    try:
        answer = await client.call("RuntimeConfig")
    except CriRefusedError:  # it does not know the call
        return await _from_settings(client)
    if not answer.HasField("linux"):
        return await _from_settings(client)
    systemd = answer.linux.cgroup_driver == _SYSTEMD
    return GroupDriver.SYSTEMD if systemd else GroupDriver.CGROUPFS


async def _from_settings(client: CriClient) -> GroupDriver:
    """As the default runtime's options say."""
    status = await client.call("Status", verbose=True)
    try:
        config = json.loads(status.info["config"])["containerd"]
        runtime = config["runtimes"][config["defaultRuntimeName"]]
        systemd = bool((runtime.get("options") or {}).get("SystemdCgroup", False))
    except (ValueError, KeyError, TypeError):
        systemd = False
    return GroupDriver.SYSTEMD if systemd else GroupDriver.CGROUPFS
