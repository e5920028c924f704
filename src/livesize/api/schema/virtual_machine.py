"""A virtual machine, as a pod asks for it."""

from __future__ import annotations

from livesize.api.schema.fields import Message, list_of, object_of, quantities, quantity, string
from livesize.api.schema.resources import ContainerResizePolicy, ResourceRequirements
from livesize.api.schema.support import VM, used


class KernelBoot(Message):
    image = string(support=used("agent.vm.sizes"))
    initrd = string(support=used("agent.vm.sizes"))
    commandLine = string(support=used("agent.vm.sizes"))


class DiskBoot(Message):
    image = string(support=used("agent.vm.sizes"))


class VirtualMachineCpu(Message):
    max = quantity(support=VM)


class VirtualMachineMemory(Message):
    max = quantity(support=VM)
    boot = quantity(support=VM)


class PodVirtualMachine(Message):
    """Instead of containers: one virtual machine. It boots from a kernel or from a disk, each the
    name of an image; maxima and boot memory are fixed when it is made."""

    kernel = object_of(KernelBoot)
    disk = object_of(DiskBoot)
    cpu = object_of(VirtualMachineCpu)
    memory = object_of(VirtualMachineMemory)
    resources = object_of(ResourceRequirements)
    resizePolicy = list_of(ContainerResizePolicy)
    resourcesAllocated = quantities(support=used("api.dialects"))
