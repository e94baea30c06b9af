PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test test-slow faults engines test-wheel newest check format docs release clean

setup: .venv/.installed

.venv/.installed: pyproject.toml constraints.txt
	@echo "Installing into .venv: about 2 GB, a few minutes"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

demo: setup
	$(BIN)/dsocr demo

# Each process holds torch: eight take 6 GB.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 8 --dist worksteal

test: setup
	$(PYTEST) -m "not slow and not engines and not wheel"

# Killed processes, parity of whole networks: the slowest tests.
test-slow: setup
	$(PYTEST) -m slow

# Kills of every job that resumes, full disks (Linux and root) and damaged files.
faults: setup
	$(BIN)/python benchmarks/faults.py

# vLLM on a CPU against our exports. Its environment takes 4 GB, the tests twenty minutes of a core.
engines: setup
	$(PYTHON) -m venv .venv-engines
	.venv-engines/bin/python -m pip install --disable-pip-version-check --quiet --requirement tests/engines/requirements.txt
	# Sound libraries are not built for every torch, and vLLM works without them.
	.venv-engines/bin/python -m pip uninstall --yes --quiet torchaudio torchcodec
	DSOCR_VLLM_PYTHON=$(CURDIR)/.venv-engines/bin/python $(BIN)/python -m pytest -m engines tests/engines

# The built wheel, in an environment without this folder.
test-wheel: setup
	$(BIN)/python -m pytest -m wheel tests/test_wheel.py

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
	$(BIN)/python -m zensical build --strict

# dist/dsocr-hw-VERSION.zip: people unpack it and open Start.cmd or start.sh, without a terminal.
release: setup
	$(BIN)/python tools/release.py

clean:
	rm -rf .venv .venv-newest .venv-engines .venv-workbench dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
