# Two commands are enough on a fresh machine: `make gate` and `make test`.
# Both need only make, python3 (3.11 or newer, with venv) and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
GPUS ?= 1

.PHONY: setup gate test test-gpu lint matrix mutants bench clean

setup: $(STAMP)

# The stamp is renewed when the project's own dependencies change, so a reused .venv is never stale.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(STAMP)

gate: $(STAMP)
	$(BIN)/racegate gate --must-fail scenarios/witnesses

test: $(STAMP) lint
	$(BIN)/python -m pytest -n $(JOBS)

# On a machine with NVIDIA GPUs, one group of tests per GPU; elsewhere all are skipped, with why.
test-gpu: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,gpu]'
	$(BIN)/python -m pytest -n $(GPUS) --dist loadgroup -m gpu tests/gpu tests/kernels

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Rebuilds everything in reports/faults from one run.
matrix: $(STAMP)
	$(BIN)/racegate faults matrix --workers $(JOBS) --json reports/faults/matrix.json \
		--html reports/faults/matrix.html --markdown reports/faults/README.md

# Rebuilds the mutants' part of it.
mutants: $(STAMP)
	$(BIN)/racegate faults mutate --workers $(JOBS) --json reports/faults/mutants.json \
		--markdown reports/faults/mutants.md

bench: $(STAMP)
	$(BIN)/racegate bench

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
