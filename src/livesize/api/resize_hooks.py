"""Commands that a pod wants run in its containers around a resize, as its annotations say. Pure.

    livesize.dev/pre-shrink            before a limit of the container falls
    livesize.dev/post-resize           after its new size stands
    livesize.dev/pre-shrink.NAME       the same, for the container NAME alone; it comes first
    livesize.dev/hook-timeout          how long each may take

A command is a JSON list of words, or a line for /bin/sh.
"""

from __future__ import annotations

import enum
import json

from livesize.api.duration import parse_duration
from livesize.api.objects import Object, lookup

HOOK_TIMEOUT = "livesize.dev/hook-timeout"
DEFAULT_SECONDS = 10.0


class Hook(enum.StrEnum):
    PRE_SHRINK = "pre-shrink"
    POST_RESIZE = "post-resize"

    @property
    def annotation(self) -> str:
        return f"livesize.dev/{self.value}"


_ANNOTATIONS = tuple(hook.annotation for hook in Hook)


def has_hooks(pod: Object) -> bool:
    """Whether any of its containers may want a command run around a resize."""
    return bool(hooks_of(pod))


def hooks_of(pod: Object) -> dict[str, str]:
    """Its annotations that name such commands."""
    annotations = lookup(pod, "metadata", "annotations", default={})
    return {key: text for key, text in annotations.items() if key.startswith(_ANNOTATIONS)}


def hook_command(pod: Object, hook: Hook, container: str) -> tuple[str, ...]:
    """Empty where the pod wants none."""
    annotations = lookup(pod, "metadata", "annotations", default={})
    own = annotations.get(f"{hook.annotation}.{container}")
    text = annotations.get(hook.annotation, "") if own is None else own
    return parse_command(text) or ()


def parse_command(text: str) -> tuple[str, ...] | None:
    """None: it looks like a list, and is none of words."""
    if not text.strip():
        return ()
    if not text.lstrip().startswith("["):
        return ("/bin/sh", "-c", text)
    try:
        words = json.loads(text)
    except ValueError:
        return None
    is_words = bool(words) and all(isinstance(word, str) for word in words)
    return tuple(words) if is_words else None


def hook_seconds(pod: Object) -> float:
    text = lookup(pod, "metadata", "annotations", HOOK_TIMEOUT, default="")
    seconds = parse_duration(text) if text else DEFAULT_SECONDS
    return seconds or DEFAULT_SECONDS
