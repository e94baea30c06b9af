PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test check format docs clean

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/dsocr demo

# Each process holds torch: eight take 6 GB.
test: setup
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

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
