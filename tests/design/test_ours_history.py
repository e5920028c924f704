"""Beyond the documents: a pod tells the history of its last resize."""

from __future__ import annotations

from pathlib import Path

from design.one_process import one_process
from livesize.api.times import parse_time


async def test_the_last_resize_tells_who_what_and_each_step(tmp_path: Path) -> None:
    """B6: History of every resize: who, what, decision, each step's time."""
    async with one_process(tmp_path) as system:
        await system.run_pod("db", system.container(cpu="1"))
        size = {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}
        asked = await system.resize("db", {"app": size})
        done = await system.until(
            asked, lambda pod: pod["status"]["resizeState"]["phase"] == "Done"
        )
        state = done["status"]["resizeState"]
        assert state["requestedBy"] == "user"
        assert state["generation"] == done["metadata"]["generation"] == 2
        assert [(one["name"], one["limits"]["cpu"]) for one in state["desired"]] == [("app", "2")]
        names = [step["name"] for step in state["steps"]]
        assert names == ["checkpoint", "accept", "pod:cpu", "container:app:cpu", "actuated"]
        assert {step["outcome"] for step in state["steps"]} == {"Done"}
        assert all(step["seconds"] >= 0 for step in state["steps"])
        times = [parse_time(step["time"]) for step in state["steps"]]
        assert times == sorted(times)
        for reason in ("ResizeStarted", "ResizeCompleted"):
            await system.until_told("db", reason)
