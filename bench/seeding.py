"""Puts many running pods into a store before a control plane starts on it.

Through the API server each would cost a request; here they are commits of a thousand. The store
then holds what the API server would have stored.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from bench.pods import NAMESPACE, manifest, node_manifest, running_status
from bench.servers import BENCH_NODE
from livesize.api.defaults import default_object
from livesize.api.kinds.node import NODES
from livesize.api.kinds.pod import PODS
from livesize.api.objects import Object
from livesize.api.resize_state import bind_allocated
from livesize.apiserver.keys import key_of
from livesize.apiserver.object_metadata import prepare_create
from livesize.apiserver.records import stored_bytes
from livesize.machinery.data_directory import DataDirectory
from livesize.main.wiring.folders import prepare
from livesize.store.interface import Put
from livesize.store.sqlite import SqliteStore

_AT_ONCE = 1_000
_CREATED = "2026-01-01T00:00:00Z"


async def seed(folder: Path, pods: int) -> None:
    """The data directory of a control plane with a node and so many pods that run on it."""
    directory = DataDirectory(folder)
    prepare(directory, None)
    store = await SqliteStore.open(directory.store)
    try:
        puts = iter([_node(), *(_pod(number) for number in range(pods))])
        while batch := list(itertools.islice(puts, _AT_ONCE)):
            await store.commit([], batch)
    finally:
        await store.close()


def pod_name(number: int) -> str:
    return f"bench-{number}"


def _pod(number: int) -> Put:
    name = pod_name(number)
    pod = manifest(name, image="localhost/bench:1", node=BENCH_NODE)
    uid = f"00000000-0000-4000-8000-{number:012d}"
    pod = prepare_create(PODS, NAMESPACE, pod, uid=uid, now=_CREATED, suffix="")
    pod = bind_allocated(default_object(PODS, pod))
    pod = {**pod, "status": {**pod["status"], **running_status()}}
    return Put(key_of(PODS, NAMESPACE, name), stored_bytes(pod))


def _node() -> Put:
    uid = "00000000-0000-4000-9000-000000000000"
    node: Object = node_manifest(BENCH_NODE)
    node = prepare_create(NODES, "", node, uid=uid, now=_CREATED, suffix="")
    return Put(key_of(NODES, "", BENCH_NODE), stored_bytes(default_object(NODES, node)))
