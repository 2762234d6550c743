"""Module paths of Ray that are one module here: an import of any of them finds that module."""

from __future__ import annotations

import importlib
import sys

_STOPPERS = "experiment_plateau function_stopper maximum_iteration noop stopper timeout trial_plateau"
_PATHS = {
    **{f"stopper.{name}": "stopper" for name in _STOPPERS.split()},
    "utils.log": "utils",
    "utils.mock_trainable": "mock_trainable",
    "utils.util": "utils",
}

for _path, _module in _PATHS.items():
    sys.modules.setdefault(f"{__package__}.{_path}", importlib.import_module(f"{__package__}.{_module}"))
