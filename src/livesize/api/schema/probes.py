"""Probes and lifecycle hooks of containers."""

from __future__ import annotations

from livesize.api.schema.fields import (
    Message,
    Type,
    integer,
    list_of,
    object_of,
    scalar,
    string,
    strings,
)
from livesize.api.schema.support import NODE, PROBED, Refused


class ExecAction(Message):
    command = strings(1, support=PROBED)


class HTTPHeader(Message):
    name = string(1, support=PROBED)
    value = string(2, keeps_zero=True, support=PROBED)


class HTTPGetAction(Message):
    path = string(1, support=PROBED)
    port = scalar(Type.INT_OR_STRING, 2, support=PROBED)
    host = string(3, support=PROBED)
    scheme = string(4, support=PROBED)
    httpHeaders = list_of(HTTPHeader, 5)


class TCPSocketAction(Message):
    port = scalar(Type.INT_OR_STRING, 1, support=PROBED)
    host = string(2, support=PROBED)


class GRPCAction(Message):
    port = integer(1, keeps_zero=True)
    service = string(2, keeps_zero=True)


class SleepAction(Message):
    seconds = integer(1, keeps_zero=True, support=PROBED)


class ProbeHandler(Message):
    exec = object_of(ExecAction, 1, keeps_zero=True)
    httpGet = object_of(HTTPGetAction, 2, keeps_zero=True)
    tcpSocket = object_of(TCPSocketAction, 3, keeps_zero=True)
    grpc = object_of(GRPCAction, 4, keeps_zero=True, support=NODE)


class Probe(Message, inlined={1: ProbeHandler}):
    initialDelaySeconds = integer(2, support=PROBED)
    timeoutSeconds = integer(3, support=PROBED)
    periodSeconds = integer(4, support=PROBED)
    successThreshold = integer(5, support=PROBED)
    failureThreshold = integer(6, support=PROBED)
    terminationGracePeriodSeconds = integer(7, keeps_zero=True, support=PROBED)


class LifecycleHandler(Message):
    exec = object_of(ExecAction, 1, keeps_zero=True)
    httpGet = object_of(HTTPGetAction, 2, keeps_zero=True)
    tcpSocket = object_of(TCPSocketAction, 3, keeps_zero=True)
    sleep = object_of(SleepAction, 4, keeps_zero=True)


class Lifecycle(Message):
    postStart = object_of(LifecycleHandler, 1, keeps_zero=True)
    preStop = object_of(LifecycleHandler, 2, keeps_zero=True)
    stopSignal = string(
        3,
        keeps_zero=True,
        support=Refused("containers are stopped with SIGTERM: use a preStop hook"),
    )
