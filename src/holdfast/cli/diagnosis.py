"""A finding of `holdfast doctor`: a grade, what was found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Grade(str, Enum):
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class DoctorFinding:
    what: str
    grade: Grade
    text: str
    remedy: str = ""


def good(what: str, text: str) -> DoctorFinding:
    return DoctorFinding(what, Grade.GOOD, text)


def warning(what: str, text: str, remedy: str) -> DoctorFinding:
    return DoctorFinding(what, Grade.WARNING, text, remedy)


def bad(what: str, text: str, remedy: str) -> DoctorFinding:
    return DoctorFinding(what, Grade.BAD, text, remedy)
