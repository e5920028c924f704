"""What the user of one workload wants, now and a moment ago.

A write that is under way may have been done or not: until it is answered, both the manifest before
and the one that was sent count. Components act on what they have read, which may be older than the
newest answer by as long as a request takes; so candidates reach back a few seconds.
"""

from __future__ import annotations

import math

import msgspec

from livesize.sim.manifests import Manifest, ManifestSizes


class Intent(msgspec.Struct):
    manifest: Manifest
    since: float
    until: float = math.inf


class IntentLog:
    """Of one workload. ``acknowledged``: the manifest that its user was told stands."""

    def __init__(self, manifest: Manifest, now: float) -> None:
        self.name = manifest.name
        self.acknowledged = manifest
        self.is_answered = False
        """No write is under way."""
        self.sent_at = now
        self._sent = manifest
        self._intents = [Intent(manifest, now)]
        self._sizes = [manifest.sizes]

    @property
    def newest(self) -> Manifest:
        """The last one that was sent."""
        return self._intents[-1].manifest

    @property
    def former_sizes(self) -> tuple[ManifestSizes, ...]:
        """Those before the newest ones, the last two."""
        return tuple(self._sizes[-3:-1])

    def send(self, manifest: Manifest, now: float) -> None:
        self.is_answered, self.sent_at, self._sent = False, now, manifest
        self._add(manifest, now)

    def acknowledge(self, manifest: Manifest, now: float) -> None:
        """``manifest``: as it stands, which the last one that was sent may not be in full."""
        for intent in self._intents:
            intent.until = min(intent.until, now)
        if manifest == self.newest:
            self._intents[-1].until = math.inf
        else:
            self._add(manifest, now)
        self.acknowledged, self.is_answered = manifest, True

    def go_back(self, sizes: ManifestSizes, now: float) -> None:
        """The product has gone back to former sizes, as it was told to. A write that is under way
        may come after that, and bring those that it was sent with."""
        back = [msgspec.structs.replace(one, sizes=sizes) for one in self.candidates(now, 0.0)]
        coming = [] if self.is_answered else [self._sent]
        for intent in self._intents:
            intent.until = min(intent.until, now)
        for manifest in (*back, *coming):
            self._add(manifest, now)
        self.acknowledged = msgspec.structs.replace(self.acknowledged, sizes=sizes)

    def candidates(self, now: float, seconds: float) -> list[Manifest]:
        """What may have been read in the last ``seconds``."""
        return [intent.manifest for intent in self._intents if intent.until >= now - seconds]

    def _add(self, manifest: Manifest, now: float) -> None:
        self._intents.append(Intent(manifest, now))
        if manifest.sizes != self._sizes[-1]:
            self._sizes.append(manifest.sizes)
