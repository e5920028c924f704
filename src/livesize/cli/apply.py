"""`livesize apply`: makes objects from manifests, or changes those that exist.

What a manifest says is merged into the object that exists; what it does not say stays, apart from
a resize policy that an earlier manifest had (livesize.cli.dropped_policies).
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from livesize.api.errors import StatusError
from livesize.api.kinds.pod import PODS
from livesize.api.kinds.registry import REGISTRY
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, evolve, name_of, namespace_of, version_of
from livesize.api.patch import PatchType
from livesize.api.write_options import FieldValidation, WriteOptions
from livesize.cli.connection import (
    CommandFailure,
    default_namespace,
    kubeconfig_option,
    namespace_option,
    run_with_client,
)
from livesize.cli.dropped_policies import name_dropped_policies
from livesize.cli.plain_text import plain, plain_lines
from livesize.cli.targets import label_of

if TYPE_CHECKING:
    from livesize.client.http import HttpClient


STRICT_REFUSAL = "strict decoding error:"


class Validate(enum.StrEnum):
    """As kubectl has it."""

    STRICT = "strict"
    WARN = "warn"
    IGNORE = "ignore"


_COUNTED = ("generation", "managedFields", "resourceVersion")


@click.command()
@click.option(
    *("-f", "--filename", "files"),
    multiple=True,
    required=True,
    metavar="FILE",
    help="YAML or JSON, several documents allowed; - is standard input. May be repeated.",
)
@namespace_option
@click.option("--dry-run", is_flag=True, help="Let the server check everything; change nothing.")
@click.option(
    "--validate",
    type=click.Choice([one.value for one in Validate]),
    default=Validate.STRICT.value,
    show_default=True,
    help="Fields that the server does not know: refused, told and left out of account, or neither.",
)
@kubeconfig_option
def apply(
    files: tuple[str, ...], namespace: str, dry_run: bool, validate: str, kubeconfig: str
) -> None:
    """Create objects from files, or change them.

    \b
    Examples:
      livesize apply -f pod.yaml
      livesize apply -f - < pod.json
      livesize apply -f pods.yaml --dry-run
    """
    space = default_namespace(kubeconfig, namespace)
    manifests = [
        placed(obj, space, forced=bool(namespace)) for file in files for obj in _read(file)
    ]
    if not manifests:
        raise CommandFailure(f"there are no objects in {', '.join(files)}")

    async def work(client: HttpClient) -> None:
        for resource, manifest in manifests:
            done = await _validated(client, resource, manifest, Validate(validate), dry_run=dry_run)
            suffix = " (dry run)" if dry_run else ""
            click.echo(plain(f"{label_of(resource, name_of(manifest))} {done}{suffix}"))

    run_with_client(kubeconfig, work)


def placed(obj: Object, namespace: str, *, forced: bool) -> tuple[Resource, Object]:
    """The manifest's resource, and the manifest with a namespace where it needs one."""
    resource = resource_of(obj)
    if not name_of(obj):
        raise CommandFailure(f"a {resource.kind} has no metadata.name")
    if not resource.namespaced:
        return resource, obj
    own = namespace_of(obj)
    if own and forced and own != namespace:
        raise CommandFailure(
            f"{label_of(resource, name_of(obj))} is of namespace {own!r}, not {namespace!r}"
        )
    return resource, obj if own else evolve(obj, ("metadata", "namespace"), namespace)


def resource_of(obj: Object) -> Resource:
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    for resource in REGISTRY.stored():
        if resource.kind == kind and resource.api_version == api_version:
            return resource
    known = ", ".join(f"{resource.api_version} {resource.kind}" for resource in REGISTRY.stored())
    raise CommandFailure(f"a manifest is of kind {api_version} {kind}; there are {known}")


def parse_manifests(text: str, source: str) -> Iterator[Object]:
    """Every object of a YAML or JSON text; the items of a List are objects of their own."""
    import yaml

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        documents = list(yaml.load_all(text, Loader=loader))
    except yaml.YAMLError as failure:
        raise CommandFailure(f"{source} is not YAML: {' '.join(str(failure).split())}") from failure
    for document in documents:
        yield from _objects(document, source)


def _objects(document: Any, source: str) -> Iterator[Object]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise CommandFailure(f"{source} holds something that is not an object")
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _objects(item, source)
    else:
        yield document


def _read(file: str) -> Iterator[Object]:
    if file == "-":
        return parse_manifests(sys.stdin.read(), "standard input")
    try:
        return parse_manifests(Path(file).read_text(), file)
    except OSError as failure:
        raise CommandFailure(f"{file} cannot be read: {failure.strerror}") from failure
    except UnicodeDecodeError as failure:
        raise CommandFailure(f"{file} is not text in UTF-8: {failure.reason}") from failure


async def _validated(
    client: HttpClient, resource: Resource, manifest: Object, validate: Validate, *, dry_run: bool
) -> str:
    """As ``_apply``, with what is to be done about unknown fields."""
    if validate is Validate.IGNORE:
        return await _apply(client, resource, manifest, WriteOptions(dry_run))
    try:
        return await _apply(
            client, resource, manifest, WriteOptions(dry_run, FieldValidation.STRICT)
        )
    except StatusError as refusal:
        _, strict, unknown = refusal.message.partition(STRICT_REFUSAL)
        if not strict:
            raise
        label = label_of(resource, name_of(manifest))
        if validate is Validate.STRICT:  # a refused patch would be shown whole
            raise CommandFailure(f"{label}: {strict}{unknown}") from refusal
        click.echo(plain_lines(f"warning: {label}:{unknown}"), err=True)
    return await _apply(client, resource, manifest, WriteOptions(dry_run))


async def _apply(
    client: HttpClient, resource: Resource, manifest: Object, options: WriteOptions
) -> str:
    """created, configured or unchanged."""
    name, namespace = name_of(manifest), namespace_of(manifest)
    try:
        before = await client.get(resource, name, namespace)
    except StatusError as refusal:
        if refusal.code != 404:
            raise
        await client.create(resource, manifest, namespace, options=options)
        return "created"
    if resource == PODS:
        manifest = name_dropped_policies(manifest, before, client.user_agent)
    after = await client.patch(
        resource,
        name,
        manifest,
        namespace=namespace,
        patch_type=PatchType.STRATEGIC,
        options=options,
    )
    if options.dry_run:  # nothing is stored, so that the version stays
        return "unchanged" if _stated(after) == _stated(before) else "configured"
    return "unchanged" if version_of(after) == version_of(before) else "configured"


def _stated(obj: Object) -> Object:
    """What users have said; not what the server counts and reports."""
    metadata = {key: one for key, one in obj["metadata"].items() if key not in _COUNTED}
    return {**{key: one for key, one in obj.items() if key != "status"}, "metadata": metadata}
