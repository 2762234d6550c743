"""Lightning's modules, under whichever of its two names is installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from holdfast.train.integrations import import_first

pl: Any = import_module(import_first("lightning.pytorch", "pytorch_lightning"))
LightningEnvironment: Any = import_module(f"{pl.__name__}.plugins.environments").LightningEnvironment
