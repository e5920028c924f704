"""Every memory technology there is, by its name: a new one is one row here and one file. Pure."""

from __future__ import annotations

from livesize.agent.vm.memory.auto import Auto
from livesize.agent.vm.memory.balloon import Balloon
from livesize.agent.vm.memory.dimm import Dimm
from livesize.agent.vm.memory.interface import MemoryTechnology
from livesize.agent.vm.memory.virtio_mem import VirtioMem

TECHNOLOGIES: dict[str, MemoryTechnology] = {
    one.name: one for one in (Auto(), VirtioMem(), Dimm(), Balloon())
}
DEFAULT_TECHNOLOGY = Auto.name
