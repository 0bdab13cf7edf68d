# make demo    quickstart and embedding, from source to served calls
# make test    lint and tests, under five minutes
# make lint    ruff, mypy --strict, the import contracts
# make test-long, make bench
#
# Each target does its own set-up: a virtual environment in .venv and, as root with apt, missing packages.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready

# One build of torch everywhere; where it is not at hand, whichever PyPI has.
TORCH  := torch==2.13.0

.PHONY: demo test test-long lint bench clean

demo: $(STAMP)
	@$(BIN)/python examples/demo.py

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

test: lint
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not long" -q

test-long: $(STAMP)
	@$(BIN)/python tests/long.py

bench: $(STAMP)
	@for script in dispatch gemm load; do $(BIN)/python benchmarks/$$script.py $(ARGS) || exit 1; done

$(STAMP): pyproject.toml scripts/system-packages
	@sh scripts/system-packages
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing torch, TileLang and the test tools into $(VENV) (once, some minutes)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" \
	  || $(BIN)/python -m pip install --quiet --disable-pip-version-check torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev,examples]"
	@touch $@

clean:
	rm -rf $(VENV) examples/*/.tilegate examples/*/release
