# Two commands do everything, set-up included: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := requirements/dev.lock
PEERS := .venv-peers
MUTATE := .venv-mutate
# tests wait for other processes a sixth of their time, so there are more of them at once than cores
CORES := $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
JOBS ?= $(shell expr $(CORES) + \( $(CORES) + 1 \) / 2)
CODE := $(wildcard src tests bench tools examples)
ARGS ?=

.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE  # or every process of a test compiles anew what it loads, and each runner all tests
.PHONY: help setup demo test check lint types layers dead deps bench crash coverage format lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-20s%s\n", $$1, $$2 }'

setup: $(STAMP) ## install everything into .venv (every other target does this by itself)

$(STAMP): $(LOCK) pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" sh tools/make-venv $(VENV) $(LOCK)
	@touch $@

demo: $(STAMP) ## the whole promise in half a minute: kill a run again and again, and resume it
	@$(BIN)/holdfast demo $(ARGS)

test: $(STAMP) ## all tests, PostgreSQL and two real agents included (ARGS="-k lease" narrows them)
	@sh tools/install-system-tools
	@PYTHON="$(PYTHON)" sh tools/install-agents
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -rs $(ARGS)

check: lint types layers dead deps ## lint, types, layers, dead code, dependencies

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: $(STAMP)
	$(BIN)/mypy $(CODE)

layers: $(STAMP)
	$(BIN)/lint-imports --no-logo

dead: $(STAMP)
	$(BIN)/python tools/dead_code.py $(CODE)

deps: $(STAMP)
	$(BIN)/deptry src

bench: $(STAMP) ## the speed goals, as ratios in one run
	$(BIN)/python -m bench $(ARGS)

.PHONY: bench-peers
bench-peers: $(PEERS)/.installed ## Holdfast beside LangGraph, DBOS and bare SQL, as ratios in one run (ARGS="resume" narrows it)
	$(PEERS)/bin/python -m bench.peers $(ARGS)

$(PEERS)/.installed: requirements/peers.lock pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" sh tools/make-venv $(PEERS) requirements/peers.lock
	@touch $@

crash: $(STAMP) ## the full crash laboratory (a seeded part of it runs in `make test`)
	@sh tools/install-system-tools
	$(BIN)/python -m tests.crash --full $(ARGS)
	$(BIN)/python -m tests.simulate --seeds 100000
	$(BIN)/python -m tests.simulate --bugs --seeds 500
	HOLDFAST_CRASH_SCALE=10 HOLDFAST_SWEEP=all $(BIN)/python -m pytest -m crash tests/stores/test_postgres.py
	HOLDFAST_POINTS=250 $(BIN)/python -m pytest -n $(JOBS) tests/pipeline/test_kill_every_event.py
	HOLDFAST_FUZZ_SCALE=20 $(BIN)/python -m pytest -n $(JOBS) tests/attacks/test_fuzz.py

.PHONY: crash-ci
crash-ci: $(STAMP) ## every sweep in full: 40,000 points of the crash laboratory, 80,000 bad inputs, each kill that `make test` only samples
	@sh tools/install-system-tools
	HOLDFAST_CAMPAIGN=1 HOLDFAST_FUZZ_SCALE=1 HOLDFAST_SWEEP=all \
	  $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -rs -m sweep $(ARGS)

coverage: $(STAMP) ## tests with branch coverage; fails where core, engine or stores fall below their floor
	@sh tools/install-system-tools
	@PYTHON="$(PYTHON)" sh tools/install-agents
	$(BIN)/python -m pytest -n $(JOBS) -rs --cov --cov-report=term $(ARGS)
	$(BIN)/python tools/coverage_floor.py

.PHONY: mutate
mutate: $(MUTATE)/.installed ## break the core in every small way and see its tests notice (ARGS="rules --show" narrows it)
	$(MUTATE)/bin/python tools/mutate.py $(ARGS)

$(MUTATE)/.installed: requirements/mutate.lock pyproject.toml tools/make-venv
	@PYTHON="$(PYTHON)" sh tools/make-venv $(MUTATE) requirements/mutate.lock
	@touch $@

format: $(STAMP) ## let ruff put the code in order
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

lock: ## resolve the dependencies anew and write requirements/dev.lock
	@PYTHON="$(PYTHON)" sh tools/lock $(LOCK)

clean: ## remove the environment, caches and build products
	rm -rf $(VENV) $(PEERS) $(MUTATE) .venv-agents .agents .mutate build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .coverage.* htmlcov
	find src tests $(wildcard bench) -name __pycache__ -type d -prune -exec rm -rf {} +
