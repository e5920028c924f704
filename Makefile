# One command does everything; `make` alone lists them.
# The work is in scripts/setup, tests/tiers.py and the tools configured in pyproject.toml.

SHELL := /bin/bash
BIN := .venv/bin
CODE := src tests bench scripts
AREA ?=

# What pytest makes of the test files is kept between runs, also where the environment says that
# Python shall keep nothing: it is half of the time a run takes.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup check check-format check-lint check-layers check-types check-unit check-collection \
	test test-machine test-all bench demo clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what is missing: system packages (root), then .venv; instant when done
	@scripts/setup

check: setup ## format, lint, import layers, types, unit tests; under a minute
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target \
		check-unit check-types check-collection check-layers check-lint check-format
	@echo "check: all good"

check-format:
	@$(BIN)/ruff format --check $(CODE)

check-lint:
	@$(BIN)/ruff check $(CODE)

check-layers:
	@$(BIN)/lint-imports

check-types:
	@$(BIN)/mypy

# The machine tests are not run here, but they must still import what they test.
check-collection:
	@found=$$($(BIN)/pytest --collect-only -q --matrix -p no:schemathesis \
		tests/machine tests/integration tests/security 2>&1) || { echo "$$found" | tail -40; exit 1; }

# Three on two cores: tests wait a third of their time.
check-unit:
	@$(BIN)/pytest -q --tier none -n 3 --dist worksteal -p no:schemathesis \
		--ignore tests/machine --ignore tests/integration --ignore tests/security

test: check test-machine ## check, then every machine test: real API server, cgroups, guests

test-machine: setup
	@$(BIN)/pytest --tier machine || { code=$$?; [ $$code = 5 ] && echo "no machine tests yet"; }

test-all: setup ## everything, long matrices too; AREA=simulation|apiserver|security|containers|cgroup_v2|vms|workloads|screens
	@$(BIN)/pytest --matrix $(if $(AREA),--tier $(AREA))

bench: setup ## measure, and compare with the raw calls underneath
	@$(BIN)/python -m bench

demo: setup ## resize a real container and a real VM up and down, show the proof
	@$(BIN)/livesize demo

clean: ## remove .venv and everything made by tools
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist \
		tests/clients/javascript/node_modules
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
