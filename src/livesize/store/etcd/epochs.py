"""The epoch of our part of etcd: read at the start, begun where there is none or all is a copy."""

from __future__ import annotations

import msgspec

from livesize.store.epochs import epoch_of_copy, first_revision
from livesize.store.etcd.layout import SCHEMA_VERSION, Epoch, Layout
from livesize.store.etcd.link import CallKind, EtcdLink, EtcdRefusedError, UncertainError
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.etcd.txn import RawCheck, failed_check, put, read, txn_request
from livesize.store.interface import StoreOpenError, StoreUnavailableError


class FoundEpoch(msgspec.Struct, frozen=True):
    """What our part of etcd says of itself. ``epoch`` None: it is empty."""

    epoch: Epoch | None
    newest: int
    cluster: str

    @property
    def zero(self) -> int:
        return self.epoch.zero if self.epoch is not None else 0


def layout_of(settings: EtcdSettings) -> Layout:
    root = settings.root.encode()
    if not root.endswith(b"/"):
        raise StoreOpenError(f"{settings.root!r} cannot begin our keys in etcd: it must end in /")
    return Layout(root)


async def open_epoch(link: EtcdLink, layout: Layout, epoch: int) -> Epoch:
    """Raises StoreOpenError. Servers that start together agree: the first to write has it."""
    try:
        while True:
            found = await find(link, layout)
            if found.epoch is not None:
                _require_usable(found.epoch)
                # A snapshot that was restored is a new cluster, and may lack our last writes.
                if found.epoch.cluster == found.cluster:
                    return found.epoch
                epoch = epoch_of_copy(epoch, found.newest)
            await write_epoch(link, layout, Epoch(epoch, found.cluster), found.zero)
    except (StoreUnavailableError, EtcdRefusedError, UncertainError) as failure:
        raise StoreOpenError(f"cannot open the store in etcd: {failure}") from failure


async def find(link: EtcdLink, layout: Layout) -> FoundEpoch:
    request = txn_request((), [read(layout.epoch), read(layout.head, keys_only=True)])
    response = await link.txn(request, CallKind.READ)
    epochs, heads = (answer.response_range.kvs for answer in response.responses)
    cluster = f"{response.header.cluster_id:x}"
    if not epochs:
        return FoundEpoch(None, 0, cluster)
    try:
        said = msgspec.json.decode(epochs[0].value, type=Epoch)
    except msgspec.DecodeError as failure:
        raise StoreOpenError(f"{layout.epoch.decode()} in etcd is not ours: {failure}") from failure
    epoch = msgspec.structs.replace(said, zero=epochs[0].mod_revision)
    newest = epoch.ours(heads[0].mod_revision) if heads else first_revision(epoch.number)
    return FoundEpoch(epoch, newest, cluster)


async def write_epoch(link: EtcdLink, layout: Layout, epoch: Epoch, zero: int) -> bool:
    """Begin ``epoch`` in place of the one that began at ``zero``; False: another was quicker."""
    checks = [RawCheck(layout.epoch, zero)]
    value = msgspec.json.encode(epoch)
    operations = [put(layout.epoch, value), put(layout.head, b"")]
    response = await link.txn(txn_request(checks, operations), CallKind.WRITE)
    return failed_check(checks, response) is None


def _require_usable(epoch: Epoch) -> None:
    if epoch.schema > SCHEMA_VERSION:
        raise StoreOpenError(
            f"the store in etcd was written by a newer Livesize (schema {epoch.schema}, this one"
            f" knows {SCHEMA_VERSION}): use that version, or another etcd"
        )
    if epoch.loading:
        raise StoreOpenError("a copy into this etcd did not come to its end: do it again")
