# Allod: build, check, test and release. "make help" lists the targets.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS   += --no-builtin-rules
.DEFAULT_GOAL := help

# These can be set by the caller: make fuzz FUZZTIME=1m
FUZZTIME ?= 10s
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The commit of the sources; none where they have changes, since no commit names those.
COMMIT   ?= $(shell [ -n "$$(git status --porcelain 2>&1)" ] || git rev-parse HEAD)

# The systems and processors that a release is built for. internal/tools/dist has the same.
SYSTEMS    := linux darwin windows
PROCESSORS := amd64 arm64

# Tools are pinned in tools/go.mod, apart from the modules that we ship.
TOOL := go tool -modfile=tools/go.mod

# A generator is a program internal/tools/gen... With -check it writes nothing and fails on a difference.
GENERATORS := $(wildcard internal/tools/gen*)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: build ## build bin/allod and bin/allod-node and run the demo
	bin/allod demo

# What runs as root on a node is for Linux, and allod finds it beside itself.
.PHONY: build
build: ## build bin/allod, and bin/allod-node on Linux
	CGO_ENABLED=0 go build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/allod ./cmd/allod
	if [ "$$(go env GOOS)" = linux ]; then \
		CGO_ENABLED=0 go build -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/allod-node ./cmd/allod-node; \
	fi

.PHONY: test
test: check ## run the checks, then every test with the race detector, and list the MUSTs not proved yet
	@race=-race; \
	if [ "$$(go env CGO_ENABLED)" != 1 ] || ! command -v "$$(go env CC | cut -d ' ' -f 1)" >/dev/null; then \
		race=; echo "test: there is no C compiler, so the tests run without the race detector"; \
	fi; \
	set -x; go test $$race ./...; \
	if [ -n "$$race" ]; then go test ./wire/ai/... ./internal/compose ./internal/compose/zonesim ./internal/runner/ledger; fi; \
	go test -tags killpoints -run '^(TestKillPoints|TestF08ControllerKillPoints)$$' -parallel 16 ./cmd/allod; \
	go test -tags killpoints -run '^TestF08KillPoints$$' -parallel 16 ./cmd/allod-node
	@go run ./internal/tools/mutate -list

# A build with kill points kills itself at the worst moments, which no other test may meet.
# The race detector changes what is allocated and makes the largest messages and the database slow, so
# those tests skip or do less under it and run once more without.

# MUST=CLAIM_ATOMIC runs the changes of one MUST, and MUST=F08 those of one family of the zone contract.
.PHONY: mutate
mutate: ## break the code as test/mutations*.md say, and see each test turn red
	go run ./internal/tools/mutate -must '$(MUST)'

# The rules of the repository are tests, in internal/repocheck. They run with the others.
# Without cgo and paths, these builds are those of a release, and "make dist" need not compile them again.
.PHONY: check
check: ## check format, vet, staticcheck, modules, generated files and every build
	@echo "check: format"; files=$$(gofmt -l .); \
	if [ -n "$$files" ]; then echo "these files need gofmt -w:"; echo "$$files"; exit 1; fi
	@for os in $(SYSTEMS); do echo "check: vet on $$os"; CGO_ENABLED=0 GOOS=$$os go vet -trimpath ./...; done
	@echo "check: vet with kill points"; go vet -tags killpoints ./cmd/allod ./cmd/allod-node
	@echo "check: staticcheck"; $(TOOL) staticcheck ./...
	@echo "check: rules"; go test ./internal/repocheck
	@echo "check: modules"; go mod tidy -diff; go -C tools mod tidy -diff
	@for gen in $(GENERATORS); do echo "check: $$gen"; go run ./$$gen -check; done
	@for os in $(SYSTEMS); do for arch in $(PROCESSORS); do \
		echo "check: build for $$os/$$arch"; CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch go build -trimpath ./...; \
	done; done

.PHONY: generate
generate: ## make the generated files again
	for gen in $(GENERATORS); do go run ./$$gen; done

# Go fuzzes one function at a time, so each gets its own run of FUZZTIME.
.PHONY: fuzz
fuzz: ## run every fuzz function for FUZZTIME (10s)
	@go test -list '^Fuzz' ./... | \
	awk '/^Fuzz/ { names[n++] = $$1 } /^ok/ { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }' | \
	while read -r package name; do \
		echo "fuzz: $$package $$name"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "$$package" </dev/null; \
	done

# It builds the server from its sources, with a C++ compiler, which takes minutes.
.PHONY: realmodel
realmodel: ## run a real inference server with a tiny random model (minutes)
	ALLOD_REAL_SERVER=1 go test -count=1 -timeout 30m -v ./test/realmodel

.PHONY: bench
bench: ## run the benchmarks of keys and of the AI contract
	go test -run '^$$' -bench . -benchmem ./key/... ./wire/ai/...

# The database is on the network. A machine without it must still be able to run this target.
.PHONY: vuln
vuln: ## look for known vulnerabilities that the code can reach
	@if out=$$($(TOOL) govulncheck ./... 2>&1); then echo "$$out"; \
	elif grep -q 'fetching vulnerabilities' <<<"$$out"; then \
		echo "vuln: the vulnerability database cannot be reached, so nothing was looked up"; \
	else echo "$$out"; exit 1; fi

.PHONY: dist
dist: ## build the archives of a release into dist/, the same bytes for everybody
	rm -rf dist
	go run ./internal/tools/dist -out dist -version '$(VERSION)'

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist
