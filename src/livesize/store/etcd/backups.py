"""Reading all of our part of etcd at one revision, and replacing it by a copy.

A copy is too large for one transaction. So the epoch is taken away first: servers that run lose
the store at once, and one that starts refuses it. It is given back, new, when all is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from livesize.machinery.clock import Clock
from livesize.store.epochs import epoch_at, epoch_of_copy
from livesize.store.etcd.epochs import find, layout_of, write_epoch
from livesize.store.etcd.layout import Epoch, Layout
from livesize.store.etcd.link import CallKind, EtcdLink, EtcdRefusedError, UncertainError
from livesize.store.etcd.messages import ProtobufMessage
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.store import EtcdStore
from livesize.store.etcd.txn import delete, put, read, txn_request
from livesize.store.interface import StoreOpenError, StoreSnapshot, StoreUnavailableError

PART_BYTES = 512 * 1024
PART_OPERATIONS = 100


async def read_etcd(settings: EtcdSettings, clock: Clock) -> StoreSnapshot:
    if await _find_epoch(settings, clock) is None:
        raise StoreOpenError("there is no store in this etcd")
    store = await EtcdStore.open(settings, epoch=epoch_at(clock.now()), clock=clock)
    try:
        listing = await store.list("")
    except StoreUnavailableError as failure:
        raise StoreOpenError(f"cannot read the store in etcd: {failure}") from failure
    finally:
        await store.close()
    return StoreSnapshot(listing.revision, tuple((one.key, one.value) for one in listing.entries))


async def _find_epoch(settings: EtcdSettings, clock: Clock) -> Epoch | None:
    layout, link = layout_of(settings), EtcdLink(settings, clock)
    try:
        return (await find(link, layout)).epoch
    except (StoreUnavailableError, EtcdRefusedError) as failure:
        raise StoreOpenError(f"cannot read the store in etcd: {failure}") from failure
    finally:
        await link.close()


async def is_empty_etcd(settings: EtcdSettings, clock: Clock) -> bool:
    layout, link = layout_of(settings), EtcdLink(settings, clock)
    try:
        first, end = layout.range("", None)
        request = txn_request((), [read(first, end, limit=1, keys_only=True)])
        response = await link.txn(request, CallKind.READ)
        return not response.responses[0].response_range.kvs
    except (StoreUnavailableError, EtcdRefusedError) as failure:
        raise StoreOpenError(f"cannot read the store in etcd: {failure}") from failure
    finally:
        await link.close()


async def write_etcd(
    settings: EtcdSettings, snapshot: StoreSnapshot, epoch: int, clock: Clock
) -> None:
    """Replace everything of ours by these values, in a new epoch."""
    layout, link = layout_of(settings), EtcdLink(settings, clock)
    try:
        await _replace(link, layout, snapshot, epoch)
    except (StoreUnavailableError, EtcdRefusedError, UncertainError) as failure:
        raise StoreOpenError(f"cannot write the store in etcd: {failure}") from failure
    finally:
        await link.close()


async def _replace(link: EtcdLink, layout: Layout, snapshot: StoreSnapshot, epoch: int) -> None:
    found = await find(link, layout)
    number = epoch_of_copy(epoch, snapshot.revision, found.newest)
    if not await write_epoch(link, layout, Epoch(number, found.cluster, loading=True), found.zero):
        raise StoreOpenError("somebody else copies into this etcd; try again")
    zero = (await find(link, layout)).zero
    first, end = layout.range("", None)
    await link.txn(txn_request((), [delete(first, end)]), CallKind.READ)  # again does no harm
    for part in _parts(layout, snapshot):
        await link.txn(txn_request((), part), CallKind.READ)
    if not await write_epoch(link, layout, Epoch(number, found.cluster), zero):
        raise StoreOpenError("somebody else copies into this etcd; try again")


def _parts(layout: Layout, snapshot: StoreSnapshot) -> Iterator[list[ProtobufMessage]]:
    part: list[ProtobufMessage] = []
    size = 0
    for key, value in snapshot.values:
        if part and (size + len(value) > PART_BYTES or len(part) == PART_OPERATIONS):
            yield part
            part, size = [], 0
        part.append(put(layout.key(key), value))
        size += len(value)
    if part:
        yield part
