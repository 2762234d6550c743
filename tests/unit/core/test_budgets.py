"""Every class of failure has a budget, a setting that exists under that name, and a row in the docs."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast.core.budgets import CLASSES, budget_of, page_table
from holdfast.core.failures import FailureKind
from holdfast.core.run.state import RunSpec
from holdfast.train import FailureConfig
from support.repository import ROOT

PAGE = ROOT / "docs" / "failure-classes.md"


def test_the_page_shows_the_table_as_it_is() -> None:
    assert page_table() in PAGE.read_text(), "docs/failure-classes.md: paste page_table() again"


@pytest.mark.parametrize("kind", FailureKind)
def test_every_class_has_a_budget_that_a_user_can_set(kind: FailureKind) -> None:
    setting = CLASSES[kind].budget.setting
    assert setting in RunSpec.__struct_fields__
    assert setting in {field.name for field in dataclasses.fields(FailureConfig)}


def test_a_class_without_a_setting_of_its_own_counts_with_the_others() -> None:
    assert budget_of(RunSpec(max_failures=3), FailureKind.HANG)[0].counter == "failures"
    assert budget_of(RunSpec(max_failures=3), FailureKind.HANG)[1] == 3
    own, limit = budget_of(RunSpec(max_failures=3, max_hang_failures=1), FailureKind.HANG)
    assert (own.counter, own.setting, limit) == ("hangs", "max_hang_failures", 1)


def test_what_follows_from_a_class_besides_its_budget() -> None:
    """A new class appears here, so that each of the three is decided."""
    kind = FailureKind
    assert set(CLASSES) == set(kind)
    assert {k for k, known in CLASSES.items() if known.may_be_knock_on} == {
        *(kind.USER_ERROR, kind.CRASH, kind.HANG, kind.START_UP)
    }
    assert {k for k, known in CLASSES.items() if not known.blames_node} == {kind.USER_ERROR, kind.PREEMPTED}
    assert {k for k, known in CLASSES.items() if known.costs_one_process} == {
        *(kind.CRASH, kind.OUT_OF_MEMORY, kind.HANG, kind.START_UP)
    }


def test_counters_keep_the_names_that_journals_have() -> None:
    assert {known.budget.counter for known in CLASSES.values()} == {"failures", "hangs", "preemptions", "storage"}
