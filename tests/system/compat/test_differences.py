"""Each deliberate difference from Ray has a line in the moving guide and a test."""

from __future__ import annotations

import pytest

from support.compat import differences


def test_each_line_of_the_guide_has_a_test() -> None:
    assert [cells[0] for cells in differences.rows()] == list(differences.KEPT_BY)


def test_each_line_says_what_ray_does_and_what_a_script_would_notice() -> None:
    assert all(len(cells) == 3 and all(cells) for cells in differences.rows())


@pytest.mark.parametrize("difference", differences.KEPT_BY)
def test_the_test_exists(difference: str) -> None:
    tests = differences.tests_of(difference)
    assert [test for test in tests if not differences.is_there(test)] == []


def test_a_test_that_is_not_there_would_be_noticed() -> None:
    assert not differences.is_there("system/compat/test_differences.py::test_no_such_thing")
    assert not differences.is_there("system/compat/test_no_such_file.py::test_it")
