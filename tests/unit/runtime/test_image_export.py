"""An image that leaves our store and comes back is the same tree, and runs the same."""

from __future__ import annotations

from pathlib import Path

from livesize.runtime.image_export import export_image
from livesize.runtime.images import ImageStore
from livesize.runtime.oci import ImageSettings, LayerFile, LayerFolder, LayerLink, write_image

REF = "registry.example/team/app:1"
LAYERS = [
    {
        "bin": LayerFolder(),
        "bin/app": LayerFile(b"#!/bin/sh\n", 0o755),
        "bin/link": LayerLink("app"),
        "etc": LayerFolder(0o700),
        "etc/old": LayerFile(b"old"),
    },
    {"etc/.wh.old": LayerFile(b""), "etc/new": LayerFile(b"new", 0o600)},
]
SETTINGS = ImageSettings(
    command=("app",), entrypoint=("sh",), env=("A=1",), working_dir="/etc", user="7"
)


def tree(root: Path) -> dict[str, tuple[int, str]]:
    """Mode and content, or target, of everything below."""
    found = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content = str(path.readlink()) if path.is_symlink() else ""
        if path.is_file() and not path.is_symlink():
            content = path.read_text()
        found[str(path.relative_to(root))] = (mode, content)
    return found


def test_an_exported_image_is_the_same_in_another_store(tmp_path: Path) -> None:
    write_image(tmp_path / "first.tar", REF, LAYERS, SETTINGS)
    first = ImageStore(tmp_path / "one")
    first.import_tar(tmp_path / "first.tar")
    image = first.resolve(REF)
    export_image(image, REF, tmp_path / "second.tar")
    second = ImageStore(tmp_path / "two")
    assert second.import_tar(tmp_path / "second.tar") == REF
    again = second.resolve(REF)
    assert (again.entrypoint, again.cmd, again.env) == (("sh",), ("app",), ("A=1",))
    assert (again.workdir, again.user) == ("/etc", "7")
    assert tree(Path(again.rootfs)) == tree(Path(image.rootfs))
    assert "etc/old" not in tree(Path(again.rootfs))
