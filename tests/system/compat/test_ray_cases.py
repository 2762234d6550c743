"""The moving guide has the figures of Ray's own tests, and a line for each case that differs."""

from __future__ import annotations

from support.compat import differences, ray_cases


def test_each_case_that_differs_has_a_line_in_the_guide() -> None:
    assert ray_cases.differing() <= differences.KEPT_BY.keys()


def test_the_figures_of_the_guide_are_those_of_the_table() -> None:
    found = ray_cases.counts()
    page = " ".join(differences.PAGE.read_text().split())
    assert f"{sum(found.values())} cases of" in page
    passed, words, differ = found[ray_cases.PASS], found[ray_cases.WORDS], found["differs on purpose"]
    assert f"{passed} pass, {words} pass but for the words of an error, and {differ} differ on purpose" in page


def test_each_file_says_what_was_not_run() -> None:
    assert ray_cases.NOT_RUN.keys() == ray_cases.RUN.keys()
