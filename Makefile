# Two commands do everything on a fresh machine with Python 3.11+: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python

.PHONY: demo test check docs setup bench bench-quick bench-mgh bench-degenerate bench-a9a bench-paper bench-reader bench-adaptors bench-classes bench-theory bench-suite bench-suite-quick clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[test,check]'
	touch $@

demo: setup
	$(RUN) -m tercet.experiments.demo

test: setup
	$(RUN) -m pytest -n 2

check: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: setup
	$(VENV)/bin/sphinx-build -q -W --keep-going -b html docs docs/_build/html
	@echo docs/_build/html/index.html

bench-mgh bench-degenerate bench-a9a bench-paper bench-reader bench-adaptors bench-classes: bench-%: setup
	$(RUN) -m benchmarks.$*

bench-theory: setup
	$(RUN) -m benchmarks.theory draws
	$(RUN) -m benchmarks.theory a9a
	$(RUN) -m benchmarks.theory slope

# About forty minutes; the quick one under five. Both write benchmarks/results/*.json and benchmarks/RESULTS.md.
bench: setup
	$(RUN) -m benchmarks.speed

bench-quick: setup
	$(RUN) -m benchmarks.speed --quick

# Under forty minutes on two cores; the quick one under five. Both write benchmarks/results/suite/.
bench-suite: setup
	$(RUN) -m benchmarks.suite --jobs 2

bench-suite-quick: setup
	$(RUN) -m benchmarks.suite --quick --jobs 2

clean:
	rm -rf $(VENV) demo docs/_build
