PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test quick soak map recompile clean

# Generate a county, run the whole DAG on Prefect's embedded server, say where the release is.
demo: $(INSTALLED)
	$(BIN)/spineflow demo

# Everything but the replicate studies and kill tests, of which a random tenth runs.
test: $(INSTALLED)
	$(BIN)/python -m pytest

# What a change should pass before it is committed: a few minutes.
quick: $(INSTALLED)
	$(BIN)/python -m pytest -m "not slow and not soak"

# Every replicate study and kill test.
soak: $(INSTALLED)
	SPINEFLOW_SOAK=1 $(BIN)/python -m pytest -m soak

# Make the map of docs/design.md anew, from the docstrings of the packages.
map:
	$(PYTHON) docs/design_map.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

# Forget compiled kernels: numba notices a change of a module, not of the modules it calls.
recompile:
	find tasks -name '*.nb[ci]' -delete

clean: recompile
	rm -rf $(VENV) build *.egg-info spineflow-demo
