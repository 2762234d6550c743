# Nothing but a python3 (3.10 or newer) is needed: every target makes the environment that it uses, once.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BENCH_VENV := .venv-bench
OLDEST_VENV := .venv-oldest
FRAMEWORKS_VENV := .venv-frameworks
BROWSER_VENV := .venv-browser
# The builds for CPUs, and not what the extras name: xgboost comes with gigabytes of CUDA.
FRAMEWORKS := lightning transformers accelerate tensorflow-cpu "jax[cpu]" orbax-checkpoint xgboost-cpu lightgbm scikit-learn pandas pyarrow datasets deepspeed
HOROVOD_VENV := .venv-horovod
HOROVOD := horovod==0.28.1
SEARCHERS_VENV := .venv-searchers
EXAMPLES_VENV := .venv-examples
DEMO_VENV := .venv-demo
OLDEST_RAY := 2.49.2
SECONDS ?= 60
RUNS ?= 200
MINUTES ?= 60
KILLS ?= 50
JOBS ?= 1
SEED ?= 0
BENCHMARK_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint types simulate scale soak cases drills clusters oldest before frameworks horovod extras browser paint searchers examples storms docs pictures follow benchmark clean

help: ## show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.ready ## create .venv with everything that development needs

# The demo uses the large environment if it exists, else a small one of its own.
demo: $(or $(wildcard $(VENV)/.ready),$(DEMO_VENV)/.ready) ## train a small model, kill a worker on the way, compare with an undisturbed run
	$(<D)/bin/python examples/demo.py

test: lint types ## lint, type check and run the tests, the files of them on one process more than there are cores
	$(VENV)/bin/python -m pytest -n auto --dist loadfile

lint: setup ## ruff: rules and formatting
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

types: setup ## mypy --strict
	$(VENV)/bin/mypy

simulate: setup ## fault schedules of runs, then of experiments, on all cores, each for SECONDS=60, or SCHEDULES=1000000 of them
	$(VENV)/bin/python -m holdfast.testing.simulator $(if $(SCHEDULES),--seeds $(SCHEDULES),--seconds $(SECONDS))
	$(VENV)/bin/python -m holdfast.testing.experiment_simulator $(if $(SCHEDULES),--seeds $(SCHEDULES),--seconds $(SECONDS))

scale: setup ## a run of 10,000 workers, as stand-ins, with the real driver; the table of goals (SCALE_ARGS="--workers 1000")
	$(VENV)/bin/python benchmarks/scale.py $(SCALE_ARGS)

before: setup ## recovery, cold start, reports and tuning of COMMIT beside the present code, in turns (10 minutes, quiet machine)
	$(VENV)/bin/python benchmarks/before_after.py $(COMMIT)

soak: setup ## RUNS=200 runs with random faults from SEED=0 on, MINUTES=60 at most; kill drivers KILLS=50 times, DDP ranks 500 times
	SOAK_RUNS=$(RUNS) SOAK_MINUTES=$(MINUTES) SOAK_KILLS=$(KILLS) SOAK_SEED=$(SEED) \
		$(VENV)/bin/python -m pytest tests/system/soak tests/system/tune tests/system/elastic tests/system/faults \
		tests/system/training tests/unit/testing -m soak -s

cases: setup ## what Ray's own tests for Train and Tune expect, as tests of ours
	$(VENV)/bin/python -m pytest -m 'soak or not soak' $$(PYTHONPATH=tests $(VENV)/bin/python -m support.compat.ray_ledger --tests)

drills: setup $(FRAMEWORKS_VENV)/.ready $(HOROVOD_VENV)/.built ## every fault of a drill on the examples, also those of the frameworks (an hour and more)
	$(VENV)/bin/python -m pytest tests/system/drill -m soak -s
	$(FRAMEWORKS_VENV)/bin/python -m pytest tests/system/frameworks -m 'frameworks and soak' -s
	$(HOROVOD_VENV)/bin/python -m pytest tests/system/horovod -m 'horovod and soak' -s

clusters: setup ## on Ray: its autoscaler, lost heads, cut cables, the guides' scripts, submitted jobs
	$(VENV)/bin/python -m pytest tests/system/ray -m soak -s

oldest: $(OLDEST_VENV)/.ready ## all tests on Ray, with the oldest release of it that is supported
	$(OLDEST_VENV)/bin/python -m pytest tests/system/ray tests/unit/engine/ray -m 'soak or not soak' -s

frameworks: $(FRAMEWORKS_VENV)/.ready ## Lightning, Transformers, TensorFlow, JAX, XGBoost, LightGBM: kills, restore, guides, examples
	$(FRAMEWORKS_VENV)/bin/python -m pytest tests/system/frameworks -m 'frameworks and not soak' -s

horovod: $(HOROVOD_VENV)/.built ## Horovod, built from its source (minutes): kills, restore, changes of size, guide, example
	$(HOROVOD_VENV)/bin/python -m pytest tests/system/horovod -m 'horovod and not soak' -s

extras: setup ## each extra alone in a fresh environment: its names and its example, and the message without it
	@links=$$($(PYTHON) -m pip config get global.find-links 2>/dev/null || true); \
	if [ -n "$$links" ]; then UV_FIND_LINKS=$$(echo $$links | tr ' ' ','); export UV_FIND_LINKS; fi; \
	TORCH="$(TORCH)" $(VENV)/bin/python -m pytest tests/system/extras -m extras

browser: $(BROWSER_VENV)/.ready ## the pages of holdfast ui in a real browser: needs chromium (apt-get install chromium)
	$(BROWSER_VENV)/bin/python -m pytest tests/system/browser -m browser -s

searchers: $(SEARCHERS_VENV)/.ready ## searchers on HyperOpt, BayesOpt, Ax, Nevergrad, ZOOpt: kills and restores
	$(SEARCHERS_VENV)/bin/python -m pytest tests/system/searchers -m searchers -s

examples: $(EXAMPLES_VENV)/.ready ## the examples in Ray's wheel with nothing but the import root changed
	$(EXAMPLES_VENV)/bin/python -m pytest tests/system/ray_examples -m searchers -s

paint: $(BROWSER_VENV)/.ready ## holdfast ui at its limits: first paint, memory, and what a run loses by being watched
	PYTHONPATH=tests $(BROWSER_VENV)/bin/python benchmarks/ui_pages.py

storms: setup ## every storage fault at every request, and a kill at each of them, against S3 servers (an hour)
	$(VENV)/bin/python -m pytest tests/system/object_stores -m soak -s

docs: setup ## the documentation as a site in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet --site-dir site

pictures: setup $(BROWSER_VENV)/.ready ## the pictures of README and docs, on a quiet machine (5 minutes): a kill (tmux), charts, examples, holdfast ui (chromium)
	$(VENV)/bin/python docs/drawing/bar_charts.py
	$(VENV)/bin/python docs/drawing/record_kill.py
	$(VENV)/bin/python docs/drawing/record_examples.py
	PYTHONPATH=tests $(BROWSER_VENV)/bin/python docs/drawing/record_ui.py

follow: setup ## follow the README and the guides for newcomers literally, each in a fresh environment; from installation to recovered run
	PYTHONPATH=tests TORCH="$(TORCH)" $(VENV)/bin/python docs/drawing/follow_pages.py $(PAGES)

benchmark: $(BENCH_VENV)/.ready ## every benchmark beside its peers; writes docs/benchmarks.md (BENCHMARK_ARGS=...)
	$(BENCH_VENV)/bin/python benchmarks/run_all.py $(BENCHMARK_ARGS)

clean: ## remove the environments and all caches
	rm -rf $(VENV) $(BROWSER_VENV) $(DEMO_VENV) $(BENCH_VENV) $(OLDEST_VENV) $(FRAMEWORKS_VENV) $(HOROVOD_VENV) $(SEARCHERS_VENV) $(EXAMPLES_VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# torch goes first and alone: the newest one, which a range would fetch, comes with gigabytes of CUDA.
# uv does not read pip's configuration, so it is told where pip finds local wheels.
# $(call install,environment,what to install after torch,--system-site-packages to use a torch that $(PYTHON) has)
HAS_TORCH := import torch; assert [int(n) for n in torch.__version__.split(".")[:2]] >= [2, 4]
comma := ,
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or newer is needed: make PYTHON=python3.x")'
	@set -e; \
	if command -v uv >/dev/null; then \
		test -x $(1)/bin/python || uv venv --quiet $(3) --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" $(1); \
		links=$$($(PYTHON) -m pip config get global.find-links 2>/dev/null || true); \
		if [ -n "$$links" ]; then UV_FIND_LINKS=$$(echo $$links | tr ' ' ','); export UV_FIND_LINKS; fi; \
		add="uv pip install --quiet --python $(1)/bin/python"; \
	else \
		test -x $(1)/bin/python || $(PYTHON) -m venv $(3) $(1); \
		add="$(1)/bin/python -m pip install --quiet"; \
	fi; \
	echo '*' > $(1)/.gitignore; \
	if [ -n "$(3)" ] && $(1)/bin/python -c '$(HAS_TORCH)' 2>/dev/null; then \
		echo "using the torch of $(PYTHON) in $(1)"; \
	else \
		echo "installing $(TORCH) into $(1)"; \
		$$add "$(TORCH)" || { echo "$(TORCH) is not available here; installing the newest torch"; $$add torch; }; \
	fi; \
	echo 'installing $(2) into $(1)'; \
	$$add $(2)
	@touch $@
endef

$(VENV)/.ready: pyproject.toml
	$(call install,$(VENV),-e ".[dev]")

$(DEMO_VENV)/.ready: pyproject.toml
	$(call install,$(DEMO_VENV),-e . numpy,--system-site-packages)

# Ray Data had not heard of pandas 3 yet.
$(OLDEST_VENV)/.ready: pyproject.toml
	$(call install,$(OLDEST_VENV),-e ".[dev]" "ray==$(OLDEST_RAY)" "pandas~=2.0")

$(FRAMEWORKS_VENV)/.ready: pyproject.toml
	$(call install,$(FRAMEWORKS_VENV),-e ".[torch$(comma)data]" $(FRAMEWORKS) pytest pytest-timeout pytest-xdist)

$(HOROVOD_VENV)/.ready: pyproject.toml
	$(call install,$(HOROVOD_VENV),-e ".[torch]" pandas pytest pytest-timeout pytest-xdist pip wheel "setuptools<81" packaging cffi psutil pyyaml)

# The source of Horovod asks for C++14, and the headers of torch need C++17.
$(HOROVOD_VENV)/.built: | $(HOROVOD_VENV)/.ready
	rm -rf $(HOROVOD_VENV)/source && mkdir $(HOROVOD_VENV)/source
	$(HOROVOD_VENV)/bin/python -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest $(HOROVOD_VENV)/source "$(HOROVOD)"
	tar -xzf $(HOROVOD_VENV)/source/horovod-*.tar.gz -C $(HOROVOD_VENV)/source --strip-components 1
	sed -i 's/set(CMAKE_CXX_STANDARD 14)/set(CMAKE_CXX_STANDARD 17)/' \
		$(HOROVOD_VENV)/source/CMakeLists.txt $(HOROVOD_VENV)/source/horovod/torch/CMakeLists.txt
	MAKEFLAGS=-j$(JOBS) HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 \
		HOROVOD_WITHOUT_MXNET=1 $(HOROVOD_VENV)/bin/python -m pip wheel --quiet --no-build-isolation --no-deps \
		--wheel-dir $(HOROVOD_VENV)/wheels $(HOROVOD_VENV)/source
	$(HOROVOD_VENV)/bin/python -m pip install --quiet --no-deps $(HOROVOD_VENV)/wheels/horovod-*.whl
	rm -rf $(HOROVOD_VENV)/source
	touch $@

$(BROWSER_VENV)/.ready: pyproject.toml
	$(call install,$(BROWSER_VENV),-e ".[ui]" numpy playwright "moto[server]" nbclient nbconvert ipykernel pytest pytest-timeout pytest-xdist)

$(SEARCHERS_VENV)/.ready: pyproject.toml
	$(call install,$(SEARCHERS_VENV),-e ".[torch$(comma)dataframe$(comma)optuna$(comma)hyperopt$(comma)bayesopt$(comma)ax$(comma)nevergrad$(comma)zoopt]" ConfigSpace pytest pytest-timeout pytest-xdist)

$(EXAMPLES_VENV)/.ready: pyproject.toml
	$(call install,$(EXAMPLES_VENV),-e ".[torch$(comma)data$(comma)ray$(comma)optuna$(comma)hyperopt$(comma)bayesopt$(comma)ax$(comma)nevergrad$(comma)zoopt]" ConfigSpace xgboost-cpu lightgbm scikit-learn mlflow pytest pytest-timeout pytest-xdist)

$(BENCH_VENV)/.ready: pyproject.toml benchmarks/requirements.txt
	$(call install,$(BENCH_VENV),-r benchmarks/requirements.txt -e ".[torch]")
