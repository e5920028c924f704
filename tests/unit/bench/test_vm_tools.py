"""The tools of the benchmark of virtual machines: the guest's eye, its console, the pod."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bench import bench_vm, harness
from bench.guest_eye import Seen, parse_seen, seeing_recipe, watching_console
from bench.harness import Benchmark, Row
from bench.product_vm import vm_manifest

from livesize.api.defaults import default_object
from livesize.api.kinds.pod import PODS
from livesize.api.validation.objects import validate_create
from livesize.api.vm_size import Technology, vm_size_of
from livesize.guest_images.cpio import CpioFile


@pytest.mark.parametrize(
    ("line", "seen"),
    [
        ("sees 0 420000", Seen(1, 420000)),
        ("sees 0-2,5 420000\r", Seen(4, 420000)),
        ("sees 0-1", None),
        ("sees 0-1 much", None),
        ("[    1.2] virtio_mem: plugged", None),
    ],
    ids=["one", "ranges", "half a line", "no number", "the kernel's"],
)
def test_a_line_of_the_eye_is_known_from_others(line: str, seen: Seen | None) -> None:
    assert parse_seen(line) == seen


async def test_a_console_tells_when_the_guest_says_it(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text("sees 0 1000\nsees 0")
    with watching_console(log) as console, log.open("a") as guest:
        assert console.seen == Seen(1, 1000)
        reached = console.expect(lambda seen: seen.vcpus == 2)
        for part in ("-1 10", "00\nsees 0-1 2000\n"):
            assert not reached.done()
            guest.write(part)
            guest.flush()
            await asyncio.sleep(0.02)
        async with asyncio.timeout(2):
            await reached
        assert console.seen == Seen(2, 2000)
        already = console.expect(lambda seen: seen.memory_kib == 2000)
        assert already.done()


def test_the_eye_is_all_that_the_measured_guest_has_more() -> None:
    recipe = seeing_recipe({})
    eye, table = recipe.entries["usr/lib/bench/eye"], recipe.entries["etc/inittab"]
    assert isinstance(eye, CpioFile)
    assert isinstance(table, CpioFile)
    assert table.content.endswith(b"::respawn:/usr/lib/bench/eye\n")
    assert b"livesize/channel" in table.content


@pytest.mark.parametrize("technology", bench_vm.PLUGGED)
def test_the_measured_vm_is_valid(technology: Technology) -> None:
    pod = default_object(PODS, vm_manifest("vm", 4, 512, technology))
    assert validate_create(PODS, pod) == []
    assert vm_size_of(pod).technology is technology


def test_where_vms_cannot_run_each_row_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registered: list[Benchmark] = []
    monkeypatch.setattr(harness, "BENCHMARKS", registered)
    rows = (Row("vm: one", "ms"), Row("vm: two", "ms"))
    bench_vm.measured_if_possible(rows, "needs libvirtd")(lambda _: [])
    assert registered == []
    assert capsys.readouterr().err.splitlines() == [
        "not measured: vm: one (needs libvirtd)",
        "not measured: vm: two (needs libvirtd)",
    ]
    bench_vm.measured_if_possible(rows, "")(lambda _: [])
    assert [benchmark.rows for benchmark in registered] == [rows]


@pytest.mark.parametrize("missing", ["qemu-system-x86_64", "libvirtd"])
def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setattr(
        "shutil.which", lambda name: None if name == missing else f"/usr/bin/{name}"
    )
    assert bench_vm.what_is_missing() == f"needs {missing}"
