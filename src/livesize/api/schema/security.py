"""Security contexts of pods and containers."""

from __future__ import annotations

from livesize.api.schema.fields import (
    Message,
    Type,
    boolean,
    integer,
    list_of,
    object_of,
    string,
    strings,
)
from livesize.api.schema.support import (
    APPARMOR,
    CONFIG,
    PROFILES,
    SELINUX,
    WINDOWS,
    Refused,
    StoredOnly,
)


class Capabilities(Message):
    add = strings(1, support=CONFIG)
    drop = strings(2, support=CONFIG)


class SELinuxOptions(Message):
    user = string(1)
    role = string(2)
    type = string(3)
    level = string(4)


class SeccompProfile(Message):
    type = string(1, support=CONFIG)
    localhostProfile = string(2, keeps_zero=True, support=PROFILES)


class AppArmorProfile(Message):
    type = string(1)
    localhostProfile = string(2, keeps_zero=True)


class WindowsSecurityContextOptions(Message):
    gmsaCredentialSpecName = string(1, keeps_zero=True)
    gmsaCredentialSpec = string(2, keeps_zero=True)
    runAsUserName = string(3, keeps_zero=True)
    hostProcess = boolean(4, keeps_zero=True)


class Sysctl(Message):
    name = string(1, support=CONFIG)
    value = string(2, support=CONFIG)


class SecurityContext(Message):
    capabilities = object_of(Capabilities, 1, keeps_zero=True)
    privileged = boolean(2, keeps_zero=True, support=CONFIG)
    seLinuxOptions = object_of(SELinuxOptions, 3, keeps_zero=True, support=SELINUX)
    runAsUser = integer(4, keeps_zero=True, support=CONFIG)
    runAsNonRoot = boolean(5, keeps_zero=True, support=CONFIG)
    readOnlyRootFilesystem = boolean(6, keeps_zero=True, support=CONFIG)
    allowPrivilegeEscalation = boolean(
        7,
        keeps_zero=True,
        support=Refused(
            (
                "a process gets no more privileges than its parent has (no_new_privs): leave"
                " it out or say false"
            ),
            (False,),
        ),
    )
    runAsGroup = integer(8, keeps_zero=True, support=CONFIG)
    procMount = string(
        9,
        keeps_zero=True,
        support=Refused("/proc is always masked: leave it out or say Default", ("", "Default")),
    )
    windowsOptions = object_of(WindowsSecurityContextOptions, 10, keeps_zero=True, support=WINDOWS)
    seccompProfile = object_of(SeccompProfile, 11, keeps_zero=True)
    appArmorProfile = object_of(AppArmorProfile, 12, keeps_zero=True, support=APPARMOR)


class PodSecurityContext(Message):
    seLinuxOptions = object_of(SELinuxOptions, 1, keeps_zero=True, support=SELINUX)
    runAsUser = integer(2, keeps_zero=True, support=CONFIG)
    runAsNonRoot = boolean(3, keeps_zero=True, support=CONFIG)
    supplementalGroups = list_of(Type.INTEGER, 4, support=CONFIG)
    fsGroup = integer(5, keeps_zero=True, support=CONFIG)
    runAsGroup = integer(6, keeps_zero=True, support=CONFIG)
    sysctls = list_of(Sysctl, 7)
    windowsOptions = object_of(WindowsSecurityContextOptions, 8, keeps_zero=True, support=WINDOWS)
    fsGroupChangePolicy = string(
        9,
        keeps_zero=True,
        support=StoredOnly(
            "a volume gets its group when it is made, and its files are not walked, which"
            " is OnRootMismatch"
        ),
    )
    seccompProfile = object_of(SeccompProfile, 10, keeps_zero=True)
    appArmorProfile = object_of(AppArmorProfile, 11, keeps_zero=True, support=APPARMOR)
    supplementalGroupsPolicy = string(
        12,
        keeps_zero=True,
        support=Refused(
            "the runtime decides whether groups of the image count: leave it out", ("", "Merge")
        ),
    )
    seLinuxChangePolicy = string(13, keeps_zero=True, support=SELINUX)
