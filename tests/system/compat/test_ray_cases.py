"""Each test file of Ray's is in the ledger, each public case has a test of ours, and the guide has the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.compat import differences, ray_case, ray_ledger
from support.compat.ray_case import DIFFERS, HOLDS, WORDS

ROOT = differences.TESTS.parent
PRODUCTS = ["Train", "Tune"]
TABLES = list(ray_ledger.TABLES)
LEDGERS = [ray_ledger.TRAIN, ray_ledger.TUNE]


def text() -> str:
    return " ".join(differences.PAGE.read_text().split())


@pytest.mark.parametrize("table", TABLES, ids=PRODUCTS)
def test_each_case_has_a_test_and_a_line_if_it_differs(table: ray_case.Table) -> None:
    for file, cases in table.items():
        for name, case in cases.items():
            assert differences.is_there(case.test), f"{file}::{name} names {case.test}"
            assert case.outcome in (HOLDS, WORDS) or case.outcome in differences.KEPT_BY, (file, name)


@pytest.mark.parametrize(("table", "product"), list(zip(TABLES, PRODUCTS, strict=True)), ids=PRODUCTS)
def test_the_figures_of_the_guide_are_those_of_the_tests(table: ray_case.Table, product: str) -> None:
    found = ray_case.counts(table)
    figures = f"{found[HOLDS]} hold, {found[WORDS]} hold but for words, and {found[DIFFERS]} differ on purpose"
    assert f"{sum(found.values())} cases of {len(table)} files of {product}: {figures}" in text()


@pytest.mark.parametrize(("ledger", "table"), list(zip(LEDGERS, TABLES, strict=True)), ids=PRODUCTS)
def test_each_file_is_decided(ledger: dict[str, ray_ledger.File], table: ray_case.Table) -> None:
    assert {name for name, file in ledger.items() if file.kind == ray_ledger.CASES} == set(table)
    for name, file in ledger.items():
        assert file.kind in ray_ledger.KINDS, name
        assert file.where or file.kind == ray_ledger.CASES, f"{name} does not say why"
        if file.kind == ray_ledger.DIFFERS:
            assert file.where in differences.KEPT_BY, name
        if file.kind == ray_ledger.ELSEWHERE:
            path, _, test = file.where.partition("::")
            assert (differences.TESTS / path).is_file(), name
            assert not test or differences.is_there(file.where), name


def test_the_figures_of_the_guide_are_those_of_the_ledger() -> None:
    files = [f"{len(ledger)} files of {product}" for ledger, product in zip(LEDGERS, PRODUCTS, strict=True)]
    assert f"says what became of {files[0]} and {files[1]}" in text()


def test_the_command_runs_exactly_the_tests_that_are_named() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\ncases:")[2].partition("\n\n")[0]
    assert "-m support.compat.ray_ledger --tests" in recipe
    assert all(Path(ROOT, test.partition("::")[0]).is_file() for test in ray_ledger.tests())
