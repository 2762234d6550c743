"""Which names of Ray Train and Ray Tune a script finds here: ``python -m support.compat.ray_names`` prints the table.

Ray's names are read from its sources, without an import: what a module exports in ``__all__``, or else defines. Ours
are imported; where an integration needs a package that is not installed, they are read from its sources, too.
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
    "train",
    *(f"train.{name}" for name in f"{_TRAIN} {_MORE_OF_TRAIN}".split()),
    "tune",
    *(f"tune.{name}" for name in f"{_TUNE} {_MORE_OF_TUNE}".split()),
    *(f"tune.search.{name}" for name in _SEARCH.split()),
    *(f"tune.integration.{name}" for name in ("keras", "lightgbm", "pytorch_lightning", "xgboost")),
    *(f"air.integrations.{name}" for name in ("comet", "keras", "mlflow", "wandb")),
)

# Names that are not there, and why a script does not miss them
NOT_HERE = {
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
    return f"deliberately not: {NOT_HERE[name]}" if name in NOT_HERE else ""


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


def all_missing() -> set[str]:
    return {f"{module}.{name}" for module in MODULES for name in missing(module)}


def main() -> None:
    absent = all_missing()
    for module in MODULES:
        source = source_of("ray", module)
        assert source is not None
        for name in sorted(f"{module}.{short}" for short in exported(source)):
            print(f"{name}\t{(decision(name) or 'undecided') if name in absent else 'there'}")


if __name__ == "__main__":
    main()
