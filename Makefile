# SPDX-License-Identifier: MIT
# The front door. Each target first sees to what it needs (tools/deps), then works in build/<variant> (tools/test).

PREFIX ?= /usr/local
C_FILES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cpp')

.PHONY: build demo test test-all bench bench-net install clean format help

build: ## compile the libraries, the tests and the examples (the default)
	@tools/deps base
	@tools/test --setup release
	@ninja -C build/release

demo: ## one overloaded P, and the others stealing from it: examples/imbalance
	@tools/deps base
	@tools/test --setup release
	@ninja --quiet -C build/release examples/imbalance
	@build/release/examples/imbalance

test: ## every test, with one compiler: the quick tier
	@tools/deps test
	@tools/test release

test-all: ## the same with gcc and clang, debug, hostile, LTO, sanitizers, valgrind, aarch64
	@tools/deps all
	@tools/test all

bench: ## every benchmark, on one proc and on two, beside Go
	@tools/deps bench
	@tools/test --setup release
	@ninja --quiet -C build/release
	@tools/bench build/release

bench-net: ## echo, HTTP and redis beside bare epoll, nginx, Go and redis-server
	@tools/deps bench-net
	@tools/test --setup release
	@ninja --quiet -C build/release
	@tools/bench-net build/release

install: ## into PREFIX (/usr/local), below DESTDIR if that is set
	@tools/deps install
	@tools/test --setup install
	@meson configure build/install -Dprefix=$(PREFIX)
	@meson install -C build/install

clean: ## remove build/
	rm -rf build

format: ## lay out every C file by .clang-format
	@tools/deps format
	@clang-format -i $(C_FILES)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12
