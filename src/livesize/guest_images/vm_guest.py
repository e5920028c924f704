"""The product's own guest for virtual machines: small, fast to boot, and able to be resized.

Inside are the distribution's cloud kernel, busybox, the virtio drivers and, where it can be had,
QEMU's guest agent. It brings vCPUs that are plugged in online by itself, at boot and later, and
says over a line of its own (CHANNEL) what it sees:

    host:  report 7
    guest: {"id":7,"online":"0-3","memTotal":2017040,"available":1975064,
            "nodes":{"0":2017040},"uptime":12.31,"bootId":"..."}       (one line; memory in KiB)

The same line comes with id 0, unasked, when the guest has booted, when somebody begins to listen,
and when vCPUs or blocks of memory come or go: nobody needs to poll for these.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec

from livesize.guest_images.cpio import CpioFile, Entry
from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.guest_agent import agent_entries, fetch_agent
from livesize.guest_images.image import GuestRecipe, build_image
from livesize.guest_images.kernel import fetch_kernel
from livesize.runtime.guest_channels import AGENT_CHANNEL, CHANNEL

KERNEL_NAME = "guest.vmlinuz"
INITRD_NAME = "guest.initrd"

_MODULES = (
    *("virtio_pci", "virtio_console", "virtio_mem", "virtio_balloon", "virtio_rng", "virtio_blk"),
    *("button", "evdev"),
)
_OWN = "usr/lib/livesize"

_COMMANDS = """\
mkdir -p /run/livesize /var/run /var/log
exec busybox init
"""

_INITTAB = b"""\
::respawn:/usr/lib/livesize/channel
::respawn:/usr/lib/livesize/agent
::respawn:/usr/bin/acpid -d -l /dev/null
::ctrlaltdel:/usr/sbin/shutdown -r now
"""

# The device of a virtio port, by the port's name: there is no udev here to make links.
_PORT = b"""\
#!/bin/sh
for port in /sys/class/virtio-ports/*; do
  read -r name 2>/dev/null <$port/name && [ "$name" = "$1" ] && echo "/dev/${port##*/}" && exit
done
exit 1
"""

# Only what the shell itself can do: starting a program costs milliseconds under emulation.
_REPORT = """\
report() {
  read -r up rest </proc/uptime
  read -r online </sys/devices/system/cpu/online
  while read -r key value rest; do
    case $key in
      MemTotal:) total=$value ;;
      MemAvailable:) available=$value; break ;;
    esac
  done </proc/meminfo
  nodes=
  for node in /sys/devices/system/node/node[0-9]*; do
    while read -r word number key value rest; do
      [ "$key" = MemTotal: ] && nodes="$nodes,\\"$number\\":$value" && break
    done <$node/meminfo
  done
  read -r boot </proc/sys/kernel/random/boot_id
  sizes="\\"online\\":\\"$online\\",\\"memTotal\\":$total,\\"available\\":$available"
  echo "{\\"id\\":$1,$sizes,\\"nodes\\":{${nodes#,}},\\"uptime\\":$up,\\"bootId\\":\\"$boot\\"}"
}
"""

# A port can be opened once, so whoever writes to it inherits descriptor 3. A write waits until a
# host listens, which is how this loop waits for the next one without polling. vCPUs plugged in
# before uevent listened are brought online here, once: later ones may be offline on purpose.
_CHANNEL = """\
#!/bin/sh
. /usr/lib/livesize/report
port=$(/usr/lib/livesize/port @CHANNEL@)
exec 3<>${port:-/dev/null}
uevent /usr/lib/livesize/changed &
tries=0
until grep -q " 15 *$! " /proc/net/netlink || [ $tries = 50 ]; do
  tries=$((tries + 1))
  usleep 10000
done
for cpu in /sys/devices/system/cpu/cpu[0-9]*/online; do
  [ -e /run/livesize/booted ] || [ ! -e "$cpu" ] || echo 1 >$cpu
done
: >/run/livesize/booted
[ -n "$port" ] || wait
while :; do
  report 0 >&3
  : >/run/livesize/heard
  while read -r word id rest <&3; do
    [ "$word" = report ] && report "${id:-0}" >&3
  done
  rm -f /run/livesize/heard
done
"""

# Never waits for the host: bringing a vCPU online must not depend on somebody listening.
_CHANGED = """\
#!/bin/sh
case $SUBSYSTEM:$ACTION in
  cpu:add) echo 1 >/sys$DEVPATH/online ;;
  cpu:online | cpu:offline | memory:online | memory:offline | memory:remove)
    [ -e /run/livesize/heard ] || exit 0
    . /usr/lib/livesize/report
    report 0 >&3 & ;;
esac
"""

_AGENT = """\
#!/bin/sh
[ -x /usr/sbin/qemu-ga ] || exec sleep 100000000
port=$(/usr/lib/livesize/port @CHANNEL@) || exec sleep 100000000
exec /usr/sbin/qemu-ga -m virtio-serial -p "$port" -t /run -l /dev/null
"""

_SHUTDOWN = b"""\
#!/bin/sh
sync
case " $* " in
  *" -r "*) exec reboot -f ;;
  *) exec poweroff -f ;;
esac
"""


class VmGuest(msgspec.Struct, frozen=True):
    kernel: Path
    initrd: Path
    release: str
    note: str = ""  # what could not be had, and was done without


def build_guest(cache_dir: Path) -> VmGuest:
    """Kernel and initial file system, from the cache or built into it; the same files and
    packages give the same bytes."""
    kernel = fetch_kernel(cache_dir)
    note = ""
    try:
        agent = agent_entries(fetch_agent(cache_dir))
    except GuestImageError as failure:
        agent, note = {}, f"without the guest agent: {failure}"
    initrd = build_image(guest_recipe(agent), kernel, cache_dir)
    return VmGuest(kernel.image, initrd, kernel.release, note)


def guest_recipe(agent: dict[str, Entry]) -> GuestRecipe:
    """What is in the guest. Pure."""
    own: dict[str, Entry] = {
        "etc/inittab": CpioFile(_INITTAB),
        "etc/acpi/PWRF/00000080": CpioFile(_SHUTDOWN, 0o755),
        "usr/sbin/shutdown": CpioFile(_SHUTDOWN, 0o755),
        f"{_OWN}/port": CpioFile(_PORT, 0o755),
        f"{_OWN}/report": CpioFile(_REPORT.encode()),
        f"{_OWN}/channel": _script(_CHANNEL, CHANNEL),
        f"{_OWN}/changed": _script(_CHANGED, CHANNEL),
        f"{_OWN}/agent": _script(_AGENT, AGENT_CHANNEL),
    }
    return GuestRecipe("vm", _COMMANDS, _MODULES, {**agent, **own})


def install_guest(guest: VmGuest, images_dir: Path) -> tuple[Path, Path]:
    """Put kernel and initial file system where pods find them by name."""
    images_dir.mkdir(parents=True, exist_ok=True)
    kernel, initrd = images_dir / KERNEL_NAME, images_dir / INITRD_NAME
    _copy_whole(guest.kernel, kernel)
    _copy_whole(guest.initrd, initrd)
    return kernel, initrd


def _script(text: str, channel: str) -> CpioFile:
    return CpioFile(text.replace("@CHANNEL@", channel).encode(), 0o755)


def _copy_whole(source: Path, target: Path) -> None:
    """A VM that starts meanwhile finds the old file or the new one, never half of one."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
        fresh = Path(scratch, target.name)
        shutil.copyfile(source, fresh)
        fresh.chmod(0o644)
        fresh.rename(target)
