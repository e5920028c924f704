"""Kinds that make pods: updates keep what is fixed of a virtual machine in the template; those that
roll out their template are held while their pods are resized in place. Pure."""

from __future__ import annotations

from livesize.api.objects import Object
from livesize.api.roles import Role
from livesize.apiserver.admission.plan import AdmissionContext
from livesize.apiserver.admission.workload_hold import hold_workload, without_notes
from livesize.apiserver.auth.identities import Identity
from livesize.apiserver.strategies.strategy import Strategy


class WorkloadStrategy(Strategy):
    update_rule = "workload"


class HeldWorkloadStrategy(WorkloadStrategy):
    """StatefulSets and Deployments. Controllers hold and release them as they see fit."""

    def fill(self, new: Object, _context: AdmissionContext) -> Object:
        return without_notes(new)

    def adjusted(self, stored: Object, new: Object, identity: Identity) -> Object:
        return new if identity.role is Role.CONTROLLER else hold_workload(stored, new)
