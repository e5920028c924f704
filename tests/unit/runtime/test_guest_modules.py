"""Kernel modules: dependencies are loaded first, built-in ones not at all."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.guest_images.errors import GuestImageError
from livesize.guest_images.kernel import GuestKernel
from livesize.guest_images.modules import (
    Module,
    load_order,
    module_entries,
    parse_depends,
    select_modules,
)


def module_file(depends: str) -> bytes:
    """As much of a module as is read: its notes about itself."""
    return f"ELF\0license=GPL\0depends={depends}\0retpoline=Y\0".encode()


@pytest.fixture
def kernel(tmp_path: Path) -> GuestKernel:
    modules = tmp_path / "modules"
    (modules / "kernel/virtio").mkdir(parents=True)
    (modules / "modules.builtin").write_text("kernel/fs/ext4/ext4.ko\n")
    plain = {"virtio": "", "virtio_ring": "virtio", "virtio-rng": "virtio_ring,ext4"}
    for name, depends in plain.items():
        (modules / f"kernel/virtio/{name}.ko").write_bytes(module_file(depends))
    packed = lzma.compress(module_file("virtio"))
    (modules / "kernel/overlay.ko.xz").write_bytes(packed)
    return GuestKernel("6.1", tmp_path / "vmlinuz", modules)


def test_dependencies_come_first_and_built_in_modules_are_left_out(kernel: GuestKernel) -> None:
    selected = select_modules(kernel, ["virtio-rng", "ext4", "virtio"])
    assert [module.name for module in selected] == ["virtio", "virtio_ring", "virtio_rng"]


def test_compressed_modules_are_unpacked(kernel: GuestKernel) -> None:
    _, overlay = select_modules(kernel, ["overlay"])
    assert overlay == Module("overlay", module_file("virtio"))


def test_modules_of_ubuntu_are_unpacked(
    kernel: GuestKernel, not_run: Callable[[str], NoReturn]
) -> None:
    if shutil.which("zstd") is None:
        not_run("needs zstd")
    path = kernel.modules / "blk.ko"
    path.write_bytes(module_file(""))
    subprocess.run(["zstd", "--quiet", "--rm", str(path)], check=True)
    assert select_modules(kernel, ["blk"]) == (Module("blk", module_file("")),)


def test_a_module_the_kernel_does_not_have_is_named(kernel: GuestKernel) -> None:
    with pytest.raises(GuestImageError, match=r"kernel 6\.1 has no module floppy"):
        select_modules(kernel, ["floppy"])


def test_modules_that_need_each_other_are_refused() -> None:
    needs = {"a": ("b",), "b": ("a",)}
    with pytest.raises(GuestImageError, match="a b a"):
        load_order(["a"], needs.__getitem__)


@pytest.mark.parametrize(
    ("depends", "names"),
    [("", ()), ("virtio", ("virtio",)), ("virtio-pci,virtio", ("virtio_pci", "virtio"))],
)
def test_what_a_module_says_it_needs(depends: str, names: tuple[str, ...]) -> None:
    assert parse_depends(module_file(depends)) == names
    assert parse_depends(b"no such line") == ()


def test_file_names_sort_in_the_order_of_loading() -> None:
    modules = [Module(name, name.encode()) for name in ("z", "m", "a")]
    entries = module_entries(modules, "lib")
    assert [entries[name] for name in sorted(entries)] == [b"z", b"m", b"a"]


@given(st.data())
def test_every_dependency_is_loaded_before_whatever_needs_it(data: st.DataObject) -> None:
    names = [f"m{number}" for number in range(8)]
    needs = {
        name: tuple(data.draw(st.sets(st.sampled_from(names[:number]))) if number else ())
        for number, name in enumerate(names)
    }
    wanted = data.draw(st.lists(st.sampled_from(names)))
    builtin = frozenset(data.draw(st.sets(st.sampled_from(names))))
    order = load_order(wanted, needs.__getitem__, builtin)
    assert len(set(order)) == len(order)
    assert set(wanted) - builtin <= set(order)
    for position, name in enumerate(order):
        assert name not in builtin
        assert set(needs[name]) - builtin <= set(order[:position])
