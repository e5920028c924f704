"""Names of the pods of a headless service, as its pods find them in /etc/hosts. Pure.

A pod says its service by ``spec.subdomain``. The annotation ``livesize.dev/peers`` on each pod of a
headless service has the addresses of all of them by host name, as JSON; a controller writes it
(livesize.controllers.headless_names), and the pod's node makes lines of it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import msgspec

from livesize.api.objects import Object, lookup, name_of, namespace_of
from livesize.api.validation.names import DnsRule, validate_name

PEERS = "livesize.dev/peers"
_ZONE = "svc.cluster.local"

HostsLine: TypeAlias = tuple[str, ...]
"""An address and its names."""


def hostname_of(pod: Object) -> str:
    return lookup(pod, "spec", "hostname") or name_of(pod)


def subdomain_of(pod: Object) -> str:
    return str(lookup(pod, "spec", "subdomain", default=""))


def format_peers(addresses: Mapping[str, str]) -> str:
    return msgspec.json.encode(dict(addresses), order="sorted").decode()


def parse_peers(pod: Object) -> Mapping[str, str]:
    """Addresses by host name; what is no name or no address is left out: anybody who may change the
    pod may have written it."""
    text = lookup(pod, "metadata", "annotations", PEERS, default="")
    try:
        said = msgspec.json.decode(text, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError):
        return {}
    return {name: address for name, address in said.items() if _is_sound(name, address)}


def peer_lines(pod: Object, address: str) -> Iterator[HostsLine]:
    """Lines of /etc/hosts for a pod of a service: first its own, then those of its peers."""
    service, own = subdomain_of(pod), hostname_of(pod)
    peers = {name: at for name, at in sorted(parse_peers(pod).items()) if name != own}
    for name, at in {own: address, **peers}.items():
        short, long = f"{name}.{service}", f"{name}.{service}.{namespace_of(pod)}"
        yield at, f"{long}.{_ZONE}", long, short, name


def _is_sound(name: str, address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return not validate_name(name, PEERS, DnsRule.LABEL)
