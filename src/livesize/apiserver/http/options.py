"""Query parameters of reads and writes, as the service's options."""

from __future__ import annotations

import msgspec

from livesize.api.apply.owners import MAX_MANAGER_LENGTH
from livesize.api.bounded_cache import bounded_cache
from livesize.api.errors import (
    FieldError,
    FieldErrorKind,
    StatusError,
    bad_request,
    invalid,
)
from livesize.api.write_options import FieldValidation, WriteOptions
from livesize.apiserver.http.requests import Request
from livesize.apiserver.listing import check_initial_events
from livesize.apiserver.request_types import ListOptions, WatchOptions

MAX_WATCH_SECONDS = 3600.0
DEFAULT_WATCH_SECONDS = 1800.0
_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}


def write_options(request: Request) -> WriteOptions:
    """Unknown fields are warned of where nothing is said, as in Kubernetes."""
    warn = request.warnings.extend
    if not request.query:
        return WriteOptions(False, FieldValidation.WARN, _manager(request), warn=warn)
    dry_run = request.query.get("dryRun", "")
    if dry_run not in ("", "All"):
        raise _unsupported(request, "dryRun", dry_run, '"All"')
    text = request.query.get("fieldValidation") or FieldValidation.WARN.value
    if text not in list(FieldValidation):
        listed = ", ".join(f'"{word}"' for word in FieldValidation)
        raise _unsupported(request, "fieldValidation", text, listed)
    return WriteOptions(dry_run == "All", FieldValidation(text), _manager(request), warn=warn)


def apply_options(request: Request) -> WriteOptions:
    """Those of a server-side apply, which must say who applies."""
    if not request.query.get("fieldManager"):
        detail = "is required for apply patch"
        raise _wrong_option(request, FieldErrorKind.REQUIRED, "fieldManager", detail)
    return msgspec.structs.replace(write_options(request), force=request.flag("force"))


def patch_options(request: Request) -> WriteOptions:
    if "force" in request.query:
        detail = "may not be specified for non-apply patch"
        raise _wrong_option(request, FieldErrorKind.FORBIDDEN, "force", detail)
    return write_options(request)


def _manager(request: Request) -> str:
    """Who owns what is written: the name given, or else the first part of the user agent."""
    given = request.query.get("fieldManager", "")
    if len(given) > MAX_MANAGER_LENGTH:
        detail = f"may not be more than {MAX_MANAGER_LENGTH} bytes"
        raise _wrong_option(request, FieldErrorKind.TOO_LONG, "fieldManager", detail)
    if not given.isprintable():
        detail = "should only contain printable characters"
        raise _wrong_option(request, FieldErrorKind.INVALID, "fieldManager", detail)
    return given or _agent_name(request.headers.get("user-agent", ""))


@bounded_cache(256, longest=512)
def _agent_name(user_agent: str) -> str:
    name = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
    return name[:MAX_MANAGER_LENGTH] or "unknown"


def list_options(request: Request, namespace: str) -> ListOptions:
    match = request.query.get("resourceVersionMatch", "")
    version = request.query.get("resourceVersion", "")
    if match not in ("", "Exact", "NotOlderThan"):
        raise bad_request('resourceVersionMatch must be "Exact" or "NotOlderThan"')
    if match and not version:
        raise bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match and request.query.get("continue"):
        raise bad_request("resourceVersionMatch is forbidden when continue is provided")
    return ListOptions(
        namespace=namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
        version=version,
        exact=match == "Exact",
        limit=request.number("limit") or 0,
        continue_token=request.query.get("continue", ""),
    )


def watch_options(request: Request, namespace: str) -> WatchOptions:
    bookmarks = request.flag("allowWatchBookmarks")
    initial: bool | None = None
    match = request.query.get("resourceVersionMatch", "")
    if "sendInitialEvents" in request.query:
        initial = request.flag("sendInitialEvents")
        check_initial_events(initial=initial, version_match=match, bookmarks=bookmarks)
    elif match:
        raise bad_request("resourceVersionMatch is forbidden for watch without sendInitialEvents")
    return WatchOptions(
        namespace=namespace,
        labels=request.query.get("labelSelector", ""),
        fields=request.query.get("fieldSelector", ""),
        version=request.query.get("resourceVersion", ""),
        initial=initial,
        bookmarks=bookmarks,
    )


def watch_seconds(request: Request) -> float:
    seconds = request.number("timeoutSeconds")
    return min(float(seconds), MAX_WATCH_SECONDS) if seconds else DEFAULT_WATCH_SECONDS


def _wrong_option(request: Request, kind: FieldErrorKind, field: str, detail: str) -> StatusError:
    error = FieldError(kind, field, detail, request.query.get(field, ""))
    return invalid(_KINDS.get(request.method, "DeleteOptions"), "meta.k8s.io", "", [error])


def _unsupported(request: Request, field: str, value: str, supported: str) -> StatusError:
    error = FieldError(FieldErrorKind.NOT_SUPPORTED, field, f"supported values: {supported}", value)
    return invalid(_KINDS.get(request.method, "DeleteOptions"), "meta.k8s.io", "", [error])
