"""A drill's report in words: a table of the faults, and what to fix."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.drill.drill_verdict import PROBLEM
from holdfast.drill.rehearsal import DrillReport, FaultResult
from holdfast.printable import printable

HEADER = ("fault", "recovered", "next step", "state from", "work lost", "steps again", "differences")


def cells(result: FaultResult) -> tuple[str, ...]:
    again = "" if result.times == 1 else f", run {result.times} times"
    recovered = f"yes{again}" if result.recovered else "NO"
    next_step = "-" if result.next_step_s is None else f"{result.next_step_s:.2f} s"
    lost = f"{result.lost} step{'' if result.lost == 1 else 's'}"
    where = (result.state_from or "-", lost, str(result.steps_again))
    return str(result.fault), recovered, next_step, *where, str(result.differences)


def lines(report: DrillReport) -> list[str]:
    rows = [HEADER, *map(cells, report.results)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*table, "", *verdict_lines(report)]


def text(report: DrillReport) -> str:
    return "\n".join(map(printable, lines(report)))


def verdict_lines(report: DrillReport) -> Iterator[str]:
    for finding, faults in report.verdicts:
        label = "PROBLEM" if finding.severity == PROBLEM else "advice"
        shown = f" [{', '.join(map(str, faults[:3]))}{', ...' if len(faults) > 3 else ''}]" if faults else ""
        yield f"{label}: {finding.text}{shown}"
        if finding.remedy:
            yield f"    to fix it: {finding.remedy}"
    for name, why in report.skipped:
        yield f"skipped: {name}: {why}"
    passed = sum(result.passed for result in report.results)
    total = len(report.results)
    yield f"{passed} of {total} faults passed" + ("" if report.passed else ": the drill FAILED")
