"""A drill's report for programs. Names may be added, but never change."""

from __future__ import annotations

from typing import Any

from holdfast.drill.drill_verdict import Finding
from holdfast.drill.rehearsal import DrillReport, FaultResult
from holdfast.drill.run_comparison import Point


def as_json(report: DrillReport) -> dict[str, Any]:
    return {
        "passed": report.passed,
        "script": report.script,
        "args": report.args,
        "seed": report.seed,
        "undisturbed": {
            "seconds": report.undisturbed_s,
            "steps": [len(run.rows) for run in report.undisturbed],
            "checkpoints_at_steps": [run.checkpoint_steps for run in report.undisturbed],
        },
        "faults": [_fault(result) for result in report.results],
        "skipped": [{"fault": name, "why": why} for name, why in report.skipped],
        "not_compared": report.left_out,
        "findings": [_finding(finding) | {"faults": [*map(str, faults)]} for finding, faults in report.verdicts],
    }


def _fault(result: FaultResult) -> dict[str, Any]:
    differences = result.differences
    return {
        "fault": str(result.fault),
        "passed": result.passed,
        "struck_at_step": result.struck_at,
        "recovered": result.recovered,
        "times_run": result.times,
        "seconds": result.seconds,
        "next_step_s": result.next_step_s,
        "steps_lost": result.lost,
        "state_from": result.state_from,
        "steps_done_again": result.steps_again,
        "differences": {
            "none": differences.is_none,
            "compared": differences.is_comparable,
            "text": str(differences),
            "reports": list(differences.reports),
            "metrics": [_point(point) for point in differences.metrics],
            "checkpoint": [{"where": where, "what": what} for where, what in differences.weights],
            "data": [{"rank": point.rank, "step": point.step} for point in differences.batches],
            "learning_rates": [_point(point) for point in differences.rates],
        },
        "checkpoints_at_steps": [run.checkpoint_steps for run in result.runs],
        "findings": [_finding(finding) for finding in result.findings],
    }


def _point(point: Point) -> dict[str, Any]:
    return {"name": point.name, "step": point.step, "expected": point.expected, "found": point.found}


def _finding(finding: Finding) -> dict[str, Any]:
    return finding._asdict()
