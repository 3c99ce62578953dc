# Every step of this project. `make demo` and `make test` set up all that they need, given python3 (3.11 or newer,
# with venv) and make; what they install goes into .venv and .tools, and nothing outside this folder changes.

PYTHON ?= python3
PORT ?= 4566

BIN := .venv/bin
UV := $(BIN)/uv
TALLYCTL := $(BIN)/tallyctl
ENDPOINT := --endpoint-url http://127.0.0.1:$(PORT)
SOURCES := src tests tools $(wildcard events)
TOOLS := sam ministack microburst
READY := .venv/.dev-ready $(TOOLS:%=.tools/%/.ready)

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export SAM_CLI_TELEMETRY := 0
export UV_NO_PROGRESS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup build demo test lab bench lint types format invoke events local-up local-down simulate traffic model requirements clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ------------------------------------------------------------------------------------------------------------- set-up
# One file a finished environment, so that nothing is done twice and a changed list of requirements only concerns its
# own environment. The emulator and the SAM CLI pin packages that the tests need in other versions.

setup: $(READY) ## make .venv with tallyctl in it, and the tools' own environments in .tools

.venv/.uv-ready: tools/requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed, and $(PYTHON) is not one: install it, or give its name in PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo "$(PYTHON) has no venv: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

.venv/.dev-ready: tools/requirements/dev.txt pyproject.toml | .venv/.uv-ready
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r $<
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

.tools/%/.ready: tools/requirements/%.txt | .venv/.uv-ready
	$(UV) venv --quiet --clear --python $(BIN)/python .tools/$*
	$(UV) pip install --quiet --python .tools/$*/bin/python --require-hashes -r $<
	@touch $@

build: $(READY) ## build what the functions run (sam build), if it changed
	$(TALLYCTL) build

# ---------------------------------------------------------------------------------------------------------- run it

demo: $(READY) ## deploy to an embedded AWS, send thousands of likes, compare the tallies, stop it again
	$(TALLYCTL) demo --start $(ENDPOINT) $(ARGS)

local-up: $(READY) ## start the embedded AWS on 127.0.0.1:PORT (4566) and deploy the app to it
	$(TALLYCTL) local up $(ENDPOINT) $(ARGS)

local-down: $(READY) ## stop it
	$(TALLYCTL) local down $(ENDPOINT)

invoke: $(READY) ## run EVENT=events/<name>.json in the Lambda runtime, against the local stack (started if needed)
	@test -n "$(EVENT)" || { echo "which event? make invoke EVENT=events/<name>.json" >&2; exit 1; }
	$(TALLYCTL) invoke --start $(EVENT) $(ENDPOINT) $(ARGS)

events: $(READY) ## make the sample events in events/ again, from the builders of the tests
	$(BIN)/python events/build.py

# ------------------------------------------------------------------------------------------------------------- checks

test: lint types build ## check and test everything
	$(BIN)/pytest --numprocesses auto --dist loadscope --durations 15 $(ARGS)

lab: .venv/.dev-ready ## count 20 bursts of likes under faults; each tally must be exact after each
	$(BIN)/python tests/lab/lab.py $(ARGS)

bench: build ## measure speed, memory and size against the goals; ARGS="--out docs" keeps the figures
	$(BIN)/python -m bench.bench $(ARGS)

lint: .venv/.dev-ready ## check style and format
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: .venv/.dev-ready ## check types
	$(BIN)/mypy

format: .venv/.dev-ready ## put the code into the format
	$(BIN)/ruff check --fix-only --quiet $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

simulate: .venv/.dev-ready ## play SEEDS (10000) schedules of faults on all cores, and as many with audits; FIRST=n begins at another seed
	$(BIN)/python -m simulation.run --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)
	$(BIN)/python -m simulation.run --audits --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0)

traffic: .venv/.dev-ready ## hold `tallyctl plan` against ten simulated minutes of 10,000 likes a second; ARGS=--help for others
	cd tests && ../$(BIN)/python -m simulation.traffic $(ARGS)

model: .venv/.dev-ready ## check the model of delivery and faults exhaustively (needs spin and gcc)
	$(BIN)/pytest tests/model $(ARGS)

# ------------------------------------------------------------------------------------------------------------- upkeep

COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make requirements"

requirements: .venv/.uv-ready ## pin the requirements again; UPGRADE=--upgrade takes the newest versions
	for name in uv dev $(TOOLS); do $(COMPILE) $(UPGRADE) tools/requirements/$$name.in -o tools/requirements/$$name.txt || exit 1; done
	$(COMPILE) $(UPGRADE) tools/requirements/lambda.in -o src/requirements.txt

clean: ## remove all that make and the tests have made; stops an embedded AWS on PORT first
	test ! -x $(TALLYCTL) || $(TALLYCTL) local down $(ENDPOINT)
	rm -rf .venv .tools .local .aws-sam .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
