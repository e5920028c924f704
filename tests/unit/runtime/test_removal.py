"""Folders that somebody else has filled are removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from livesize.runtime.removal import FolderRemover, StoppedError, remove_tree

DEPTH = 1500  # deeper than Python's stack, more than open files, and longer than any path


@pytest.fixture(autouse=True)
def _nothing_deep_is_left(tmp_path: Path) -> Iterator[None]:
    """pytest could not remove what a test that fails leaves."""
    yield
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


def nest(folder: Path, depth: int, name: str = "d") -> None:
    folder.mkdir()
    current = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=current)
        below = os.open(name, os.O_RDONLY, dir_fd=current)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(current)
        current = below
    os.close(current)


def test_folders_deeper_than_any_path_are_removed(tmp_path: Path) -> None:
    nest(tmp_path / "deep", DEPTH, "three")
    remove_tree(tmp_path / "deep")
    assert list(tmp_path.iterdir()) == []


def test_many_folders_beside_each_other_and_within_are_removed(tmp_path: Path) -> None:
    for outer in range(12):
        for inner in range(12):
            (tmp_path / "wide" / str(outer) / str(inner)).mkdir(parents=True)
            (tmp_path / "wide" / str(outer) / str(inner) / "file").touch()
    remove_tree(tmp_path / "wide")
    assert list(tmp_path.iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("mine")
    tree = tmp_path / "tree"
    (tree / "in").mkdir(parents=True)
    (tree / "to-folder").symlink_to(kept)
    (tree / "in" / "to-file").symlink_to(kept / "file")
    (tree / "in" / "around").symlink_to(tree)
    os.mkfifo(tree / "fifo")
    remove_tree(tree)
    assert not tree.exists()
    assert (kept / "file").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(kept)
    remove_tree(link)
    assert not link.is_symlink()
    assert (kept / "file").read_text() == "mine"


def test_what_is_not_there_is_removed_already(tmp_path: Path) -> None:
    remove_tree(tmp_path / "nothing")


def test_a_removal_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    nest(tmp_path / "deep", 100)
    asked = iter(range(10_000))
    with pytest.raises(StoppedError):
        remove_tree(tmp_path / "deep", lambda: next(asked) > 50)
    assert (tmp_path / "deep").is_dir()
    remove_tree(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()


def test_trash_is_taken_at_once_and_emptied_by_a_thread(tmp_path: Path) -> None:
    trash = FolderRemover(tmp_path / "trash")
    trash.open()
    nest(tmp_path / "deep", 50)
    trash.take(tmp_path / "deep")
    assert not (tmp_path / "deep").exists()
    trash.take(tmp_path / "nothing")
    trash._thread.submit(lambda: None).result(timeout=10)
    assert list((tmp_path / "trash").iterdir()) == []
    trash.close()


def test_what_was_left_in_the_trash_is_removed_later(tmp_path: Path) -> None:
    trash = FolderRemover(tmp_path / "trash")
    trash.open()
    busy = threading.Event()
    trash._thread.submit(busy.wait)
    nest(tmp_path / "deep", 50)
    trash.take(tmp_path / "deep")
    trash._stop.set()
    busy.set()
    trash.close()
    assert len(list((tmp_path / "trash").iterdir())) == 1
    again = FolderRemover(tmp_path / "trash")
    again.open()
    again._thread.submit(lambda: None).result(timeout=10)
    assert list((tmp_path / "trash").iterdir()) == []
    again.close()


def test_what_cannot_be_taken_away_is_removed_where_it_is(tmp_path: Path) -> None:
    """A full disk may have no room for another name, and just then something has to go."""
    trash = FolderRemover(tmp_path / "trash")
    trash.open()
    (tmp_path / "trash").rmdir()
    (tmp_path / "trash").write_text("no folder")
    nest(tmp_path / "full", 3)
    trash.take(tmp_path / "full")
    assert not (tmp_path / "full").exists()
    trash.take(tmp_path / "nothing")
    trash.close()
