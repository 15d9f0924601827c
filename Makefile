# Thin: each target names what it does; how is in scripts/ and cli/.
PYTHON ?= python3
PORT ?= 8000
DATA_DIR ?= .run
ONCE ?=
SEEDS ?= 10000
MINUTES ?= 60
ONLY ?=
RUNS ?=
SEED ?= 0
BIN := .venv/bin

.PHONY: help run up check test slow integrations simulate chaos fuzz lint format generate bench bench-collectives build clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup = @command -v $(PYTHON) >/dev/null 2>&1 || { echo "Trainhall needs Python 3.11 or newer: no '$(PYTHON)' on the PATH (PYTHON=... names another)" >&2; exit 1; }; \
	$(PYTHON) scripts/setup.py

run: ## Install what is missing, start Trainhall and train on handwritten digits (PORT=8000, DATA_DIR=.run, ONCE=1)
	$(setup) run --port $(PORT)
	@exec $(BIN)/trainhall up --port $(PORT) --data-dir "$(DATA_DIR)" --demo examples/digits.yaml $(if $(ONCE),--once)

check: ## The inner loop: style, types, boundaries, and the tests that start no process
	$(setup) lint
	$(BIN)/python scripts/check.py

test: ## Every check and every test
	$(setup) test
	$(BIN)/python scripts/test.py

slow: ## The tests that take eight ranks, a compiler or many runs
	$(setup) test
	$(BIN)/python -m pytest -q -m slow

integrations: ## The tests against foreign clients and servers, in an environment of its own
	$(setup) integrations
	.venv-integrations/bin/python -m pytest -q -m integration $$(grep -rl mark.integration tests)
	.venv-integrations/bin/python -m benchmarks.jobs.tracking

simulate: ## 10,000 seeds of a failing cluster, on all cores (SEEDS=10000)
	$(setup) test
	$(BIN)/python scripts/simulate.py --seeds $(SEEDS)

chaos: ## Real faults on a real cluster of processes; as root in networks of its own too (ONLY=partition, RUNS=3, SEED=0)
	$(setup) test
	$(BIN)/python scripts/chaos.py --seed $(SEED) $(if $(ONLY),--only "$(ONLY)") $(if $(RUNS),--runs $(RUNS)) --json .run/chaos.json

fuzz: ## An hour of random requests as every role of two projects (MINUTES=60, SEED=0)
	$(setup) test
	$(BIN)/python scripts/fuzz_roles.py --minutes $(MINUTES) --seed $(SEED)

lint: ## Style, types, boundaries, and that generated files are current
	$(setup) lint
	$(BIN)/python scripts/lint.py

format: ## Rewrite the sources in the common style
	$(setup) lint
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cd dashboard && npm run --silent format

generate: ## Rewrite generated documents and the dashboard's API client
	$(setup) lint
	$(BIN)/python scripts/generate_docs.py
	cd dashboard && npm run --silent generate

bench: ## Run the benchmarks one after another and print their ratios
	$(setup) test
	$(BIN)/python scripts/bench.py

bench-collectives: ## Measure collectives on loopback and on limited links (as root) and simulate 4,096 ranks, with a report
	$(setup) test
	$(BIN)/trainhall bench collectives --limits 100Mbit/s,1Gbit/s --report benchmarks/results/collectives
	$(BIN)/trainhall bench collectives --simulate > benchmarks/results/collectives/simulated.txt

build: ## A wheel with the dashboard inside, in dist/
	$(setup) build
	@rm -rf build
	$(BIN)/python -m build --wheel --no-isolation

clean: ## Remove what was installed and built here, and the data of `make run`
	rm -rf .venv .venv-integrations .venv-mlflow2 .run build dist src/*.egg-info api/static dashboard/node_modules
