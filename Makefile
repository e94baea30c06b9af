PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-slow check format docs clean

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/dsocr demo

# Each process holds torch: eight take 6 GB.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

test: setup
	$(PYTEST) -m "not slow"

# Other processes that are killed, parity of whole networks: what takes longest.
test-slow: setup
	$(PYTEST) -m slow

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/size.py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: setup
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[docs]"
	$(BIN)/python tools/write_reference.py
	$(BIN)/zensical build --strict

clean:
	rm -rf .venv site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
