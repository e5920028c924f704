"""New objects: filled in, validated, admitted, counted, and stored where their name is free."""

from __future__ import annotations

from collections.abc import Sequence

from livesize.api.defaults import default_object
from livesize.api.errors import (
    Cause,
    already_exists,
    conflict,
    forbidden,
    not_found,
)
from livesize.api.kinds.namespace import NAMESPACES
from livesize.api.kinds.resource import Resource
from livesize.api.objects import Object, lookup, name_of
from livesize.api.times import format_time
from livesize.api.validation.objects import validate_create
from livesize.api.write_options import WriteOptions
from livesize.apiserver.admission.plan import AdmissionRefusal, AdmissionRequest
from livesize.apiserver.admission.quota import CountedChange
from livesize.apiserver.auth.authorize import Access
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.keys import key_of
from livesize.apiserver.object_metadata import prepare_create
from livesize.apiserver.quotas import QuotaLock
from livesize.apiserver.records import ObjectRecord
from livesize.apiserver.request_types import Target
from livesize.apiserver.strategies.lookup import strategy_of
from livesize.apiserver.strategies.strategy import Strategy
from livesize.apiserver.subresources.change import refuse_invalid
from livesize.apiserver.write_context import ATTEMPTS, WriteContext, admit_or_refuse, dry_record
from livesize.store.interface import Check, ConflictError


class Creator:
    def __init__(self, context: WriteContext) -> None:
        self._context = context

    async def insert(
        self, identity: Identity, target: Target, new: Object, options: WriteOptions
    ) -> ObjectRecord:
        """Store a new object, if nothing of its name is there."""
        resource, namespace = target.resource, target.namespace
        access = target.access("create")
        if not self._context.trusts_editors:
            new = strategy_of(resource).signed(new, identity)
        with self._context.quotas.lock(namespace) as lock:
            for _ in range(ATTEMPTS):
                made = await self._create_once(identity, access, new, options, lock)
                if made is not None:
                    return made
        raise conflict(resource, name_of(new))

    def begin(self, resource: Resource, namespace: str, obj: Object) -> Object:
        """The new object, defaulted and valid."""
        strategy = strategy_of(resource)
        refuse_invalid(Target(resource, namespace, name_of(obj)), strategy.check_counts(obj))
        new = prepare_create(
            resource,
            namespace,
            obj,
            uid=self._context.ids.uid(),
            now=format_time(self._context.clock.now()),
            suffix="" if name_of(obj) else self._context.ids.suffix(),
        )
        target = Target(resource, namespace, name_of(new))
        new, errors = strategy.fold_new(new)
        refuse_invalid(target, errors)
        sent, new = new, default_object(resource, strategy.stripped(new))
        new = self._filled(target, strategy, new)
        refuse_invalid(target, validate_create(resource, new))
        refuse_invalid(target, strategy.check_derived(sent, new))
        return strategy.completed(new)

    def _filled(self, target: Target, strategy: Strategy, obj: Object) -> Object:
        """The object with what admission gives it before it is validated."""
        filled = strategy.fill(obj, self._context.admission_context(target.access("create")))
        if isinstance(filled, AdmissionRefusal):
            raise forbidden(target.resource, target.name, filled.why, filled.causes)
        return filled

    async def _create_once(
        self,
        identity: Identity,
        access: Access,
        new: Object,
        options: WriteOptions,
        lock: QuotaLock,
    ) -> ObjectRecord | None:
        """None: another write came first to something this depends on."""
        resource, namespace, name = access.resource, access.namespace, access.name
        checks = await self._namespace_check(resource, namespace, new)
        admit_or_refuse(
            AdmissionRequest(
                identity, access, None, new, context=self._context.admission_context(access)
            )
        )
        refuse_invalid(
            Target(resource, namespace, name), strategy_of(resource).check_supported(new)
        )
        if self._context.cache.get(resource, key_of(resource, namespace, name)) is not None:
            raise already_exists(resource, name)
        new = self._context.quotas.with_usage(resource, None, new)
        extra = await self._context.charge(
            lock, CountedChange(resource, None, new, refusable=True), name
        )
        if extra is None:
            return None
        if options.dry_run:
            return dry_record(resource, new, None)
        try:
            made = await self._context.committer.put(resource, new, None, checks, extra)
        except ConflictError as error:
            if error.key == key_of(resource, namespace, name):
                raise already_exists(resource, name) from None
            return None
        return await self._context.recounted(made, None)

    async def _namespace_check(
        self, resource: Resource, namespace: str, new: Object
    ) -> Sequence[Check]:
        """The namespace is there and stays so until the commit."""
        await self._context.cache.fresh()  # what was there may be gone, through another server
        if not resource.namespaced:
            return []
        record = self._context.cache.get(NAMESPACES, key_of(NAMESPACES, "", namespace))
        if record is None:
            raise not_found(NAMESPACES, namespace)
        if lookup(record.stored, "metadata", "deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {namespace}"
                " because it is being terminated"
            )
            message = f"namespace {namespace} is being terminated"
            cause = Cause("NamespaceTerminating", message, "metadata.namespace")
            raise forbidden(resource, name_of(new), why, [cause])
        return [Check(record.key, record.revision)]
