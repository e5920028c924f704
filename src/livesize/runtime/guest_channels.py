"""The names of the serial channels between a guest and its host.

livesize.guest_images builds guests that open them; runtime/libvirt gives each domain both.
"""

from __future__ import annotations

CHANNEL = "dev.livesize.guest.0"
AGENT_CHANNEL = "org.qemu.guest_agent.0"
