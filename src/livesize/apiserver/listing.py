"""Lists and watches from the cache: selections, pages, and where a watch begins."""

from __future__ import annotations

import base64
import binascii
import bisect

import msgspec

from livesize.api.errors import (
    FieldError,
    FieldErrorKind,
    bad_request,
    expired,
    invalid,
)
from livesize.api.kinds.resource import Resource
from livesize.apiserver.objects_cache import ObjectsCache
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.request_types import ListOptions, WatchOptions
from livesize.apiserver.selection import parse_selection
from livesize.apiserver.watchers import Watcher


class Page(msgspec.Struct, frozen=True):
    """A part of a list, as everything was at ``revision``."""

    records: list[ObjectRecord]
    revision: int
    continue_token: str = ""
    remaining: int | None = None


class _Token(msgspec.Struct, frozen=True):
    """Where the next page begins: at which revision, after which key."""

    revision: int
    after: str


def parse_version(text: str) -> int:
    """A resourceVersion as a number; empty is 0."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise bad_request(f'resourceVersion: Invalid value: "{text}": it is not a number')
    return int(text)


async def read_page(cache: ObjectsCache, resource: Resource, options: ListOptions) -> Page:
    matches = parse_selection(resource, options.labels, options.fields)
    after = ""
    if options.continue_token:
        token = _parse_token(options.continue_token)
        if options.version not in ("", "0"):
            raise bad_request("specifying resource version is not allowed when using continue")
        revision, after = token.revision, token.after
        records = cache.records_at(resource, revision)
    else:
        revision, records = await _records(cache, resource, options)
    if options.namespace:
        records = [record for record in records if record.namespace == options.namespace]
    if matches is not None:
        records = [record for record in records if matches(record)]
    if after:
        records = records[bisect.bisect_right(records, after, key=lambda record: record.key) :]
    return _cut(records, revision, options.limit, count=matches is None)


async def open_watch(
    cache: ObjectsCache, resource: Resource, options: WatchOptions, *, is_node: bool = False
) -> Watcher:
    """A watcher that begins where the options say; the caller ends it. Nodes are told first."""
    matches = parse_selection(resource, options.labels, options.fields)
    version = parse_version(options.version)
    if not version:
        await cache.fresh()
    else:
        await cache.wait_for_version(version)
    initial = options.initial if options.initial is not None else not version
    begin = None if initial else (version or cache.revision)
    watcher = cache.watch(resource, options.namespace, matches, after_revision=begin, first=is_node)
    if options.initial and options.bookmarks:
        watcher.bookmark(cache.revision, initial_end=True)
    return watcher


def check_initial_events(*, initial: bool, version_match: str, bookmarks: bool) -> None:
    """The rules of sendInitialEvents on the wire, as Kubernetes states them (422)."""
    errors = []
    if version_match and version_match != "NotOlderThan":
        errors.append(
            FieldError(
                FieldErrorKind.NOT_SUPPORTED,
                "resourceVersionMatch",
                'supported values: "NotOlderThan"',
                version_match,
            )
        )
    elif not version_match:
        errors.append(
            FieldError(
                FieldErrorKind.FORBIDDEN,
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        )
    if initial and not bookmarks:
        errors.append(
            FieldError(
                FieldErrorKind.FORBIDDEN,
                "allowWatchBookmarks",
                "sendInitialEvents requires allowWatchBookmarks",
            )
        )
    if errors:
        raise invalid("ListOptions", "meta.k8s.io", "", errors)


async def _records(
    cache: ObjectsCache, resource: Resource, options: ListOptions
) -> tuple[int, list[ObjectRecord]]:
    version = parse_version(options.version)
    if options.exact:
        if not version:
            raise bad_request("resourceVersionMatch Exact needs a resourceVersion above 0")
        await cache.wait_for_version(version)
        return version, cache.records_at(resource, version)
    if version:
        await cache.wait_for_version(version)
    elif options.version == "":
        await cache.fresh()
    return cache.revision, cache.records(resource)


def _cut(records: list[ObjectRecord], revision: int, limit: int, *, count: bool) -> Page:
    if not limit or len(records) <= limit:
        return Page(records, revision)
    part = records[:limit]
    token = _format_token(_Token(revision, part[-1].key))
    return Page(part, revision, token, len(records) - limit if count else None)


def _format_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def _parse_token(text: str) -> _Token:
    try:
        padded = text + "=" * (-len(text) % 4)
        return msgspec.json.decode(base64.urlsafe_b64decode(padded), type=_Token)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise expired(
            "the continue token is not one of ours or is too old; start the list again"
        ) from None
