# Two commands are enough on a fresh machine: `make gate` and `make test`.
# Both need only make, python3 (3.11 or newer, with venv) and a package index.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
GATE_STAMP := $(VENV)/.gate
JOBS ?= 2
GPUS ?= 1
SOURCES ?= engine observe order oracles device history explore check repro interpose targets adapters jobs
SAMPLE ?= 40
VLLM ?= 0.22.1
# From the first release that schedules speculative decoding asynchronously, and the one before it:
# the last of each minor version.
VLLM_HISTORY ?= 0.11.2,0.12.0,0.13.0,0.14.1,0.15.1,0.16.0,0.17.1,0.18.1,0.19.1,0.20.2,0.21.0,0.22.1,0.23.0,0.24.0,0.25.1,0.27.1,0.30.0,0.32.0,0.33.0
# Held runs are bound by the host: several processes share a GPU.
SOAK_WORKERS ?= 8
GPU_SETUP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,gpu]'

.PHONY: setup gate check test nightly programs programs-report vllm test-vllm vllm-report test-gpu gpu-report hostile sanitize \
	lint matrix mutants mutants-source rooms bench clean

setup: $(STAMP)

# The stamp is renewed when the project's own dependencies change, so a reused .venv is never stale.
$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q harness reference kernels  # pip compiles what is not editable
	touch $(GATE_STAMP) $(STAMP)

# A gate needs neither torch nor what tests need: seconds and 250 MB, not minutes and gigabytes.
$(GATE_STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -m compileall -q harness reference kernels
	touch $(GATE_STAMP)

gate: $(GATE_STAMP)
	$(BIN)/racegate gate --must-fail scenarios/witnesses

# What a developer runs before a commit: about a minute on two quiet cores. `make test` has the rest:
# programs, searches, kernels, reports, campaigns.
CORE := $(wildcard tests/test_*.py) tests/docs tests/history tests/scenario tests/order tests/device \
	tests/engine tests/targets

check: $(STAMP) lint gate
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal $(CORE)

test: $(STAMP) lint
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

# New examples, and many, and all of what CI takes a sample of: not part of CI.
nightly: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS) --hypothesis-profile nightly --timeout 0 tests/jobs tests/explore \
		tests/oracles tests/engine tests/faults tests/measure/evaluation tests/check tests/check/repro tests/scenario tests/cli/test_search_cli.py

# The parts in C under the address and the undefined-behaviour sanitizer, where no GPU is needed: not
# part of CI, which runs a few of these tests so.
sanitize: $(STAMP)
	$(BIN)/python tests/helpers/sanitized.py -n $(JOBS) --timeout 0 tests/order \
		tests/device/test_compiled_kernels.py tests/check/test_checkpoint.py \
		$(addprefix tests/interpose/test_,interpose_litmus.py gpu_recording.py compiled_operators.py memory.py \
		torn_copies.py touches.py graph_parts.py program.py interpose_latches.py rank_programs.py rank_orders.py)

# A million broken inputs for every loader: about twenty minutes of one core.
hostile: $(STAMP)
	$(BIN)/python tests/helpers/hostile_inputs.py --inputs 1000000

# Two releases of transformers under the interposer, a faulty and a repaired one: 250 MB to install,
# about a minute.
programs: $(STAMP)
	RACEGATE_PROGRAMS=$(VENV)/programs $(BIN)/python -m pytest tests/interpose/test_programs.py

# All of them, with a search: 3 GB to install.
programs-report: $(STAMP)
	$(BIN)/python reports/interposer/programs/run_all.py reports/interposer

# One release of vLLM, unmodified, on the torch of .venv, in the user's cache directory: 500 MB, or
# 250 MB where what it imports is listed.
vllm: $(STAMP)
	$(BIN)/racegate vllm setup --release $(VLLM) --torch $(VENV) \
		$(addprefix --requirements ,$(wildcard tests/targets/vllm/releases/$(VLLM).txt)) --no-start

# Where it cannot be installed the tests are skipped, and say why.
test-vllm: $(STAMP)
	-$(MAKE) vllm
	$(BIN)/python -m pytest -rs -m vllm tests/targets/vllm

# Every scenario of vLLM in every release, runner and cache mode: hours, and 20 GB in the user's
# cache directory for releases and their torch. What is there already is kept.
vllm-report: $(STAMP)
	code=0; $(BIN)/racegate history vllm --versions $(VLLM_HISTORY) --out reports/vllm/cells \
		|| code=$$?; test $$code -eq 0 -o $$code -eq 4  # 4: some cells cannot be run, and say why
	$(BIN)/python reports/vllm/vllm_page.py reports/vllm

# On a machine with NVIDIA GPUs, one group of tests per GPU; elsewhere all are skipped, with why.
test-gpu: $(STAMP)
	$(GPU_SETUP)
	$(BIN)/python -m pytest -n $(GPUS) --dist loadgroup -m gpu tests/gpu tests/kernels

# Measures again what reports/gpu is made of, but for the generations of `racegate ab`, which take
# ten minutes on eight GPUs. A witness that is reproduced is a finding: exit code 1.
gpu-report: $(STAMP)
	$(GPU_SETUP)
	rm -f reports/gpu/replay.json reports/gpu/tests.json
	$(BIN)/python -m pytest -n $(GPUS) --dist loadgroup -m gpu --gpu-report reports/gpu/tests.json \
		tests/gpu tests/kernels
	$(BIN)/racegate replay scenarios/witnesses/*.json --device cuda --times 100 \
		--json reports/gpu/replay.json; test $$? -eq 1 -a -s reports/gpu/replay.json
	$(BIN)/racegate soak --runs 5500 --workers $(SOAK_WORKERS) --json reports/gpu/soak.json
	$(BIN)/racegate soak --runs 5500 --workers $(SOAK_WORKERS) --pacing natural \
		--json reports/gpu/soak_natural.json
	$(BIN)/racegate bench --device cuda --seconds 12 --json reports/gpu/bench.json
	$(BIN)/racegate report reports/gpu

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

# The picture of who imports whom; a test says when it is stale.
rooms:
	$(PYTHON) tests/helpers/rooms.py docs/rooms.svg

# Mutants of the source, a sample of each feature of the engine and of each room by seed: hours of a
# core for the first time. What is in .mutants is gone on with.
mutants-source: $(STAMP)
	mkdir -p .mutants
	for source in $(SOURCES); do \
		case $$source in engine) drawn=--per-feature ;; *) drawn=--sample ;; esac; \
		$(BIN)/racegate faults mutate --source $$source $$drawn $(SAMPLE) --workers $(JOBS) \
			--keep .mutants/$$source.jsonl --json reports/faults/source_$$source.json \
			--markdown reports/faults/source_$$source.md; \
	done

bench: $(STAMP)
	$(BIN)/racegate bench

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
