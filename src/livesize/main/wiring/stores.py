"""Which store, and where: the only place that picks one (options: settings/options.py)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from livesize.machinery.clock import Clock
from livesize.machinery.steps import NO_CRASH_POINTS, CrashPoints
from livesize.store.epochs import epoch_at
from livesize.store.etcd.settings import EtcdSettings
from livesize.store.interface import Store, StoreOpenError


class StoreChoice(msgspec.Struct, frozen=True):
    """As the options say it; files by their names."""

    store: str = "sqlite"
    etcd_endpoints: str = ""
    etcd_ca: str = ""
    etcd_cert: str = ""
    etcd_key: str = ""


def read_etcd_settings(choice: StoreChoice) -> EtcdSettings:
    """With the contents of the files, which another user may not be able to read. Raises
    StoreOpenError."""
    endpoints = tuple(filter(None, (one.strip() for one in choice.etcd_endpoints.split(","))))
    if not endpoints:
        raise StoreOpenError("etcd needs --etcd-endpoints, for instance https://10.0.0.1:2379")
    try:
        ca, cert, key = (
            Path(name).read_bytes() if name else None
            for name in (choice.etcd_ca, choice.etcd_cert, choice.etcd_key)
        )
    except OSError as failure:
        raise StoreOpenError(f"cannot read {failure.filename}: {failure.strerror}") from failure
    require_grpc()
    return EtcdSettings(endpoints, ca=ca, cert=cert, key=key)


def require_grpc() -> None:
    """Raises StoreOpenError where the extra is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("grpc", "google")):
        raise StoreOpenError(
            "etcd needs the Python packages grpcio and protobuf: pip install 'livesize[etcd]'"
        )


async def open_store(
    path: Path,
    etcd: EtcdSettings | None,
    *,
    clock: Clock,
    points: CrashPoints = NO_CRASH_POINTS,
) -> Store:
    """The store in etcd if there are settings for one, else the file. Raises StoreOpenError."""
    epoch = epoch_at(clock.now())
    if etcd is not None:
        from livesize.store.etcd.store import EtcdStore

        return await EtcdStore.open(etcd, epoch=epoch, clock=clock, points=points)
    from livesize.store.sqlite import SqliteStore

    return await SqliteStore.open(path, epoch=epoch, points=points)
