"""Discovery: what is served, in the aggregated form and in the older one of a document each."""

from __future__ import annotations

from collections.abc import Mapping

from livesize.api.kinds.registry import REGISTRY, kind_of
from livesize.api.kinds.resource import Resource
from livesize.api.kinds.subresource import Subresource, Transfer
from livesize.api.objects import Object
from livesize.apiserver.http.documents import Document, make_document
from livesize.apiserver.http.requests import Request


class Discovery:
    """Answers /api, /apis, /api/v1, /apis/GROUP and /apis/GROUP/VERSION."""

    def __init__(self) -> None:
        self._plain: Mapping[str, Document] = _plain_documents()
        self._aggregated = {
            (version, path): make_document(_aggregated(version, core=path == "/api"), media)
            for version, media in (
                ("v2", _media("v2")),
                ("v2beta1", _media("v2beta1")),
            )
            for path in ("/api", "/apis")
        }

    def find(self, request: Request) -> Document | None:
        """None for a path that is not discovery's."""
        plain = self._plain.get(request.path)
        if plain is None or request.path not in ("/api", "/apis"):
            return plain
        version = _wanted_version(request.headers.get("accept", ""))
        return self._aggregated[version, request.path] if version else plain


def _media(version: str) -> bytes:
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList".encode()


def _wanted_version(accept: str) -> str:
    """The first aggregated version the client offers; empty: the plain form."""
    for offered in accept.split(","):
        parameters = {part.strip() for part in offered.split(";")[1:]}
        if "as=APIGroupDiscoveryList" not in parameters:
            if offered.strip().startswith("application/json"):
                return ""
            continue
        for version in ("v2", "v2beta1"):
            if f"v={version}" in parameters:
                return version
    return ""


def _aggregated(version: str, *, core: bool) -> Object:
    items = []
    for group in _groups():
        if (group == "") != core:
            continue
        versions = [
            {
                "version": group_version,
                "freshness": "Current",
                "resources": [_aggregated_resource(one) for one in _members(group, group_version)],
            }
            for group_version in _versions(group)
        ]
        metadata = {"name": group} if group else {}
        items.append({"metadata": metadata, "versions": versions})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(resource: Resource) -> Object:
    described: Object = {
        "resource": resource.plural,
        "responseKind": _kind(resource, resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        described["shortNames"] = list(resource.short_names)
    if resource.categories:
        described["categories"] = list(resource.categories)
    below = kind_of(resource).subresources
    if below:
        described["subresources"] = [
            {
                "subresource": name,
                "responseKind": _subresource_kind(resource, subresource),
                "verbs": list(subresource.verbs),
            }
            for name, subresource in below.items()
        ]
    return described


def _plain_documents() -> dict[str, Document]:
    trees: dict[str, Object] = {
        "/api": {
            "kind": "APIVersions",
            "versions": list(_versions("")),
            "serverAddressByClientCIDRs": [],
        },
        "/apis": {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(group) for group in _groups() if group],
        },
    }
    for group in _groups():
        if group:
            trees[f"/apis/{group}"] = {
                "kind": "APIGroup",
                "apiVersion": "v1",
                **_group(group),
            }
        for version in _versions(group):
            members = _members(group, version)
            trees[members[0].prefix] = {
                "kind": "APIResourceList",
                "apiVersion": "v1",
                "groupVersion": members[0].api_version,
                "resources": [entry for one in members for entry in _plain_resource(one)],
            }
    return {path: make_document(tree) for path, tree in trees.items()}


def _group(group: str) -> Object:
    versions = [
        {"groupVersion": f"{group}/{version}", "version": version} for version in _versions(group)
    ]
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _plain_resource(resource: Resource) -> list[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **_named_elsewhere(resource, subresource),
            "kind": _subresource_kind(resource, subresource)["kind"],
            "verbs": list(subresource.verbs),
        }
        for name, subresource in kind_of(resource).subresources.items()
    ]
    return [entry, *below]


def _subresource_kind(resource: Resource, subresource: Subresource) -> Object:
    if subresource.transfer is Transfer.STREAM or not subresource.kind:
        return _kind(resource, subresource.kind or resource.kind)
    return {
        "group": subresource.group,
        "version": subresource.version,
        "kind": subresource.kind,
    }


def _named_elsewhere(resource: Resource, subresource: Subresource) -> Object:
    """Group and version, where they are not those of the document: by these of pods/eviction
    ``kubectl drain`` sees that it can evict."""
    kind = _subresource_kind(resource, subresource)
    if (kind["group"], kind["version"]) == (resource.group, resource.version):
        return {}
    return {"group": kind["group"], "version": kind["version"]}


def _kind(resource: Resource, kind: str) -> Object:
    return {"group": resource.group, "version": resource.version, "kind": kind}


def _groups() -> list[str]:
    return sorted({resource.group for resource in REGISTRY.served()})


def _versions(group: str) -> list[str]:
    return sorted({resource.version for resource in REGISTRY.served() if resource.group == group})


def _members(group: str, version: str) -> list[Resource]:
    members = [one for one in REGISTRY.served() if (one.group, one.version) == (group, version)]
    return sorted(members, key=lambda resource: resource.plural)
