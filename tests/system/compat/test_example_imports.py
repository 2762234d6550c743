"""What Ray's examples import works with the import root changed, or says which extra to install."""

from __future__ import annotations

import pytest

from support.compat import example_imports


@pytest.mark.parametrize(("module", "name"), example_imports.all_imports(), ids=str)
def test_an_import_works_or_names_its_extra(module: str, name: str) -> None:
    assert example_imports.problem(module, name) == ""


def test_the_examples_are_there() -> None:
    assert len(example_imports.examples()) >= 50
    assert len(example_imports.all_imports()) >= 50


def test_a_missing_name_would_be_noticed() -> None:
    assert "No module named" in example_imports.problem("ray.tune", "no_such_name")
    assert list(example_imports.imports_of("from ray import tune, get\nimport ray.train.torch")) == [
        ("ray", "tune"),
        ("ray.train.torch", ""),
    ]
