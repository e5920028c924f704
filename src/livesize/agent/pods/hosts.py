"""The /etc/hosts of a pod that names hosts of its own (spec.hostAliases). Pure."""

from __future__ import annotations

from livesize.api.objects import Object, lookup

HOSTS_PATH = "/etc/hosts"
_HEAD = "# Made by Livesize: the pod itself, and the entries of its spec.hostAliases.\n"


def hosts_file(pod: Object, hostname: str) -> str:
    """Empty: it names none, and its containers have the file that the runtime makes."""
    aliases = lookup(pod, "spec", "hostAliases", default=[])
    if not aliases:
        return ""
    address = lookup(pod, "status", "podIP") or "127.0.1.1"
    lines = [("127.0.0.1", "localhost"), ("::1", "localhost"), (address, hostname)]
    lines += [(one["ip"], *(one.get("hostnames") or ())) for one in aliases]
    return _HEAD + "".join("\t".join(line) + "\n" for line in lines)
