# Everything a fresh clone needs: `make test`, `make demo`. Nothing is installed system-wide:
# all of it goes into .venv/ and .cache/.

PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
STAMP  := .venv/.installed
SHELL  := /bin/bash
# Tests mostly wait, so two processes more than there are cores. Beyond six the longest share decides.
PROCESSES ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$(( cores < 4 ? cores + 2 : 6 )))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help venv redis chromium lint format test test-slow demo soak chaos chaos-compare ha-times chaos-schedules fuzz model mutants bench bench-plot bench-quick bench-spark bench-pipeline cli-reference lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with the package and its development tools

$(STAMP): pyproject.toml requirements/dev.txt src/chasquimq/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@echo "installing into .venv ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) install -qq -c requirements/dev.txt -e '.[dev]'
	@touch $@

redis: ## fetch a private Redis 8.6 into .cache/redis-8.6 (Debian machines)
	@tools/fetch_redis.sh .cache/redis-8.6

chromium: ## fetch a private headless Chromium into .cache/chromium (Debian machines)
	@tools/fetch_chromium.sh .cache/chromium

lint: venv ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: venv ## let ruff format and fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

test: venv redis chromium lint ## everything: set-up, lint, all tests on all servers, in PROCESSES (cores + 2)
	@$(BIN)/python -m pytest -n $(PROCESSES)

test-slow: venv redis ## Spark in other ways: Connect, submitted, as a newcomer's program, its bench
	@$(BIN)/python -m pytest -m slow

demo: venv ## half a minute of jobs on a server of its own, and what Spark makes of it
	@$(BIN)/python examples/demo.py

soak: venv redis ## a worker under load for MINUTES (10): memory, connections and keys stay flat
	@$(BIN)/python -m tests.soak.run --minutes $(or $(MINUTES),10)

ha-times: venv redis ## how long jobs stand still when a server is lost, ROUNDS (5) times each
	@$(BIN)/python -m tests.ha.times --rounds $(or $(ROUNDS),5)

chaos: venv redis ## every scenario of tests/chaos/book.py on each server, with SEEDS (3): nothing lost
	@$(BIN)/python -m tests.chaos.full --seeds $(or $(SEEDS),3)

chaos-compare: venv redis ## the same faults under our workers, the reference's and careless ones, side by side
	@$(BIN)/python -m tests.chaos.compare

chaos-schedules: venv redis ## schedulers stopped PAUSES (200) times on each server: every window once
	@$(BIN)/python -m tests.chaos.schedules --pauses $(or $(PAUSES),200)

fuzz: venv redis ## arbitrary bytes into every parser, MINUTES (1) or SECONDS_EACH for each TARGET (all)
	@$(BIN)/python -m tests.fuzz.run --seconds $(or $(SECONDS_EACH),$(shell echo $$(( 60 * $(or $(MINUTES),1) )))) $(addprefix --target ,$(TARGET))

model: venv redis ## EXAMPLES (1000) programs of STEPS (80) on each server: all hold what the model says
	@$(BIN)/python -m tests.model.run --examples $(or $(EXAMPLES),1000) --steps $(or $(STEPS),80)

mutants: venv redis ## our scripts and loops broken in known ways: a test notices each, BY=model random programs
	@$(BIN)/python -m tests.mutants.run $(addprefix --,$(BY))

bench: venv redis ## everything about speed: the reference, other job queues, the limit, growth; half an hour
	@$(BIN)/python bench/full.py

bench-plot: venv ## the newest full report, as pictures and as the README's table
	@$(BIN)/python bench/plot.py

bench-quick: venv redis ## our figures beside the reference's and the last report's commit, in three minutes
	@$(BIN)/python bench/quick.py

bench-spark: venv redis ## the Spark source and sink beside plain loops, in a third of an hour
	@$(BIN)/python bench/spark.py

bench-pipeline: venv redis ## what an event costs in the lake, roll-ups and the report, up to five million
	@$(BIN)/python bench/pipeline.py

cli-reference: venv ## write docs/reference/cli* and the pages of --help anew, from the command itself
	@$(BIN)/python tools/cli_reference.py

lock: ## write requirements/dev.txt anew, with today's newest versions within the bounds
	@tools/lock.sh "$(PYTHON)" requirements/dev.txt

clean: ## remove everything that was made here
	rm -rf .venv .cache build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
