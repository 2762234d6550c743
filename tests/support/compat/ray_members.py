"""Which methods, properties and parameters of Ray's public names a script does not find here, read from Ray's sources.

``python -m support.compat.ray_members`` prints them with what was decided. Parameters must have Ray's names, and those
that may be passed by position Ray's order.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from support.compat import ray_names

_VIEW = (
    "a scheduler sees a read-only view of the experiment, whatever it calls that parameter: it is passed by position"
)
_DRIVES = "how Ray's own loop drives a trial"
# By the beginning of the dotted name
NOT_HERE = {
    "air.config.RunConfig.local_dir": "an error in Ray too",
    "air.config.ScalingConfig.as_placement_group_factory": "of Train V1",
    "air.config.ScalingConfig.from_placement_group_factory": "of Train V1",
    "train.backend.BackendConfig.framework": "for Ray's telemetry",
    "train.data_parallel_trainer.DataParallelTrainer.get_dataset_config": "of Train V1",
    "train.data_parallel_trainer.DataParallelTrainer.training_loop": "of Train V1",
    "train.torch.config.TorchConfig.framework": "for Ray's telemetry",
    "train.torch.torch_checkpoint.TorchCheckpoint.from_model(preprocessor)": "of Train V1",
    "train.torch.torch_checkpoint.TorchCheckpoint.from_state_dict(preprocessor)": "of Train V1",
    "train.v2.api.config.RunConfig.storage_context": "internal to Ray",
    "tune.execution.tune_controller.TuneController": "internal to Ray",
    "tune.experiment.experiment.Experiment": "internal to Ray: how tune.run makes trials of it",
    "tune.experiment.trial.Trial(": "callbacks are given trials, and scripts make none",
    "tune.experiment.trial.Trial.": _DRIVES,
    "tune.progress_reporter.JupyterNotebookReporter.display": "internal to Ray",
    "tune.result_grid.ResultGrid(experiment_analysis)": "Tuner makes it",
    "tune.schedulers.hyperband.HyperBandScheduler.state": "internal to Ray",
    "tune.schedulers.pbt.PopulationBasedTraining.last_scores": "for Ray's own tests",
    "tune.schedulers.pbt.PopulationBasedTraining.reset_stats": "for Ray's own tests",
    "tune.schedulers.resource_changing_scheduler.ResourceChangingScheduler.reallocate": "internal to Ray",
    "tune.schedulers.resource_changing_scheduler.ResourceChangingScheduler.set_trial_resources": "internal to Ray",
    "tune.schedulers.trial_scheduler.TrialScheduler.supports_buffered_results": "internal to Ray",
    "tune.search.basic_variant.BasicVariantGenerator.": "in Ray it makes trials; here it is a Searcher like the others",
    "tune.search.sample.Domain.cast": "internal to Ray",
    "tune.search.sample.Domain.set_sampler": "internal to Ray",
    "tune.search.sample.Grid.sample": "a Domain samples; its sampler says how",
    "tune.search.sample.Quantized.sample": "a Domain samples; its sampler says how",
    "tune.search.sample.Sampler.sample": "a Domain samples; its sampler says how",
}


def decision(name: str) -> str:
    """Why a member is not there; empty if nobody has decided."""
    if name.startswith("tune.schedulers.") and name.endswith(("(tune_controller)", "(allow_recurse)")):
        return _VIEW
    return next((reason for start, reason in NOT_HERE.items() if name.startswith(start)), "")


def differences() -> list[str]:
    return sorted(found for module, names in ray_names.marked().items() for found in _of_module(module, names))


def _of_module(module: str, names: set[str]) -> Iterator[str]:
    source = ray_names.source_of("ray", module)
    assert source is not None
    try:
        there = importlib.import_module(f"holdfast.{module}")
    except ImportError:  # what is missing is told by ``ray_names``; the rest needs a framework
        return
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names and hasattr(there, node.name):
            ours, name = getattr(there, node.name), f"{module}.{node.name}"
            if isinstance(node, ast.FunctionDef):
                yield from _of_call(name, node, ours)
            else:
                yield from _of_class(name, node, ours)


def _of_class(name: str, node: ast.ClassDef, ours: Any) -> Iterator[str]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            is_field = "dataclass" in "".join(map(ast.unparse, node.decorator_list))
            if is_field and not member.target.id.startswith("_") and not _has(ours, member.target.id):
                yield f"{name}.{member.target.id}"
        elif isinstance(member, ast.FunctionDef) and member.name == "__init__":
            yield from _of_call(name, member, ours)
        elif isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            found = getattr(ours, member.name, None)
            if callable(found):
                yield from _of_call(f"{name}.{member.name}", member, found)
            elif not _has(ours, member.name):
                yield f"{name}.{member.name}"
            elif not member.decorator_list:
                yield f"{name}.{member.name}() is not a method"


def _has(ours: Any, name: str) -> bool:
    names = {parameter.name for parameter in _parameters(ours)}
    return hasattr(ours, name) or name in names or name in getattr(ours, "__annotations__", {})


def _parameters(ours: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(ours).parameters.values())
    except ValueError:  # an error that takes what all errors take
        return [inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)]


def _of_call(name: str, node: ast.FunctionDef, ours: Any) -> Iterator[str]:
    parameters = _parameters(ours)
    known = {parameter.name for parameter in parameters}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    by_position = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    by_position = [each for each in by_position if each not in ("self", "cls")]
    theirs = [each.arg for each in node.args.args if each.arg not in ("self", "cls")]
    for each in [*theirs, *(one.arg for one in node.args.kwonlyargs)]:
        if each not in known and not each.startswith("_"):
            yield f"{name}({each})"
    for place, each in enumerate(theirs):
        if each in known and not each.startswith("_") and by_position[place : place + 1] != [each]:
            yield f"{name}: {each} is not argument {place + 1}"


def main() -> None:
    for name in differences():
        print(f"{name}\t{decision(name) or 'undecided'}")


if __name__ == "__main__":
    main()
