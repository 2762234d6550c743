"""Check whether this machine and a storage path are ready for training, and say what to fix.

Exit code 1 if a required check fails. Unusual findings are warnings and do not affect the exit code.
"""

from __future__ import annotations

import argparse

from holdfast.cli import diagnosis_machine as machine
from holdfast.cli import diagnosis_storage as storage
from holdfast.cli import output, paths
from holdfast.cli.diagnosis import DoctorFinding, Grade

_SIGNS = {Grade.GOOD: "ok", Grade.WARNING: "warning", Grade.BAD: "FAILED"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("storage_path", metavar="STORAGE_PATH", nargs="?", help=paths.STORAGE_HELP)
    parser.add_argument(
        "--ray", metavar="ADDRESS", help="address of a Ray cluster (default: RAY_ADDRESS, or one on this machine)"
    )
    parser.add_argument("--quick", action="store_true", help="skip slow checks (the import of torch)")


def run(arguments: argparse.Namespace) -> int:
    location = paths.storage_location(arguments.storage_path)
    grades = []
    found = []
    for look in (*machine.looks(arguments.ray, arguments.quick), *storage.looks(location)):
        for finding in look():
            grades.append(finding.grade)
            found.append(finding)
            if not arguments.json:
                _print(finding)
    bad, warnings = grades.count(Grade.BAD), grades.count(Grade.WARNING)
    if arguments.json:
        listed = [{**vars(finding), "grade": finding.grade.value} for finding in found]
        output.print_json({"storage_path": str(location), "good": not bad, "findings": listed})
    else:
        warned = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
        output.say(f"{f'{bad} failed' if bad else 'all required checks passed'}{warned}")
    return 1 if bad else 0


def _print(finding: DoctorFinding) -> None:
    output.say(f"{_SIGNS[finding.grade]:<8} {finding.what:<14} {finding.text}", flush=True)
    if finding.remedy:
        output.say(f"{'':<8} {'':<14} -> {finding.remedy}", flush=True)
