# On a fresh machine with Python 3.11+, a JDK 17 and Maven, `make demo` and `make test` do everything.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Without it every start of a broker would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java maven demo demo-cluster check types units test conformance moving shake fuzz sim planted assertions prove mutants endurance torture libraries kills readers bench clean

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "lakelog needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet -e '.[all,test]'
	$(BIN)/python -m compileall -q -j 0 src
	@touch $@

setup: $(STAMP) ## Make .venv with lakelog, all extras and the test tools

java:
	@found=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 \
	    | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p'); \
	  fault=$${found:+Java $$found is too old}; \
	  [ "$${found:-0}" -ge 17 ] || { echo "$${fault:-Java is missing}: install a JDK 17 or newer \
	(Debian: apt-get install openjdk-17-jdk-headless)" >&2; exit 1; }

maven: java
	@mvn -version >/dev/null 2>&1 || { echo "Maven is missing: install it \
	(Debian: apt-get install maven)" >&2; exit 1; }

demo: setup java ## From a log file to Iceberg tables (INPUT=access.log)
	$(BIN)/python -m lakelog.spark.demo $(if $(INPUT),--input '$(INPUT)')

demo-cluster: setup java ## Kill brokers and a ZooKeeper server under load, and count the records
	$(BIN)/python -m lakelog.testing.cluster_demo

# The unit tests sync thousands of small files. In memory they do not wait for a device.
MEMORY := $(shell [ -w /dev/shm ] && echo /dev/shm || echo $${TMPDIR:-/tmp})

# $(call stage,NAME,COMMAND) runs a command and prints its time.
stage = @echo '$(2)'; begun=$$(date +%s); $(2); status=$$?; \
	  echo "stage $(1): $$(($$(date +%s) - begun)) s"; exit $$status

check: setup ## Format, lint, types, layers and unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory -j 2 types units

# mypy has one process, which takes half a minute without its cache.
types:
	$(call stage,types,$(BIN)/mypy)

units:
	$(call stage,units,TMPDIR=$(MEMORY) $(BIN)/pytest -q -n auto --dist loadgroup $(SLOWEST) \
	  -m "not java" tests/unit tests/contract)

# Each file in one of two processes, the long files first.
SIDE_BY_SIDE := -n 2 --dist loadfile --no-loadscope-reorder

# kafka-python and aiokafka leave most errors of a restart to applications: `make moving`.
PATIENT := not kafka-python and not aiokafka
MOVING := --moving-leaders -m moving -k "$(PATIENT)" tests/clients

# Three stages at a time, the long ones first. Tests of `test-processes` mostly wait for processes;
# the other stages have work for a core, and Spark's Java wants a gigabyte for each process.
STAGES := test-processes test-spark test-simulation test-histories test-clusters test-java \
  test-oracles test-moving
APART := unit contract spark simulation oracle conformance endurance torture

# Not in `make check`: times of fixtures cost a tenth of the time of the unit tests.
test: export SLOWEST := --durations=20

test: check maven ## Everything: real clients, Apache Kafka's own tools, Spark
	@$(MAKE) --no-print-directory --output-sync=target -j 3 $(STAGES)

.PHONY: $(STAGES)

test-processes:
	$(call stage,processes,$(BIN)/pytest -q --long $(SLOWEST) -n 3 --dist loadfile \
	  --no-loadscope-reorder tests $(APART:%=--ignore=tests/%))

test-spark:
	$(call stage,spark,$(BIN)/pytest -q --long $(SLOWEST) $(SIDE_BY_SIDE) tests/spark)

test-histories:
	$(call stage,histories,$(BIN)/pytest -q $(SLOWEST) -m "(histories or long) and not java" \
	  --long tests/unit tests/contract)

test-simulation:
	$(call stage,simulation,$(BIN)/pytest -q --long $(SLOWEST) tests/simulation)

test-oracles:
	$(call stage,oracles,$(BIN)/pytest -q --long $(SLOWEST) tests/oracle tests/conformance)

test-clusters:
	$(call stage,clusters,$(BIN)/pytest -q --long $(SLOWEST) tests/torture tests/endurance)

test-java:
	$(call stage,java,$(BIN)/pytest -q $(SLOWEST) -m java tests/unit tests/contract)

test-moving:
	$(call stage,moving,$(BIN)/pytest -q $(SLOWEST) $(MOVING))

conformance: setup maven ## Answers as Apache Kafka gives them; each feature by several clients
	$(BIN)/pytest -q --every-version tests/conformance tests/clients tests/oracle

moving: setup maven ## All clients against three brokers that are restarted in turn
	$(BIN)/pytest -q --moving-leaders tests/clients

# Processes that wait for each other: kills, restarts, failovers, moving leaders, and Spark's sinks
# and followers. The other tests have one broker that stays, or virtual time.
SHAKEN := tests/system tests/endurance/test_kills.py tests/torture/test_short_run.py \
  $(wildcard tests/spark/test_sink*.py) tests/spark/test_archive_kills.py \
  tests/spark/test_broker_restart.py tests/spark/test_full_disk.py tests/spark/test_sync_enabled.py

shake: setup maven ## Tests of processes beside 8 busy ones, with pauses of brokers (ROUNDS=3 SEED=1 TESTS=)
	PYTHONPATH=tests $(BIN)/python -m shaking --busy 8 --rounds $(or $(ROUNDS),3) \
	  --seed $(or $(SEED),1) $(if $(TESTS),'$(TESTS)','$(SIDE_BY_SIDE) $(SHAKEN)' '$(MOVING)')

fuzz: setup ## A million damaged frames, 50,000 over TCP, and 2,000 connections that stall (SEED=1)
	$(BIN)/pytest -q -n 2 -rP tests/fuzz/test_in_process.py --fuzz-frames=1000000 \
	  --fuzz-seed=$(or $(SEED),1)
	$(BIN)/pytest -q -s tests/fuzz --ignore=tests/fuzz/test_in_process.py \
	  --fuzz-tcp-frames=50000 --fuzz-stalled=2000 --fuzz-seed=$(or $(SEED),1)

endurance: setup java ## One broker killed again and again under clients (ROUNDS=20 SEED=1)
	$(BIN)/pytest -q -s tests/endurance --endurance-rounds=$(or $(ROUNDS),20) \
	  --endurance-seed=$(or $(SEED),1)

torture: setup java ## A cluster under kills, pauses and cuts (STORE=zookeeper TIME=480 SEED=1)
	PYTHONPATH=tests $(BIN)/python -m torture --store $(or $(STORE),zookeeper) \
	  --seconds $(or $(TIME),480) --seed $(or $(SEED),1)

libraries: setup maven ## Producers of four libraries over leader kills (KILLS=20 SEED=1)
	PYTHONPATH=tests $(BIN)/python -m torture --plan libraries --store $(or $(STORE),zookeeper) \
	  --seconds 3600 --faults $(or $(KILLS),20) --seed $(or $(SEED),1)

kills: setup java ## Processes of sinks, tables and their broker killed (KILLS=12 for each form)
	$(BIN)/pytest -q -s tests/spark/test_many_kills.py tests/spark/test_many_archive_kills.py \
	  tests/spark/test_archive_kills.py tests/spark/test_table_kills.py tests/spark/test_latest_kills.py tests/spark/test_sink_kills.py \
	  --sink-kills=$(or $(KILLS),12)

READERS := build/readers

$(READERS)/.installed: tests/spark/readers/requirements.txt
	$(PYTHON) -m venv --clear $(READERS)
	$(READERS)/bin/pip install --quiet -r $<
	@touch $@

readers: setup maven $(READERS)/.installed ## Iceberg's Spark and DuckDB read archived tables, without lakelog
	$(BIN)/pytest -q tests/spark/test_readers.py tests/spark/test_latest_readers.py --readers=$(READERS)/bin/python

sim: setup ## Seeded worlds of three brokers (SEEDS=200, BROKERS=1, or SEED=7 to see one again)
	PYTHONPATH=tests $(BIN)/python -m simulator $(if $(BROKERS),--brokers $(BROKERS)) \
	  $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),200))

assertions: setup ## Which assertions of lakelog simulated worlds reach (SEEDS=20)
	PYTHONPATH=tests $(BIN)/python -m reached_assertions --seeds $(or $(SEEDS),20)

planted: setup ## How many seeds of clusters catch each planted bug (SEEDS=20 BUG="a stale ...")
	PYTHONPATH=tests $(BIN)/python -m simulation --seeds $(or $(SEEDS),20) \
	  $(if $(BUG),--bug "$(BUG)")

prove: setup maven ## Every planted bug and seed, 200 seeded worlds of each kind, and long torture
	$(BIN)/pytest -q -n 2 --dist loadfile --prove --long tests/simulation
	$(BIN)/pytest -q -n 2 --dist loadfile --prove --long -m prove tests --ignore=tests/simulation
	@$(MAKE) --no-print-directory sim SEEDS=200
	@$(MAKE) --no-print-directory sim SEEDS=200 BROKERS=1
	@$(MAKE) --no-print-directory torture STORE=zookeeper
	@$(MAKE) --no-print-directory torture STORE=sqlite

mutants: setup ## Change one place at a time, and see some test fail (MUTANTS=400 SEED=1 PACKAGES= AGAIN=1)
	PYTHONPATH=tests $(BIN)/python -m mutants --count $(or $(MUTANTS),400) --seed $(or $(SEED),1) \
	  --processes $$(nproc) $(if $(PACKAGES),--packages $(PACKAGES)) $(if $(AGAIN),--survivors)

bench: setup maven ## Side by side with Apache Kafka (PART=latency, scale, spark, start, ...)
	$(BIN)/python benchmarks/$(or $(PART),run).py

clean: ## Remove what setup and the tests have made
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis
