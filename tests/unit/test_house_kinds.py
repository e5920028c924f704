"""A kind is one module: who else names it can be counted on one hand."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import livesize
from livesize.api.kinds.kind import Kind
from livesize.api.kinds.registry import kind_of

SOURCES = Path(livesize.__file__).parent
# Besides its own module: the controller of the kind, or the one part that is about it.
NAMED_IN = {
    "PodDisruptionBudget": (
        "DISRUPTION_BUDGETS",
        ("controllers/disruption/", "controllers/in_place/", "sim/workload_"),
    ),
    "LimitRange": ("LIMIT_RANGES", ("apiserver/admission_context.py",)),
    "ServiceAccount": ("SERVICE_ACCOUNTS", ("apiserver/bootstrap_objects.py",)),
    "Service": ("SERVICES", ("apiserver/bootstrap_objects.py", "controllers/headless_names/")),
    "ResourceQuota": (
        "RESOURCE_QUOTAS",
        (
            "apiserver/admission/quota.py",
            "apiserver/quotas.py",
            "apiserver/write_context.py",
            "controllers/quota/",
        ),
    ),
    "StorageClass": (
        "STORAGE_CLASSES",
        (
            "api/kinds/persistent_volume",
            "apiserver/bootstrap_objects.py",
            "apiserver/admission_context.py",
            "controllers/claims/",
            "scheduler/loop.py",
        ),
    ),
}

# Admission, and what a node may read, ask a kind for what it declares. These rules are about one
# kind each, and no other will have them:
ADMISSION = {
    "apiserver/admission/plan.py": {
        "pod": "what it runs and is resized to: security, programs, host paths, sizes",
        "persistent_volume_claim": "keeps within LimitRanges, and grows where its class can",
        "priority_class": "of all of them one is the default",
    },
    "apiserver/admission/quota.py": {"resource_quota": "a quota that limits something new counts"},
}


@pytest.mark.parametrize("kind", NAMED_IN)
def test_a_kind_is_named_where_it_is_handled_only(kind: str) -> None:
    constant, files = NAMED_IN[kind]
    own = "api/kinds/" + re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower() + ".py"
    named = re.compile(rf'\b{constant}\b|"{kind}"')
    found = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if named.search(path.read_text())
    }
    assert own in found
    assert [one for one in sorted(found - {own}) if not one.startswith(files)] == []


def test_admission_names_a_kind_only_where_it_cannot_declare_its_rule() -> None:
    imported = re.compile(r"^from livesize\.api\.kinds\.(\w+) import", re.MULTILINE)
    files = [*SOURCES.glob("apiserver/admission/*.py"), SOURCES / "apiserver/auth/node_reads.py"]
    found = {
        str(path.relative_to(SOURCES)): kinds
        for path in files
        if (kinds := set(imported.findall(path.read_text())) - {"kind", "registry", "resource"})
    }
    assert found == {file: set(reasons) for file, reasons in ADMISSION.items()}


def test_the_registry_has_every_kind_of_every_module() -> None:
    for path in (SOURCES / "api/kinds").glob("*.py"):
        module = importlib.import_module(f"livesize.api.kinds.{path.stem}")
        for kind in vars(module).values():
            if isinstance(kind, Kind):
                assert kind_of(kind.resource) is kind, f"{path.stem}: add it to the registry"
