"""Claims and volumes: protected while they are in use, and a claim gets the default class. Pure."""

from __future__ import annotations

from livesize.api.objects import Object
from livesize.api.storage import VOLUME_PROTECTION
from livesize.apiserver.admission.plan import AdmissionContext
from livesize.apiserver.admission.storage import fill_claim, protected
from livesize.apiserver.strategies.strategy import Strategy


class ClaimStrategy(Strategy):
    reads_cluster = True

    def fill(self, new: Object, context: AdmissionContext) -> Object:
        return fill_claim(new, context.storage_classes)


class VolumeStrategy(Strategy):
    def fill(self, new: Object, _context: AdmissionContext) -> Object:
        return protected(new, VOLUME_PROTECTION)
