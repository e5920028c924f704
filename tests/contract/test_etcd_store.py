"""What only the store in etcd has: a network, other users, members that come and go."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NoReturn

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from etcd_servers import Member, cluster, find_etcd, free_ports
from livesize.machinery.clock import SystemClock
from livesize.store.epochs import first_revision
from livesize.store.etcd.backups import is_empty_etcd, read_etcd, write_etcd
from livesize.store.etcd.epochs import find, layout_of, write_epoch
from livesize.store.etcd.layout import Epoch
from livesize.store.etcd.link import CallKind, EtcdLink, UncertainError
from livesize.store.etcd.messages import ProtobufMessage
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.store import EtcdStore
from livesize.store.etcd.txn import put, txn_request
from livesize.store.interface import (
    Check,
    CompactedError,
    ConflictError,
    Delete,
    Put,
    StoreClosedError,
    StoreOpenError,
    StoreSnapshot,
    StoreUnavailableError,
)

pytestmark = pytest.mark.apiserver
CLOCK = SystemClock()


@pytest.fixture
def settings(etcd: Member, tmp_path: Path) -> EtcdSettings:
    return EtcdSettings((etcd.endpoint,), root=f"{tmp_path}/")


@contextlib.asynccontextmanager
async def opened(settings: EtcdSettings, epoch: int = 0) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(settings, epoch=epoch, clock=CLOCK)
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def linked(settings: EtcdSettings) -> AsyncIterator[EtcdLink]:
    link = EtcdLink(settings, CLOCK)
    try:
        yield link
    finally:
        await link.close()


async def write_elsewhere(settings: EtcdSettings) -> None:
    """As another user of the same etcd."""
    async with linked(settings) as link:
        await link.txn(txn_request((), [put(b"elsewhere", b"x")]), CallKind.WRITE)


async def test_two_servers_share_one_store(settings: EtcdSettings) -> None:
    async with opened(settings, 7) as first, opened(settings, 8) as second:
        assert first.epoch == second.epoch == 7
        revision = await first.commit([], [Put("a", b"1")])
        entry = await second.get("a")
        assert entry is not None
        assert entry.mod_revision == revision == first_revision(7) + 1
        await second.commit([Check("a", revision)], [Put("a", b"2")])
        with pytest.raises(ConflictError):
            await first.commit([Check("a", revision)], [Put("a", b"3")])


async def test_servers_that_start_together_agree_on_the_epoch(settings: EtcdSettings) -> None:
    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(stack.enter_async_context(opened(settings, number)))
            for number in range(1, 9)
        ]
        stores = [await task for task in tasks]
        assert len({store.epoch for store in stores}) == 1
        assert {await store.revision() for store in stores} == {first_revision(stores[0].epoch)}


async def test_what_others_write_to_etcd_is_no_revision_of_ours(settings: EtcdSettings) -> None:
    """A list names a revision that every watch reaches, however much others write."""
    async with opened(settings) as store:
        newest = await store.commit([], [Put("a", b"1")])
        await write_elsewhere(settings)
        assert await store.revision() == newest
        assert (await store.list("")).revision == newest
        changes = await anext(store.watch("", after_revision=newest - 1))
        assert [change.revision for change in changes] == [newest]


async def test_a_commit_may_be_larger_than_one_transaction_of_etcd(
    settings: EtcdSettings,
) -> None:
    async with opened(settings) as store:
        revision = await store.commit([], [Put(f"a/{n:04}", b"v") for n in range(3000)])
        assert len((await store.list("a/")).entries) == 3000
        checks = [Check(f"a/{n:04}", revision) for n in range(100)]
        await store.commit(checks, [Delete(check.key) for check in checks])
        assert len((await store.list("a/")).entries) == 2900


async def test_what_etcd_finds_too_large_is_wrong_for_good(settings: EtcdSettings) -> None:
    async with opened(settings) as store:
        with pytest.raises(ValueError, match="too large"):
            await store.commit([], [Put("a", bytes(2_000_000))])
        assert await store.revision() == 0


async def test_a_lost_answer_is_looked_up_and_nothing_is_done_twice(
    settings: EtcdSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(settings) as store:
        await store.commit([], [Put("a", b"0"), Put("b", b"0")])
        really = store._link.txn
        lost: list[str] = []

        async def txn(request: ProtobufMessage, kind: CallKind) -> ProtobufMessage:
            if kind is CallKind.WRITE and lost:
                if lost.pop() == "answer":
                    await really(request, kind)
                raise UncertainError("Socket closed")
            return await really(request, kind)

        monkeypatch.setattr(store._link, "txn", txn)
        lost.append("answer")
        assert await store.commit([Check("a", 1)], [Put("a", b"1"), Delete("b")]) == 2
        lost.append("request")
        with pytest.raises(StoreUnavailableError):
            await store.commit([Check("a", 2)], [Put("a", b"2")])
        assert await store.commit([Check("a", 2)], [Put("a", b"2")]) == 3


async def test_a_commit_happens_though_whoever_asked_has_gone(settings: EtcdSettings) -> None:
    async with opened(settings) as store:
        task = asyncio.ensure_future(store.commit([], [Put("a", b"1")]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with opened(settings) as store:
        assert await store.get("a") is not None


async def test_looking_into_an_empty_etcd_makes_no_store(settings: EtcdSettings) -> None:
    for _ in range(2):
        with pytest.raises(StoreOpenError, match="there is no store"):
            await read_etcd(settings, CLOCK)
    assert await is_empty_etcd(settings, CLOCK)


async def test_a_copy_takes_the_store_from_servers_that_run(settings: EtcdSettings) -> None:
    async with opened(settings, 7) as store:
        newest = await store.commit([], [Put("a", b"old"), Put("b", b"old")])
        watching = asyncio.ensure_future(anext(store.watch("", after_revision=newest)))
        assert not await is_empty_etcd(settings, CLOCK)
        await write_etcd(settings, StoreSnapshot(5, (("a", b"new"),)), 3, CLOCK)
        for attempt in (store.revision(), store.get("a"), store.commit([], [Put("a", b"x")])):
            with pytest.raises(StoreClosedError, match="replaced"):
                await attempt
        with pytest.raises(StoreClosedError, match="replaced"):
            async with asyncio.timeout(10):
                await watching
    async with opened(settings, 1) as store:
        assert store.epoch == 8
        assert [(one.key, one.value) for one in (await store.list("")).entries] == [("a", b"new")]
        assert await store.revision() >= first_revision(8) > newest
        with pytest.raises(CompactedError):
            await anext(store.watch("", after_revision=newest))
        with pytest.raises(CompactedError):
            await store.list("", revision=newest)
    assert (await read_etcd(settings, CLOCK)).values == (("a", b"new"),)


async def test_a_snapshot_restored_as_another_cluster_begins_a_new_epoch(
    settings: EtcdSettings,
) -> None:
    async with opened(settings, 7) as store:
        newest = await store.commit([], [Put("a", b"1")])
    layout = layout_of(settings)
    async with linked(settings) as link:
        zero = (await find(link, layout)).zero
        assert await write_epoch(link, layout, Epoch(7, "another"), zero)
    async with opened(settings, 1) as store:
        assert store.epoch == 8
        assert await store.revision() > newest
        assert await store.get("a") is not None


@pytest.mark.parametrize(
    ("epoch", "why"),
    [
        pytest.param(Epoch(7, "c", schema=2), "newer Livesize", id="newer"),
        pytest.param(Epoch(7, "c", loading=True), "did not come to its end", id="half copied"),
    ],
)
async def test_a_store_that_cannot_be_used_is_refused(
    settings: EtcdSettings, epoch: Epoch, why: str
) -> None:
    async with linked(settings) as link:
        assert await write_epoch(link, layout_of(settings), epoch, 0)
    with pytest.raises(StoreOpenError, match=why):
        await EtcdStore.open(settings, epoch=1, clock=CLOCK)


async def test_an_etcd_that_cannot_be_reached_is_left_for_the_next(
    settings: EtcdSettings,
) -> None:
    nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
    both = EtcdSettings((nobody, *settings.endpoints), root=settings.root)
    async with opened(both) as store:
        assert await store.commit([], [Put("a", b"1")]) == 1


@pytest.mark.parametrize("endpoint", ["ftp://x:1", "127.0.0.1", "http://:2379", ""])
async def test_endpoints_that_are_none_are_refused(endpoint: str) -> None:
    with pytest.raises(StoreOpenError, match="endpoint"):
        await EtcdStore.open(EtcdSettings((endpoint,)), epoch=1, clock=CLOCK)


async def write_surely(store: EtcdStore, key: str) -> None:
    """Again where the answer was lost; a check keeps it from being done twice."""
    with contextlib.suppress(ConflictError):
        while True:
            with contextlib.suppress(StoreUnavailableError):
                await store.commit([Check(key, 0)], [Put(key, b"v")])
                return


async def test_a_watch_goes_on_when_etcd_comes_back(
    tmp_path: Path, not_run: Callable[[str], NoReturn]
) -> None:
    if find_etcd() is None:
        not_run("needs etcd")
    with cluster(tmp_path) as [member]:
        async with opened(EtcdSettings((member.endpoint,))) as store:
            seen: list[int] = []

            async def follow() -> None:
                async for batch in store.watch("a/", after_revision=0):
                    seen.extend(change.revision for change in batch)
                    if seen[-1] == 20:
                        return

            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(follow())
                for number in range(1, 21):
                    await write_surely(store, f"a/{number}")
                    if number % 10 == 5:
                        member.kill()
                        member.start()
            assert seen == list(range(1, 21))


async def test_tls_with_client_certificates(
    tmp_path: Path, not_run: Callable[[str], NoReturn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livesize.store.etcd.link.PATIENCE_SECONDS", 0.5)
    if find_etcd() is None:
        not_run("needs etcd")
    ca, cert, key = (tmp_path / name for name in ("ca.crt", "both.crt", "both.key"))
    make_certificates(ca, cert, key)
    files = {"cert-file": cert, "key-file": key, "trusted-ca-file": ca}
    with cluster(tmp_path / "etcd", tls=files) as [member]:
        trusted = EtcdSettings((member.endpoint,), ca=ca.read_bytes())
        ours = EtcdSettings(
            (member.endpoint,), ca.read_bytes(), cert.read_bytes(), key.read_bytes()
        )
        async with opened(ours) as store:
            assert await store.commit([], [Put("a", b"1")]) == 1
        for refused in (trusted, EtcdSettings((member.endpoint,))):
            with pytest.raises(StoreOpenError, match="cannot"):
                await EtcdStore.open(refused, epoch=1, clock=CLOCK)


def make_certificates(ca: Path, cert: Path, key: Path) -> None:
    """An authority, and one certificate for both sides."""
    ca_key, one_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)

    def certificate(of: ec.EllipticCurvePrivateKey, is_ca: bool) -> bytes:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test" if is_ca else "one")])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(name)
            .public_key(of.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
        )
        return builder.sign(ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    ca.write_bytes(certificate(ca_key, True))
    cert.write_bytes(certificate(one_key, False))
    key.write_bytes(
        one_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
