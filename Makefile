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

# The newest transformers and PEFT, whatever pyproject.toml admits, against the tests that would notice.
newest: BIN := .venv-newest/bin
newest:
	$(PYTHON) -m venv .venv-newest
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --upgrade transformers peft
	$(BIN)/python -m pip list | grep -E "^(transformers|peft|tokenizers) "
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 tests/models tests/parity tests/training tests/integration

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
	rm -rf .venv .venv-newest site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
