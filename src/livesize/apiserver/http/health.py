"""/healthz, /livez and /readyz, with ?verbose as Kubernetes prints it; each check by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from livesize.api.errors import path_not_found
from livesize.apiserver.http.requests import Request
from livesize.apiserver.http.responses import Response, text_answer

PLACES = ("/healthz", "/livez", "/readyz")


class Health:
    """``serving``: ready for requests; ``store``: what is read is still brought up to date."""

    def __init__(self, *, serving: Callable[[], bool], store: Callable[[], bool]) -> None:
        alive: dict[str, Callable[[], bool]] = {"ping": lambda: True}
        self._checks: Mapping[str, Mapping[str, Callable[[], bool]]] = {
            "/healthz": alive,
            "/livez": alive,
            "/readyz": {**alive, "store": store, "serving": serving},
        }

    def find(self, head: Request) -> Response | None:
        """None where the path is none of these."""
        if not head.path.startswith(PLACES):
            return None
        place, _, one = head.path[1:].partition("/")
        checks = self._checks.get(f"/{place}")
        if checks is None:
            return None
        if one:
            if one not in checks:
                raise path_not_found()
            checks = {one: checks[one]}
        results = {name: check() for name, check in checks.items()}
        return _answer(place, results, verbose="verbose" in head.query)


def _answer(place: str, results: Mapping[str, bool], *, verbose: bool) -> Response:
    passed = all(results.values())
    if passed and not verbose:
        return text_answer("ok")
    lines = [
        f"[+]{name} ok" if good else f"[-]{name} failed: not ready yet"
        for name, good in results.items()
    ]
    lines.append(f"{place} check {'passed' if passed else 'failed'}")
    return text_answer("\n".join(lines) + "\n", 200 if passed else 503)
