# make demo: run a real model. make test: run the tests. Both build a virtual environment in .venv first; a second run skips that.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MODEL := models/SmolLM2-135M-Instruct.Q4_1.gguf
PROMPT ?= Explain in three sentences why the sky is blue.

.PHONY: help demo test lint isa gpu model clean

help:
	@echo "make demo   generate text with a small model on this machine's processor"
	@echo "make test   run the tests (installs torch, triton and transformers, which the tests compare with)"
	@echo "make lint   ruff, mypy and the repo's own gates"
	@echo "make isa    compile every GPU kernel for every target, and hold its machine code to what is declared; takes a while"
	@echo "make gpu    on a machine with a GPU: prove linear, quant_linear and grouped_linear there, then measure linear against BLAS, with a bundle for each shape in GPU_OUT"
	@echo "make clean  remove what the others made, the model and results of make gpu apart"

demo: $(VENV)/.installed model
	@$(BIN)/lanewise generate $(MODEL) --chat -p "$(PROMPT)"

# With two workers on two cores, threads below them only get in each other's way.
test: $(VENV)/.installed-test model
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term-missing:skip-covered

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m lanewise.gates

# The tests ask about one case of a kernel and one target of each kind; this asks about all.
isa: $(VENV)/.installed-test
	$(BIN)/lanewise isa --gate

# With the Python that has torch and triton for the card: make gpu GPU_PYTHON=/path/to/python
GPU_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
GPU_OUT ?= gpu-results
gpu:
	@$(GPU_PYTHON) -c 'import click, llvmlite, matplotlib, numpy, rich, torch, triton' || \
	{ echo "$(GPU_PYTHON) lacks what this needs: pip install -e '.[gpu,plots]', or name another with GPU_PYTHON="; exit 2; }
	@test ! -e $(GPU_OUT) || { echo "$(GPU_OUT) is there already; name another folder with GPU_OUT="; exit 2; }
	mkdir -p $(GPU_OUT)
	$(GPU_PYTHON) -m lanewise.prove --device cuda --jobs 12 --json $(GPU_OUT)/prove.json
	$(GPU_PYTHON) -m lanewise bench sweep $(GPU_OUT)/bundles --json > $(GPU_OUT)/sweep.json
	$(GPU_PYTHON) -m lanewise evidence table $(GPU_OUT)/bundles/* --plot $(GPU_OUT)/ratios.svg

# `model` also checks a model that is there already.
model $(MODEL): | $(BIN)/python
	@$(BIN)/python tools/fetch_model.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit(f"Python 3.11 or later is needed; $(PYTHON) is {v.major}.{v.minor}")'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

# Stamps: pip runs again when the project's metadata changes.
$(VENV)/.installed: pyproject.toml lanewise/__init__.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

# One environment for mypy and the tests: what mypy says depends on the numpy that it sees.
$(VENV)/.installed-test: pyproject.toml lanewise/__init__.py | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	@touch $@
