"""The messages of etcd's gRPC interface that we use (see machinery/message_tables.py)."""

from __future__ import annotations

from livesize.machinery.message_tables import MessageTable
from livesize.machinery.message_tables import ProtobufMessage as ProtobufMessage

_FIELDS = {
    "Header": "cluster_id:1:uint64 member_id:2:uint64 revision:3:int64 raft_term:4:uint64",
    "KeyValue": (
        "key:1:bytes create_revision:2:int64 mod_revision:3:int64 version:4:int64 value:5:bytes"
    ),
    "RangeRequest": (
        "key:1:bytes range_end:2:bytes limit:3:int64 revision:4:int64 serializable:7:bool"
        " keys_only:8:bool count_only:9:bool"
    ),
    "RangeResponse": "header:1:Header kvs:2:*KeyValue more:3:bool count:4:int64",
    "PutRequest": "key:1:bytes value:2:bytes",
    "PutResponse": "header:1:Header",
    "DeleteRangeRequest": "key:1:bytes range_end:2:bytes",
    "DeleteRangeResponse": "header:1:Header deleted:2:int64",
    "Compare": "result:1:int32 target:2:int32 key:3:bytes mod_revision:6:int64 range_end:64:bytes",
    "TxnRequest": "compare:1:*Compare success:2:*RequestOp failure:3:*RequestOp",
    "TxnResponse": "header:1:Header succeeded:2:bool responses:3:*ResponseOp",
    "CompactionRequest": "revision:1:int64 physical:2:bool",
    "CompactionResponse": "header:1:Header",
    "WatchCreateRequest": "key:1:bytes range_end:2:bytes start_revision:3:int64 prev_kv:6:bool",
    "WatchRequest": "create_request:1:WatchCreateRequest",
    "Event": "type:1:int32 kv:2:KeyValue prev_kv:3:KeyValue",
    "WatchResponse": (
        "header:1:Header created:3:bool canceled:4:bool compact_revision:5:int64"
        " cancel_reason:6:string events:11:*Event"
    ),
}
_CHOICES = {
    "RequestOp": (
        "request_range:1:RangeRequest request_put:2:PutRequest"
        " request_delete_range:3:DeleteRangeRequest request_txn:4:TxnRequest"
    ),
    "ResponseOp": (
        "response_range:1:RangeResponse response_put:2:PutResponse"
        " response_delete_range:3:DeleteRangeResponse response_txn:4:TxnResponse"
    ),
}

EQUAL = 0
MOD_REVISION = 2
DELETE_EVENT = 1

_TABLE = MessageTable("livesize.etcd", _FIELDS | _CHOICES, choices=_CHOICES)
_message = _TABLE.message

RangeRequest = _message("RangeRequest")
PutRequest = _message("PutRequest")
DeleteRangeRequest = _message("DeleteRangeRequest")
Compare = _message("Compare")
TxnRequest = _message("TxnRequest")
TxnResponse = _message("TxnResponse")
CompactionRequest = _message("CompactionRequest")
CompactionResponse = _message("CompactionResponse")
WatchCreateRequest = _message("WatchCreateRequest")
WatchRequest = _message("WatchRequest")
WatchResponse = _message("WatchResponse")
RequestOp = _message("RequestOp")
