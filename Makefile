# One command each from a fresh clone. The environment lives in .venv.
PYTHON ?= python3.11
PY := .venv/bin/python
RUN ?= runs/demo
MINUTES ?= auto

.PHONY: help env demo look test test-full lint

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: .venv/.installed  ## install the pinned environment into .venv

.venv/.installed: requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; set PYTHON=<a Python 3.11>"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

demo: env  ## distil a drafter, sweep LANTERN's delta beside lossless decoding, in MINUTES sized to this machine
	$(PY) -m lantern.cli.demo demo.minutes=$(MINUTES) hydra.run.dir=$(RUN)

look: env  ## watch two methods decode your prompt, in a local page
	$(PY) -m lantern

test: env  ## the essentials, minutes
	$(PY) -m pytest -q -m "not full"

test-full: env  ## the rest: long grids and everything on the shipped weights
	$(PY) -m pytest -q -m full

lint: env  ## style and types
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
