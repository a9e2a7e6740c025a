# The two commands for a newcomer are `make demo` and `make test`; both install what is missing first.

SHELL := /bin/bash
FUZZ_SECONDS ?= 60
KILLS ?= 1000
FUZZ_TARGETS := path_resolution guest_requests guest_answers
# Tools that the user installed for himself are found as well.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help demo test openapi lint bench fuzz torture build install clean

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

openapi: ## write crates/server/openapi.json anew, after a change of the API that is meant
	RENEW_OPENAPI=1 cargo test --quiet --package cofferdam-server --lib api::openapi

lint: ## clippy and formatting
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings

bench: ## measure against bwrap, runc, FastAPI, zip and others; writes docs/benchmarks.md
	@scripts/setup bench
	cargo build --release --package cofferdam --package cofferdam-bench
	target/release/cofferdam-bench

# cargo-fuzz wants -Z flags; RUSTC_BOOTSTRAP gives them to the stable toolchain. New inputs go to fuzz/target/corpus,
# so that the committed corpus stays what people chose; findings go to fuzz/artifacts. Scratch workspaces are made and
# removed for every input: in memory where there is such a place.
fuzz: ## look for inputs that break the parsers, FUZZ_SECONDS for each
	@scripts/setup demo
	command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked
	set -e; for target in $(FUZZ_TARGETS); do \
	  mkdir -p fuzz/target/corpus/$$target; \
	  TMPDIR=$$([ -d /dev/shm ] && echo /dev/shm || echo /tmp) RUSTC_BOOTSTRAP=1 \
	    cargo fuzz run --target $$(rustc -vV | sed -n 's/^host: //p') $$target \
	    fuzz/target/corpus/$$target fuzz/corpus/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=8192 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1; \
	done

torture: ## kill a working server, KILLS times, and look for what was lost
	@scripts/setup demo
	cargo build --release --package cofferdam-torture
	target/release/cofferdam-torture --kills $(KILLS)

build: ## the program, at target/release/cofferdam
	@scripts/setup demo
	cargo build --release --package cofferdam

install: build ## copy it to ~/.local/bin
	install -D -m 755 target/release/cofferdam $(HOME)/.local/bin/cofferdam

clean: ## remove what was built
	cargo clean
