"""Integrations with other frameworks, where those are not installed."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("holdfast.train.lightning", "lightning"),
        ("holdfast.train.huggingface.transformers", "transformers"),
        ("holdfast.train.jax", "jax"),
        ("holdfast.train.v2.jax", "jax"),
        ("holdfast.train.horovod", "horovod"),
        ("holdfast.train.lightgbm", "lightgbm"),
        ("holdfast.train.tensorflow", "tensorflow"),
        ("holdfast.tune.integration.keras", "tensorflow"),
        ("holdfast.tune.integration.lightgbm", "lightgbm"),
        ("holdfast.tune.integration.pytorch_lightning", "lightning"),
        ("holdfast.tune.integration.xgboost", "xgboost"),
        ("holdfast.train.xgboost", "xgboost"),
    ],
)
def test_an_import_says_which_extra_it_needs(module: str, extra: str) -> None:
    """``make test`` installs none of the frameworks."""
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install 'holdfast[{extra}]'")):
        importlib.import_module(module)
    assert f'\n{extra} = ["' in (ROOT / "pyproject.toml").read_text(), "there is such an extra"
