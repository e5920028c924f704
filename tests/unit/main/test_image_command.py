"""`livesize image`: what is imported can be resolved by name; what cannot be is one sentence."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from livesize.machinery.data_directory import DataDirectory
from livesize.main.entry import cli
from livesize.runtime.images import ImageStore
from livesize.runtime.oci import BUILT_IN_IMAGE, write_busybox_image


def test_an_imported_image_is_known_by_the_name_given(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    write_busybox_image(archive)
    data = ["--data-dir", str(tmp_path / "data")]

    imported = CliRunner().invoke(cli, ["image", "import", str(archive), "--name", "mine:1", *data])
    listed = CliRunner().invoke(cli, ["image", "list", *data])

    assert (imported.exit_code, imported.output) == (0, "mine:1\n")
    assert listed.output.split() == sorted([BUILT_IN_IMAGE, "mine:1"])
    store = ImageStore(DataDirectory(tmp_path / "data").runtime / "images")
    assert Path(store.resolve("mine:1").rootfs, "bin", "sh").exists()


def test_a_file_that_is_no_image_is_refused_with_a_sentence(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.write_text("not a tar")
    data = ["--data-dir", str(tmp_path / "data")]

    refused = CliRunner().invoke(cli, ["image", "import", str(archive), *data])

    assert refused.exit_code == 1
    assert "is not a usable OCI image" in refused.output
    assert len(refused.output.splitlines()) == 1
