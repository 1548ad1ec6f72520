# The commands a contributor needs. Each sets up .venv by itself; a second run finds it ready.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PEER   := $(VENV)/fastmcp/.ready

# What runs the tests; `check` measures coverage with it. ARGS go to pytest: make test ARGS="-k cancel"
RUN_TESTS ?= $(BIN)/python -m pytest
ARGS      ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check conformance bench format clean

help: ## Show these commands
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name what; do \
		printf '  make %-11s %s\n' "$$name" "$$what"; done

setup: $(READY) ## Install the project and its tools into .venv

demo: $(READY) ## Play the embedded demo: no account, no services
	@$(BIN)/workflow-bridge demo $(ARGS)

test: $(READY) ## Run the tests
	$(RUN_TESTS) $(ARGS)

check: $(READY) ## Run what CI runs: format, lint, types, imports, tests with coverage
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/coverage erase
	@$(MAKE) --no-print-directory test RUN_TESTS="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

conformance: $(READY) ## Run the official conformance suite; needs npm
	@mkdir -p build/conformance
	@cp tests/conformance/package.json tests/conformance/package-lock.json build/conformance
	npm ci --prefix build/conformance --ignore-scripts --no-audit --no-fund
	$(BIN)/python tests/conformance/run.py

bench: $(READY) $(PEER) ## Run the benches and print their tables; takes five minutes
	@BENCH_FASTMCP_PYTHON=$(CURDIR)/$(VENV)/fastmcp/bin/python $(BIN)/python -m bench $(ARGS)

$(PEER): $(READY)
	$(PYTHON) -m venv $(VENV)/fastmcp
	$(VENV)/fastmcp/bin/python -m pip install --quiet --disable-pip-version-check \
		fastmcp-tasks==4.1.4
	@touch $@

format: $(READY) ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove .venv and everything that was built
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache \
		.hypothesis .import_linter_cache

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is not Python 3.11 or later; name one that is: make PYTHON=python3.12 …" >&2; \
		exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || { \
		echo "make: $(PYTHON) cannot make virtual environments; install its venv package (python3-venv)" >&2; \
		exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt --editable '.[dev]'
	@touch $@
