# Every target sets up what it needs in .venv; PYTHON is any Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
# Tests run in a process for each core; one that has no test left takes over half of those that another has left.
PARALLEL := -n auto --dist worksteal
# They start hundreds of processes, which share compiled sources wherever the environment forbids to keep these.
test check: export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check format bench clean

demo: .venv/.demo  ## match two pictures, build a map, attack what was sent, and write a page to look at
	$(BIN)/featveil demo --out featveil-demo

test: .venv/.dev  ## the tests
	$(BIN)/pytest $(PARALLEL)

check: .venv/.dev  ## format, lint, types, import contracts, tests
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest $(PARALLEL)

format: .venv/.dev  ## rewrite the sources in the project's format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: .venv/.dev  ## measure speed, as ratios in one run; about ten minutes
	$(BIN)/python benchmarks/kernels.py
	$(BIN)/python benchmarks/assignment.py
	$(BIN)/python benchmarks/attacks.py --features 4000
	$(BIN)/python benchmarks/lattice.py
	$(BIN)/python benchmarks/pairs.py
	$(BIN)/python benchmarks/faces.py
	$(BIN)/python benchmarks/gate.py

clean:  ## remove everything that make created
	rm -rf .venv featveil-demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[attacks,colmap]"
	touch $@

.venv/.dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@
