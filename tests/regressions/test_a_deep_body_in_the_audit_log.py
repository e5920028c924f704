"""With bodies in the audit log, JSON that is nested deeper than it can be written was a 500."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from livesize.apiserver.http.audit import AuditLevel, AuditSettings, audited

PODS = "/api/v1/namespaces/default/pods"


async def test_it_is_refused_and_told(rig: Any, tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with audited(rig.app, AuditSettings(path, AuditLevel.REQUEST), rig.clock) as app:
        rig.app = app
        answer = await rig.request("POST", PODS, b"[" * 600 + b"]" * 600)
        assert answer.status == 400
        answer = await rig.request("POST", PODS, b'{\n "kind": "Node" }')
        assert answer.status == 400
    deep, plain = map(json.loads, path.read_text().splitlines())
    assert deep["requestObject"] == "left out: 1200 bytes of JSON that is nested too deeply"
    assert plain["requestObject"] == {"kind": "Node"}
