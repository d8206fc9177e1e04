# One task runner; continuous integration runs the same targets.
# Each target sets up what it needs in .venv by itself.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo clients browser test test-controlplane test-e2e matrix campaign campaign-mutants fuzz fuzz-cel mutants lint format types layers bench bench-quick soak soak-up conformance sweep shutdown docs reference recordings screenshots page-figures release-check ui ui-check clean

help: ## show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1\t\2/' | expand -t 28

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

# What one extra needs, and none of the tools of development: a stranger's first command should not wait for those.
$(VENV)/.installed-%: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -e $(STAMP) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]'
	@touch $@

setup: $(STAMP) ## create .venv with everything in it

demo: $(VENV)/.installed-server ## a cluster, pods being placed, a pending pod explained; under a minute
	$(BIN)/kubesched demo

clients: $(STAMP) ## the JavaScript client, for its test; where there is no npm that test is skipped
	@if command -v npm >/dev/null; then npm install --silent --no-fund --no-audit --prefix $(VENV) @kubernetes/client-node@1.4.0 \
	  || echo "npm failed: the JavaScript client is not installed"; \
	else echo "no npm: the JavaScript client is not installed"; fi

browser: ## chromium and its driver (by apt-get, as root) and axe-core (by npm), for the tests of the dashboard in a browser
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get -qq update && apt-get -qq install --yes --no-install-recommends chromium chromium-driver; \
	else echo "chromium and chromedriver are not installed: install both, or call make browser as root on Debian"; fi
	@if [ -f ui/node_modules/axe-core/axe.min.js ]; then :; \
	elif command -v npm >/dev/null; then npm ci --silent --prefix ui; \
	else echo "no npm: axe-core is not installed"; fi

test: $(STAMP) ## the whole test suite, golden decisions included
	$(BIN)/python -m pytest -n auto --dist worksteal

test-controlplane: $(STAMP) ## the scheduler process against etcd and kube-apiserver from KUBEBUILDER_ASSETS
	$(BIN)/python -m pytest -rs tests/controlplane/test_scenarios.py

test-e2e: $(STAMP) ## upstream's e2e.test from E2E_TEST or KUBEBUILDER_ASSETS against `kubesched up` (FOCUS=regex, CLUSTER=kubeconfig)
	$(BIN)/python tests/e2e/run_e2e.py --focus '$(FOCUS)' --kubeconfig '$(CLUSTER)'

matrix: $(STAMP) ## every command from the built wheel: the base and each extra, on the newest and the lowest dependencies
	$(BIN)/python tests/installed/matrix.py

campaign: $(STAMP) ## bad days of the whole system in virtual time, thousands of seeds (SEEDS=10000; hours)
	KUBESCHED_SEEDS=$(or $(SEEDS),10000) $(BIN)/python -m pytest -n auto --dist worksteal tests/controlplane/test_campaign.py \
	  tests/scheduler/test_group_invariants.py

campaign-mutants: $(STAMP) ## faults in what the invariants rest on, and the first day that notices each (SEEDS=50)
	$(BIN)/python tests/mutation/campaign_mutants.py --seeds $(or $(SEEDS),50)

fuzz-cel: $(STAMP) ## random CEL expressions over every function, with bounds in time and memory (SECONDS=900)
	KUBESCHED_FUZZ_SECONDS=$(or $(SECONDS),900) $(BIN)/python -m pytest -n 0 -s tests/cel/test_cel_fuzz.py

fuzz: $(STAMP) ## bad objects of all kinds against a whole cluster (SECONDS=3600, SEED=1)
	KUBESCHED_FUZZ_SECONDS=$(or $(SECONDS),3600) KUBESCHED_FUZZ_SEED=$(or $(SEED),1) \
	  $(BIN)/python -m pytest -n 0 -s tests/http/test_http_structural_fuzz.py

mutants: $(STAMP) ## small faults in a copy, and whether a test notices each (PACKAGES='queue core/binding.py' SAMPLE=200 SEED=1)
	$(BIN)/python tests/mutation/runner.py $(PACKAGES) --sample $(or $(SAMPLE),200) --seed $(or $(SEED),1)

lint: $(STAMP) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## throughput, latencies and memory of the whole path
	$(BIN)/kubesched bench

bench-quick: $(STAMP) ## a small run of every built-in workload, one table; under two minutes
	$(BIN)/kubesched bench --labels quick --runs 1

soak: $(STAMP) ## memory over a virtual week of churn on 1,000 nodes, flat within 5 % after the first day (DAYS=7; minutes)
	$(BIN)/python bench/soak.py --days $(or $(DAYS),7)

soak-up: $(STAMP) ## memory of kubesched up in real time, under RATE=1000 pods a second for DURATION=3600 seconds
	$(BIN)/python bench/soak.py --up --duration $(or $(DURATION),3600) --rate $(or $(RATE),1000)

conformance: $(STAMP) ## replay the decisions recorded from Kubernetes
	$(BIN)/kubesched conformance tests/golden

sweep: $(STAMP) ## the property tests again, with many more examples (slow)
	HYPOTHESIS_PROFILE=sweep $(BIN)/python -m pytest -n auto --dist worksteal

shutdown: $(STAMP) ## how soon a cluster with a thousand watchers that reconnect has saved and ended: two seconds at most
	KUBESCHED_SHUTDOWN_SECONDS=2 $(BIN)/python -m pytest -n 0 -s tests/cli/test_cli_up_files.py -k reconnecting

docs: $(VENV)/.installed-docs ## the pages of docs/ as a site in site/; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

reference: $(STAMP) ## write the generated pages of docs/ again: flags, configuration, gates, metrics, plugin contract, Python
	$(BIN)/python -m kubesched.cli.reference docs

recordings: $(STAMP) ## run the commands of docs/recordings.md again and draw what they print
	$(BIN)/python tests/site/recordings.py

screenshots: $(STAMP) ## pictures of the dashboard in README and docs, by chromium, from a simulation; minutes
	$(BIN)/python tests/browser/pictures.py

page-figures: $(STAMP) ## the dashboard's page in chromium: first paint, frames, long tasks, memory over DURATION=120 seconds
	$(BIN)/python tests/browser/figures.py --duration $(or $(DURATION),120)

release-check: $(STAMP) ## what would be published, in dist/: built twice and compared, its files, versions, installation, SBOM
	$(BIN)/python tests/installed/release.py

ui: $(STAMP) ## build the page of the dashboard from ui/ into src/kubesched/dashboard/static; needs node 20.19 and npm
	$(BIN)/python -m kubesched.dashboard.json_schema > docs/dashboard-schema.json
	cd ui && npm ci --silent && npm run --silent types && npm run --silent check && npm run --silent test && npm run --silent build

ui-check: ## the page built anew from ui/ is the one that is committed; skipped where there is no npm
	@if ! command -v npm >/dev/null; then echo "no npm: the page of the dashboard is not built anew"; \
	elif ! npm ci --silent --prefix ui; then echo "npm failed: the page of the dashboard is not built anew"; \
	else cd ui && node scripts/check.mjs; fi

clean: ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist site ui/node_modules
