"""A virtual machine, as a pod asks for it."""

from __future__ import annotations

from livesize.api.schema.fields import (
    Message,
    integer,
    list_of,
    object_of,
    quantities,
    quantity,
    string,
)
from livesize.api.schema.resources import ContainerResizePolicy, ResourceRequirements
from livesize.api.schema.support import VM, used


class KernelBoot(Message):
    image = string(
        support=used("agent.vm.sizes"),
        description="The Linux kernel that the guest boots, the name of an image.",
    )
    initrd = string(
        support=used("agent.vm.sizes"),
        description="The initial root file system beside the kernel, the name of an image.",
    )
    commandLine = string(
        support=used("agent.vm.sizes"),
        description=(
            "Instead of the usual options of the kernel. What is plugged in can be taken away"
            " again only with memhp_default_state=online_movable."
        ),
    )


class DiskBoot(Message):
    image = string(
        support=used("agent.vm.sizes"),
        description="The disk that the guest boots from, the name of an image (qcow2 or raw).",
    )


class VirtualMachineCpu(Message):
    max = quantity(
        support=VM,
        description=(
            "The most vCPUs that the VM can be given while it runs, by default 4 times those it is"
            " made with. Fixed."
        ),
    )
    cores = integer(
        support=VM,
        description=(
            "Cores of a socket. With cores or threads, vCPUs come and go in whole sockets, and"
            " the maximum is whole sockets too. Fixed."
        ),
    )
    threads = integer(support=VM, description="Threads of a core. Fixed.")


class VirtualMachineMemory(Message):
    max = quantity(
        support=VM,
        description=(
            "The most memory that the VM can be given while it runs, by default 4 times what it"
            " is made with. Fixed."
        ),
    )
    boot = quantity(
        support=VM,
        description=(
            "What the guest boots with; what it has above is plugged in. By default what the VM"
            " is made with, of a guest that boots from a kernel no more than it needs; with"
            " technology balloon the maximum; with cells what these boot with together. Fixed."
        ),
    )
    min = quantity(
        support=VM,
        description=(
            "The least that a balloon leaves the guest, by default 512Mi, or the boot memory"
            " where that is less. Fixed."
        ),
    )
    technology = string(
        0,
        "auto",
        "virtio-mem",
        "dimm",
        "balloon",
        support=VM,
        description=(
            "How the memory changes. virtio-mem: in steps of 2Mi above the boot memory. dimm: in"
            " whole modules of 128, 512, 1024 and 2048Mi, up to 16, above the boot memory."
            " balloon: the guest boots with the maximum, and a balloon in it holds what it is not"
            " to have. auto: virtio-mem above the boot memory, the balloon below it. By default"
            " what the node is set to; a VM keeps the one with which it was started. Fixed."
        ),
    )


class VirtualMachineCell(Message):
    """A NUMA node of the guest."""

    id = integer(support=VM, description="Its number, from 0; cells are told apart by it.")
    memory = quantity(
        support=VM,
        description=(
            "What the guest has in this cell. It can be changed in the pod and by pods/resize,"
            " together with the memory in resources, which is the sum of all cells."
        ),
    )
    boot = quantity(
        support=VM,
        description=(
            "What the cell boots with, which is the least it can have: what it has when the VM is"
            " made. Filled in, and fixed."
        ),
    )


class VirtualMachineNuma(Message):
    cells = list_of(
        VirtualMachineCell,
        key="id",
        description=(
            "The cells, at most 8; vCPUs go to them in equal blocks. None is added or removed"
            " later. A change of the memory names the cell that changes."
        ),
    )


class PodVirtualMachine(Message):
    """Instead of containers: one virtual machine. It boots from a kernel or from a disk, each the
    name of an image. Its vCPUs and memory are the limits in resources, else the requests; maxima,
    boot memory, technology and topology are fixed when it is made."""

    kernel = object_of(KernelBoot, description="Boot this kernel; or else a disk.")
    disk = object_of(DiskBoot, description="Boot from this disk; or else a kernel.")
    cpu = object_of(VirtualMachineCpu, description="The most vCPUs, and how they are laid out.")
    memory = object_of(
        VirtualMachineMemory, description="Bounds of the memory, and how it changes."
    )
    numa = object_of(VirtualMachineNuma, description="NUMA nodes; without them the VM has one.")
    resources = object_of(
        ResourceRequirements, description="The size: whole vCPUs, and memory in steps of 2Mi."
    )
    resizePolicy = list_of(
        ContainerResizePolicy, description="Whether a change of a resource restarts the VM."
    )
    resourcesAllocated = quantities(
        support=used("api.dialects"),
        description="The requests that the node has allocated. Derived, never written.",
    )
