# Each target sets up what it needs; `make help` lists them.

SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
export AMARANTH_USE_YOSYS := builtin
# Every simulator starts a Python, a run of the tests hundreds: they are not to compile the same files each time.
unexport PYTHONDONTWRITEBYTECODE

# Variables of `make sim` and `make wave`: those of tb/app/job/job_settings.py, which a test compares, and waves. What is not
# given is left to `weft sim`, which checks the values.
PARAMETERS := FILE LOSS REORDER DUP CORRUPT BACK_LOSS BACK_REORDER BACK_DUP BACK_CORRUPT RTT_US QPS SEED PMTU SIM PRESET \
  BACKEND HOSTS FABRIC CONGESTION PFC
FLAGS := STRADDLE MAC_CLOCK TIMELINE WAVES
# Variables of the other targets.
OTHERS := ONLY BUDGET SCHEDULER PREFIX PYTEST_ARGS PYTHON
unexport $(PARAMETERS) $(FLAGS) ONLY BUDGET SCHEDULER PREFIX
# Errors of `weft` name variables of make then.
WEFT := WEFT_MAKE=1 $(BIN)/weft
quoted = '$(subst ','\'',$(1))'
name = --$(subst _,-,$(shell tr A-Z a-z <<< $(1)))
option = $(if $($(1)),$(name) $(call quoted,$($(1))))
flag = $(if $(filter 1 yes true,$($(1))),$(name))
OPTIONS = $(foreach variable,$(PARAMETERS),$(call option,$(variable))) $(foreach variable,$(1),$(call flag,$(variable)))
PRESET_OPTION = $(call option,PRESET)
ONLY_OPTION = $(foreach name,$(ONLY),--only $(call quoted,$(name)))

# An unknown variable is a typing error: refuse it instead of running with other settings than intended.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
UNKNOWN := $(strip $(foreach name,$(filter-out $(PARAMETERS) $(FLAGS) $(OTHERS),$(GIVEN)),\
  $(if $(filter sim wave,$(MAKECMDGOALS))$(filter $(PARAMETERS) $(FLAGS) $(OTHERS),$(shell tr a-z A-Z <<< '$(name)')),$(name))))
ifneq ($(UNKNOWN),)
  MEANT := $(shell $(PYTHON) -c 'import difflib, sys; known, given = (text.split() for text in sys.argv[1:]); \
    print(*{name: 0 for one in given for name in difflib.get_close_matches(one.upper(), known, 1)}, sep=" and ")' \
    '$(PARAMETERS) $(FLAGS) $(OTHERS)' '$(UNKNOWN)' 2> /dev/null)
  $(error $(UNKNOWN) is not a parameter; they are $(PARAMETERS) $(FLAGS) $(OTHERS)$(if $(MEANT),; did you mean $(MEANT)?))
endif
$(foreach flag,$(FLAGS),$(if $(filter-out 0 1 no yes false true,$($(flag))),\
  $(error $(flag) is '$($(flag))'; it must be 0 or 1)))

# A virtual environment holds the path it was made in: a checkout that was moved or copied gets a new one.
MOVED := $(shell made=$$(grep -s '^command *=' $(VENV)/pyvenv.cfg); here=" $$(pwd -P)/$(VENV)"; \
  [ "$$made" = "" ] || [ "$$made" != "$${made%"$$here"}" ] || echo moved)

.PHONY: help sim check test test-all soak conformance interop linux ibverbs programs wave verilog synth bench formal mutants coverage lint style docs clean tools moved
.DEFAULT_GOAL := help

help:
	@echo 'make sim       a real file crosses a lossy link between two cards, RTL end to end'
	@echo '$(PARAMETERS:%=%=) $(FLAGS:%=%=1)' | fold -s -w 90 | sed 's/^/               /'
	@echo 'make wave      the same run with waves, opened in GTKWave'
	@echo 'make check     ruff, types, prose, and the tests that need neither RTL nor other programs: 3 minutes'
	@echo 'make test      every module and feature at least once, both simulators'
	@echo 'make test-all  all tests; with WEFT_LONG=1 in the environment, more random draws in some'
	@echo 'make soak      more seeds than the tests have, then new random seeds, for BUDGET= seconds;'
	@echo '               two cards alone on the workers of a Dask scheduler, SCHEDULER=tcp://...'
	@echo 'make conformance  rdma-core'"'"'s own tests of pyverbs (Debian: python3-pyverbs) against the driver; a suite in C'
	@echo '               on all back ends, or ONLY= some cases; JSON under sim_build/reports'
	@echo 'make interop   a Linux guest with rxe (Debian: qemu-system-x86) against the endpoint and the card;'
	@echo '               conformance suite on rxe, JSON under sim_build/reports'
	@echo 'make linux     Linux guests with cards: functional, in time, RTL (QEMU from Debian, not installed)'
	@echo 'make ibverbs   libibverbs.so.1 for unmodified RDMA programs on served cards (Debian: libibverbs-dev);'
	@echo '               PREFIX= installs it there, or packs it if that ends with .tar.gz'
	@echo 'make programs  those programs on functional cards and direct, one of each operation on model and RTL; JSON under sim_build/reports'
	@echo 'make verilog   Verilog for FPGA in three sizes, or PRESET=, under sim_build/verilog'
	@echo 'make bench     benchmarks, or ONLY= some; JSON under sim_build/reports'
	@echo 'make synth     size and longest path by block, of two sizes of the card or of PRESET=; JSON under sim_build/reports'
	@echo 'make formal    proofs, or ONLY= some: bounded, inductive, covers; JSON under sim_build/reports'
	@echo 'make mutants   small faults in the gateware that its tests must detect, or ONLY=; hours the first time'
	@echo 'make coverage  lines and toggles that the block benches reach; JSON under sim_build/reports'
	@echo 'make lint      Python code by ruff and mypy; prose; the Verilog of preset test by Verilator and Yosys'
	@echo 'make docs      documentation site with API reference under sim_build/site'
	@echo 'make clean     removes everything generated, but not .venv'

sim: $(VENV)/.sim
	@$(WEFT) sim $(call OPTIONS,$(FLAGS))

wave: $(VENV)/.sim
	@$(WEFT) sim $(call OPTIONS,$(filter-out WAVES,$(FLAGS))) --waves --view

STYLE := $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/python -m weft.tb.verify.prose

# The style checks run beside the tests.
check: $(VENV)/.dev
	@($(STYLE)) & style=$$!; \
	WEFT_RTL=0 $(BIN)/python -m pytest -n 2 -m "not rtl and not programs and not long" $(PYTEST_ARGS); tests=$$?; \
	wait $$style && exit $$tests

test: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 3 -m "not long" $(PYTEST_ARGS)

test-all: $(VENV)/.dev
	@$(BIN)/python -m pytest -n 3 $(PYTEST_ARGS)

conformance: $(VENV)/.sim
	@$(BIN)/python -m weft.tb.verify.conformance.run; pyverbs=$$?; $(WEFT) conformance $(ONLY_OPTION) && exit $$pyverbs

interop: $(VENV)/.sim
	@$(WEFT) interop

linux: $(VENV)/.sim
	@$(WEFT) linux

ibverbs: $(VENV)/.sim
	@$(BIN)/python -m weft.driver.ibverbs.$(if $(PREFIX),install $(call quoted,$(PREFIX)),build)

programs: $(VENV)/.sim
	@$(BIN)/python -m weft.tb.verify.programs.run

soak: $(VENV)/.dev
	@$(WEFT) soak $(call option,BUDGET) $(call option,SCHEDULER)

verilog: $(VENV)/.sim
	@for preset in $(if $(PRESET),$(call quoted,$(PRESET)),test basic full); do $(WEFT) verilog --preset "$$preset" || exit 1; done

synth: $(VENV)/.dev
	@$(WEFT) synth $(if $(PRESET),$(PRESET_OPTION),--preset basic --preset full)

bench: $(VENV)/.dev
	@$(WEFT) bench $(ONLY_OPTION)

formal: $(VENV)/.dev
	@$(WEFT) formal $(ONLY_OPTION)

mutants: $(VENV)/.dev
	@$(WEFT) mutants $(ONLY_OPTION)

coverage: $(VENV)/.dev
	@$(BIN)/weft coverage

style: $(VENV)/.dev
	@$(STYLE)

lint: style
	@$(BIN)/weft verilog --preset test --yosys

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'site sim_build/site/index.html'

clean:
	rm -rf sim_build build dist .pytest_cache .ruff_cache .hypothesis
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf

# What no Python package can bring.
tools:
	@missing() { echo "$$1 is missing; on Debian: apt-get install $$2" >&2; exit 1; }; \
	command -v $(PYTHON) > /dev/null || missing $(PYTHON) python3; \
	command -v g++ > /dev/null || missing g++ g++; \
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; PYTHON=... names another one" >&2; exit 1; }; \
	$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || missing "Python's venv module" python3-venv

$(VENV)/bin/python: | tools
	@$(PYTHON) -m venv $(VENV)

ifneq ($(MOVED),)
$(VENV)/.sim $(VENV)/.dev: moved
endif
moved: | tools
	@echo 'The checkout was moved or copied: making $(VENV) again'
	@$(PYTHON) -m venv --clear $(VENV)

$(VENV)/.sim: pyproject.toml constraints.txt | tools $(VENV)/bin/python
	@echo 'Installing into $(VENV) (first time, or after a change of pyproject.toml)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[sim]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | tools $(VENV)/bin/python
	@echo 'Installing into $(VENV) (first time, or after a change of pyproject.toml)'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.sim
