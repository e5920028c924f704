"""Transactions: requests to etcd, and what its answers mean. Pure.

etcd takes 128 operations on the way from the outermost transaction to the innermost. Larger ones
are put into transactions of their own inside the first, which is still all or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from livesize.store.etcd.messages import (
    EQUAL,
    MOD_REVISION,
    Compare,
    DeleteRangeRequest,
    ProtobufMessage,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnRequest,
)

FLAT_OPERATIONS = 128
_FAN_OUT = 24


class RawCheck(msgspec.Struct, frozen=True):
    """As Check, in etcd's keys and revisions; 0: it does not exist."""

    key: bytes
    mod_revision: int


def txn_request(
    checks: Sequence[RawCheck], operations: Sequence[ProtobufMessage]
) -> ProtobufMessage:
    """If a check fails, nothing is done and the answer holds what is there instead."""
    return TxnRequest(
        compare=[
            Compare(result=EQUAL, target=MOD_REVISION, key=one.key, mod_revision=one.mod_revision)
            for one in checks
        ],
        success=_nested(operations),
        failure=[read(one.key, keys_only=True) for one in checks],
    )


def failed_check(checks: Sequence[RawCheck], response: ProtobufMessage) -> RawCheck | None:
    """The first check that did not hold; None where all did."""
    if response.succeeded:
        return None
    for check, answer in zip(checks, response.responses, strict=True):
        found = answer.response_range.kvs
        if check.mod_revision != (found[0].mod_revision if found else 0):
            return check
    raise AssertionError("etcd refused a transaction whose checks hold")


def read(
    key: bytes, end: bytes = b"", *, revision: int = 0, limit: int = 0, keys_only: bool = False
) -> ProtobufMessage:
    return RequestOp(
        request_range=RangeRequest(
            key=key, range_end=end, revision=revision, limit=limit, keys_only=keys_only
        )
    )


def put(key: bytes, value: bytes) -> ProtobufMessage:
    return RequestOp(request_put=PutRequest(key=key, value=value))


def delete(key: bytes, end: bytes = b"") -> ProtobufMessage:
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key, range_end=end))


def _nested(operations: Sequence[ProtobufMessage]) -> Sequence[ProtobufMessage]:
    limit = FLAT_OPERATIONS
    while len(operations) > limit:
        limit = _FAN_OUT
        operations = [
            RequestOp(request_txn=TxnRequest(success=operations[begin : begin + _FAN_OUT]))
            for begin in range(0, len(operations), _FAN_OUT)
        ]
    return operations
