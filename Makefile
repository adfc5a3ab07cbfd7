# Needs Go, git and make. What else a target needs, it installs (see
# scripts/servers.sh) or builds from internal/tools at a pinned version.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
STATICCHECK := $(GO) tool -modfile='$(CURDIR)/internal/tools/go.mod' staticcheck -checks inherit,ST1000,ST1020,ST1021

# BESIDE_SERVERS runs a target with REDIS_ADDR and VALKEY_ADDR set.
BESIDE_SERVERS := scripts/servers.sh $(MAKE) --no-print-directory

# Modules inside this one. internal/tools is a go.mod without code.
MODULES := $(patsubst ./%/go.mod,%,$(shell find . -mindepth 2 -name go.mod -not -path './.*'))
NESTED := $(filter-out internal/tools,$(MODULES))
in_nested = @for module in $(NESTED); do (cd "$$module" && echo "in $$module:" && $(1)); done

BENCH ?= .
COUNT ?= 1
FUZZTIME ?= 10s

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: lint ## lint and unit tests, the rules on imports and docs among them; no servers
	$(GO) test ./...

.PHONY: test
test: ## everything: all tests beside real servers, nested modules, examples
	$(BESIDE_SERVERS) test-here

.PHONY: test-here
test-here: examples
	$(call in_nested,$(GO) test -count=1 ./...)
	$(GO) test -count=1 -timeout 30m ./...

.PHONY: race
race: ## all tests beside real servers, under the race detector
	scripts/servers.sh $(GO) test -race -count=1 -timeout 30m ./...

.PHONY: lint
lint: ## format, vet and staticcheck, in every module
	@files=$$(gofmt -s -l .); if [ -n "$$files" ]; then echo "run 'make fmt' for:" $$files; exit 1; fi
	$(GO) vet ./...
	$(STATICCHECK) ./...
	$(call in_nested,$(GO) vet ./... && $(STATICCHECK) ./...)

.PHONY: fmt
fmt: ## format the code
	gofmt -s -w .

.PHONY: fuzz
fuzz: ## run each fuzz target for FUZZTIME (10s)
	scripts/servers.sh scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## run the benchmarks that match BENCH (all), COUNT (1) times
	$(BESIDE_SERVERS) bench-here

.PHONY: bench-here
bench-here:
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...
	$(call in_nested,$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...)

.PHONY: examples
examples: ## build each example and run it briefly
	scripts/examples.sh

.PHONY: cover
cover: ## coverage of all tests, as .tmp/cover.html
	mkdir -p .tmp
	scripts/servers.sh $(GO) test -count=1 -coverpkg=./... -coverprofile=.tmp/cover.out ./...
	$(GO) tool cover -html=.tmp/cover.out -o .tmp/cover.html
	$(GO) tool cover -func=.tmp/cover.out | tail -n 1

.PHONY: tidy-check
tidy-check: ## fail if a go.mod or go.sum is not tidy
	@for module in . $(MODULES); do (cd "$$module" && $(GO) mod tidy -diff); done

.PHONY: servers
servers: ## start a Redis and a Valkey server, print their addresses, run until interrupted
	@scripts/servers.sh

.PHONY: accuracy
accuracy: ## measure accuracy in simulation, write docs/accuracy.md; takes minutes
	$(GO) run ./internal/fleetsim/accuracy -docs docs

.PHONY: accuracy-check
accuracy-check: ## hold the simulated accuracy against its bars; no servers
	$(GO) run ./internal/fleetsim/accuracy -check
