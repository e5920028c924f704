"""Makes protobuf messages from a table in the source: no generated files, no build step.

Only the numbers matter on the wire, and what a table leaves out is skipped when it is read. A
message is a line of fields "name:number:type", with "*" before the type where it is repeated;
"map" is a map of strings to strings. Types that are not protobuf's own are messages of the same
table. Enumerations are written as int32, which looks the same on the wire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

ProtobufMessage: TypeAlias = Any
"""One of the messages; protobuf makes their attributes when it runs."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: dict[str, _Field.Type.ValueType] = {
    "bool": _Field.TYPE_BOOL,
    "bytes": _Field.TYPE_BYTES,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "string": _Field.TYPE_STRING,
    "uint32": _Field.TYPE_UINT32,
    "uint64": _Field.TYPE_UINT64,
}
_ONE_OF = "kind"
_MAP = "map"


class MessageTable:
    """``choices`` names the messages of which only one field is ever set."""

    def __init__(
        self, package: str, fields: Mapping[str, str], choices: Iterable[str] = ()
    ) -> None:
        self._package = package
        self._pool = descriptor_pool.DescriptorPool()
        self._pool.Add(self._file(fields, frozenset(choices)))

    def message(self, name: str) -> ProtobufMessage:
        """The class of that name."""
        described = self._pool.FindMessageTypeByName(f"{self._package}.{name}")
        return message_factory.GetMessageClass(described)

    def _file(
        self, table: Mapping[str, str], choices: frozenset[str]
    ) -> descriptor_pb2.FileDescriptorProto:
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{self._package.replace('.', '/')}.proto", package=self._package, syntax="proto3"
        )
        for name, fields in table.items():
            message = file.message_type.add(name=name)
            for text in fields.split():
                self._add_field(message, text)
            if name in choices:
                message.oneof_decl.add(name=_ONE_OF)
                for field in message.field:
                    field.oneof_index = 0
        return file

    def _add_field(self, message: descriptor_pb2.DescriptorProto, text: str) -> None:
        name, number, kind = text.split(":")
        repeated = kind.startswith("*") or kind == _MAP
        field = message.field.add(
            name=name,
            number=int(number),
            label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
        )
        kind = kind.removeprefix("*")
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
            return
        field.type = _Field.TYPE_MESSAGE
        if kind == _MAP:
            entry = _add_map_entry(message, name)
            field.type_name = f".{self._package}.{message.name}.{entry}"
        else:
            field.type_name = f".{self._package}.{kind}"


def _add_map_entry(message: descriptor_pb2.DescriptorProto, field: str) -> str:
    """A map is a repeated message of a key and a value, which protobuf wants named like this."""
    name = "".join(part.title() for part in field.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), start=1):
        entry.field.add(
            name=part, number=number, type=_Field.TYPE_STRING, label=_Field.LABEL_OPTIONAL
        )
    return name
