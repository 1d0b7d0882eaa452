# One command each from a fresh clone. The environment lives in .venv.
PYTHON ?= python3.11
PY := .venv/bin/python
RUN ?= runs/demo
FAULTS ?= 200
WEIGHTS_RUN ?= runs/weights
WORLD_RUN ?= runs/world
PORT ?= 8123
SHARE ?= 1
GPU_RUN ?= runs/gpu
RESOLUTION ?= lowest-direct
GPU_INDEX ?=
GPU_STAMP := .venv-gpu/.installed-$(shell printf %s "$(GPU_INDEX)" | cksum | cut -d" " -f1)

.PHONY: help env demo look results weights world faults gpu test test-full test-portable test-slurm test-versions lint

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: .venv/.installed  ## install the pinned environment into .venv

.venv/.installed: requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found; set PYTHON=<a Python 3.11>"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(PY) -m tools.torchvision_operators
	@touch $@

demo: env  ## distil a drafter for a minute, sweep LANTERN's delta beside lossless decoding, into RUN; goes on where it was stopped
	$(PY) train.py model=llamagen rendered.num_train=256 trainer.max_time=00:00:01:00 hydra.run.dir=$(RUN)/train
	$(PY) evaluate.py +sweep=demo trained_drafter=$(RUN)/train/drafter hydra.sweep.dir=$(RUN)/sweep
	@echo "Look at $(RUN)/sweep: report.html (with the acceptance map), pareto.png, grid.png, results.csv. Next:"
	@echo "  python evaluate.py +method=refined_jacobi speed.num_prompts=8    # the lossless row with narrower bounds"
	@echo "  make look    # your prompt, decoded by two methods side by side in a local page"
	@echo "  python evaluate.py +sweep=field    # the methods of the field in one table"

look: env  ## watch two methods decode your prompt, in a local page at PORT
	$(PY) -m lantern port=$(PORT)

results: env  ## measure the rows that docs/rows lacks, write the tables of docs/; TABLE=headline for one of them, TABLE=again to measure all timed rows anew
	$(PY) -m tools.results $(TABLE)

weights: env  ## train all embedded weights again, into runs/weights, in hours (SHARE=0.1: a tenth of the steps of target and drafters); goes on where it was stopped
	$(PY) -m tools.weights $(WEIGHTS_RUN) --share $(SHARE)

world: env  ## a second world, of emoji: pictures of the npm registry, and models trained on them, into runs/world, in hours
	$(PY) -m pip install --quiet resvg-py==0.5.0
	$(PY) -m tools.emoji $(WORLD_RUN)

faults: env  ## disturb trainings, evaluations and extractions at random moments, FAULTS times; goes on where it was stopped
	OMP_NUM_THREADS=1 $(PY) -m tools.faults --count $(FAULTS)

test: env  ## the essentials, minutes
	$(PY) -m pytest -q -rs -n auto --dist loadfile -m "not full"

test-full: env  ## the rest: long grids and everything on the shipped weights
	$(PY) -m pytest -q -rs -n auto --dist loadfile --no-loadscope-reorder --durations=25 -m full

LAWS := tests/acceptance tests/verification tests/drafters/jacobi tests/trees tests/test_laws.py tests/test_decoding.py
LOWER_CAPABILITY := import torch; print({"AVX512": "avx2", "AVX2": "default"}.get(torch.backends.cpu.get_cpu_capability(), ""))

test-portable: env  ## the tests of laws again, with torch's kernels for an older processor
	@lower=$$($(PY) -c '$(LOWER_CAPABILITY)') && if [ -n "$$lower" ]; then echo "ATEN_CPU_CAPABILITY=$$lower" && \
		ATEN_CPU_CAPABILITY=$$lower $(PY) -m pytest -q -n auto --dist loadfile -m "not full" $(LAWS); fi

test-slurm: env  ## array and training jobs on a Slurm cluster of this host (apt-get install slurm-wlm munge)
	$(PY) -m pytest -q -rs tests/slurm

ESSENTIALS := $(addprefix tests/,test_api.py test_decoding.py test_examples.py test_laws.py test_noise.py test_packaging.py)
ESSENTIALS += $(addprefix tests/,conf data drafters engine evaluation metrics models reporting training)

test-versions:  ## the essentials beside the lowest versions that pyproject.toml allows, RESOLUTION=highest: the newest; PYTHON=; needs uv
	uv venv --quiet --clear --python $(PYTHON) .venv-versions
	uv pip install --quiet --python .venv-versions --resolution $(RESOLUTION) -e '.[dev,optuna]'
	.venv-versions/bin/python -m pytest -q -n auto --dist loadfile -m "not full" $(ESSENTIALS)

gpu: $(GPU_STAMP)  ## on a machine with a GPU: tests, benchmarks and the field, into GPU_RUN; GPU_STEPS=tests,embedded for some
	.venv-gpu/bin/python -m tools.gpu $(GPU_RUN) $(GPU_STEPS)

# GPU_INDEX names an index of torch for another CUDA than that of PyPI's build. All else comes from the index that pip is set to, with
# no extra one of the environment, which may have a build of torch without CUDA.
$(GPU_STAMP): requirements.txt
	$(PYTHON) -m venv --clear .venv-gpu
	$(if $(GPU_INDEX),PIP_EXTRA_INDEX_URL= .venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check \
	    --index-url $(GPU_INDEX) $$(grep -E '^torch(vision)?==' requirements.txt | tr '\n' ' '))
	PIP_EXTRA_INDEX_URL= .venv-gpu/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

lint: env  ## style and types
	$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy
