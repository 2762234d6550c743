"""The calls of the data guides give what they gave with Ray Data, which ``answers_of_ray.json`` has; ``make clusters``
asks Ray again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast.data
from support.data.all_calls import ANSWERS, CASES, DELIBERATE, outcome


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ANSWERS.read_text())["answers"]
    return found


@pytest.mark.parametrize("name", [name for name in CASES if name not in DELIBERATE])
def test_the_same_as_ray_data(name: str, answers: dict[str, Any], tmp_path: Path) -> None:
    assert outcome(name, holdfast.data, tmp_path) == answers[name]


@pytest.mark.parametrize("name", DELIBERATE)
def test_differences_that_are_deliberate(name: str, answers: dict[str, Any], tmp_path: Path) -> None:
    assert outcome(name, holdfast.data, tmp_path) != answers[name], "it is the same now: take it off the list"


def test_there_are_answers_for_all_cases(answers: dict[str, Any]) -> None:
    assert set(answers) == set(CASES)
