# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3.11
# A name on the path, a full path, or (python3.12) a version that pyenv has.
FOUND  = $(shell for each in $(PYTHON) $$(ls -1d $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$(patsubst python%,%,$(notdir $(PYTHON)))*/bin/python 2>/dev/null); \
           do $$each -c "" 2>/dev/null && echo $$each && break; done)
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
ZOO    := $(VENV)/.zoo-ready
BACKEND ?= argand
MODE    ?= infer

.PHONY: demo language test setup lint types layers sizes pytest sanitize threads cases cpython stale bench zoo ops gpu ext faults docs browser wheel platforms libraries clean
demo: $(STAMP)
	$(BIN)/python -m benchmarks.demo

test: lint types layers sizes pytest

setup: $(STAMP)
$(STAMP): pyproject.toml constraints.txt $(wildcard src/argand/runtime/*.c src/argand/runtime/*.h)
	test -x $(BIN)/python || test -n "$(FOUND)" || { echo "$(PYTHON) runs nowhere: install it, or give PYTHON=/full/path"; exit 1; }
	test -x $(BIN)/python || $(FOUND) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools wheel "torch==2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e ".[dev]"
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff format --check src tests benchmarks tools examples
	$(BIN)/ruff check src tests benchmarks tools examples
types: $(STAMP)
	$(BIN)/mypy
layers: $(STAMP)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_versions.py
sizes: $(STAMP)
	$(BIN)/python tools/check_sizes.py
pytest: $(STAMP)
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered

# Text cases: what stages make of small programs. `make cases ARGS=--update` rewrites the answers and shows the diff.
cases: $(STAMP)
	$(BIN)/python -m tests.cases $(ARGS)

# Rebuild only the C extension, in place.
# Built aside and moved into place, so that a running process never meets half a file.
ext:
	mkdir -p build
	flock build/.lock sh -c '$(BIN)/python -c "import setuptools; setuptools.setup()" --quiet build_ext --build-lib build/ext --build-temp build/temp \
	  && for built in build/ext/argand/runtime/_native*.so; do cp $$built $$built.new && mv -f $$built.new src/argand/runtime/$$(basename $$built); done'

# The C extension under address and undefined-behaviour sanitizers: its tests, and fuzzers.
sanitize: $(STAMP)
	$(BIN)/python -m tools.sanitize $(ARGS)
# Eight threads that compile, train, reset and fork at once, against eager.
threads: $(STAMP)
	$(BIN)/python -X faulthandler -m tools.threads $(ARGS)

# CPython's own tests of its language under the compiler, against plain Python; ARGS="test_generators --texts". A sweep of all
# with ARGS="--results FILE" is continued where it ended; modules with something unexplained are run again.
cpython: $(STAMP)
	$(BIN)/python -m tools.cpython $(ARGS)

# Changes of everything a program could have read between calls, one at a time and mixed; ARGS="--mixtures 10000 --backend aot_eager".
stale: $(STAMP)
	$(BIN)/python -m tests.stale $(ARGS)
bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)
ops: $(STAMP)
	$(BIN)/python -m benchmarks.ops --backend $(BACKEND) $(ARGS)
$(ZOO): | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps torchvision timm transformers
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[zoo]" --no-build-isolation
	touch $(ZOO)
# Loop nests as Triton kernels, by its interpreter beside LLVM's, and compiled for GPUs; needs no GPU. ARGS="--tasks op,zoo".
GPU := $(VENV)/.triton-ready
$(GPU): | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[triton]" --no-build-isolation
	touch $(GPU)
gpu: $(GPU)
	$(BIN)/python -m benchmarks.gpu $(ARGS)
	$(BIN)/python -m benchmarks.gpu.targets --tasks main
language: $(STAMP)
	$(BIN)/python -m benchmarks.language --rival $(ARGS)

zoo: $(ZOO)
	$(BIN)/python -m benchmarks.zoo --backend $(BACKEND) --mode $(MODE) $(if $(DYNAMIC),--dynamic) $(ARGS)

# 21 faults put into the compiler, and what `argand bisect` finds of each; ARGS="--only wrong_rule --scripts".
faults: $(STAMP)
	$(BIN)/python -m tests.faults $(ARGS)

# The documentation site, in build/site; opens from disk, needs no network.
DOCS := $(VENV)/.docs-ready
$(DOCS): | $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]" --no-build-isolation
	touch $(DOCS)
docs: $(DOCS)
	$(BIN)/python -m tools.reference --write
	$(BIN)/python -m tools.breaks --write
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python -m tools.check_site build/site

# Reports and the site in a real browser (Debian's chromium): drawing, links, search, no errors; ARGS="--pictures FOLDER" takes pictures.
browser: docs
	$(BIN)/python -m tests.report.browser $(ARGS)
	$(BIN)/python -m tests.docs.browser build/site $(ARGS)

# Wheels for old and new systems, for each interpreter named (PYTHONS="python3.11 python3.12"), in build/wheels.
PYTHONS ?= $(PYTHON)
wheel: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[wheel]" --no-build-isolation
	$(BIN)/python -m tools.wheels $(ARGS) $(PYTHONS)

# The C sources compiled for macOS, and what knows Windows for Windows (with mingw, where it is installed); nothing is run.
platforms: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[wheel]" --no-build-isolation
	$(BIN)/python -m tools.platforms

# Programs on other people's libraries, in an environment of their own; ARGS="--only lightning --rival --reasons".
LIBRARIES ?= .venv-libraries
$(LIBRARIES)/.ready: pyproject.toml
	test -x $(LIBRARIES)/bin/python || $(PYTHON) -m venv $(LIBRARIES)
	$(LIBRARIES)/bin/python -m pip install --quiet --disable-pip-version-check setuptools wheel "torch==2.13.0"
	$(LIBRARIES)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation -e ".[libraries]" "torch==2.13.0"
	touch $@
libraries: $(LIBRARIES)/.ready
	$(LIBRARIES)/bin/python -m benchmarks.libraries $(ARGS)

clean:
	rm -rf build $(VENV) src/*.egg-info src/argand/runtime/*.so
