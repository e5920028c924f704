"""Which file an image's name means, and how paths look from inside libvirtd's namespace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from livesize.runtime.interface import ImageMissingError, RuntimeCallError
from livesize.runtime.libvirt.connection import load_libvirt
from livesize.runtime.libvirt.daemon import LibvirtDaemon
from livesize.runtime.libvirt.files import resolve_image


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "kernel").write_text("k")
    (folder / "newest").symlink_to("kernel")
    (tmp_path / "secret").write_text("s")
    (folder / "out").symlink_to("../secret")
    return folder


def test_a_name_is_a_file_of_the_images_directory(images: Path) -> None:
    assert resolve_image("kernel", images) == images / "kernel"
    assert resolve_image("newest", images) == images / "kernel"


@pytest.mark.parametrize("name", ["out", "..", ".hidden", "."])
def test_a_name_never_leads_out_of_it(images: Path, name: str) -> None:
    with pytest.raises(RuntimeCallError, match="leads out of the images directory"):
        resolve_image(name, images)


def test_a_path_is_taken_as_it_is_and_must_be_absolute(images: Path, tmp_path: Path) -> None:
    assert resolve_image(str(tmp_path / "secret"), images) == tmp_path / "secret"
    with pytest.raises(RuntimeCallError, match="neither a name nor an absolute path"):
        resolve_image("images/kernel", images)


def test_a_missing_image_names_the_way_to_get_one(images: Path) -> None:
    with pytest.raises(ImageMissingError, match="livesize guest build"):
        resolve_image("nothing", images)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/run/libvirt/qemu/channel/1-x/y", "root/run/qemu/channel/1-x/y"),
        ("/var/lib/libvirt/vms/u/kernel", "root/lib/vms/u/kernel"),
        ("/var/log/libvirt/vms/u/0.log", "root/log/vms/u/0.log"),
    ],
)
def test_paths_are_translated_both_ways(tmp_path: Path, inside: str, outside: str) -> None:
    daemon = LibvirtDaemon(tmp_path / "root", tmp_path / "images", use_kvm=False)
    assert daemon.host_path(inside) == tmp_path / outside
    assert daemon.namespace_path(tmp_path / outside) == inside


def test_images_are_seen_inside_and_strangers_stay_where_they_are(tmp_path: Path) -> None:
    daemon = LibvirtDaemon(tmp_path / "root", tmp_path / "images", use_kvm=False)
    assert daemon.namespace_path(tmp_path / "images/disk") == "/var/lib/libvirt/images/disk"
    assert daemon.namespace_path(Path("/srv/disk")) == "/srv/disk"
    assert daemon.host_path("/srv/disk") == Path("/srv/disk")


def test_a_daemon_that_was_never_started_does_not_run_and_can_be_stopped(tmp_path: Path) -> None:
    daemon = LibvirtDaemon(tmp_path / "root", tmp_path / "images", use_kvm=False)
    assert daemon.pid() is None
    daemon.stop()
    (tmp_path / "root/run").mkdir(parents=True)
    (tmp_path / "root/run/libvirtd.pid").write_text("1\n")  # somebody else's
    assert daemon.pid() is None
    daemon.stop()


def test_without_the_bindings_one_sentence_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    with pytest.raises(RuntimeCallError, match=r"pip install 'livesize\[vm\]'"):
        load_libvirt()
