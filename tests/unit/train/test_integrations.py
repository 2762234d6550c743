"""Integrations with other frameworks, where those are not installed."""

from __future__ import annotations

import ast
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


@pytest.mark.parametrize("framework", ["lightning", "transformers"])
def test_a_script_needs_at_most_eight_lines_of_ours(framework: str) -> None:
    """Each line with a name of Holdfast's has a number, and the guide tells the same number of lines."""
    text = (ROOT / "examples" / "frameworks" / f"{framework}_training.py").read_text()
    ours = {alias.asname or alias.name for alias in _imported_from_holdfast(text)}
    used = {node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id in ours}
    lines = text.splitlines()
    numbers = [int(found[1]) for line in lines if (found := re.search(r"  # (\d)(: instead of .*)?$", line))]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) <= 8
    assert all(re.search(r"  # \d", lines[number - 1]) for number in used)
    assert sum("holdfast" in line for line in lines) == sum("import" in line and "  # " in line for line in lines)
    words = {7: "seven", 8: "eight"}
    assert f"{words[len(numbers)]} lines added or changed" in (ROOT / "docs" / f"{framework}.md").read_text()


def _imported_from_holdfast(text: str) -> list[ast.alias]:
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return [alias for node in statements if (node.module or "").startswith("holdfast") for alias in node.names]
