"""Which pod is to know which names. Pure.

The pods of a headless service (``clusterIP: None``) are those that its selector matches and that
name it as their subdomain. Each is told the addresses of all that have one, ready or not: members
of a cluster find each other before they are ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from livesize.api.objects import Object, lookup, name_of
from livesize.api.peer_names import PEERS, format_peers, hostname_of, subdomain_of
from livesize.api.resize_state import is_terminal


def plan_peers(service: Object | None, pods: Iterable[Object]) -> Iterator[tuple[Object, str]]:
    """Pods that are told something else than before, and what; empty: nothing any more. ``pods``:
    those whose subdomain is the service's name."""
    told = [
        (pod, service is not None and is_member(service, pod))
        for pod in pods
        if not is_terminal(pod)
    ]
    members = [pod for pod, belongs in told if belongs]
    addresses = {hostname_of(pod): address_of(pod) for pod in members if address_of(pod)}
    text = format_peers(addresses) if addresses else ""
    for pod, belongs in told:
        wanted = text if belongs else ""
        if lookup(pod, "metadata", "annotations", PEERS, default="") != wanted:
            yield pod, wanted


def is_member(service: Object, pod: Object) -> bool:
    if lookup(service, "spec", "clusterIP") != "None" or subdomain_of(pod) != name_of(service):
        return False
    selector = lookup(service, "spec", "selector", default={})
    labels = lookup(pod, "metadata", "labels", default={})
    return bool(selector) and selector.items() <= labels.items()


def address_of(pod: Object) -> str:
    return str(lookup(pod, "status", "podIP", default=""))
