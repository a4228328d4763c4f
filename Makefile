# Needs only Python 3.10 or newer with venv and pip (on Debian: apt install python3-venv make).
# The first target that needs it makes .venv and installs the package there; it is made anew when pyproject.toml changes.

PYTHON ?= python3
DEMO_VIDEO ?= assets/demo.mp4
DEMO_QUESTIONS ?= assets/demo-questions.txt
DEMO_OPTIONS ?= -m tiny --budget 96 --no-save
BENCH_OPTIONS ?= -m tiny --frames 256 --budget 96 --policy hermes,fifo,full --reference
GPU_SHAPES ?= ov-7b
GPU_RESULTS ?= .

BIN := .venv/bin
INSTALLED := .venv/installed

.DEFAULT_GOAL := help
.PHONY: help demo bench gpu test check readme

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

demo: $(INSTALLED) ## play the demo video and ask the questions of its file at their moments
	$(BIN)/hermes watch $(DEMO_VIDEO) --ask-file $(DEMO_QUESTIONS) $(DEMO_OPTIONS) </dev/null

bench: $(INSTALLED) ## measure speed and memory with the embedded model
	$(BIN)/hermes bench $(BENCH_OPTIONS)

gpu: $(INSTALLED) ## on a GPU: the tests that need one, all policies in the shapes of a large model, two long runs, where time goes
	$(BIN)/pytest tests/test_graphs.py tests/test_tower.py tests/test_loading.py
	-$(BIN)/hermes bench --random-weights $(GPU_SHAPES) --frames 16,64,256,512 --policy hermes,fifo,uniform,recent,full \
		--reference --save $(GPU_RESULTS)/$(GPU_SHAPES).jsonl --plot $(GPU_RESULTS)/$(GPU_SHAPES).png
	$(BIN)/hermes bench --random-weights $(GPU_SHAPES) --frames 256 --profile $(GPU_RESULTS)/$(GPU_SHAPES)-trace.json
	$(BIN)/hermes bench --random-weights $(GPU_SHAPES) --soak 2000 --save $(GPU_RESULTS)/$(GPU_SHAPES)-soak.jsonl
	$(BIN)/hermes bench -m tiny --soak 10000 --save $(GPU_RESULTS)/tiny-soak.jsonl

test: $(INSTALLED) ## run the tests
	$(BIN)/pytest

check: $(INSTALLED) ## run formatter, linter, type checker and tests, and change nothing
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest

readme: $(INSTALLED) ## run the commands that README.md shows again and put their output there (some minutes)
	$(BIN)/python -m tests.make_readme

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --disable-pip-version-check --editable '.[dev]'
	touch $@
