"""Which names of Ray Train and Ray Tune a script finds here: ``python -m support.compat.ray_names`` prints the table.

Ray's names are read from its sources, without an import: what a module exports in ``__all__``, or else defines, and
in all modules below what is marked as an API of Ray's. Ours are imported; where an integration needs a package that is
not installed, they are read from its sources, too.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

_TRAIN = "backend collective constants context error torch torch.config lightning huggingface.transformers tensorflow"
_MORE_OF_TRAIN = "tensorflow.keras xgboost lightgbm horovod v2.jax"
_TUNE = "analysis callback context error execution.placement_groups experiment logger progress_reporter registry result"
_MORE_OF_TUNE = "result_grid tune schedulers schedulers.pb2 search stopper syncer trainable tune_config tuner utils"
_SEARCH = "ax basic_variant bayesopt bohb hebo hyperopt nevergrad optuna sample variant_generator zoopt"
MODULES = (
    "air",
    "train",
    *(f"train.{name}" for name in f"{_TRAIN} {_MORE_OF_TRAIN}".split()),
    "tune",
    *(f"tune.{name}" for name in f"{_TUNE} {_MORE_OF_TUNE}".split()),
    *(f"tune.search.{name}" for name in _SEARCH.split()),
    *(f"tune.integration.{name}" for name in ("keras", "lightgbm", "pytorch_lightning", "xgboost")),
    *(f"air.integrations.{name}" for name in ("comet", "keras", "mlflow", "wandb")),
)

# Folders that are not there, and why a script does not miss them
NO_FOLDER = {
    "air.execution": "internal to Ray: how it keeps actors and resources",
    "air.util": "internal to Ray: formats of batches",
    "train.torch.xla": "AWS Trainium is not supported",
    "tune.impl": "internal to Ray: a trainer in a Tuner",
    "tune.utils.file_transfer": "internal to Ray: nothing is synchronized between nodes",
    "tune.utils.serialization": "internal to Ray: how it writes its state",
}
# Names that are not there, and why a script does not miss them
NOT_HERE = {
    "train.base_trainer.BaseTrainer": "of Train V1; DataParallelTrainer and those below it are there",
    "train.base_trainer.format_datasets_for_repr": "internal to Ray",
    "train.trainer.TrainingIterator": "internal to Ray",
    "train.v2.api.callback.RayTrainCallback": "internal to Ray: UserCallback is there",
    "train.v2.api.context.DistributedTrainContext": "internal to Ray: TrainContext is there",
    "train.v2.api.context.LocalTrainContext": "internal to Ray: TrainContext is there",
    "tune.execution.tune_controller.TrialRunnerWrapper": "internal to Ray",
    "tune.logger.logger.pretty_print": "prints RLlib's results",
    "tune.resources.json_to_resources": "internal to Ray",
    "tune.search.search_algorithm.SearchAlgorithm": "internal to Ray: a Searcher is what users write",
    "tune.search.search_generator.SearchGenerator": "internal to Ray: a Searcher is passed as it is",
    "tune.trainable.function_trainable.FunctionTrainable": "internal to Ray: a function is passed as it is",
    "tune.trainable.function_trainable.wrap_function": "internal to Ray: a function is passed as it is",
    "tune.utils.log.disable_ipython": "internal to Ray",
    "tune.utils.util.Tee": "internal to Ray",
    "tune.utils.util.UtilMonitor": "internal to Ray: trials do not log the machine's load",
    "tune.utils.util.retry_fn": "internal to Ray",
    "tune.utils.util.warn_if_slow": "internal to Ray",
    "air.AcquiredResources": "internal to Ray",
    "air.DataBatchType": "a type for annotations",
    "air.ResourceRequest": "internal to Ray",
    "train.torch.config.TorchConfigContextManager": "internal to Ray",
    "train.tensorflow.keras.RayReportCallback": "internal to Ray: ReportCheckpointCallback is its public subclass",
    "tune.callback.CallbackList": "internal to Ray: callbacks are passed as a list",
    "tune.experiment._convert_to_experiment_list": "internal to Ray",
    "tune.logger.pretty_print": "prints RLlib's results",
    "tune.progress_reporter.RemoteReporterMixin": "the reporter runs in the script's own process",
    "tune.progress_reporter.TrialProgressCallback": "internal to Ray",
    "tune.progress_reporter.TuneReporterBase": "internal to Ray: CLIReporter and JupyterNotebookReporter are there",
    "tune.registry.get_trainable_cls": "internal to Ray",
    "tune.registry.is_function_trainable": "internal to Ray",
    "tune.registry.register_input": "RLlib's",
    "tune.registry.registry_contains_input": "RLlib's",
    "tune.registry.registry_get_input": "RLlib's",
    "tune.registry.validate_trainable": "internal to Ray",
    "tune.schedulers.pb2.import_pb2_dependencies": "internal to Ray",
    "tune.search.SearchAlgorithm": "internal to Ray: a Searcher is what users write",
    "tune.search.SearchGenerator": "internal to Ray: a Searcher is passed as it is",
    "tune.search.UNDEFINED_METRIC_MODE": "the text of a message of Ray's",
    "tune.search.UNDEFINED_SEARCH_SPACE": "the text of a message of Ray's",
    "tune.search.UNRESOLVED_SEARCH_SPACE": "the text of a message of Ray's",
    "tune.search.bohb.BOHB": "HpBandSter's own class, which Ray's module imports",
    "tune.search.hebo.HEBOSearch": "HEBO needs an old numpy",
    "tune.trainable.FunctionTrainable": "internal to Ray: a function is passed as it is",
    "tune.trainable.wrap_function": "internal to Ray: a function is passed as it is",
    "tune.tuner.ClientActorHandle": "internal to Ray",
    "tune.utils.UtilMonitor": "internal to Ray: trials do not log the machine's load",
    "tune.utils._detect_config_single": "internal to Ray",
    "tune.utils.warn_if_slow": "internal to Ray",
}


def decision(name: str) -> str:
    """Why a name is not there; empty if nobody has decided."""
    folder = next((reason for folder, reason in NO_FOLDER.items() if name.startswith(f"{folder}.")), "")
    reason = NOT_HERE.get(name) or folder
    return f"deliberately not: {reason}" if reason else ""


def source_of(root: str, module: str) -> Path | None:
    """The file of a module below ``ray`` or ``holdfast``, found without an import of it."""
    spec = find_spec(root)
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / module.replace(".", "/")
    found = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in found if file.exists()), None)


def exported(source: Path) -> set[str]:
    """What ``__all__`` names, however it is put together; without one, the public classes and functions."""
    tree = ast.parse(source.read_text())
    listed = {name for node in ast.walk(tree) if _is_about_all(node) for name in _strings(node)}
    if listed:
        return listed
    return {name for node in tree.body for name in _defined(node) if not name.startswith("_")}


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        yield node.name
    elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):  # another name of a class
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_about_all(node: ast.AST) -> bool:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        targets = [node.func.value] if node.func.attr in ("append", "extend") else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _strings(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def missing(module: str) -> set[str]:
    """The names of Ray's module that a script does not find here."""
    source = source_of("ray", module)
    assert source is not None, f"Ray has no module {module} any more"
    names = exported(source)
    ours = f"holdfast.{module}"
    try:
        there = importlib.import_module(ours)
    except ModuleNotFoundError:
        own = source_of("holdfast", module)
        return names if own is None else names - exported(own)
    return {name for name in names if not hasattr(there, name)}


def marked() -> dict[str, set[str]]:
    """By module, what is marked as an API anywhere below ray.train, ray.tune and ray.air."""
    init = source_of("ray", "tune")
    assert init is not None
    root, found = init.parent.parent, dict[str, set[str]]()
    for source in (path for part in ("train", "tune", "air") for path in sorted((root / part).rglob("*.py"))):
        parts = source.relative_to(root).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not any(part.startswith("_") or part in ("tests", "examples") for part in module.split(".")):
            names = {node.name for node in ast.parse(source.read_text()).body if _is_marked(node)}
            if names:
                found[module] = names
    return found


def _is_marked(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
        return False
    return any(ast.unparse(mark).startswith(("PublicAPI", "DeveloperAPI")) for mark in node.decorator_list)


def absent_of(module: str, names: set[str]) -> set[str]:
    """Those of the names that an import from that path does not find."""
    try:
        there = importlib.import_module(f"holdfast.{module}")
    except ImportError as error:
        if "pip install" in str(error):
            return set()
        own = source_of("holdfast", module)
        return names if own is None else names - exported(own)
    return {name for name in names if not hasattr(there, name)}


def all_names() -> dict[str, set[str]]:
    found = marked()
    for module in MODULES:
        source = source_of("ray", module)
        assert source is not None, f"Ray has no module {module} any more"
        found[module] = found.get(module, set()) | exported(source)
    return found


def all_missing() -> set[str]:
    below = {f"{module}.{name}" for module, names in marked().items() for name in absent_of(module, names)}
    return below | {f"{module}.{name}" for module in MODULES for name in missing(module)}


def main() -> None:
    absent = all_missing()
    for module, names in sorted(all_names().items()):
        for name in sorted(f"{module}.{short}" for short in names):
            print(f"{name}\t{(decision(name) or 'undecided') if name in absent else 'there'}")


if __name__ == "__main__":
    main()
