"""Images: written, imported, unpacked and found; and what a hostile one cannot do."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from livesize.runtime import oci
from livesize.runtime.images import ImageStore, normalise
from livesize.runtime.interface import ImageMissingError, RuntimeCallError
from livesize.runtime.unpack import UnpackError, UnpackLimits, resolve_inside, unpack_layer

SETTINGS = oci.ImageSettings(
    command=("serve",), entrypoint=("/bin/app",), env=("A=1",), working_dir="/srv", user="7:8"
)


def layer(*members: tuple[str, bytes | None, dict[str, object]]) -> io.BytesIO:
    """A tar of (name, content, attributes of TarInfo), in this order."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content, attributes in members:
            member = tarfile.TarInfo(name)
            member.size = len(content or b"")
            for attribute, value in attributes.items():
                setattr(member, attribute, value)
            archive.addfile(member, io.BytesIO(content or b""))
    buffer.seek(0)
    return buffer


def link(target: str) -> dict[str, object]:
    return {"type": tarfile.SYMTYPE, "linkname": target}


def hard_link(target: str) -> dict[str, object]:
    return {"type": tarfile.LNKTYPE, "linkname": target}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "app.tar"
    files = {
        "bin": oci.LayerFolder(),
        "bin/app": oci.LayerFile(b"#!/bin/sh\n", 0o755),
        "bin/other": oci.LayerLink("app"),
    }
    oci.write_image(path, "localhost/team/app:3", [files], SETTINGS)
    return path


def test_the_same_files_give_the_same_bytes(tmp_path: Path, image: Path) -> None:
    again = tmp_path / "again.tar"
    files = {
        "bin/other": oci.LayerLink("app"),
        "bin/app": oci.LayerFile(b"#!/bin/sh\n", 0o755),
        "bin": oci.LayerFolder(),
    }
    oci.write_image(again, "localhost/team/app:3", [files], SETTINGS)
    assert again.read_bytes() == image.read_bytes()


def test_an_imported_image_is_found_by_its_name(tmp_path: Path, image: Path) -> None:
    store = ImageStore(tmp_path / "images")
    assert store.import_tar(image) == "localhost/team/app:3"
    found = ImageStore(tmp_path / "images").resolve("localhost/team/app:3")
    assert (found.entrypoint, found.cmd, found.env) == (("/bin/app",), ("serve",), ("A=1",))
    assert (found.workdir, found.user) == ("/srv", "7:8")
    assert Path(found.rootfs, "bin/other").read_bytes() == b"#!/bin/sh\n"
    assert Path(found.rootfs, "bin/app").stat().st_mode & 0o777 == 0o755
    assert "localhost/team/app:3" in store.names()
    assert store.import_tar(image, "other:1") == "other:1"
    assert store.resolve("docker.io/library/other:1").id == found.id


def test_a_missing_image_is_named_with_those_present(tmp_path: Path, image: Path) -> None:
    store = ImageStore(tmp_path / "images", busybox="no-such-busybox")
    store.import_tar(image)
    with pytest.raises(ImageMissingError, match=r"nginx.*localhost/team/app:3"):
        store.resolve("nginx")


def test_the_built_in_image_needs_a_static_busybox(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, busybox="no-such-busybox")
    with pytest.raises(ImageMissingError, match="busybox-static"):
        store.resolve(oci.BUILT_IN_IMAGE)
    dynamic = tmp_path / "busybox"
    dynamic.symlink_to("/bin/ls")
    with pytest.raises(ImageMissingError, match="statically linked"):
        oci.find_static_busybox(str(dynamic))


def test_the_built_in_image_is_made_on_demand(tmp_path: Path) -> None:
    found = ImageStore(tmp_path).resolve(oci.BUILT_IN_IMAGE)
    assert Path(found.rootfs, "bin/sh").resolve() == Path(found.rootfs, "bin/busybox")
    assert found.cmd[0] == "/bin/sleep"


@pytest.mark.parametrize(
    ("ref", "full"),
    [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1", "docker.io/library/busybox:1"),
        ("team/app", "docker.io/team/app:latest"),
        ("localhost/livesize/busybox:1", "localhost/livesize/busybox:1"),
        ("example.org:5000/app", "example.org:5000/app:latest"),
        ("app@sha256:00", "docker.io/library/app@sha256:00"),
    ],
)
def test_names_in_full(ref: str, full: str) -> None:
    assert normalise(ref) == full


def rewritten(image: Path, name_part: str, change: bytes) -> None:
    """The same layout with another content for one file."""
    with tarfile.open(image) as archive:
        files = {
            member.name: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    name = next(name for name in sorted(files) if name_part in name)
    files[name] = change
    with tarfile.open(image, "w") as archive:
        for key, content in files.items():
            member = tarfile.TarInfo(key)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        pytest.param("blobs/", b"tampered", "should be sha256", id="a blob that was changed"),
        pytest.param("index.json", b"{}", "not a usable OCI image", id="an empty index"),
        pytest.param("index.json", b"\xff", "not a usable OCI image", id="no JSON"),
        pytest.param(
            "index.json",
            json.dumps({"manifests": [{"digest": "sha256:../../etc/passwd"}]}).encode(),
            "not a sha256 digest",
            id="a digest that is a path",
        ),
    ],
)
def test_a_bad_image_is_refused_and_nothing_is_kept(
    tmp_path: Path, image: Path, part: str, change: bytes, words: str
) -> None:
    rewritten(image, part, change)
    store = ImageStore(tmp_path / "images", busybox="no-such-busybox")
    with pytest.raises(RuntimeCallError, match=words):
        store.import_tar(image)
    assert store.names() == ()
    assert list((tmp_path / "images").glob("new-*")) == []


def test_a_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(b"hello")
    with pytest.raises(RuntimeCallError, match="not a usable OCI image"):
        ImageStore(tmp_path / "images").import_tar(path)
    with pytest.raises(RuntimeCallError, match="not a usable OCI image"):
        ImageStore(tmp_path / "images").import_tar(tmp_path / "nowhere.tar")


def test_the_image_for_this_machine_is_chosen_from_several(tmp_path: Path) -> None:
    blobs: dict[str, bytes] = {}

    def blob(value: object) -> str:
        content = json.dumps(value).encode()
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return f"sha256:{digest}"

    def manifest(command: str) -> str:
        config = blob({"config": {"Cmd": [command]}})
        return blob({"config": {"digest": config}, "layers": []})

    several = [
        {"digest": manifest("wrong"), "platform": {"os": "linux", "architecture": "s390x"}},
        {
            "digest": manifest("right"),
            "platform": {"os": "linux", "architecture": oci.image_architecture()},
        },
    ]
    name = {oci.NAME_ANNOTATION: "localhost/many:1"}
    index = {"manifests": [{"digest": blob({"manifests": several}), "annotations": name}]}
    path = tmp_path / "many.tar"
    members = [(key, content, {}) for key, content in blobs.items()]
    path.write_bytes(layer(*members, ("index.json", json.dumps(index).encode(), {})).getvalue())
    store = ImageStore(tmp_path / "images")
    assert store.resolve(store.import_tar(path)).cmd == ("right",)


# ---- layers


def test_layers_are_applied_in_order_with_whiteouts(tmp_path: Path) -> None:
    unpack_layer(
        layer(("a/one", b"1", {}), ("a/two", b"2", {}), ("b/old", b"x", {}), ("c", b"c", {})),
        tmp_path,
    )
    upper = layer(
        ("a/.wh.one", b"", {}),
        ("b/new", b"y", {}),
        ("b/.wh..wh..opq", b"", {}),
        (".wh.c", b"", {}),
    )
    unpack_layer(upper, tmp_path)
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["a", "a/two", "b", "b/new"]


def test_gzip_is_read_like_plain(tmp_path: Path) -> None:
    unpack_layer(io.BytesIO(gzip.compress(layer(("x", b"1", {})).getvalue())), tmp_path)
    assert (tmp_path / "x").read_bytes() == b"1"


def test_a_file_replaces_a_link_and_a_folder_instead_of_following(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    first = layer(("x", None, link(str(victim))), ("d/inner", b"1", {}))
    unpack_layer(first, root)
    unpack_layer(layer(("x", b"2", {}), ("d", b"3", {})), root)
    assert victim.read_text() == "untouched"
    assert (root / "x").read_text() == "2"
    assert (root / "d").read_text() == "3"


@pytest.mark.parametrize(
    "members",
    [
        pytest.param([("../evil", b"x", {})], id="upwards"),
        pytest.param([("a/../../evil", b"x", {})], id="upwards inside"),
        pytest.param([("x", None, hard_link("../victim"))], id="hard link upwards"),
        pytest.param([("x", None, hard_link("nowhere"))], id="hard link to nothing"),
        pytest.param([("a/.wh...", b"", {})], id="whiteout of the parent"),
        pytest.param([("l", None, link("l")), ("l/x", b"", {})], id="a link that leads to itself"),
    ],
)
def test_a_hostile_layer_is_refused(
    tmp_path: Path, members: list[tuple[str, bytes | None, dict[str, object]]]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "victim").write_text("untouched")
    with pytest.raises(UnpackError):
        unpack_layer(layer(*members), root)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["root", "victim"]


@pytest.mark.parametrize("target", ["/", "..", "../../..", "/outside"])
def test_a_link_out_of_the_root_stays_inside(tmp_path: Path, target: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    unpack_layer(layer(("out", None, link(target)), ("out/evil", b"x", {})), root)
    assert not (tmp_path / "evil").exists()
    assert not Path("/evil").exists()
    assert len(list(root.rglob("evil"))) == 1


def test_devices_and_fifos_are_left_out(tmp_path: Path) -> None:
    device = {"type": tarfile.BLKTYPE, "devmajor": 8, "devminor": 0}
    unpack_layer(
        layer(("sda", None, device), ("pipe", None, {"type": tarfile.FIFOTYPE}), ("x", b"", {})),
        tmp_path,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_hard_links_and_modes_are_kept(tmp_path: Path) -> None:
    unpack_layer(layer(("a", b"1", {"mode": 0o4751}), ("b", None, hard_link("a"))), tmp_path)
    assert (tmp_path / "a").samefile(tmp_path / "b")
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o4751


def test_a_layer_has_limits(tmp_path: Path) -> None:
    big = layer(("a", b"x" * 600, {}), ("b", b"x" * 600, {}))
    with pytest.raises(UnpackError, match="larger than allowed"):
        unpack_layer(big, tmp_path, UnpackLimits(total_bytes=1000))
    big.seek(0)
    with pytest.raises(UnpackError, match="larger than allowed"):
        unpack_layer(big, tmp_path, UnpackLimits(entries=1))


def test_a_broken_layer_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(layer(("x", os.urandom(4000), {})).getvalue())
    with pytest.raises(UnpackError):
        unpack_layer(io.BytesIO(whole[: len(whole) // 2]), tmp_path)


paths = st.lists(st.sampled_from(["a", "b", "..", ".", "/", "c"]), max_size=6).map("/".join)


@given(st.dictionaries(st.sampled_from("abc"), paths, max_size=3), paths)
def test_nothing_resolves_outside_the_root(links: dict[str, str], name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        root.mkdir()
        for key, target in links.items():
            if target:
                (root / key).symlink_to(target)
        try:
            found = resolve_inside(root, name)
        except UnpackError:
            return
        assert found.is_relative_to(root)
        assert ".." not in found.parts
        assert not any(part.is_symlink() for part in (found, *found.parents) if part != root)


def test_busybox_is_on_this_machine() -> None:
    """The tests above and all container tests need it; say so once, clearly."""
    assert shutil.which("busybox"), "install the package busybox-static"
