"""What counts as other code of a trainable, and what does not."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from holdfast.tune import Trainable, with_parameters
from holdfast.tune.experiment.code_fingerprint import fingerprint, is_other_code

ONE = """
LIMIT = 3
def helper(x):
    return x + 1
def train(config):
    return helper(config["x"])
class Model:
    def step(self):
        return helper(1)
"""


def defined(source: str, name: str = "train") -> Any:
    space: dict[str, Any] = {"__name__": "defined"}
    exec(compile(source, "script.py", "exec"), space)
    return space[name]


@pytest.mark.parametrize("name", ["train", "Model"])
def test_comments_lines_and_values_do_not_count(name: str) -> None:
    other = "# a comment\n\n\n" + ONE.replace("LIMIT = 3", "LIMIT = 4")
    assert not is_other_code(fingerprint(defined(ONE, name)), fingerprint(defined(other, name)))


@pytest.mark.parametrize("name", ["train", "Model"])
@pytest.mark.parametrize("change", [("x + 1", "x + 2"), ('helper(config["x"])', "0"), ("helper(1)", "0")])
def test_what_it_does_counts_also_in_what_it_calls(name: str, change: tuple[str, str]) -> None:
    other = ONE.replace(*change)
    concerns = change[0] == "x + 1" or (name == "Model") == (change[0] == "helper(1)")
    assert is_other_code(fingerprint(defined(ONE, name)), fingerprint(defined(other, name))) == concerns


def test_what_is_around_a_function_does_not_count() -> None:
    train = defined(ONE)
    assert fingerprint(functools.partial(train)) == fingerprint(train)
    assert fingerprint(with_parameters(train)) == fingerprint(train)


def test_another_python_or_an_older_record_cannot_be_compared() -> None:
    assert not is_other_code("3.9:0000", fingerprint(defined(ONE)))
    assert not is_other_code("", fingerprint(defined(ONE)))


def test_no_code_no_fingerprint() -> None:
    assert fingerprint(len) == ""
    assert fingerprint(Trainable) != ""
