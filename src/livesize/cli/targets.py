"""KIND/NAME as people write it, and durations."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from livesize.api.duration import parse_duration
from livesize.api.kinds.pod_resource import PODS
from livesize.api.kinds.resource import Resource

WORKLOADS = ("StatefulSet", "Deployment")
"""Kinds whose template is resized, and then their pods."""
RESIZABLE = (PODS.kind, *WORKLOADS)
DESCRIBED = (*RESIZABLE, "ReplicaSet")


class CommandTarget(msgspec.Struct, frozen=True):
    """Objects of one resource: the named ones, or all of them."""

    resource: Resource
    names: tuple[str, ...] = ()


class Duration(click.ParamType[float]):
    """30, 30s, 1m30s, 500ms: seconds as a float."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        seconds = parse_duration(text)
        if seconds is None:
            self.fail(f"{text!r} is not a duration such as 30s or 2m", param, ctx)
        return seconds


def find_resource(word: str) -> Resource | None:
    """A resource by kind, plural, singular or short name, in any case. Most commands are about
    pods, and do not wait for all kinds, with their fields and rules, to be imported."""
    wanted = word.lower()
    if _is_called(PODS, wanted):
        return PODS
    from livesize.api.kinds.registry import REGISTRY

    return next((one for one in REGISTRY.stored() if _is_called(one, wanted)), None)


def _is_called(resource: Resource, word: str) -> bool:
    known = {resource.plural, resource.singular, resource.kind.lower(), *resource.short_names}
    return word in known or word == f"{resource.plural}.{resource.group}"


def parse_targets(words: Sequence[str]) -> list[CommandTarget]:
    """``pods``, ``pvc,pv``, ``pod/a pod/b`` or ``pod a b``. Raises click.UsageError."""
    if not words:
        raise click.UsageError("name what you mean: KIND or KIND/NAME, for instance pod/db")
    if "/" not in words[0]:
        if any("/" in word for word in words):
            raise click.UsageError("write either KIND/NAME each time, or KIND NAME NAME")
        kinds = dict.fromkeys(map(_resource, words[0].split(",")))
        return [CommandTarget(kind, tuple(words[1:])) for kind in kinds]
    return [_slashed(word) for word in words]


def parse_resizable(words: Sequence[str], kinds: Sequence[str] = RESIZABLE) -> list[CommandTarget]:
    """``db`` (a pod), ``pod/db sts/db deploy/web`` or ``sts db web``; each of them once. Raises
    click.UsageError."""
    if not words:
        raise click.UsageError("name what to resize: KIND/NAME, or a selector with -l")
    if len(words) > 1 and "/" not in words[0] and find_resource(words[0]) is not None:
        targets = parse_targets(words)
    else:
        targets = [
            _slashed(word) if "/" in word else CommandTarget(PODS, (word,)) for word in words
        ]
    for target in targets:
        _refuse_other_kinds(target.resource, kinds)
    every = [(target.resource, name) for target in targets for name in target.names]
    return [CommandTarget(resource, (name,)) for resource, name in dict.fromkeys(every)]


def parse_resizable_kinds(words: Sequence[str]) -> list[Resource]:
    """``pods``, ``sts,deploy``; nothing: every kind of workload. Raises click.UsageError."""
    if not words:
        return [_resource(kind) for kind in WORKLOADS]
    if len(words) > 1 or "/" in words[0]:
        raise click.UsageError("a selector goes with kinds, for instance pods or sts,deploy")
    kinds = [target.resource for target in parse_targets(words)]
    for kind in kinds:
        _refuse_other_kinds(kind)
    return kinds


def _refuse_other_kinds(resource: Resource, kinds: Sequence[str] = RESIZABLE) -> None:
    if resource.kind not in kinds:
        known = ", ".join(f"{kind.lower()}/NAME" for kind in kinds)
        raise click.UsageError(f"{resource.plural} have no size of their own: name {known}")


def parse_pod(word: str, done: str) -> str:
    """The name of a pod: ``pod/db`` or ``db``; ``done`` says what only pods can be."""
    if "/" not in word:
        return word
    if find_resource(word.partition("/")[0]) is not PODS:
        raise click.UsageError(f"only pods can be {done}, as pod/NAME, not {word}")
    return _slashed(word).names[0]


def label_of(resource: Resource, name: str) -> str:
    """How we write an object's name: pod/db."""
    return f"{resource.singular or resource.plural}/{name}"


def _slashed(word: str) -> CommandTarget:
    kind, slash, name = word.partition("/")
    if not slash or not kind or not name or "/" in name:
        raise click.UsageError(f"{word!r} is not KIND/NAME, for instance pod/db")
    return CommandTarget(_resource(kind), (name,))


def _resource(word: str) -> Resource:
    resource = find_resource(word)
    if resource is None:
        from livesize.api.kinds.registry import REGISTRY

        known = ", ".join(resource.plural for resource in REGISTRY.stored())
        raise click.UsageError(f"there is no kind {word!r}; there are {known}")
    return resource
