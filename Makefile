# `make` alone lists the targets. Go and make are enough; what else a target
# needs it builds (the tools), installs as root on Debian (PostgreSQL), or names.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

GO    ?= go
# What `make test` adds to go test; `make test RACE=` goes without a C compiler.
RACE  ?= -race
# What `make race` runs, and how often.
PKG   ?= ./pgexec/...
COUNT ?= 5

TOOLS := bin/tools
BUF   := $(abspath $(TOOLS))/buf
LINT  := $(abspath $(TOOLS))/golangci-lint

.PHONY: help demo build test race lint bench generate descriptors verify clean FORCE

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | while IFS=@ read -r target text; do \
		printf '%-18s %s\n' "$$target" "$$text"; done

demo: build ## Agents on three replicas and a throw-away PostgreSQL: one replica is killed, one drained
	@tools/install-postgres.sh
	@bin/pgexec demo $(ARGS)

build: bin/pgexec ## Build bin/pgexec

# Where git refuses this checkout, another user's for one, the binary does without its version.
VCS = $(shell git rev-parse HEAD >/dev/null 2>&1 || echo -buildvcs=false)

# The go command knows what is out of date. Without tables for debuggers the program is half as large; stacks stay readable.
bin/pgexec: FORCE
	CGO_ENABLED=0 $(GO) build $(VCS) -ldflags='-s -w' -o $@ ./cmd/pgexec

test: ## Run all tests with the race detector on a PostgreSQL of this run's own
	@tools/test.sh $(RACE) ./...

race: ## Run PKG=./pgexec/... COUNT=5 times with the race detector
	@tools/test.sh -race -count=$(COUNT) $(PKG)

bench: ## Run all benchmarks and print per-operation figures
	@tools/test.sh -run='^$$' -bench=. -p=1 ./...

lint: $(LINT) ## Check style and common faults, in all modules
	$(LINT) run ./...
	cd integration && $(LINT) run --config=../.golangci.yml ./...

generate: $(BUF) $(TOOLS)/protoc-gen-go ## Generate Go code from proto/
	cd proto && PATH="$(abspath $(TOOLS)):$$PATH" $(BUF) generate

descriptors: $(BUF) ## Keep the wire format of a release for verify: VERSION=v1.2.3
	@test -n "$(VERSION)" || { echo 'make descriptors: say which release, VERSION=v1.2.3' >&2; exit 2; }
	cd proto && $(BUF) build -o descriptors/$(VERSION).binpb

verify: $(BUF) $(TOOLS)/protoc-gen-go ## Check that generated code and go.mod are current, and that every released log stays readable
	@BUF=$(BUF) tools/verify.sh

clean: ## Remove what was built
	rm -rf bin

# The tools are a module of their own, so that go.mod lists only what pgexec runs on.
$(LINT): TOOL := github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BUF): TOOL := github.com/bufbuild/buf/cmd/buf
$(TOOLS)/protoc-gen-go: TOOL := google.golang.org/protobuf/cmd/protoc-gen-go
$(LINT) $(BUF) $(TOOLS)/protoc-gen-go: tools/go.mod tools/go.sum
	@mkdir -p $(TOOLS)
	@echo 'building $(notdir $@), once'
	@CGO_ENABLED=0 $(GO) -C tools build -o $(abspath $@) $(TOOL)
	@touch $@
