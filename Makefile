# Needs: make, Python 3.11 or newer (with venv), a C compiler, a package index. Nothing else.
#   make demo    tune real matrices, write demo-report.html
#   make test    every test and doctest
#   make check   lint, types, layers, tests
#   make test-extras   the tests with all optional packages: torch, PyG, TVM, NVRTC, Ray, Dask, ... (gigabytes)
#   make test-aarch64  generated code on an emulated aarch64 processor (needs qemu-user and gcc-aarch64-linux-gnu)
#   make test-plugin   examples/plugin, a package that extends this one: contracts, random oracle, tuner
#   make docs    the documentation, into site/
#   make dist    source distributions and wheels, checked, into dist/; URL=https://... of the repository for README's links
#   make kernels  wheels of tensorwise-kernels, compiled by zig for each level of processors, into dist/kernels/
#   make test-dist     install the wheels in an empty environment, run README's example, uninstall
#   make test-oldest   core tests with the oldest Python, NumPy, SciPy, ... that are allowed
#   make test-newest   the same with the newest ones that are found
#   make quick   30 ratios of time to SciPy's, compared with the last ones of this machine; nothing is written
#   make fuzz    malformed input at every door, for MINUTES=10
#   make clean   remove what the others made
# Another environment: make test VENV=/tmp/venv.   Another Python: make test PYTHON=python3.12

VENV ?= .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.tensorwise
# More pytest arguments: make test ARGS="-k pack -x"
ARGS ?=
SITE ?= site
MINUTES ?= 10
URL ?=
OLDEST_PYTHON ?= python3.11
NEWEST_PYTHON ?= $(shell for p in python3.14 python3.13 python3.12; do $$p -c 1 >/dev/null 2>&1 && echo $$p && break; done)

USABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
# Only asked when an environment has to be made. A name on the PATH may be a shim without a Python behind it: try each.
FIND_PYTHON = for p in $(PYTHON) python3 python python3.14 python3.13 python3.12 python3.11; do \
	if $$p -c '$(USABLE)' >/dev/null 2>&1; then echo $$p; exit 0; fi; done; \
	echo "no Python 3.11 or newer with the venv module was found; install one (Debian: python3-venv) or run: make PYTHON=/path/to/python" >&2; exit 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-extras test-plugin test-aarch64 check lint types layers docs dist kernels test-dist test-oldest test-newest quick fuzz clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(STAMPS)/demo
	$(BIN)/python examples/demo.py --report demo-report.html

test: $(STAMPS)/dev $(STAMPS)/demo
	$(BIN)/python -m pytest $(ARGS)

test-extras: $(STAMPS)/dev $(STAMPS)/extras
	$(BIN)/python -m pytest $(ARGS)

# Installed beside, not in, the environment: the other tests run without it.
test-plugin: $(STAMPS)/dev
	rm -rf $(STAMPS)/plugin
	$(BIN)/python -m pip install --quiet --no-deps --target $(STAMPS)/plugin examples/plugin
	rm -rf examples/plugin/build examples/plugin/*.egg-info
	PYTHONPATH=$(STAMPS)/plugin $(BIN)/python -m pytest examples/plugin/tests \
		tests/contract/test_strategies.py tests/contract/test_spaces.py $(ARGS)

test-aarch64: $(STAMPS)/dev
	TENSORWISE_AARCH64=full $(BIN)/python -m pytest tests/aarch64 $(ARGS)

dist: $(STAMPS)/release
	$(BIN)/python packaging/build_dist.py --out dist --url "$(URL)"
	$(BIN)/twine check --strict dist/*.whl dist/*.tar.gz
	$(BIN)/check-wheel-contents dist/*.whl

kernels: $(STAMPS)/release $(STAMPS)/zig
	$(BIN)/python packaging/build_kernels.py --out dist/kernels
	$(BIN)/twine check --strict dist/kernels/*.whl

test-dist: dist
	$(BIN)/python packaging/try_dist.py dist

# Environments of their own; the tests of what depends on the versions of Python, NumPy and SciPy.
test-oldest: PYTHON_TO_TRY := $(OLDEST_PYTHON)
test-oldest: VERSIONS := -c packaging/oldest.txt
test-newest: PYTHON_TO_TRY := $(NEWEST_PYTHON)
test-oldest test-newest:
	@test -n "$(PYTHON_TO_TRY)" || { echo "no Python 3.12 or newer was found; name one: make $@ NEWEST_PYTHON=..." >&2; exit 1; }
	$(PYTHON_TO_TRY) -m venv $(VENV)-$@
	$(VENV)-$@/bin/python -m pip install --quiet --disable-pip-version-check --upgrade $(VERSIONS) -e . -e ./models \
		hypothesis ml_dtypes pytest pytest-timeout pytest-xdist
	$(VENV)-$@/bin/python -m pytest tests/test_tiny.py tests/unit/front tests/unit/store tests/unit/tensor \
		tests/unit/sparse tests/unit/tuning $(ARGS)

# An environment of its own: the matrices come with these packages, and the core tests run without them.
quick:
	@test -x $(VENV)-quick/bin/python || { python=$$($(FIND_PYTHON)) && $$python -m venv $(VENV)-quick; }
	$(VENV)-quick/bin/python -m pip install --quiet --disable-pip-version-check -e . networkx pyamg scikit-learn
	$(VENV)-quick/bin/python benchmarks/quick/run.py --check $(ARGS)

fuzz: $(STAMPS)/dev
	$(BIN)/python benchmarks/robustness/fuzz.py --minutes $(MINUTES)

check: lint types layers test

lint: $(STAMPS)/dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMPS)/dev
	$(BIN)/mypy

layers: $(STAMPS)/dev
	$(BIN)/lint-imports

docs: $(STAMPS)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $(SITE)

clean:
	rm -rf .venv .venv-test-oldest .venv-test-newest .venv-quick .venv-ci site build dist demo-report.html *.egg-info models/build models/*.egg-info kernels/build kernels/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find tensorwise tests examples benchmarks experiments -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp an extra; a change of a pyproject.toml installs again, into the same environment. The bundled models come along.
$(STAMPS)/venv:
	@python=$$($(FIND_PYTHON)) && echo "making $(VENV) with $$python" && $$python -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/demo $(STAMPS)/dev $(STAMPS)/docs $(STAMPS)/extras $(STAMPS)/release $(STAMPS)/zig: $(STAMPS)/%: pyproject.toml models/pyproject.toml | $(STAMPS)/venv
	@echo "installing into $(VENV): tensorwise[$*], the first time this may take some minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[$*]' -e ./models
	@touch $@
