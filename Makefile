# Needs python3 (3.11 or newer) and make; uses uv where it is there, else venv and pip.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 4
READY := $(VENV)/.ready

.PHONY: pictures help demo serve test check conformance docs bench bench-peers bench-adk soak lock clean

help:
	@echo "make demo         stop real streams, and see the receipts (about 20 s)"
	@echo "make serve        a server with sample agents on port 8000; HALTER_PORT=9000 make serve for another"
	@echo "make test         the whole test suite"
	@echo "make check        ruff, strict types, import rules"
	@echo "make conformance  the table of conformance scenarios"
	@echo "make docs         the generated tables in docs/"
	@echo "make bench        the measured table behind docs/benchmarks.md; BENCH='--check' fails if a line is missed"
	@echo "make bench-peers  the same task for CrewAI and AutoGen, in an environment of their own"
	@echo "make bench-adk    the server against Google ADK's own, in an environment of its own"
	@echo "make soak         the slow tests, and properties with ten times as many examples"

$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Halter needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@echo "Setting up $(VENV) ..."
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python -r requirements.lock -e . ; \
	else \
		$(PYTHON) -m venv $(VENV) && \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock -e . ; \
	fi
	@touch $@

demo: $(READY)
	@$(BIN)/halter demo

serve: $(READY)
	@$(BIN)/halter serve examples/served.py

test: $(READY)
	@$(BIN)/python -m pytest -m "not soak" -n $(JOBS)

check: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/basedpyright --pythonpath $(BIN)/python
	@$(BIN)/python -m pytest -q tests/test_architecture.py

conformance: $(READY)
	@$(BIN)/python -m pytest -m "scenario and not soak" -n $(JOBS) --conformance

docs: $(READY)
	@$(BIN)/python docs/providers.py

bench: $(READY)
	@$(BIN)/python -m bench $(BENCH)

# Environments of their own: $(call set_up,directory,requirements)
define set_up
	@echo "Setting up $(1) ..."
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(1) && \
		uv pip install --quiet --python $(1)/bin/python -r $(2) ; \
	else \
		$(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet --disable-pip-version-check -r $(2) ; \
	fi
endef

PEERS := .venv-peers
$(PEERS)/.ready: bench/frameworks/requirements.txt
	$(call set_up,$(PEERS),$<)
	@touch $@

bench-peers: $(READY) $(PEERS)/.ready
	@$(BIN)/python -m bench.frameworks $(PEERS)/bin/python

# Google's ADK, for the tests of the front that speaks its protocol: they skip without it.
ADK := .venv-adk
$(ADK)/.ready: tests/fronts/adk/requirements.txt
	$(call set_up,$(ADK),$<)
	@touch $@

# Chainlit, for the test of its example: it skips without it.
CHAINLIT := .venv-chainlit
$(CHAINLIT)/.ready: examples/chainlit/requirements.txt
	$(call set_up,$(CHAINLIT),$<)
	@touch $@

# Real MCP servers, for the tests that use them: they skip without them.
MCP := .venv-mcp
$(MCP)/.ready: tests/tools/mcp_servers/requirements.txt
	$(call set_up,$(MCP),$<)
	@touch $@

bench-adk: $(READY) $(ADK)/.ready
	@$(BIN)/python -m bench.adk $(ADK)/bin/python

soak: $(READY)
	@HALTER_MANY_EXAMPLES=10 $(BIN)/python -m pytest -m "soak or hypothesis" --timeout=1800 --tb=native

# Only for maintainers, with Chromium: the pictures of docs/dashboard.md, and docs/terminal.svg.
pictures: $(READY)
	@HALTER_PICTURES=1 $(BIN)/python -m pytest -q -m soak tests/fronts/page/test_page_pictures.py tests/terminal/test_picture.py

# Only for maintainers, with uv: resolves the lock file anew.
lock:
	@uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url --extra dev pyproject.toml -o requirements.lock

clean:
	@rm -rf $(VENV)
