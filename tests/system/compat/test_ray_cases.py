"""The moving guide has the figures of Ray's own tests, and a line for each case that differs."""

from __future__ import annotations

import pytest

from support.compat import differences, ray_case, ray_cases, ray_train_cases, ray_tune_cases
from support.compat.ray_case import DIFFERS, HOLDS, WORDS

TABLES = [ray_train_cases.CASES, ray_tune_cases.CASES]


def text() -> str:
    return " ".join(differences.PAGE.read_text().split())


def test_each_case_that_differs_has_a_line_in_the_guide() -> None:
    assert ray_cases.differing() <= differences.KEPT_BY.keys()


def test_the_figures_of_the_guide_are_those_of_the_table() -> None:
    found = ray_cases.counts()
    passed, words, differ = found[ray_cases.PASS], found[ray_cases.WORDS], found["differs on purpose"]
    assert f"{sum(found.values())} cases of" in text()
    assert f"{passed} pass, {words} pass but for the words of an error, and {differ} differ on purpose" in text()


def test_each_file_says_what_was_not_run() -> None:
    assert ray_cases.NOT_RUN.keys() == ray_cases.RUN.keys()


@pytest.mark.parametrize("table", TABLES, ids=["Train", "Tune"])
def test_each_case_has_a_test_and_a_line_if_it_differs(table: ray_case.Table) -> None:
    for file, cases in table.items():
        for name, case in cases.items():
            assert differences.is_there(case.test), f"{file}::{name} names {case.test}"
            assert case.outcome in (HOLDS, WORDS) or case.outcome in differences.KEPT_BY, (file, name)


@pytest.mark.parametrize(("table", "product"), list(zip(TABLES, ("Train", "Tune"), strict=True)))
def test_the_figures_of_the_guide_are_those_of_the_tests(table: ray_case.Table, product: str) -> None:
    found = ray_case.counts(table)
    figures = f"{found[HOLDS]} hold, {found[WORDS]} hold but for words, and {found[DIFFERS]} differ on purpose"
    assert f"{sum(found.values())} cases of {len(table)} files of {product}: {figures}" in text()
