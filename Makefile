PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-slow check bench docs format clean

.venv/.ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

demo: .venv/.ready  ## the main job on the embedded data
	OMP_NUM_THREADS=1 $(BIN)/vitruvius run --data digits --out runs/demo

test: .venv/.ready
	$(BIN)/pytest -n 2 -m "not slow"

test-slow: .venv/.ready
	$(BIN)/pytest -m slow

check: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	$(BIN)/python bench/costs.py
	$(BIN)/python bench/sampling.py
	$(BIN)/python bench/sharing.py
	$(BIN)/python bench/superformer.py
	$(BIN)/python bench/data.py
	$(BIN)/python bench/training.py
	$(BIN)/python bench/latency.py
	$(BIN)/python bench/search.py
	$(BIN)/python bench/searchers.py
	$(BIN)/python bench/dss.py
	$(BIN)/python bench/dss_honest.py

docs: .venv/.ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache site
