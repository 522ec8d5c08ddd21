# Each target sets up what it needs; `make help` lists them.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
export AMARANTH_USE_YOSYS := builtin

# Parameters of `make sim` and `make wave`; what is not given is left to `weft sim`.
PARAMETERS := FILE LOSS REORDER DUP CORRUPT BACK_LOSS BACK_REORDER BACK_DUP BACK_CORRUPT RTT_US QPS SEED PMTU SIM
unexport $(PARAMETERS) WAVES
WAVES ?=
option = $(if $($(1)),--$(subst _,-,$(shell tr A-Z a-z <<< $(1))) $(call quoted,$($(1))))
quoted = '$(subst ','\'',$(1))'
OPTIONS = $(foreach name,$(PARAMETERS),$(call option,$(name))) $(if $(filter 1 yes true,$(WAVES)),--waves)

.PHONY: help sim test wave verilog synth bench formal mutants lint clean tools
.DEFAULT_GOAL := help

help:
	@echo 'make sim       a real file crosses a lossy link between two cards, RTL end to end'
	@echo '               FILE= LOSS= REORDER= DUP= CORRUPT= RTT_US= QPS= SEED= PMTU= SIM= WAVES=1'
	@echo '               BACK_LOSS= BACK_REORDER= BACK_DUP= BACK_CORRUPT= for the way back'
	@echo 'make wave      the same run with waves, opened in GTKWave'
	@echo 'make test      all tests'
	@echo 'make verilog   Verilog for FPGA in three sizes, under sim_build/verilog'
	@echo 'make bench     benchmarks; JSON under sim_build/reports'
	@echo 'make synth     cells and memories by block and room; JSON under sim_build/reports'
	@echo 'make formal    proofs: bounded, inductive, covers; JSON under sim_build/reports'
	@echo 'make mutants   small faults in the gateware that its tests have to notice; an hour or two the first time'
	@echo 'make lint      Python code by ruff; the Verilog of preset test by Verilator and Yosys'
	@echo 'make clean     removes everything generated, but not .venv'

sim: $(VENV)/.sim
	@$(BIN)/weft sim $(OPTIONS)

wave: $(VENV)/.sim
	@$(BIN)/weft sim $(filter-out --waves,$(OPTIONS)) --waves --view

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

verilog: $(VENV)/.sim
	@for preset in test basic full; do $(BIN)/weft verilog --preset $$preset || exit 1; done

synth: $(VENV)/.dev
	@$(BIN)/weft synth

bench: $(VENV)/.sim
	@$(BIN)/weft bench

formal: $(VENV)/.dev
	@$(BIN)/weft formal

mutants: $(VENV)/.dev
	@$(BIN)/weft mutants

lint: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/weft verilog --preset test --yosys

clean:
	rm -rf sim_build build dist .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

# What no Python package can bring.
tools:
	@missing() { echo "$$1 is missing; on Debian: apt-get install $$2" >&2; exit 1; }; \
	command -v $(PYTHON) > /dev/null || missing $(PYTHON) python3; \
	command -v g++ > /dev/null || missing g++ g++; \
	command -v perl > /dev/null || missing perl perl; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; PYTHON=... names another one" >&2; exit 1; }; \
	$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || missing "Python's venv module" python3-venv

$(VENV)/bin/python: | tools
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.sim: pyproject.toml constraints.txt | tools $(VENV)/bin/python
	@echo 'Installing into $(VENV) (first time, or after a change of pyproject.toml)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[sim]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | tools $(VENV)/bin/python
	@echo 'Installing into $(VENV) (first time, or after a change of pyproject.toml)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.sim
