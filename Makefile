# The two commands for a newcomer are `make demo` and `make test`; both install what is missing first.

SHELL := /bin/bash
FUZZ_SECONDS ?= 60
# Tools that the user installed for himself are found as well.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help demo test lint bench fuzz build install clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: ## build, and show commands running in a sandbox
	@scripts/setup demo
	cargo build --release --package cofferdam
	@scripts/demo target/release/cofferdam

test: ## all tests, with real sandboxes
	@scripts/setup test
	cargo fmt --all --check
	@scripts/run-tests

lint: ## clippy and formatting
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: ## measure against bwrap, runc and others; writes docs/benchmarks.md
	@scripts/setup bench
	cargo build --release --package cofferdam --package cofferdam-bench
	target/release/cofferdam-bench

build: ## the program, at target/release/cofferdam
	@scripts/setup demo
	cargo build --release --package cofferdam

install: build ## copy it to ~/.local/bin
	install -D -m 755 target/release/cofferdam $(HOME)/.local/bin/cofferdam

clean: ## remove what was built
	cargo clean
