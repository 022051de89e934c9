# Everything a developer runs. Each target does its own set-up; stamp files make the second run quick.
#
#   make quickstart   build, install into .venv, train on handwritten digits
#   make test         lint and the quick tests
#   make help         the rest

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
JOBS ?= 2

# An isolated build would fetch its tools into a new folder each time and recompile everything, so the build
# requirements live in .venv. CMake and Ninja come from PyPI: the system's may be missing or old.
NATIVE := pyproject.toml CMakeLists.txt $(shell find cmake src -type f 2>/dev/null)
PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check
PIP_VERBOSE = $(PY) -m pip install --verbose --disable-pip-version-check
# Versions are those of requirements.lock; where it does not fit (another machine, a newer Python), the newest that will do.
INSTALL_FROM = $(PY) tools/requirements.py $(1) > $(VENV)/requirements.txt && \
  { $(PIP_INSTALL) -r $(VENV)/requirements.txt -c requirements.lock || \
  { echo "requirements.lock does not fit here: installing the newest versions instead"; $(PIP_INSTALL) -r $(VENV)/requirements.txt; }; }
ifneq ($(shell command -v ccache 2>/dev/null),)
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
endif
# The scripts of .venv (cmake, ninja, clang-format) come before the system's.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help install prebuilt wheel lock quickstart test test-all fuzz accuracy lint format stubs docs bench sanitize native clean sharded-check
.DELETE_ON_ERROR:

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

$(VENV)/.created:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
	  { echo "Tandem needs Python 3.11 or later; $(PYTHON) is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -c "import os, sys, sysconfig as s; sys.exit(not os.path.exists(s.get_path('include') + '/Python.h'))" || \
	  { echo "Python.h is missing. On Debian: apt install python3-dev"; exit 1; }
	@command -v $${CXX:-g++} >/dev/null || { echo "A C++20 compiler is missing. On Debian: apt install g++"; exit 1; }
# Debian splits ensurepip off into python3-venv; without it the venv gets its pip from the system's pip.
	$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { rm -rf $(VENV); $(PYTHON) -m venv --without-pip $(VENV) && \
	  $(PYTHON) -m pip --python $(PY) install --quiet pip; }
	@touch $@

$(VENV)/.tools: pyproject.toml tools/requirements.py requirements.lock | $(VENV)/.created
	$(call INSTALL_FROM,build core make)
	@touch $@

# The package was called tandem before it was tandem-dl; both would own the same files.
$(VENV)/.built: $(NATIVE) | $(VENV)/.tools
	@$(PY) -m pip uninstall --quiet --disable-pip-version-check --yes tandem 2>/dev/null || true
	@echo "building the C++ runtime (a few minutes the first time)"
	@$(PY) tools/build_progress.py $(PIP_VERBOSE) --no-build-isolation --no-deps --editable .
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/.created
	$(call INSTALL_FROM,test)
	@touch $@

$(VENV)/.examples: pyproject.toml | $(VENV)/.created
	$(call INSTALL_FROM,examples)
	@touch $@

$(VENV)/.oracle: pyproject.toml | $(VENV)/.created
	$(call INSTALL_FROM,oracle)
	@touch $@

# Peers get a venv of their own: their dependencies must not decide ours. TensorFlow is large and optional.
$(VENV)-bench/.created: pyproject.toml | $(VENV)/.created
	$(PY) -m venv --without-pip $(VENV)-bench
	$(PY) tools/requirements.py bench > $(VENV)-bench/requirements.txt
	$(PY) -m pip --python $(VENV)-bench/bin/python install --quiet -r $(VENV)-bench/requirements.txt
	$(PY) -m pip --python $(VENV)-bench/bin/python install --quiet $(TENSORFLOW) || echo "going on without TensorFlow"
	@touch $@
TENSORFLOW ?= tensorflow-cpu

## make install      .venv with the package in it (editable), built
install: $(VENV)/.tools $(VENV)/.built

## make prebuilt     compile the kernels that come with the package again, after changes to the code generator
prebuilt: $(VENV)/.tools
	@echo "building the C++ runtime (a few minutes the first time)"
	@$(PY) tools/build_progress.py $(PIP_VERBOSE) --no-build-isolation --no-deps --editable .
	@touch $(VENV)/.built

## make wheel        wheels for the Pythons found here, checked and tried in clean venvs, in dist/; ARGS="--pythons 3.12 --levels none"
wheel: $(VENV)/.created
	$(PY) tools/wheel.py $(ARGS)

## make lock         update requirements.lock: the newest versions of what building, testing and the docs need
lock: $(VENV)/.created
	$(PY) tools/lock.py

## make quickstart   install, then train on handwritten digits (tandem quickstart)
quickstart: install $(VENV)/.examples
	$(VENV)/bin/tandem quickstart

## make test         install, lint, quick tests, and cuda-check
test: install $(VENV)/.test
	$(PY) -m ruff check
	$(PY) -m pytest -n $(JOBS) -m "not slow and not oracle"
	$(PY) tools/cuda_check.py -n $(JOBS) -m "not slow and not oracle"

## make test-all     every test: the slow ones and those that compare with PyTorch too
test-all: install $(VENV)/.test $(VENV)/.oracle
	$(PY) -m ruff check
	$(PY) -m pytest -n $(JOBS)
	$(PY) tools/cuda_check.py -n $(JOBS)

## make fuzz         random programs, states and calls; COUNT=100000 for a night, SEED= for the same again (tests/fuzz/run.py)
COUNT ?= 2000
fuzz: install $(VENV)/.test
	$(PY) -m tests.fuzz.run all --count $(COUNT) --jobs $(JOBS) $(if $(SEED),--seed $(SEED))

## make accuracy     how far functions are off, in units of the last place, measured with mpmath
accuracy: install $(VENV)/.test
	$(PY) -m tests.ops.last_places $(ARGS)

CXX_FILES = $(shell find src tests -name '*.h' -o -name '*.cc')

## make lint         check style and formatting without changing a file
lint: $(VENV)/.test
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	clang-format --dry-run -Werror $(CXX_FILES)

## make format       put files into the project's format
format: $(VENV)/.test
	$(PY) -m ruff check --fix
	$(PY) -m ruff format
	clang-format -i $(CXX_FILES)

## make stubs        write tandem/_runtime.pyi from the built extension, and what type checkers read of the namespaces
stubs: install
	$(PY) -m nanobind.stubgen -q -m tandem._runtime -o tandem/_runtime.pyi
	$(PY) tools/write_stubs.py

$(VENV)/.docs: pyproject.toml | $(VENV)/.created
	$(call INSTALL_FROM,docs)
	@touch $@

## make docs         write the generated pages under docs/, then the site with the reference, site/index.html
docs: install $(VENV)/.docs
	$(PY) tools/switch_table.py
	$(PY) tools/function_table.py
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

## make bench        side by side with PyTorch; ARGS="--quick --case 'matmul*'" goes to the runner
bench: install $(VENV)-bench/.created
	$(PY) benchmarks/foundation.py --torch-python $(VENV)-bench/bin/python $(ARGS)

# The sanitized extension is tested in a copy of the tree, with a venv that borrows the packages of .venv: the editable
# install there would otherwise be found first.
# SANITIZER=thread: data races instead; of the interpreter itself nothing is known, so what it does is not reported.
SANITIZER ?= address
SANITIZE := $(CURDIR)/build/sanitize-$(SANITIZER)
SANITIZE_FLAGS.address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SANITIZE_FLAGS.thread := -fsanitize=thread
SANITIZE_TESTS.address := tests
SANITIZE_TESTS.thread := tests/tracing/test_threads.py tests/library/test_parallel.py tests/session/test_queues.py tests/session/test_concurrency.py
SANITIZE_LIBRARIES.address := libasan.so libubsan.so libstdc++.so.6
SANITIZE_LIBRARIES.thread := libtsan.so libstdc++.so.6
SANITIZE_OPTIONS.address := ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
SANITIZE_OPTIONS.thread := TSAN_OPTIONS=die_after_fork=0:halt_on_error=0:exitcode=66:ignore_noninstrumented_modules=1
SANITIZE_TESTS ?= $(SANITIZE_TESTS.$(SANITIZER))
PURELIB = $$($(1) -c "import sysconfig; print(sysconfig.get_path('purelib'))")
# NVRTC looks for a part of itself beside itself, which a sanitizer that stands between loses.
LIBRARIES_OF_NVRTC = $(call PURELIB,$(PY))/nvidia/cu13/lib
RUNTIME_OF_COMPILER = $(foreach name,$(SANITIZE_LIBRARIES.$(SANITIZER)),$(shell $${CXX:-g++} -print-file-name=$(name)))
## make gpu-test     the operator checker and tests/gpu on a CUDA device, with the python3 at hand
gpu-test:
	tools/gpu_build.sh
	tools/gpu_test.sh

## make gpu-sanitize the same tests under compute-sanitizer; ARGS="racecheck build/logs 8 600 tests/ops/test_sort.py" for a part
gpu-sanitize:
	tools/gpu_build.sh
	tools/gpu_sanitize.sh $(ARGS)

## make cuda-check   compile every kernel that the operator tests need on CUDA devices; needs no device
cuda-check: install $(VENV)/.test
	$(PY) tools/cuda_check.py -n $(JOBS)

## make sharded-check  every operator on sharded tensors, under all placements, against one rank; MOST= ways to place operands of a call
MOST ?= 40
sharded-check: install $(VENV)/.test
	$(PY) tools/sharded_check.py --most $(MOST) -n $(JOBS)

## make gpu-bench    Tandem and PyTorch side by side on a CUDA device, with the python3 at hand
gpu-bench:
	tools/gpu_build.sh
	python3 benchmarks/gpu.py

## make sanitize     tests on an extension built with ASan and UBSan; SANITIZER=thread: those with threads, with ThreadSanitizer;
##                   SANITIZE_TESTS=tests/ops for a part
sanitize: install $(VENV)/.test
	cmake -S . -B $(SANITIZE)/cmake -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPython_EXECUTABLE=$(CURDIR)/$(PY) \
	  -DCMAKE_CXX_FLAGS="$(SANITIZE_FLAGS.$(SANITIZER)) -fno-omit-frame-pointer -g -O1"
	cmake --build $(SANITIZE)/cmake
	rm -rf $(SANITIZE)/tree && mkdir -p $(SANITIZE)/tree
	git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $(SANITIZE)/tree
	cmake --install $(SANITIZE)/cmake --prefix $(SANITIZE)/tree
	$(PYTHON) -m venv --without-pip --clear $(SANITIZE)/venv
	echo $(call PURELIB,$(PY)) > $(call PURELIB,$(SANITIZE)/venv/bin/python)/borrowed.pth
	cd $(SANITIZE)/tree && LD_PRELOAD="$(RUNTIME_OF_COMPILER)" TANDEM_CACHE_DIR=$(SANITIZE)/kernels PYTHONPATH=$(SANITIZE)/tree \
	  $(SANITIZE_OPTIONS.$(SANITIZER)) LD_LIBRARY_PATH="$(LIBRARIES_OF_NVRTC)" \
	  $(SANITIZE)/venv/bin/python -m pytest -n $(JOBS) -m "not slow and not oracle" $(SANITIZE_TESTS)

## make native       tests of C++ parts (allocator, threads, executor, queues) under ASan, UBSan and ThreadSanitizer
native: $(VENV)/.test
	$(PY) -m pytest tests/src

## make clean        remove what make made
clean:
	rm -rf $(VENV) $(VENV)-bench build dist site .pytest_cache .ruff_cache .hypothesis
