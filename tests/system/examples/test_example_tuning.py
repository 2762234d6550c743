"""The examples about tuning, interrupted and restored."""

from __future__ import annotations

import re
import signal

import pytest

from support.examples.example_shell import Shell

SUMS = "[1000000.0, 2000000.0, 10000000.0, 20000000.0]"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_auto_resume(shell: Shell, number: signal.Signals) -> None:
    args = ("--storage-path", str(shell.storage), "--run-name", "found", "--trials", "4")
    command = shell.start("tune_auto_resume.py", *args)
    command.wait_for("starting ")
    journal = shell.storage / "found" / "journal" / "000001.jsonl"
    command.wait_for("driver pid")
    while not (journal.exists() and b'"kind":"Reported"' in journal.read_bytes()):
        assert command._process.poll() is None, command.output
    command.signal(number)
    command.finish()
    shell.wait_for_no_process()
    output = shell.run("tune_auto_resume.py", *args)
    assert "restoring " in output
    assert re.search(r"^4 trials, best lr [\d.]+, loss [\d.]+", output, re.MULTILINE)
    assert "restoring " in shell.run("tune_auto_resume.py", *args), "a finished one is read, not run again"
    assert shell.temporary_files() == []


@pytest.mark.timeout(300)
def test_object_references_are_given_again(shell: Shell) -> None:
    args = ("--storage-path", str(shell.storage), "--run-name", "shared")
    assert SUMS in shell.run("tune_object_refs.py", *args)
    assert SUMS in shell.run("tune_object_refs.py", *args)
