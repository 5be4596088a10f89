# make help says what there is. Options: PYTHON=<interpreter that has the packages> skips .venv;
# BASE_PYTHON=<python 3.11 or newer> makes it; GPU=1 takes torch with CUDA and the gpu extra.

BASE_PYTHON ?= python3
VENV := .venv

ifeq ($(origin PYTHON),command line)
  PY := $(PYTHON)
  READY :=
  READY_DEV :=
else
  PY := $(VENV)/bin/python
  READY := $(VENV)/ready$(if $(GPU),-gpu)
  READY_DEV := $(READY)-dev
endif

SERVE_ARGS = $(if $(MODEL),--model "$(MODEL)") $(if $(PORT),--port $(PORT)) $(ARGS)
BENCH_ARGS = $(if $(MODEL),--model "$(MODEL)") $(if $(TRACE),--trace "$(TRACE)") $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup serve bench-agent bench-peers peers bench-cpu bench-startup bench-tree bench-scheduler bench-text bench-http bench-debug soak simulate experiment check-gpu check-gpu-offline check-clients fuzz test tests lint types clean

help:
	@echo "make serve             serve a model on http://127.0.0.1:8000  [MODEL=folder|file.gguf|hub id] [PORT=8000] [ARGS=...]"
	@echo "make bench-agent       replay agents with the prefix cache on and off, or against servers  [TRACE=file] [MODEL=...] [ARGS=\"--url NAME=URL ...\"]"
	@echo "make bench-peers       agents over HTTP: ours against vLLM, in turn  [TRACE=file] [MODEL=...] [ARGS=...]"
	@echo "make peers             only install what bench-peers compares with, into build/  [MODEL=...]"
	@echo "make bench-cpu         speed on processors  [PEERS=\"openvino vllm llama.cpp\"] [MODEL=...] [ARGS=...]"
	@echo "make bench-startup     time from command to ready, second start, and processor time when idle"
	@echo "make bench-tree        cost of the prefix cache's operations, 1,000 to 100,000 leaves"
	@echo "make bench-scheduler   cost of the scheduler as its queue grows, and of its order  [ARGS=...]"
	@echo "make bench-text        what prompts of 128k tokens do to others' streams while they are tokenized  [MODEL=...] [ARGS=...]"
	@echo "make bench-http        what the HTTP side adds to a request, beside a bare uvicorn  [ARGS=...]"
	@echo "make bench-debug       what the debug page costs a server with a tree of 100,000 nodes  [ARGS=...]"
	@echo "make soak              random clients at three times the capacity: leaks, wrong answers  [MODEL=...] [ARGS=\"--seconds 600\"]"
	@echo "make simulate          orders, eviction rules and memory sizes compared, with simulated steps  [ARGS=...]"
	@echo "make experiment        what a prefix cache does, with pictures  [NAME=all] [ARGS=...]; ARGS=--help names them"
	@echo "make check-gpu         results on a GPU compared with torch's, steps timed  [MODEL=...] [ARGS=\"--only ops graphs\"]"
	@echo "make check-gpu-offline FlashInfer's own planning under our attention, without a GPU; needs nvcc  [ARGS=...]"
	@echo "make check-clients     aiperf and canitoolcall against a server of ours; installs 840 MB from PyPI  [MODEL=...] [ARGS=...]"
	@echo "make fuzz              a million random operations on the prefix cache  [ARGS=...]"
	@echo "make test              tests, lint and types"
	@echo "make setup             only create .venv  [GPU=1]"
	@echo "make clean             remove .venv, results/ and caches of tools"
	@echo "ARGS=--help lists the options of a command"

setup: $(READY)

$(VENV)/ready $(VENV)/ready-gpu: pyproject.toml tools/setup_env.py
	$(BASE_PYTHON) tools/setup_env.py $(if $(GPU),--gpu)
	@touch $@

$(VENV)/ready-dev $(VENV)/ready-gpu-dev: pyproject.toml tools/setup_env.py
	$(BASE_PYTHON) tools/setup_env.py $(if $(GPU),--gpu) --dev
	@touch $@ $(READY)

serve: $(READY)
	@exec $(PY) -m server $(SERVE_ARGS)

bench-agent: $(READY)
	@exec $(PY) -m workloads bench-agent $(BENCH_ARGS)

bench-peers: $(READY)
	@exec $(PY) -m workloads bench-peers $(BENCH_ARGS)

peers: $(READY)
	@exec $(PY) -m workloads bench-peers --only-install $(BENCH_ARGS)

bench-cpu: $(READY)
	@exec $(PY) -m workloads bench-cpu $(if $(MODEL),--model "$(MODEL)") $(if $(PEERS),--peers $(PEERS)) $(ARGS)

bench-startup: $(READY)
	@exec $(PY) -m workloads bench-startup $(if $(MODEL),--model "$(MODEL)") $(ARGS)

bench-tree: $(READY)
	@exec $(PY) -m workloads bench-tree $(ARGS)

bench-scheduler: $(READY)
	@exec $(PY) -m workloads bench-scheduler $(ARGS)

bench-text: $(READY)
	@exec $(PY) -m workloads bench-text $(if $(MODEL),--model "$(MODEL)") $(ARGS)

bench-http: $(READY)
	@exec $(PY) -m workloads bench-http $(ARGS)

bench-debug: $(READY)
	@exec $(PY) -m workloads bench-debug $(if $(MODEL),--model "$(MODEL)") $(ARGS)

soak: $(READY)
	@exec $(PY) -m workloads soak $(if $(MODEL),--model "$(MODEL)") $(ARGS)

simulate: $(READY)
	@exec $(PY) -m workloads simulate $(ARGS)

experiment: $(READY)
	@exec $(PY) -m workloads experiment $(if $(findstring command,$(origin NAME)),$(NAME),all) $(ARGS)

check-gpu: $(READY)
	@exec $(PY) -m workloads.gpu.check $(if $(MODEL),--model "$(MODEL)") $(ARGS)

check-gpu-offline: $(READY_DEV)
	@exec $(PY) -m workloads check-gpu-offline $(ARGS)

check-clients: $(READY)
	@exec $(PY) -m workloads check-clients $(if $(MODEL),--model "$(MODEL)") $(ARGS)

fuzz: $(READY_DEV)
	@exec $(PY) -m tests.cache.fuzz $(ARGS)

# Types and tests share two processors; threads of torch then must not spin while they wait.
test: lint
	@GOMP_SPINCOUNT=$${GOMP_SPINCOUNT:-1000} $(MAKE) --no-print-directory -j2 types tests

tests: $(READY_DEV)
	@$(PY) tools/browser.py
	$(PY) -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

lint: $(READY_DEV)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(READY_DEV)
	$(PY) -m mypy

clean:
	rm -rf $(VENV) results build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
