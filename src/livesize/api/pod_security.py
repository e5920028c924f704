"""The pod security standards: what a pod may not be at the levels baseline and restricted.

As Kubernetes defines them (Pod Security Standards), for what a pod of ours can say. ``privileged``
allows everything.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from typing import TypeAlias

from livesize.api.objects import Object, lookup

ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"


class SecurityLevel(enum.IntEnum):
    """The stricter, the larger."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


_LEVELS = {level.name.lower(): level for level in SecurityLevel}
_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_syncookies",
    }
)
_SELINUX_TYPES = frozenset(
    {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}
)
_VOLUMES = frozenset(
    {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_CONTAINER_KINDS = ("initContainers", "containers", "ephemeralContainers")


def level_of(namespace: Object | None) -> SecurityLevel | None:
    """What the namespace's label enforces; None where it has none."""
    label = lookup(namespace, "metadata", "labels", ENFORCE_LABEL, default="")
    return _LEVELS.get(label)


def violations(pod: Object, level: SecurityLevel) -> list[str]:
    """Everything about the pod that the level does not allow, each as a short phrase."""
    if level is SecurityLevel.PRIVILEGED:
        return []
    checks = _BASELINE if level is SecurityLevel.BASELINE else (*_BASELINE, *_RESTRICTED)
    return [phrase for check in checks for phrase in check(pod)]


def _containers(pod: Object) -> Iterator[Object]:
    for kind in _CONTAINER_KINDS:
        yield from lookup(pod, "spec", kind, default=[])


def _context(container: Object, *path: str) -> object:
    return lookup(container, "securityContext", *path)


def _named(pod: Object, is_bad: Callable[[Object], object], what: str) -> Iterator[str]:
    names = [f'"{container.get("name")}"' for container in _containers(pod) if is_bad(container)]
    if names:
        plural = "containers" if len(names) > 1 else "container"
        yield f"{plural} {', '.join(names)} must {what}"


def _phrase(title: str, details: Iterator[str]) -> Iterator[str]:
    found = "; ".join(details)
    if found:
        yield f"{title} ({found})"


def _host_namespaces(pod: Object) -> Iterator[str]:
    used = [key for key in ("hostNetwork", "hostPID", "hostIPC") if lookup(pod, "spec", key)]
    if used:
        yield f"host namespaces ({', '.join(f'{key}=true' for key in used)})"


def _privileged(pod: Object) -> Iterator[str]:
    what = "not set securityContext.privileged=true"
    details = _named(pod, lambda container: _context(container, "privileged"), what)
    return _phrase("privileged", details)


def _capabilities(pod: Object) -> Iterator[str]:
    def added(container: Object) -> bool:
        more = lookup(container, "securityContext", "capabilities", "add", default=[])
        return not _CAPABILITIES.issuperset(more)

    what = "not include more than the default ones in securityContext.capabilities.add"
    return _phrase("non-default capabilities", _named(pod, added, what))


def _host_paths(pod: Object) -> Iterator[str]:
    volumes = lookup(pod, "spec", "volumes", default=[])
    names = [f'"{volume.get("name")}"' for volume in volumes if "hostPath" in volume]
    if names:
        yield f"hostPath volumes (volume{'s' if len(names) > 1 else ''} {', '.join(names)})"


def _host_ports(pod: Object) -> Iterator[str]:
    def uses(container: Object) -> bool:
        return any(port.get("hostPort") for port in container.get("ports") or [])

    return _phrase("hostPort", _named(pod, uses, "not use host ports"))


def _host_probes(pod: Object) -> Iterator[str]:
    """The node asks for them, from its own network and as root."""

    def names_host(container: Object) -> bool:
        handlers = [container.get(probe) for probe in _PROBES]
        handlers += [lookup(container, "lifecycle", hook) for hook in ("postStart", "preStop")]
        return any(lookup(one, how, "host") for one in handlers for how in ("httpGet", "tcpSocket"))

    detail = _named(pod, names_host, 'not set host in probes and lifecycle hooks, or set it to ""')
    return _phrase("probe or lifecycle host", detail)


def _proc_mount(pod: Object) -> Iterator[str]:
    def unmasked(container: Object) -> bool:
        return _context(container, "procMount") not in (None, "", "Default")

    what = 'not set securityContext.procMount to anything but "Default"'
    return _phrase("procMount", _named(pod, unmasked, what))


def _unconfined(pod: Object) -> Iterator[str]:
    def bad(holder: Object) -> bool:
        return _context(holder, "seccompProfile", "type") == "Unconfined"

    what = 'not set securityContext.seccompProfile.type to "Unconfined"'
    if bad(pod.get("spec") or {}):
        yield f"seccompProfile (pod must {what})"
    yield from _phrase("seccompProfile", _named(pod, bad, what))


def _labels_of_the_kernel(pod: Object) -> Iterator[str]:
    """SELinux and AppArmor."""

    def selinux(holder: Object) -> bool:
        options = lookup(holder, "securityContext", "seLinuxOptions", default={})
        allowed = options.get("type", "") in _SELINUX_TYPES
        return not allowed or bool(options.get("user") or options.get("role"))

    def apparmor(holder: Object) -> bool:
        return _context(holder, "appArmorProfile", "type") == "Unconfined"

    spec = pod.get("spec") or {}
    for title, bad in (("seLinuxOptions", selinux), ("appArmorProfile", apparmor)):
        if bad(spec) or any(bad(container) for container in _containers(pod)):
            yield f"{title} (forbidden securityContext.{title})"


def _sysctls(pod: Object) -> Iterator[str]:
    settings = lookup(pod, "spec", "securityContext", "sysctls", default=[])
    names = sorted({one.get("name", "") for one in settings} - _SYSCTLS)
    if names:
        yield f"forbidden sysctls ({', '.join(names)})"


def _host_process(pod: Object) -> Iterator[str]:
    holders = [pod.get("spec") or {}, *_containers(pod)]
    if any(_context(holder, "windowsOptions", "hostProcess") for holder in holders):
        yield "hostProcess (pod and containers must not set windowsOptions.hostProcess=true)"


def _volume_types(pod: Object) -> Iterator[str]:
    volumes = lookup(pod, "spec", "volumes", default=[])
    names = [f'"{one.get("name")}"' for one in volumes if one.keys() - {"name"} - _VOLUMES]
    if names:
        yield f"restricted volume types (volumes {', '.join(names)})"


def _escalation(pod: Object) -> Iterator[str]:
    what = "set securityContext.allowPrivilegeEscalation=false"

    def may(container: Object) -> bool:
        return _context(container, "allowPrivilegeEscalation") is not False

    return _phrase("allowPrivilegeEscalation != false", _named(pod, may, what))


def _all_dropped(pod: Object) -> Iterator[str]:
    def keeps(container: Object) -> bool:
        capabilities = lookup(container, "securityContext", "capabilities", default={})
        added = set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}
        return bool(added) or "ALL" not in (capabilities.get("drop") or [])

    what = 'set securityContext.capabilities.drop=["ALL"]'
    return _phrase("unrestricted capabilities", _named(pod, keeps, what))


def _not_root(pod: Object) -> Iterator[str]:
    whole = lookup(pod, "spec", "securityContext", "runAsNonRoot")

    def unsaid(container: Object) -> bool:
        own = _context(container, "runAsNonRoot")
        return (whole if own is None else own) is not True

    what = "set securityContext.runAsNonRoot=true"
    yield from _phrase("runAsNonRoot != true", _named(pod, unsaid, what))
    holders = [pod.get("spec") or {}, *_containers(pod)]
    if any(_context(holder, "runAsUser") == 0 for holder in holders):
        yield "runAsUser=0 (pod and containers must not set runAsUser=0)"


def _confined(pod: Object) -> Iterator[str]:
    whole = lookup(pod, "spec", "securityContext", "seccompProfile", "type")

    def unsaid(container: Object) -> bool:
        kind = _context(container, "seccompProfile", "type") or whole
        return kind not in ("RuntimeDefault", "Localhost")

    what = 'set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return _phrase("seccompProfile", _named(pod, unsaid, what))


SecurityCheck: TypeAlias = Callable[[Object], Iterator[str]]
_BASELINE: tuple[SecurityCheck, ...] = (
    _host_namespaces,
    _privileged,
    _capabilities,
    _host_paths,
    _host_ports,
    _host_probes,
    _proc_mount,
    _unconfined,
    _labels_of_the_kernel,
    _sysctls,
    _host_process,
)
_RESTRICTED: tuple[SecurityCheck, ...] = (
    _volume_types,
    _escalation,
    _all_dropped,
    _not_root,
    _confined,
)
