"""The vocabulary of shapes: a message is a table of fields, and a field is declared once. Pure.

A field says its type, its number in protobuf (0: protobuf does not have it), how a strategic merge
patch and server-side apply treat a list (merge key, list keys) or an object (atomic), its
description, and of a pod what becomes of it. Names are the wire's, hence camelCase.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping
from typing import ClassVar, TypedDict, Unpack

import msgspec
from msgspec.structs import force_setattr

from livesize.api.schema.support import Support

CORE = "io.k8s.api.core.v1"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"
SET = ""
"""Instead of a merge key: the list holds plain values and is merged as a set."""


class Type(enum.Enum):
    """Types that have no fields of their own."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    BYTES = "bytes"
    TIME = "time"
    MICRO_TIME = "micro time"
    QUANTITY = "quantity"
    INT_OR_STRING = "int or string"
    FIELDS = "fields"
    """An object that is kept as it came: a tree of field names, as managedFields has it, or the
    data of a revision. In protobuf it is JSON."""
    ANYTHING = "anything"
    """Stored without being looked into."""


class Cardinality(enum.Enum):
    """How many values a field has; a map has them by name."""

    ONE = "one"
    LIST = "list"
    MAP = "map"


class Field(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One field. ``keeps_zero``: a zero or empty value that protobuf sends is meant as such;
    elsewhere it means that nothing was said. ``is_atomic``: server-side apply owns it as a whole.
    ``retains_keys``: of an object, clients take out what they do not name in a strategic merge
    patch, as a choice that is another now leaves nothing of the last one.
    ``fields`` are those of the message inside, or of the messages in the list; a map has none, for
    its names are free."""

    type: Type | Schema
    cardinality: Cardinality = Cardinality.ONE
    number: int = 0
    keeps_zero: bool = False
    merge_key: str | None = None
    list_keys: tuple[str, ...] = ()
    is_atomic: bool = False
    retains_keys: bool = False
    choices: tuple[str, ...] = ()
    description: str = ""
    support: Support | None = None
    fields: Mapping[str, Field] = {}

    def __post_init__(self) -> None:
        if isinstance(self.type, Schema) and self.cardinality is not Cardinality.MAP:
            force_setattr(self, "fields", self.type.fields)
            if self.cardinality is Cardinality.ONE and self.type.is_atomic:
                force_setattr(self, "is_atomic", True)

    def below(self, name: str) -> Field:
        return self.fields.get(name, UNKNOWN)

    @property
    def element(self) -> Field:
        """What one element of this list is."""
        return self.type.root if isinstance(self.type, Schema) else UNKNOWN


class Schema(msgspec.Struct, frozen=True, eq=False):
    """A message as the rest of the program reads it. JSON has the fields of ``inlined`` between its
    own; protobuf has them in messages of their own, at these numbers. ``is_atomic``: server-side
    apply owns it as a whole wherever it stands. ``refuses_unknown``: a protobuf field that is not
    here would make another object of it, and is refused instead of dropped."""

    name: str
    package: str
    own_fields: Mapping[str, Field]
    inlined: Mapping[int, Schema] = {}
    description: str = ""
    is_atomic: bool = False
    refuses_unknown: bool = False
    fields: Mapping[str, Field] = {}
    root: Field = msgspec.field(default_factory=lambda: UNKNOWN)
    """The message as a field of nothing: where a walk begins."""

    def __post_init__(self) -> None:
        flat = {name: field for one in self.inlined.values() for name, field in one.fields.items()}
        force_setattr(self, "fields", {**flat, **self.own_fields})
        force_setattr(self, "root", Field(type=self))

    @property
    def full_name(self) -> str:
        """Its name in OpenAPI, with the true group."""
        return f"{self.package}.{self.name}"


class Message:
    """What declarations derive from: the attributes of the class are the fields of the message, its
    docstring is the description, and fields of a base class come first. The class itself is only
    the declaration; ``schema_of`` gives what was declared."""

    __schema__: ClassVar[Schema]

    def __init_subclass__(
        cls,
        package: str = CORE,
        inlined: Mapping[int, type[Message]] | None = None,
        is_atomic: bool = False,
        refuses_unknown: bool = False,
    ) -> None:
        cls.__schema__ = Schema(
            cls.__name__,
            package,
            {
                name: value
                for one in reversed(cls.__mro__)
                for name, value in vars(one).items()
                if isinstance(value, Field)
            },
            {number: one.__schema__ for number, one in (inlined or {}).items()},
            inspect.cleandoc(vars(cls).get("__doc__") or ""),
            is_atomic,
            refuses_unknown,
        )


def schema_of(declared: type[Message]) -> Schema:
    return declared.__schema__


UNKNOWN: Field = Field(type=Type.ANYTHING)
"""Of a field that no message has."""


class Options(TypedDict, total=False):
    """What can be said of any field (see Field)."""

    keeps_zero: bool
    is_atomic: bool
    retains_keys: bool
    description: str
    support: Support


def string(number: int = 0, *choices: str, **options: Unpack[Options]) -> Field:
    """``choices``: the words that are defined; validation refuses others."""
    return Field(type=Type.STRING, number=number, choices=choices, **options)


def integer(number: int = 0, **options: Unpack[Options]) -> Field:
    return Field(type=Type.INTEGER, number=number, **options)


def boolean(number: int = 0, **options: Unpack[Options]) -> Field:
    return Field(type=Type.BOOLEAN, number=number, **options)


def quantity(number: int = 0, **options: Unpack[Options]) -> Field:
    return Field(type=Type.QUANTITY, number=number, **options)


def scalar(type_: Type, number: int = 0, **options: Unpack[Options]) -> Field:
    """One value of a rarer type."""
    return Field(type=type_, number=number, **options)


def anything(**options: Unpack[Options]) -> Field:
    return Field(type=Type.ANYTHING, **options)


def object_of(of: type[Message], number: int = 0, **options: Unpack[Options]) -> Field:
    return Field(type=of.__schema__, number=number, **options)


def list_of(
    of: type[Message] | Type,
    number: int = 0,
    *,
    key: str | None = None,
    keys: tuple[str, ...] = (),
    **options: Unpack[Options],
) -> Field:
    """``key``: a strategic merge patch merges elements by it; without one it replaces the list.
    ``keys``: by which server-side apply tells elements from each other, where these are others."""
    keys = keys or ((key,) if key else ())
    return Field(
        type=of if isinstance(of, Type) else of.__schema__,
        cardinality=Cardinality.LIST,
        number=number,
        merge_key=key,
        list_keys=keys,
        **options,
    )


def strings(number: int = 0, **options: Unpack[Options]) -> Field:
    return list_of(Type.STRING, number, **options)


def string_set(number: int = 0, **options: Unpack[Options]) -> Field:
    return list_of(Type.STRING, number, key=SET, **options)


def map_of(of: Type, number: int = 0, **options: Unpack[Options]) -> Field:
    return Field(type=of, cardinality=Cardinality.MAP, number=number, **options)


def string_map(number: int = 0, **options: Unpack[Options]) -> Field:
    return map_of(Type.STRING, number, **options)


def quantities(number: int = 0, **options: Unpack[Options]) -> Field:
    """Amounts by the name of their resource."""
    return map_of(Type.QUANTITY, number, **options)
