"""Schedulers and search spaces are pure, and are called as Ray Tune's are."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from holdfast.tune import schedulers, search_space
from holdfast.tune.schedulers import resource_changing_scheduler

TUNE = Path(search_space.__file__).parent
FILES = [TUNE / "search_space.py", *sorted(TUNE.glob("space/*.py")), *sorted(TUNE.glob("schedulers/*.py"))]
ALLOWED = {
    "__future__",
    "array",
    "bisect",
    "copy",
    "collections",
    "dataclasses",
    "decimal",
    "fractions",
    "holdfast",
    "importlib",
    "inspect",
    "itertools",
    "math",
    "msgspec",
    "numbers",
    "numpy",
    "operator",
    "random",
    "re",
    "statistics",
    "typing",
    "warnings",
}
READS_A_FILE = {"pbt_replay.py": {"json", "pathlib"}}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TUNE)))
def test_nothing_is_imported_that_reads_the_clock_or_the_world(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        unlawful = {name.partition(".")[0] for name in names} - ALLOWED - READS_A_FILE.get(path.name, set())
        assert not unlawful, f"line {node.lineno}: {unlawful}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TUNE)))
def test_there_is_no_global_state_and_no_randomness_but_from_a_seed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Global), f"{path.name} keeps state in a global"
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("random", "np.random"):
            lawful = {"Random", "Generator", "PCG64", *(["random"] if path.name == "domains.py" else [])}
            assert node.attr in lawful, f"line {node.lineno}: {ast.unparse(node)}"


SIGNATURES = {
    "FIFOScheduler": "",
    "AsyncHyperBandScheduler": "time_attr='training_iteration', metric=None, mode=None, max_t=100, grace_period=1, "
    "reduction_factor=4, brackets=1, stop_last_trials=True",
    "HyperBandScheduler": "time_attr='training_iteration', metric=None, mode=None, max_t=81, reduction_factor=3, "
    "stop_last_trials=True",
    "HyperBandForBOHB": "time_attr='training_iteration', metric=None, mode=None, max_t=81, reduction_factor=3, "
    "stop_last_trials=True",
    "MedianStoppingRule": "time_attr='time_total_s', metric=None, mode=None, grace_period=60.0, "
    "min_samples_required=3, min_time_slice=0, hard_stop=True",
    "PopulationBasedTraining": "time_attr='time_total_s', metric=None, mode=None, perturbation_interval=60.0, "
    "burn_in_period=0.0, hyperparam_mutations=None, quantile_fraction=0.25, resample_probability=0.25, "
    "perturbation_factors=(1.2, 0.8), custom_explore_fn=None, log_config=True, require_attrs=True, synch=False",
    "PopulationBasedTrainingReplay": "policy_file",
    "PB2": "time_attr='time_total_s', metric=None, mode=None, perturbation_interval=60.0, hyperparam_bounds=None, "
    "quantile_fraction=0.25, log_config=True, require_attrs=True, synch=False, custom_explore_fn=None",
    "DistributeResources": "add_bundles=False, increase_by=None, increase_by_times=-1, reserve_resources=None",
    "DistributeResourcesToTopJob": "add_bundles=False, increase_by=None, increase_by_times=-1, reserve_resources=None, "
    "metric=None, mode=None",
    "grid_search": "values",
    "choice": "categories",
    "uniform": "lower, upper",
    "quniform": "lower, upper, q",
    "loguniform": "lower, upper, base=...",
    "qloguniform": "lower, upper, q, base=...",
    "randint": "lower, upper",
    "qrandint": "lower, upper, q=1",
    "lograndint": "lower, upper, base=...",
    "qlograndint": "lower, upper, q, base=...",
    "randn": "mean=0.0, sd=1.0",
    "qrandn": "mean, sd, q",
    "sample_from": "func",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_and_defaults_are_those_of_ray_tune(name: str) -> None:
    """Of version 2.60.0. What is ours beside it, the seed, is by keyword only."""
    homes = (schedulers, search_space, resource_changing_scheduler)
    function = next(getattr(home, name) for home in homes if hasattr(home, name))
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    assert ", ".join(map(_shown, parameters)) == SIGNATURES[name]


def _shown(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    if default is parameter.empty:
        return parameter.name
    return f"{parameter.name}={'...' if type(default) is object else repr(default)}"


def test_modules_have_the_names_that_scripts_import() -> None:
    for module in ("async_hyperband", "hb_bohb", "hyperband", "median_stopping_rule", "pb2", "pbt"):
        assert (TUNE / "schedulers" / f"{module}.py").exists()
    assert resource_changing_scheduler.ResourceChangingScheduler is schedulers.ResourceChangingScheduler
