"""A CNI network for tests: each pod has a network namespace and an address of its own, which this
machine reaches through a pair of virtual Ethernet devices."""

from __future__ import annotations

import os
from pathlib import Path

# Of 198.18.0.0/15, which RFC 2544 keeps for tests. Two test runs do not have the same addresses.
SUBNET = f"198.18.{os.getpid() % 250}"
_DEVICE = f"lszt{os.getpid() % 250}x"
# Pods do not reach each other: nothing is forwarded. A number is given away once.
_PLUGIN = f"""#!/bin/sh
set -e
exec 3>&1 >&2
inside() {{ nsenter --net="$CNI_NETNS" ip "$@"; }}
case "$CNI_COMMAND $CNI_IFNAME" in
VERSION*) echo '{{"cniVersion":"0.4.0","supportedVersions":["0.3.1","0.4.0"]}}' >&3; exit ;;
"ADD lo") address=127.0.0.1/8; inside link set lo up ;;
ADD*)
  number=2
  until mkdir "${{0%/*}}/taken/$number"; do number=$((number + 1)); [ $number -lt 250 ]; done
  address={SUBNET}.$number/32 host={_DEVICE}$number
  ip link add "$host" type veth peer name "$CNI_IFNAME" netns "$CNI_NETNS"
  ip address add {SUBNET}.1 peer "$address" dev "$host"
  ip link set "$host" up
  inside address add "${{address%/32}}" peer {SUBNET}.1 dev "$CNI_IFNAME"
  inside link set "$CNI_IFNAME" up ;;
*" lo") exit ;;
DEL*) [ ! -e "$CNI_NETNS" ] || inside link delete "$CNI_IFNAME" || true; exit ;;
*) exit ;;
esac
printf '{{"cniVersion":"0.3.1","interfaces":[{{"name":"%s","sandbox":"%s"}}],' \\
  "$CNI_IFNAME" "$CNI_NETNS" >&3
printf '"ips":[{{"version":"4","address":"%s","interface":0}}]}}' "$address" >&3
"""
_NETWORK = '{"cniVersion":"0.3.1","name":"test","plugins":[{"type":"livesize-test"}]}'


def write_network(plugins: Path, configuration: Path) -> None:
    (plugins / "taken").mkdir(parents=True)
    configuration.mkdir(parents=True)
    (configuration / "10-test.conflist").write_text(_NETWORK)
    for name in ("loopback", "livesize-test"):
        (plugins / name).write_text(_PLUGIN)
        (plugins / name).chmod(0o755)


def devices() -> list[str]:
    """Those on this machine's side that are still there."""
    return sorted(path.name for path in Path("/sys/class/net").glob(f"{_DEVICE}*"))
