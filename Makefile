# The commands of the README are `make demo`, `make airflow` and `make test`; each does all the set-up it needs, in .venv and .cache.

.DEFAULT_GOAL := help
.PHONY: docs help setup demo airflow postgres airflow-numbers test test-all shard check-fast coverage mutants-check simulate explore mutants differential fuzz fuzz-files random-values conditions torture bench numbers check lint typecheck imports format prove-setup minio lock wheel sbom clean clean-all

ENV := . .ci/env &&
BIN := .venv/bin
SHARDS := $(ENV) PYTHONPATH=.:plugins $(BIN)/python -m tests.suite.shards
export WORKERS ?= -n 3# processes of pytest: many tests wait, so one more than cores; WORKERS= for one, as -s and --pdb want it

help: ## Say what the targets do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\n  ARGS="..." goes to the command behind demo, test and bench: make demo ARGS="--input trans.csv"\n'

setup: ## Python packages, Java, Airflow's database and Spark's S3A jars into .venv and .cache; quick when nothing changed
	@.ci/setup

demo: setup ## Real payments through the whole platform, on an embedded store
	@$(ENV) $(BIN)/txn-engine demo $(ARGS)

airflow: setup ## A whole Airflow on 127.0.0.1 with the DAGs, the pages and payments that flow; Ctrl-C stops all of it
	@$(ENV) exec $(BIN)/python -m txn_engine_airflow.standalone --home .cache/standalone $(ARGS)

postgres: setup ## A Postgres on 127.0.0.1 to try things with, for docs/POSTGRES_PIPELINE.md; Ctrl-C stops it and removes its data
	@$(ENV) PYTHONPATH=.:plugins exec $(BIN)/python -m tests.support.postgres --environment .cache/postgres.env $(ARGS)

test: ## Every rule, command and page once, on the real MinIO, Spark, Airflow, Postgres and Kafka (ARGS="tests/sql -k limit")
	@.ci/test $(ARGS)

test-all: setup minio ## All that is too long for `make test`, shard by shard, and when each shard last ran with which result
	@$(SHARDS) run all

shard: setup minio ## One shard: make shard NAME=spark; without a name, each shard and its last run
	@$(SHARDS) $(if $(NAME),run $(NAME),list)

check-fast: lint mutants-check ## For every save, within 60 s: style, docs, the pure core, Kafka's rules, storage in memory and on disk
	@$(ENV) HYPOTHESIS_PROFILE=quick $(BIN)/pytest $(WORKERS) -q --quick \
		tests/protocol tests/kafka_rules tests/storage tests/docs/test_references.py $(ARGS)

coverage: setup minio ## Lines and branches that `make test` covers, its child processes included (minutes; ARGS as for test)
	@$(ENV) $(BIN)/python -m tests.suite.coverage $(ARGS)

bench: setup ## The numbers, each against its bare limit in the same run
	@$(ENV) $(BIN)/python -m tests.numbers bench $(ARGS)

airflow-numbers: setup ## DAGs parsed, 10,000 ids swept, markers, the pages' latency, 10,000 small files compacted
	@$(ENV) $(BIN)/python -m tests.dags.parse_times
	@$(ENV) $(BIN)/python -m tests.dags.measure_sweeps
	@$(ENV) $(BIN)/python -m tests.pages.bench
	@$(ENV) $(BIN)/python -m tests.maintain.many_files
	@$(ENV) $(BIN)/python -m tests.maintain.many_files --by-key

differential: setup ## Programs on Apache Kafka and on the engine, compared: make differential PROGRAMS=2000
	@$(ENV) $(BIN)/python -m tests.differential --programs $(or $(PROGRAMS),200) $(ARGS)

torture: setup minio ## Real processes, a real server and power cuts, killed at random: make torture ARGS="--rounds 100"
	@$(ENV) $(BIN)/python -m tests.torture $(ARGS)

simulate: setup ## Simulated runs over a store that fails (SEEDS=1000, or ARGS="--minutes 60", ARGS="--workload bank"); docs/SIMULATOR.md
	@$(ENV) $(BIN)/python -m tests.simulator run --seeds $(or $(SEEDS),1000) $(ARGS)

explore: setup ## Small configurations over every interleaving: make explore ARGS="--config a", ARGS="--config producer", ARGS="--mutants"; docs/SIMULATOR.md
	@$(ENV) $(BIN)/python -m tests.simulator.explore $(ARGS)

fuzz: setup ## Objects changed, their checksums right again: make fuzz ARGS="--minutes 60", ARGS="--case SEED/NUMBER"
	@$(ENV) PYTHONPATH=.:plugins $(BIN)/python -m tests.fuzz $(ARGS)

fuzz-files: setup ## Files of every format with random changes, each row accounted for: make fuzz-files ARGS="--minutes 60"
	@$(ENV) PYTHONPATH=.:plugins $(BIN)/python -m tests.files.fuzzed $(ARGS)

random-values: setup ## Random values of every type through every feature: make random-values ARGS="--values 1000000"
	@$(ENV) PYTHONPATH=.:plugins $(BIN)/python -m tests.types.random_values $(ARGS)

conditions: setup ## Random conditions of erasures against a naive evaluator: make conditions ARGS="--minutes 60", ARGS="--case SEED/NUMBER"
	@$(ENV) PYTHONPATH=.:plugins $(BIN)/python -m tests.erasing.condition_cases $(ARGS)

mutants: setup ## Deliberate bugs, hunted by the simulator one by one (ARGS="--name no-epoch-check --budget 100")
	@$(ENV) $(BIN)/python -m tests.simulator.mutants $(ARGS)

docs: setup ## Write the pages that are made from the code (docs/BUCKETS.md, docs/OPERATORS.md, docs/CONFIGS.md, docs/TYPES.md)
	@$(ENV) PYTHONPATH=plugins:. $(BIN)/python -m tests.docs.made_pages

numbers: setup ## What all of these last came to on this machine (ARGS=--json)
	@$(BIN)/python -m tests.numbers $(ARGS)

check: lint typecheck imports mutants-check ## All that can be said without running: lint, types, import contracts, mutants

mutants-check: setup ## Say which deliberate bugs no longer fit the code
	@$(BIN)/python -m tests.simulator.mutants.check

lint: setup ## Ruff: rules and format
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check

typecheck: setup ## Strict types
	@$(BIN)/mypy

imports: setup ## Dependencies point down only (import-linter)
	@$(BIN)/lint-imports --no-logo --cache-dir .cache/import_linter

format: setup ## Write the files as the linter wants them
	@$(BIN)/ruff check --fix-only --quiet
	@$(BIN)/ruff format

prove-setup: setup ## Set up a copy on a machine without Chromium, Postgres, Java, Go and uv, and run each of them (minutes)
	@$(BIN)/python -m tests.setup.fresh_machine

minio: ## Build the MinIO server of the tests, once
	@.ci/setup-minio
	@.cache/bin/minio --version | head -n 1

lock: ## Pin the requirement files anew from pyproject.toml (UPGRADE=1 moves the pins)
	@.ci/lock

wheel: setup ## The wheel, DAGs and plugins in it, into dist/
	@.cache/uv/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python && ls dist/*.whl

sbom: setup ## A CycloneDX SBOM of every pinned package, jar, module and image, into dist/
	@$(BIN)/python -m tests.setup.sbom dist/txn-engine-sbom.json

clean: ## Remove what the tools and the builds leave behind; set-up and MinIO stay
	@rm -rf dist build .cache/pytest .cache/ruff .cache/mypy .cache/import_linter .cache/hypothesis .hypothesis
	@find . -name __pycache__ -type d -not -path './.venv/*' -not -path './.cache/*' -prune -exec rm -rf {} +

clean-all: clean ## Remove all that set-up made as well, MinIO's binary too
	@rm -rf .venv .cache
