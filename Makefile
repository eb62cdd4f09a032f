# Every command people use; CI runs the same ones. `make demo` and `make test` set up all they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo page test test-labs labs vllm-env test-vllm lint bench fit-efficiency accuracy policies article clean

# the main job: a real engine serving a real model, measured against this machine's own ceilings
demo: $(VENV)/.demo
	$(BIN)/inference-bench verify --runs runs

# the calculator as static files in ./page; npm fetches Python for the browser and the chart library, once
page: $(VENV)/.demo
	$(BIN)/inference-bench page build

# everything that CI runs
test: $(VENV)/.dev lint
	$(BIN)/pytest

# the experiments on a real model alone: their tests, and each page of docs/labs/notebooks run once, quickly
test-labs: $(VENV)/.dev
	$(BIN)/pytest tests/labs tests/cli/test_lab.py
	$(BIN)/pytest -m labs tests/real

# docs/labs/*.md and their charts, measured here and now; all six, or LABS='cache batch': about 20 minutes on two quiet cores
labs: $(VENV)/.dev
	$(BIN)/python scripts/write_labs.py $(LABS)

# vLLM for CPUs in an environment of its own, .venv-vllm: about 3.5 GB, 2 to 10 minutes; run again, it changes nothing
vllm-env:
	$(PYTHON) scripts/vllm_env.py .venv-vllm

# a real vLLM server, started about ten times: some minutes
test-vllm: $(VENV)/.dev vllm-env
	INFERENCE_BENCH_VLLM='$(CURDIR)/.venv-vllm' $(BIN)/pytest -m vllm tests/real

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/fit_start.py
	$(BIN)/python benchmarks/gguf_header.py
	$(BIN)/python benchmarks/plan.py
	$(BIN)/python benchmarks/score.py
	$(BIN)/python benchmarks/simulate.py
	$(BIN)/python benchmarks/arrival_proof.py
	$(BIN)/python benchmarks/page.py
	$(BIN)/python benchmarks/load_client.py

# the efficiencies that ship, fitted again: make fit-efficiency TABLES=folder/of/csv
fit-efficiency: $(VENV)/.dev need-tables
	$(BIN)/python scripts/fit_efficiency.py '$(TABLES)'

# docs/accuracy.md and its picture from cross-validated scores: make accuracy TABLES=folder/of/csv
accuracy: $(VENV)/.dev need-tables
	$(BIN)/python scripts/write_accuracy.py '$(TABLES)'

# docs/policies.md and its picture, simulated anew; a test holds the page to the rules
policies: $(VENV)/.dev
	$(BIN)/python scripts/write_policies.py

# docs/kv-cache-formula.md and its pictures, counted anew; a test holds the page to the code
article: $(VENV)/.dev
	$(BIN)/python scripts/write_article.py

.PHONY: need-tables
need-tables:
	@test -n '$(TABLES)' || { echo 'name the folder of measurement tables: make $(firstword $(MAKECMDGOALS)) TABLES=folder' >&2; exit 2; }

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench,gpu,fast,ray,labs,notebooks,dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist runs page .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
