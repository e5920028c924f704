"""Images come as imagePullPolicy says, with the logins of the pod's own secrets."""

from __future__ import annotations

import base64
import json

import pytest

from livesize.api.kinds.secret import SECRETS
from livesize.api.objects import Object
from livesize.runtime.fake import FAKE_IMAGE
from unit.agent.world import World, container
from virtual_time import virtual_time

pytestmark = virtual_time

PRIVATE = "registry.example/team/app:1"


def login(password: str) -> Object:
    auths = {"auths": {"registry.example": {"username": "u", "password": password}}}
    encoded = base64.b64encode(json.dumps(auths).encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "login", "namespace": "default"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": encoded},
    }


def waiting(world: World) -> Object:
    statuses = world.api.pod("db")["status"].get("containerStatuses") or [{}]
    return dict(statuses[0].get("state", {}).get("waiting", {}))


@pytest.mark.parametrize("policy", ["IfNotPresent", "Always"])
async def test_a_missing_image_is_pulled_with_the_pods_secret(world: World, policy: str) -> None:
    world.machine.pullable[PRIVATE] = "secret"
    await world.start()
    await world.api.create(SECRETS, login("secret"), "default")
    one = container(image=PRIVATE, imagePullPolicy=policy)
    await world.api.run_pod("db", one, imagePullSecrets=[{"name": "login"}, {"name": "gone"}])
    await world.running("db")
    assert PRIVATE in world.machine.image_names


@pytest.mark.parametrize(
    ("policy", "password", "words"),
    [
        pytest.param("IfNotPresent", "wrong", "none of the logins", id="wrong password"),
        pytest.param("Never", "secret", "not on this machine", id="never pulled"),
    ],
)
async def test_what_cannot_be_pulled_is_said(
    world: World, policy: str, password: str, words: str
) -> None:
    world.machine.pullable[PRIVATE] = "secret"
    await world.start()
    await world.api.create(SECRETS, login(password), "default")
    one = container(image=PRIVATE, imagePullPolicy=policy)
    await world.api.run_pod("db", one, imagePullSecrets=[{"name": "login"}])
    await world.until(lambda: words in waiting(world).get("message", ""), "it says why")
    assert PRIVATE not in world.machine.image_names


async def test_an_image_that_is_here_needs_no_registry(world: World) -> None:
    await world.start()
    await world.api.run_pod("db", container(image=FAKE_IMAGE, imagePullPolicy="Always"))
    await world.running("db")
