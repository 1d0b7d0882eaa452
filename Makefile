# One command each from a fresh clone. The environment lives in .venv.
PYTHON ?= python3.11
PY := .venv/bin/python
RUN ?= runs/demo
GPU_RUN ?= runs/gpu
GPU_INDEX ?= https://pypi.org/simple

.PHONY: help env demo look test test-full lint gpu

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: .venv/.installed  ## install the pinned environment into .venv

.venv/.installed: requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; set PYTHON=<a Python 3.11>"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

demo: env  ## distil a drafter for five minutes, sweep LANTERN's delta with it, say where to look
	$(PY) train.py model=llamagen trainer.max_time=00:00:05:00 hydra.run.dir=$(RUN)/train
	$(PY) evaluate.py +sweep=delta drafter.checkpoint=$(RUN)/train/drafter hydra.sweep.dir=$(RUN)/sweep
	@echo; echo "Look at $(RUN)/sweep: report.html, pareto.png, grid.png, results.csv"

look: env  ## watch two methods decode your prompt, in a local page
	$(PY) -m lantern

test: env  ## the essentials, minutes
	$(PY) -m pytest -q -m "not full"

test-full: env  ## the rest: long grids and everything on the shipped weights
	$(PY) -m pytest -q -m full

gpu: .venv-gpu/.installed  ## on a machine with a GPU: tests, agreement, benchmarks and the field, into runs/gpu
	.venv-gpu/bin/python -m lantern.studies.gpu $(GPU_RUN)

.venv-gpu/.installed: requirements.txt  # torch from PyPI is built for CUDA; GPU_INDEX names another index
	$(PYTHON) -m venv .venv-gpu
	PIP_CONFIG_FILE=/dev/null PIP_EXTRA_INDEX_URL= .venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check \
	    --index-url $(GPU_INDEX) -r requirements.txt
	@touch $@

lint: env  ## style and types
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
