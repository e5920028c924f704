"""A machine's architecture as Kubernetes and OCI name it: amd64, where Linux says x86_64. Pure."""

from __future__ import annotations

_NAMES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "i686": "386",
    "ppc64le": "ppc64le",
    "riscv64": "riscv64",
    "s390x": "s390x",
}


def architecture_of(machine: str) -> str:
    """``machine``: as ``uname -m`` says it."""
    return _NAMES.get(machine, machine)
