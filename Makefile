# Everything a fresh clone needs: `make test`, `make demo`. Nothing is installed system-wide:
# all of it goes into .venv/ and .cache/.

PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.installed
WORKFLOWS := .github/workflows
SHELL  := /bin/bash
# Many tests wait, so more processes than cores. Beyond six the longest share decides.
CORES     := $(shell getconf _NPROCESSORS_ONLN)
PROCESSES ?= $(shell echo $$(( $(CORES) < 3 ? $(CORES) + 3 : 6 )))

# Tests start thousands of programs. What the first one compiles the others load, also where the
# environment says that nothing is to be compiled (`make clean` removes it).
check test test-all test-old test-python313 compile-tests: export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: $(shell awk -F: '/^[a-z0-9-]+:.*## / { print $$1 }' $(MAKEFILE_LIST))

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## create .venv with the package and its development tools

$(STAMP): pyproject.toml requirements/build.txt requirements/dev.txt src/chasquimq/_version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	@echo "installing into .venv ..."
	@$(PYTHON) -m venv .venv
	@tools/install.sh $(BIN)/python
	@touch $@

redis: ## fetch a private Redis 8.6 into .cache/redis-8.6 (Debian machines)
	@tools/fetch_redis.sh .cache/redis-8.6

chromium: ## fetch a private headless Chromium into .cache/chromium (Debian machines)
	@tools/fetch_chromium.sh .cache/chromium

python313: .cache/venv-3.13/.installed ## fetch a private Python 3.13 and install everything for it (Debian machines)

.cache/venv-3.13/.installed: $(STAMP) tools/fetch_python.sh tools/install.sh
	@tools/fetch_python.sh .cache/python-3.13 3.13
	@echo "installing into .cache/venv-3.13 ..."
	@.cache/python-3.13/bin/python3.13 -m venv --without-pip --clear .cache/venv-3.13
	@tools/install.sh .cache/venv-3.13/bin/python $(BIN)/python
	@touch $@

lint: venv ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

lint-workflows: venv ## check workflows and hooks with zizmor and check-jsonschema, offline
	@$(BIN)/zizmor --offline --pedantic --strict-collection --no-progress --quiet $(WORKFLOWS)/*.yml .pre-commit-config.yaml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)/*.yml

format: venv ## let ruff format and fix what it can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

check: lint lint-workflows ## what needs no server: lint, types, architecture, unit tests; for while you work, < 45 s
	@$(BIN)/python -m pytest --tier check -n $(CORES) -q

test: venv redis chromium compile-tests lint ## what CI runs: everything that guards a promise, in PROCESSES (cores + 3); < 10 minutes
	@$(BIN)/python -m pytest -n $(PROCESSES)

# Beside the linters: else each process of the tests would compile all of them at the same time.
compile-tests: venv
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 &

test-all: venv redis chromium lint ## before a release: every test on every server, then the long trials; two hours
	@$(BIN)/python -m pytest --tier all -n $(PROCESSES)
	@$(MAKE) --no-print-directory test-old test-python313 chaos soak model fuzz mutants \
	  SEEDS=$(or $(SEEDS),1) MINUTES=$(or $(MINUTES),2) EXAMPLES=$(or $(EXAMPLES),200) SECONDS_EACH=$(or $(SECONDS_EACH),10)

test-old: venv ## the store and the scenarios on Redis 7.0, the oldest that we support (Debian machines)
	@tools/fetch_redis.sh .cache/redis-7.0 7.0
	@TEST_SERVER=.cache/redis-7.0/bin/redis-server $(BIN)/python -m pytest --tier all -n $(PROCESSES) tests/store tests/chaos

test-python313: python313 redis ## unit, store and engine tests on Python 3.13, in PROCESSES
	@.cache/venv-3.13/bin/python -m pytest --tier all -n $(PROCESSES) tests/unit tests/store tests/engine

demo: venv ## half a minute of jobs on a server of its own, and what Spark makes of it
	@$(BIN)/python examples/demo.py

soak: venv redis ## workers under load for MINUTES (10), a fault each FAULT_EVERY_S (20), SEED, RATE; FAULTS=no without
	@$(BIN)/python -m tests.soak.run --minutes $(or $(MINUTES),10) $(if $(filter no,$(FAULTS)),--no-faults) $(addprefix --fault-every-s ,$(FAULT_EVERY_S)) $(addprefix --seed ,$(SEED)) $(addprefix --rate ,$(RATE)) $(addprefix --server ,$(SERVER))

ha-times: venv redis ## how long jobs stand still when a server or a worker is lost, ROUNDS (5) times each
	@$(BIN)/python -m tests.ha.times --rounds $(or $(ROUNDS),5)

partitions: venv redis ## a replica is cut off and promoted, ROUNDS (50) times: nothing it confirmed is lost
	@$(BIN)/python -m tests.ha.partitions --rounds $(or $(ROUNDS),50)

chaos: venv redis ## every scenario of tests/chaos/book.toml on each server, with SEEDS (3): nothing lost
	@$(BIN)/python -m tests.chaos.full --seeds $(or $(SEEDS),3) $(addprefix --report ,$(REPORT))

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

freeze: venv redis ## write the lists in tests/frozen/ anew: what users rely on, after a change that is meant
	@$(BIN)/python -m tests.frozen.write
	@FREEZE=1 $(BIN)/python -m pytest -q $$(grep -rl --include="test_*.py" "frozen.lists import" tests)

lock: ## write requirements/ anew with hashes: today's newest versions within the bounds; KEEP=1 those there
	@$(PYTHON) tools/lock.py $(if $(KEEP),--keep) requirements

audit: venv .cache/audit/.installed ## ask whether a version in requirements/ is known to be vulnerable
	@$(PYTHON) tools/audit.py --with .cache/audit/bin/pip-audit --python $(BIN)/python requirements/build.txt requirements/dev.txt

sbom: ## write dist/sbom.json: what is in requirements/, as a CycloneDX bill of materials
	@$(PYTHON) tools/audit.py --sbom dist/sbom.json requirements/build.txt requirements/dev.txt

.cache/audit/.installed: requirements/audit.txt
	@$(PYTHON) -m venv .cache/audit
	@.cache/audit/bin/python -m pip --disable-pip-version-check --no-input install -qq --require-hashes --no-deps -r $<
	@touch $@

clean: ## remove everything that was made here
	rm -rf .venv .cache build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
