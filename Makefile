# The verbs. `make` alone prints them; PYTHON, ARGS and WORKERS can be set on the command line.
PYTHON ?= python
WORKERS ?= 2
ARGS ?=

.PHONY: help check test conform bench docs programs guards faults soak machines release

help:
	@echo "make check    lint, format and types       (needs the extra 'dev')"
	@echo "make test     the tests                    (needs the extra 'test')"
	@echo "make conform  the array API test suite     (needs the extra 'test' and the suite)"
	@echo "make bench    side-by-side benchmarks      (needs the extra 'bench')"
	@echo "make docs     the pages, in docs/_build    (needs the extra 'docs')"
	@echo "make programs random programs: ARGS='--kind captured --count 20000 --seed 1'"
	@echo "make guards   random programs on memory between guard pages"
	@echo "make faults   faults injected into random programs: a table"
	@echo "make soak     an hour of mixed work: memory, caches, times; ARGS='--minutes 15'"
	@echo "make machines the suite's core on Pythons, NumPys and processors (about an hour)"
	@echo "make release  wheel, sdist and bill of materials, checked        (needs the extra 'dev')"
	@echo "ARGS=... is passed on, for example: make test ARGS='-k exp -x'"

check:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(PYTHON) -m pyright

test:
	$(PYTHON) -m pytest $(ARGS)

conform:
	$(PYTHON) conformance/run.py --workers $(WORKERS) $(ARGS)

bench:
	$(PYTHON) -m benchmarks $(ARGS)

docs:
	$(PYTHON) -m sphinx -W --keep-going -b html docs docs/_build/html $(ARGS)

programs:
	$(PYTHON) -m tests.programs $(ARGS)

guards:
	$(PYTHON) -m tests.guards $(ARGS)

faults:
	$(PYTHON) -m tests.faults $(ARGS)

soak:
	$(PYTHON) -m tests.soak $(ARGS)

machines:
	$(PYTHON) tests/machines.py $(ARGS)

release:
	$(PYTHON) .ci/release.py $(ARGS)
