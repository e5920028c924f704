"""From the quantity a user writes to the XML libvirt reads, no value is truncated (F51).

ARK, "Type conversions": "during conversion the data will not be truncated".
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from livesize.agent.vm.sizes import vm_config, vm_limits
from livesize.api.defaults import default_object
from livesize.api.kernel_units import CPU_PERIOD_US, CgroupVersion
from livesize.api.kinds.pod import PODS
from livesize.api.vm_size import vm_overhead_bytes, vm_size_of
from livesize.runtime.libvirt.compose import compose_domain
from livesize.runtime.libvirt.identity import DomainIdentity
from livesize.runtime.libvirt.model import DomainKernel, parse, render
from livesize.runtime.vm import Accelerator

MIB = 2**20
TEBIBYTE_BLOCKS = 2**19  # of 2 MiB
blocks = st.one_of(st.integers(32, 4096), st.integers(32, TEBIBYTE_BLOCKS))


@given(
    vcpus=st.integers(1, 255),
    memory_blocks=blocks,
    accelerator=st.sampled_from(Accelerator),
    version=st.sampled_from(CgroupVersion),
)
def test_what_is_asked_is_what_the_domain_and_the_group_get(
    vcpus: int, memory_blocks: int, accelerator: Accelerator, version: CgroupVersion
) -> None:
    memory_bytes = memory_blocks * 2 * MIB
    size = {"cpu": str(vcpus), "memory": f"{memory_bytes // 1024}Ki"}
    vm = {"kernel": {"image": "guest"}, "resources": {"requests": size, "limits": size}}
    pod = default_object(PODS, {"metadata": {"name": "vm1"}, "spec": {"virtualMachine": vm}})
    resources = pod["spec"]["virtualMachine"]["resources"]
    config = vm_config(pod, resources)
    model = compose_domain(
        DomainIdentity("vm", "pod"), config, DomainKernel("/kernel"), "/log", accelerator
    )
    read = parse(render(model))
    assert read == model
    (device,) = read.devices
    assert read.vcpus == vcpus
    assert read.boot_memory_bytes + device.requested_bytes == memory_bytes
    assert read.max_vcpus == min(4 * vcpus, 255)
    assert read.boot_memory_bytes + device.size_bytes >= 4 * memory_bytes
    group = vm_limits(pod, {"name": "vm", **resources}, version)
    assert group.cpu_quota_us == vcpus * CPU_PERIOD_US
    assert group.memory_limit_bytes == memory_bytes + vm_overhead_bytes(vm_size_of(pod))
