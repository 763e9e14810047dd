# datasync: `make demo` shows it, `make test` tests it; nothing outside this folder is touched.
# Each target makes what it needs: a virtual environment in .venv from the hash-locked files in requirements/.
#
#   PYTHON=python3.12      the interpreter for a new .venv (3.11 or newer)
#   PYTEST_ARGS, BENCH_ARGS, DEMO_ARGS     passed on
#   UPGRADE=--upgrade      with `make lock`: take the newest releases

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help demo test test-long check bench bench-quick bench-scale lock clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PYTEST_ARGS ?=
BENCH_ARGS ?=
DEMO_ARGS ?=
UPGRADE ?=

BIN := .venv/bin
VENV := .venv/.made
DEMO := .venv/.demo-installed
DEV := .venv/.dev-installed

export PIP_CACHE_DIR ?= $(CURDIR)/.cache/pip
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
INSTALL := -m pip install --quiet --require-hashes --only-binary :all: --requirement
INSTALL_SOURCE := -m pip install --quiet --require-hashes --no-deps --no-build-isolation --requirement
INSTALL_SELF := $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(DEMO)  ## the whole story on this machine, in one go
	$(BIN)/datasync demo $(DEMO_ARGS)

test: $(DEV)  ## every test but the long ones
	$(BIN)/pytest --numprocesses auto --dist loadfile $(PYTEST_ARGS)

test-long: $(DEV)  ## the long tests alone
	$(BIN)/pytest -m long $(PYTEST_ARGS)

check: $(DEV)  ## style, types, import rules, documents
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.checks

bench: $(DEV)  ## measure against the budgets
	$(BIN)/python -m bench $(BENCH_ARGS)

bench-quick: $(DEV)  ## the same with small sets, in some minutes
	$(BIN)/python -m bench --quick $(BENCH_ARGS)

bench-scale: $(DEV)  ## what grows with the number of entries
	$(BIN)/python -m bench.scale $(BENCH_ARGS)

lock: .venv-lock/.installed  ## write requirements/*.txt anew from requirements/*.in
	$(RESOLVE) --output-file requirements/demo.txt requirements/demo.in
	$(RESOLVE) --constraint requirements/demo.txt --output-file requirements/dev.txt requirements/dev.in
	$(RESOLVE_SOURCE) --output-file requirements/source.txt requirements/source.in
	$(RESOLVE) --output-file requirements/lock.txt requirements/lock.in

clean:  ## remove the environments, caches and build results
	rm -rf .venv .venv-lock .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Hashes of every platform's files, no addresses, and no settings of this machine.
RESOLVE_ALL := .venv-lock/bin/uv --quiet --no-config --cache-dir .cache/uv pip compile --python-version 3.11 --universal \
	--fork-strategy fewest --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links $(UPGRADE)
RESOLVE := $(RESOLVE_ALL) --only-binary :all:
RESOLVE_SOURCE := $(RESOLVE_ALL) --no-deps

$(VENV):
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("datasync needs Python 3.11 or newer, this is %d.%d: run make with PYTHON=python3.11" % v)'
	$(PYTHON) -m venv .venv
	touch $@

$(DEMO): requirements/demo.txt pyproject.toml datasync/__init__.py | $(VENV)
	$(BIN)/python $(INSTALL) requirements/demo.txt
	$(INSTALL_SELF)
	touch $@

$(DEV): requirements/dev.txt requirements/source.txt $(DEMO)
	$(BIN)/python $(INSTALL) requirements/dev.txt
	$(BIN)/python $(INSTALL_SOURCE) requirements/source.txt
	touch $@

.venv-lock/.installed: requirements/lock.txt
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python $(INSTALL) requirements/lock.txt
	touch $@
