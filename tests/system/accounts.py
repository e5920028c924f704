"""Three accounts of what a node has given away, read apart: its books on disk, the API, the kernel.

Nothing may be counted twice, and nothing forgotten, whoever was killed meanwhile.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any, TypeAlias

from livesize.api.resources import parse_amounts, parse_resources
from system.groups import group_of
from system.up import Up

Count: TypeAlias = tuple[int | None, int | None]  # milli-CPU, bytes of memory
Account: TypeAlias = dict[str, dict[str, Count]]  # of each container, by pod


def check_accounts(up: Up) -> None:
    """Of pods at rest whose requests are their limits. The disk may be a moment behind."""
    api, kernel = account_of_api(up), account_of_kernel(up)
    assert api == kernel
    up.wait_until(lambda: account_on_disk(up) == (api, {}), "the books say what the API says", 5)


def account_of_api(up: Up) -> Account:
    return {
        pod["metadata"]["name"]: {
            one["name"]: _count(parse_amounts(one["resourcesAllocated"]))
            for one in pod["spec"]["containers"]
        }
        for pod in _pods(up)
    }


def account_of_kernel(up: Up) -> Account:
    account: Account = {}
    for pod in _pods(up):
        name = pod["metadata"]["name"]
        account[name] = {}
        for one in pod["spec"]["containers"]:
            group = group_of(up, name, one["name"])
            quota_us = group.cpu_quota_us()
            milli = None if quota_us is None else quota_us // 100
            account[name][one["name"]] = (milli, group.memory_limit_bytes())
    return account


def account_on_disk(up: Up) -> tuple[Account, dict[str, Any]]:
    """What is promised, and what pods may still have of earlier promises."""
    path = next(up.directory.glob("agent/**/checkpoint.db"))
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT entry FROM allocations").fetchall()
    connection.close()
    entries = [json.loads(row[0]) for row in rows]
    promised = {
        entry["name"]: {
            size["name"]: _count(parse_resources(size).requests) for size in entry["allocated"]
        }
        for entry in entries
    }
    held = {entry["name"]: entry["held"] for entry in entries if any(entry["held"].values())}
    return promised, held


def _pods(up: Up) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = up.request("GET", "/api/v1/namespaces/default/pods")[1]["items"]
    return items


def _count(amounts: Any) -> Count:
    return amounts.cpu_milli, amounts.memory_bytes
