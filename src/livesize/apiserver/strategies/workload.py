"""Kinds that make pods: updates keep what is fixed of a virtual machine in the template. Pure."""

from __future__ import annotations

from livesize.apiserver.strategies.strategy import Strategy


class WorkloadStrategy(Strategy):
    update_rule = "workload"
