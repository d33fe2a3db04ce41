# Two commands on a machine with Python ≥ 3.11 and nothing else set up: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Settings for the demo: make demo keys="quick=true"
keys ?=

.PHONY: demo test lint package check-install check-readme release bench fuzz kills endurance tree clean

demo: .venv/installed
	$(BIN)/phylatent demo $(keys)

test: .venv/installed-test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: .venv/installed-dev
	$(BIN)/ruff check src tests benchmarks docs release
	$(BIN)/ruff format --check src tests benchmarks docs release
	$(BIN)/mypy

# The wheel and the sdist in dist/, and what is wrong with them.
package: .venv/installed-dev
	$(BIN)/python release/build_package.py

# Downloads about 3 GB: the wheel without extras in an environment of its own, tried and weighed.
check-install: package
	$(BIN)/python release/check_install.py dist/*.whl

# What the README shows, word for word, in a fresh clone and an empty environment: about half an hour, and 7.5 GB.
check-readme:
	$(PYTHON) release/check_readme.py

# Everything for a release in dist/, for a person to upload; runs="runs/a runs/b" says which models.
runs ?=
release: package
	$(BIN)/python release/build_docs.py
	$(BIN)/python release/hub_folders.py $(runs)

BENCHMARKS := loader step plan evaluate collect scale

bench: .venv/installed-test
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/tables.py

# Tries to break the commands for so many minutes; what fails is kept in tests/reliability/cases, and fails `make test` until mended.
RELIABILITY := tests/reliability
minutes ?= 20
seed ?= 0
times ?= 20

fuzz: .venv/installed-test
	$(BIN)/python $(RELIABILITY)/fuzz.py --minutes $(minutes) --seed $(seed) --record $(RELIABILITY)/results/fuzz.json; \
	found=$$?; $(BIN)/python $(RELIABILITY)/page.py; exit $$found

kills: .venv/installed-test
	$(BIN)/python $(RELIABILITY)/kills.py --times $(times) --seed $(seed) --record $(RELIABILITY)/results/kills.json; \
	found=$$?; $(BIN)/python $(RELIABILITY)/page.py; exit $$found

endurance: .venv/installed-test
	$(BIN)/python $(RELIABILITY)/endurance.py --record $(RELIABILITY)/results/endurance.json; \
	found=$$?; $(BIN)/python $(RELIABILITY)/page.py; exit $$found

tree:
	$(PYTHON) docs/tree.py

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "phylatent needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip

.venv/installed: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]'
	@touch $@

.venv/installed-test: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	@touch $@ .venv/installed

.venv/installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@ .venv/installed .venv/installed-test

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
