"""Takes the Python that runs now into a guest, at the same paths, with the named distributions.

Same interpreter, same extension modules, same libraries: what passes inside was run by the code
that runs here. Modules are compiled beforehand: compiling them is what an emulated CPU is slowest
at. The compiled files carry no time stamp, so that the same sources give the same image.
"""

from __future__ import annotations

import hashlib
import importlib.util
import py_compile
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from guest.host_files import host_entries, shared_libraries
from livesize.guest_images.cpio import Entry, HostFile

_NOT_NEEDED = {
    *("__pycache__", "test", "tests", "idlelib", "tkinter", "lib2to3", "turtledemo"),
    *("ensurepip", "site-packages", "dist-packages", "pydoc_data"),
}
# Extension modules of the interpreter's own tests, of windows and of terminals.
_NOT_NEEDED_STARTS = ("config-", "_tkinter.", "_test", "_xx", "xx", "_curses", "readline.", "nis.")


def python_entries(
    distributions: Iterable[str], without_requirements: Iterable[str], cache_dir: Path
) -> dict[str, Entry]:
    """The interpreter, its library, the distributions and what they require."""
    files = [*_library_files()]
    for name in [*_closure(distributions), *without_requirements]:
        files += _distribution_files(name)
    native = [path for path in files if ".so" in path.suffixes]
    interpreter = Path(sys.executable)
    others = [interpreter, *shared_libraries([interpreter, *native])]
    settings = Path(sys.prefix, "pyvenv.cfg")
    if settings.exists():
        others.append(settings)
    return host_entries([*files, *others]) | compiled_entries(files, cache_dir)


def compiled_entries(files: Iterable[Path], cache_dir: Path) -> dict[str, Entry]:
    """What Python would put into __pycache__ for these files, those that do not compile aside."""
    folder = cache_dir / "bytecode" / str(sys.implementation.cache_tag)
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Entry] = {}
    for path in files:
        if path.suffix == ".py" and (compiled := _compile(path, folder)) is not None:
            inside = importlib.util.cache_from_source(str(path.resolve()))
            entries[inside.lstrip("/")] = HostFile(compiled, 0o644)
    return entries


def tree_files(folder: Path) -> Iterator[Path]:
    """Every file below, except what only the interpreter's own tests and tools need."""
    for path in sorted(folder.iterdir()):
        if path.name in _NOT_NEEDED or path.name.startswith(_NOT_NEEDED_STARTS):
            continue
        if path.is_dir():
            yield from tree_files(path)
        elif path.suffix not in {".a", ".pyc", ".exe"}:
            yield path


def _library_files() -> Iterator[Path]:
    yield from tree_files(Path(sysconfig.get_path("stdlib", vars=_base())))


def _base() -> dict[str, str]:
    return {"base": sys.base_prefix, "installed_base": sys.base_prefix}


def _closure(names: Iterable[str]) -> list[str]:
    wanted, found = list(names), list[str]()
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found.append(name)
        for text in metadata.distribution(name).requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                wanted.append(requirement.name)
    return sorted(found)


def _distribution_files(name: str) -> list[Path]:
    files = metadata.distribution(name).files or ()
    left_out = {"__pycache__", ".."}  # compiled here again; scripts are not called
    paths = [Path(str(file.locate())) for file in files if not left_out.intersection(file.parts)]
    return [path for path in paths if path.is_file()]


def _compile(path: Path, folder: Path) -> Path | None:
    """Kept by source and path: the path is part of the compiled code."""
    key = hashlib.sha256(str(path.resolve()).encode() + b"\0" + path.read_bytes()).hexdigest()
    compiled = folder / f"{key}.pyc"
    if compiled.exists():
        return compiled
    try:
        py_compile.compile(
            str(path),
            cfile=str(compiled),
            dfile=str(path.resolve()),
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
    except (py_compile.PyCompileError, UnicodeDecodeError):
        return None  # a template or an example of bad code
    return compiled
