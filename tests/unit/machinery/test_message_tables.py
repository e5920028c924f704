"""A table gives messages that read and write what protobuf's own would."""

from __future__ import annotations

from google.protobuf import struct_pb2, timestamp_pb2, wrappers_pb2

from livesize.machinery.message_tables import MessageTable

TABLE = MessageTable(
    "livesize.test",
    {
        "Moment": "seconds:1:int64 nanos:2:int32",
        "Words": "values:1:*string",
        "Pair": "key:1:string value:2:string",
        "Labels": "labels:3:map count:4:uint32",
        "Nested": "moment:1:Moment moments:2:*Moment",
        "Choice": "number:2:int64 text:3:string",
    },
    choices=("Choice",),
)


def test_the_wire_is_the_same_as_of_a_generated_message() -> None:
    ours = TABLE.message("Moment")(seconds=1_700_000_000, nanos=5)
    theirs = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=5)
    assert ours.SerializeToString() == theirs.SerializeToString()
    assert TABLE.message("Moment").FromString(theirs.SerializeToString()) == ours


def test_what_a_table_leaves_out_is_skipped() -> None:
    """A Value with a string has it in field 3; the table knows 2 and 3, and no null."""
    value = struct_pb2.Value(string_value="hello")
    assert TABLE.message("Choice").FromString(value.SerializeToString()).text == "hello"
    assert TABLE.message("Moment").FromString(value.SerializeToString()).seconds == 0


def test_repeated_nested_and_mapped_fields() -> None:
    labels = TABLE.message("Labels")(labels={"a": "1", "b": "2"}, count=3)
    again = TABLE.message("Labels").FromString(labels.SerializeToString())
    assert (dict(again.labels), again.count) == ({"a": "1", "b": "2"}, 3)
    moment = TABLE.message("Moment")
    nested = TABLE.message("Nested")(moment=moment(seconds=1), moments=[moment(seconds=2)])
    again = TABLE.message("Nested").FromString(nested.SerializeToString())
    assert (again.moment.seconds, [one.seconds for one in again.moments]) == (1, [2])
    assert TABLE.message("Words").FromString(
        wrappers_pb2.StringValue(value="x").SerializeToString()
    ).values == ["x"]


def test_of_a_choice_only_the_last_is_set() -> None:
    choice = TABLE.message("Choice")(number=1)
    choice.text = "two"
    assert choice.WhichOneof("kind") == "text"
    assert choice.number == 0
