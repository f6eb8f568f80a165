# The two commands of the README. Each makes the environment in .venv if it is not there yet.
PYTHON ?= python3
BIN := .venv/bin
GRAPH := demo/social
.PHONY: demo test test-fast check clean

demo: .venv/ready
	$(BIN)/strobe data make social $(GRAPH) --nodes 5K --snapshots 40 --edges 20K --overwrite
	$(BIN)/strobe inspect $(GRAPH) --html demo/social.html
	$(BIN)/strobe train $(GRAPH) --model tgcn --epochs 60 --out demo/run --overwrite
	@cp demo/run/learning_curve.svg demo/learning_curve.svg
	@echo "pictures: demo/social.html demo/learning_curve.svg"

test: .venv/ready
	$(BIN)/python -m pytest -n auto

test-fast: .venv/ready
	$(BIN)/python -m pytest -n auto -m 'not slow and not gpu and not ranks'

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_words.py

clean:
	rm -rf .venv demo

.venv/ready: pyproject.toml constraints.txt $(wildcard strobe/ops/native/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Strobe needs Python 3.11 or newer; say which with PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	@echo "installing Strobe and what it needs into .venv (a few minutes the first time)"
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@
