"""The messages of etcd's gRPC interface that we use, built from a table: no generated files.

Only the numbers matter on the wire. A field is "name:number:type", with "*" before the type where
it is repeated; types that are not protobuf's own are messages of this table.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Message: TypeAlias = Any
"""One of the messages; protobuf makes their attributes when it runs."""

_PACKAGE = "livesize.etcd"
_ONE_OF = "kind"

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

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: dict[str, _Field.Type.ValueType] = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint64": _Field.TYPE_UINT64,
}


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="livesize/etcd.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _FIELDS.items():
        _add_fields(file.message_type.add(name=name), fields)
    for name, fields in _CHOICES.items():
        message = file.message_type.add(name=name)
        message.oneof_decl.add(name=_ONE_OF)
        _add_fields(message, fields)
        for field in message.field:
            field.oneof_index = 0
    return file


def _add_fields(message: descriptor_pb2.DescriptorProto, fields: str) -> None:
    for text in fields.split():
        name, number, kind = text.split(":")
        repeated = kind.startswith("*")
        field = message.field.add(
            name=name,
            number=int(number),
            label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
        )
        kind = kind.removeprefix("*")
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
        else:
            field.type = _Field.TYPE_MESSAGE
            field.type_name = f".{_PACKAGE}.{kind}"


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


RangeRequest = _message("RangeRequest")
RangeResponse = _message("RangeResponse")
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
