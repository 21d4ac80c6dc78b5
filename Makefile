# Python 3.11, with which everything is tested, or else the newest that is here and can make
# environments, unless one is named.
ifndef PYTHON
PYTHON := $(shell for name in python3.11 python3.13 python3.12; do \
	$$name -c 'import ensurepip, venv' 2>/dev/null && echo $$name && break; done)
endif
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
TESTED := $(VENV)/.tested
# Three workers for two cores, since some tests wait for processes that start or for what another
# worker makes; each takes whole files, so that what the tests of a file share is made once.
WORKERS = 3
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

# The tests start many processes, each of which imports the same modules: whatever the environment
# says of it, these are compiled once.
test quick soak newest newest-prefect pythons: export PYTHONDONTWRITEBYTECODE =

.PHONY: demo test newest newest-prefect pythons quick soak check types record site recompile clean

# Generate a county, run the whole DAG on Prefect's embedded server, print the paths of report and release.
demo: $(INSTALLED)
	$(BIN)/spineflow demo

# Everything but the replicate studies and kill tests, of which some are drawn at random.
test: $(TESTED)
	$(PYTEST)

# The flows with the newest Prefect that pyproject.toml allows; the oldest, with which the other
# targets run, is that of constraints.txt. Its environment adds to the other and sees its packages,
# so that a minute is enough to make it.
NEWEST_PREFECT := build/newest-prefect
PREFECT := $(shell sed -n 's/^ *"\(prefect>=[^"]*\)".*/\1/p' pyproject.toml)
FLOWS_ON_PREFECT := $(addprefix tests/flows/test_,busy_servers.py demo.py deployments.py \
	endings.py estimators.py events.py two_products.py runners.py server_fixes.py signals.py servers.py topdown.py \
	trips_in_process.py)

newest-prefect: $(TESTED)
	rm -rf $(NEWEST_PREFECT)
	$(BIN)/python -m venv --without-pip $(NEWEST_PREFECT)
	$(BIN)/python -c 'import sys, sysconfig; from pathlib import Path; \
		beneath = sysconfig.get_path("purelib"); \
		(place,) = Path(sys.argv[1]).glob("lib/python*/site-packages"); \
		(place / "beneath.pth").write_text(f"import site; site.addsitedir({beneath!r})\n")' $(NEWEST_PREFECT)
	$(BIN)/python -m pip --python $(NEWEST_PREFECT)/bin/python install --quiet \
		--disable-pip-version-check --upgrade '$(PREFECT)'
	$(NEWEST_PREFECT)/bin/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder \
		-m "not soak" $(FLOWS_ON_PREFECT)

# The tests of the flows with the newest versions that pyproject.toml allows, in an environment of
# their own; the other targets have those of constraints.txt. To install it takes minutes.
newest:
	$(PYTHON) -m venv build/newest
	build/newest/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	build/newest/bin/python -m pytest -m "not soak" tests/flows

# The quick tests with every other Python that is supported and is here, each in an environment of its
# own.
pythons:
	@for name in python3.13 python3.12; do \
		$$name -c 'import ensurepip, venv' 2>/dev/null || { echo "$$name is not here"; continue; }; \
		$$name -m venv build/$$name || exit 1; \
		build/$$name/bin/python -m pip install --quiet --disable-pip-version-check \
			-c constraints.txt -e '.[test]' || exit 1; \
		build/$$name/bin/python -m pytest -m "not slow and not soak" || exit 1; \
	done

# What a change should pass before it is committed: a few minutes.
quick: $(TESTED)
	$(PYTEST) -m "not slow and not soak"

# Every replicate study and kill test, tables of what becomes of runs that are damaged, killed or lose
# what they need, the flows with the newest versions, and the quick tests with other Pythons.
soak: $(TESTED)
	SPINEFLOW_SOAK=1 $(PYTEST) -m soak
	$(BIN)/python -m tests.flows.faults
	$(BIN)/python -m tests.flows.outages
	$(MAKE) newest pythons

# What can be said of the sources without running them.
check: $(TESTED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(MAKE) --no-print-directory types

# The types of all product code, from the environment as it is; the hook before a commit runs it.
types:
	$(BIN)/mypy

# Record anew the digests of what seeded runs write, by which a change of a release is noticed.
record: $(INSTALLED)
	$(BIN)/python -m tests.recorded

# The documentation as a site, in build/site, with the notebooks run; broken links are errors.
site: $(TESTED)
	$(BIN)/python -m mkdocs build

$(INSTALLED): pyproject.toml constraints.txt
	$(if $(PYTHON),,$(error There is no Python 3.11 to 3.13 here; install one, or name it: make PYTHON=...))
	@echo "Installing into $(VENV) with $$($(PYTHON) --version) ($(PYTHON))"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

# What tests, checks and the documentation need besides.
$(TESTED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

# Forget compiled kernels: numba notices a change of a module, not of the modules it calls.
recompile:
	find tasks geography -name '*.nb[ci]' -delete

clean: recompile
	rm -rf $(VENV) build .mypy_cache *.egg-info spineflow-demo
