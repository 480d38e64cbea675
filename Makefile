# make demo: the main job, end to end. make test: everything that has to hold. make virtual: the kernel of virtual time.
# Each sets the machine up first.
SHELL := /bin/bash
ROOT := $(shell [ "$$(id -u)" -eq 0 ] || echo sudo)
PROOF := .venv/bin/python -m tests.proof
.PHONY: demo paper bad-days which-training foretold foretold-emulated program test test-pure test-times mutants reliability soak soak-due compiled virtual gpu-kit lint collected bench root clean

# If links or machine were not as they should be, wanbed's last line says so, and make adds its own "Error 1" below it.
demo: root
	./setup.sh demo
	$(ROOT) .venv/bin/wanbed run runner/experiments/demo.yaml

# Root boots and imports nothing from the cache of whoever calls sudo, so that what these need is built for root.
paper bad-days which-training: CACHED_BY := $(ROOT)

# The paper's figures and claims in virtual time, into results/reference/paper; what was finished before is not run again.
paper: root virtual
	./setup.sh demo
	$(ROOT) .venv/bin/python -m studies.paper

# How Atlas, Varuna and 1F1B fare when the WAN is not what it was planned for: docs/bad-days.md. Virtual time takes most
# of its forty minutes; what was finished before is not run again.
bad-days: root virtual
	./setup.sh demo
	$(ROOT) .venv/bin/python -m studies.bad_days

# Which way to train is fastest over which WAN: docs/which-training.md. Torch measures what iterations are worth, virtual
# time checks some settings: 16 minutes on two cores, once virtual time is there. What was finished before is not run
# again.
which-training: root virtual compiled
	./setup.sh test
	$(ROOT) .venv/bin/python -m studies.which_training

# What others have published, simulated from their texts: docs/foretold.md, nine minutes on two cores.
foretold: compiled
	.venv/bin/python -m studies.foretold

# Some of them emulated in virtual time, into the tables beside their sources: rows that have no figure yet.
foretold-emulated: virtual
	.venv/bin/python -m studies.foretold.emulation

# A training program over an emulated WAN: PROGRAM is ddp, fsdp2, torchft-diloco, diloco-beside-torchft, accelerate-tiny or
# deepspeed-zero. Its exact versions are installed first; what they bring to .venv/bin is on the program's PATH.
program: root
	./setup.sh program $(or $(PROGRAM),ddp)
	$(ROOT) env "PATH=$(CURDIR)/.venv/bin:$$PATH" .venv/bin/wanbed run $(or $(PROGRAM),ddp)

# Tests start wanbed and its ranks by the hundred: where Python may not keep what it compiled, each would compile it anew.
test test-pure test-times mutants reliability soak soak-due: export PYTHONDONTWRITEBYTECODE :=

test: root
	./setup.sh test
	$(ROOT) .venv/bin/python -m wanbed.testbed.virtual_time.kernel_build
	$(MAKE) --jobs=2 --output-sync lint collected
	$(ROOT) $(PROOF) test

# Without root: everything but the tests that build namespaces.
test-pure:
	./setup.sh test
	$(MAKE) lint
	$(PROOF) pure

# The processor time of each test file, children and guests included: TESTS=tests/workloads for some of them only.
test-times: root
	./setup.sh test
	$(ROOT) .venv/bin/python -m pytest -q -n 2 --dist loadfile -p tests.support.processor_times $(or $(TESTS),tests)

# Faults planted one at a time, and those that the tests of the mirrored folder do not notice: FILES="flow results",
# by default the core; FAULTS of them, drawn by SEED. About 15 s a fault on two cores.
mutants:
	./setup.sh test
	.venv/bin/python -m tests.mutants --faults $(or $(FAULTS),30) --seed $(or $(SEED),1) $(FILES)

# Commands killed, stopped and starved: the next KILLS of SEED's list, by its ledger, into docs/reliability.md.
reliability: root
	./setup.sh test
	$(ROOT) .venv/bin/python -m tests.reliability.kills --count $(or $(KILLS),20) --seed $(or $(SEED),1) --write docs/reliability.md

# What is too dear for every landing, in eight parts: PART="links ray" for some of them. The ledger that this writes is
# committed: by it soak-due knows which parts have changed since they passed, and which one ran least recently.
soak: root
	./setup.sh test
	$(ROOT) $(PROOF) soak $(PART)

soak-due: root
	./setup.sh test
	$(ROOT) $(PROOF) due

# The simulator's hot modules, into the cache of whoever calls it: simulations take less time, and give the same bytes.
compiled:
	./setup.sh compiled
	$(CACHED_BY) .venv/bin/wanbed compile

# Into the cache of whoever calls it, once; every run with --clock virtual boots it.
virtual:
	./setup.sh virtual
	$(CACHED_BY) .venv/bin/python -m wanbed.testbed.virtual_time.kernel_build

# A folder to carry to a bare GPU machine: docs/gpus.md. HAS=FILE: what `pip list --format=freeze` prints there, if known.
gpu-kit:
	./setup.sh demo
	.venv/bin/python -m studies.gpu_kit.collect gpu-kit --python $(or $(PYTHON),3.12) $(if $(HAS),--has $(HAS))

lint:
	.venv/bin/ruff format --check
	.venv/bin/ruff check
	.venv/bin/mypy

# What Python and pytest compile of the tests, once: the workers that run them side by side would each compile it.
collected:
	@found=$$(.venv/bin/python -m pytest --collect-only --quiet -p no:cacheprovider) || { echo "$$found"; exit 1; }

bench: root
	./setup.sh test
	$(ROOT) .venv/bin/python -m pytest -s --timeout 0 tests/bench/*.py

root:
	@[ "$$(id -u)" -eq 0 ] || command -v sudo >/dev/null || \
	  { echo "make: emulated networks need root: run make as root, or install sudo" >&2; exit 5; }

# Whatever a killed run left behind on this machine.
clean: root
	$(ROOT) .venv/bin/wanbed clean
