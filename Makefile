# One line per verb. `make demo` and `make test` work on a bare machine with Python 3.11,
# pip, git and make.

PYTHON ?= python3
BIN := .venv/bin
# Bytecode is made when a module is first imported: most of what comes never is. A machine that
# forbids it would compile every library again in each of the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --no-compile
# The lock files name everything that comes, so pip looks for nothing else and checks each hash.
LOCKED := $(PIP) --require-hashes --no-deps
WORKERS ?= 2
PYTHON_FILES := src tests benchmarks studies examples publishing hatch_build.py web/generate_types.py docs/claims.py docs/generate.py docs/licenses.py \
	docs/metric_tables.py docs/pictures.py requirements/lock.py

.PHONY: setup lock demo test test-quick test-long families check format web bench peers docs docs-next study dist \
	release matrix clean

# .venv is filled in two steps, each with a stamp: what the demo needs, and the rest on top.
# torch comes first: the CPU's build where pip finds it, else the index's with what it needs.
.venv/.demo: pyproject.toml requirements/demo.txt requirements/torch.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(LOCKED) -r requirements/torch.txt || $(LOCKED) -r requirements/torch-index.txt
	$(LOCKED) -r requirements/demo.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

setup: .venv/.ready ## make .venv with everything the other verbs need
.venv/.ready: .venv/.demo requirements/dev.txt
	$(LOCKED) -r requirements/dev.txt
	touch $@

lock: setup ## renew requirements/*.txt after a change of pyproject.toml (UPGRADE=--upgrade: newest)
	$(BIN)/python requirements/lock.py $(UPGRADE)

demo: .venv/.demo ## run the main job on the packaged models and say where to look
	$(BIN)/python examples/demo.py -o demo

test: setup check ## everything that must pass
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long"

test-long: setup ## what takes minutes: notebooks, long pages of the guide, Ray, the demo
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "long and not ray"
	$(BIN)/python -m pytest -m ray

families: setup ## sweep every family of transformers; the table goes into the docs
	$(BIN)/python -m tests.families.sweep --workers $(WORKERS) $(if $(TESTERS),--testers $(TESTERS))

check: setup ## format, lint, types, imports
	$(BIN)/ruff format --check $(PYTHON_FILES)
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## rewrite the sources as `check` wants them
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/ruff check --fix $(PYTHON_FILES)

web: ## build the front end into the package (needs Node.js)
	$(PYTHON) web/generate_types.py
	cd web && npm ci --no-audit --no-fund && npm run check && npm test && npm run build

bench: setup peers ## measure, side by side, in one run; the table goes into the docs
	$(BIN)/python -m benchmarks --write docs/benchmarks.md
	$(BIN)/python docs/claims.py

# What others would use instead, in a folder of its own: it never meets our dependencies.
peers: setup .peers/.ready
.peers/.ready: benchmarks/peers.txt
	$(LOCKED) --target .peers -r benchmarks/peers.txt
	cp benchmarks/peers_web/package.json benchmarks/peers_web/package-lock.json .peers
	npm ci --silent --no-audit --no-fund --prefix .peers
	touch $@

docs: setup ## build the site into site/; a broken link fails
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# mkdocs-material is in maintenance; its successor reads the same mkdocs.yml. In a folder of its own.
docs-next: docs ## build the site with Zensical too, into site-next/; an issue fails
	test -x .zensical/bin/zensical || $(PYTHON) -m venv .zensical
	.zensical/bin/pip install --quiet zensical==0.0.73 mkdocstrings-python==2.0.11
	sed 's/^site_dir: .*/site_dir: site-next/' mkdocs.yml > .mkdocs-next.yml
	.zensical/bin/zensical build --strict -f .mkdocs-next.yml
	grep -q 'id="headscope.wires"' site-next/reference/effects.html

test-quick: setup ## the inner loop: no browser, no packaged model, no family, no page of the docs
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long and not slow and not packaged" \
		--ignore tests/browser --ignore tests/families --ignore tests/docs --ignore tests/live \
		--ignore tests/app --ignore tests/fuzz

study: setup ## run the study of docs/study.md on GUM (HEADSCOPE_DATA names the folder)
	$(BIN)/python -m studies.gum --data $(HEADSCOPE_DATA)/gum --workers $(WORKERS)
	$(BIN)/python -m studies.gum.reproduced

dist: setup ## build wheel and source archive into dist/, and check them as the index does
	$(BIN)/python -m publishing.release

release: setup ## the same, from a commit with its version's tag (publishing/README.md)
	$(BIN)/python -m publishing.release --tagged

matrix: dist ## the wheel in clean environments: each Python at hand, and the lowest versions
	$(BIN)/python -m publishing.matrix $(ROWS)

clean: ## remove what the other verbs made
	rm -rf .venv .peers .matrix .zensical .docs demo site site-next dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
