# Every command a developer types.  Needs Python 3.11 or later with pip, and make; everything else goes into .venv.
#   make test PYTHON=python3.13 VENV=.venv313     another Python, in a separate environment

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := PYTHONWARNINGS=ignore PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip
TESTS ?= tests
SEEDS ?= 1000
MINUTES ?= 5
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup start test torture simulate check format docs screenshots bench dist dist-check clean
.DELETE_ON_ERROR:

help:  ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1#/p' $(MAKEFILE_LIST) | awk -F'#' '{printf "%-18s %s\n", $$1, $$2}'

start: $(VENV)/installed  ## run the daemon on the sample jobs in jobs/ (Ctrl-C stops it; ARGS="--port 8000")
	@$(BIN)/spyweb -C . start $(ARGS)

# In the order of tests/conftest.py, not by number of tests.  Five processes on two cores, since half of the tests wait
# most of the time.
test: $(VENV)/installed-dev  ## the whole test suite (TESTS=tests/unit for a part)
	$(BIN)/pytest -q --progress --durations=10 -n 5 --dist loadfile --no-loadscope-reorder $(ARGS) $(TESTS)

torture: $(VENV)/installed-dev  ## the long tests: stress, many examples of each property, costs, every benchmark
	$(BIN)/pytest -q --torture --timeout 120 $(ARGS) tests/stress tests/property tests/integration/test_worker_hostile.py tests/unit/test_stalls.py tests/acceptance/test_api.py
	$(BIN)/pytest -q --torture --timeout 120 $(ARGS) -m deep tests
	$(BIN)/python -m tests.simulation --seeds 1000000 --seconds $$(($(MINUTES) * 60))

simulate: $(VENV)/installed-dev  ## daemons through crashes, faulty disks and wrong clocks, in virtual time (SEEDS=1000, SEED=7)
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

check: $(VENV)/installed-dev  ## format, lint, types, floors, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q $(ARGS) tests/docs

format: $(VENV)/installed-dev  ## format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(VENV)/installed  ## regenerate docs/reference
	$(BIN)/python -m docs.reference.generate

screenshots: $(VENV)/installed-dev  ## take the pictures in docs/images/ again, with Chromium
	$(BIN)/python -m docs.images.screenshots

bench: $(VENV)/installed-bench  ## every benchmark beside its peer (ARGS=--quick: a smoke run; ARGS="ops runs": only those)
	@$(BIN)/python -m benchmarks $(ARGS)

setup: $(VENV)/installed-dev  ## make the developers' environment only

# From an export of the commit, so that neither changed files nor what an earlier build left can get in.
dist: $(VENV)/installed-dev  ## build the wheel and the source archive of the last commit, the same bytes each time
	@rm -rf build dist && mkdir -p build/source
	@git archive -o build/source.tar HEAD && tar -xf build/source.tar -C build/source
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation -o dist build/source
	@cp build/source/constraints.txt dist/ && rm -rf build
	@git diff --quiet HEAD || echo "uncommitted changes are not in it"

dist-check: dist  ## install that wheel into a bare environment, and run a new project there
	@.ci/installed dist/spyweb-*.whl

clean:  ## remove the environment and the files of tools; never data/
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find spyweb tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# The stamps: nothing is installed again while the dependencies and their pins are unchanged.
$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	@$(call sound)
	@echo "installing into $(VENV) ..."
	@$(PIP) install -q -c constraints.txt -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	@$(call sound)
	@echo "installing into $(VENV), with the developer's tools ..."
	@$(PIP) install -q -c constraints.txt -e '.[dev]'
	@touch $(VENV)/installed $@

# The programs with which the benchmarks compare spyweb.
$(VENV)/installed-bench: $(VENV)/installed-dev
	@echo "installing the peers of the benchmarks ..."
	@$(PIP) install -q -c constraints.txt -e '.[dev,bench]'
	@touch $@

# Debian's Python comes without ensurepip until python3-venv is installed; pip 22.3 or later can fill a bare environment.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here: install Python 3.11 or later, or name one: make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c '$(old_enough)' || { echo "spyweb needs Python 3.11 or later, $(PYTHON) is $$($(PYTHON) -V 2>&1): name another with make PYTHON=/path/to/python3" >&2; exit 2; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(VENV); \
	else $(PYTHON) -m venv --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install -q pip; fi \
	|| { rm -rf $(VENV); echo "no environment could be made with $(PYTHON): run apt-get install python3-venv, then this again" >&2; exit 2; }

old_enough = import sys; sys.exit(sys.version_info < (3, 11))
sound = $(BIN)/python -c '$(old_enough)' || { echo "the Python in $(VENV) is missing or older than 3.11: run make clean, then this again" >&2; exit 2; }
