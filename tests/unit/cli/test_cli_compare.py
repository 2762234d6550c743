"""``holdfast compare``: the settings that differ, and how far each run came."""

from __future__ import annotations

from pathlib import Path

from support.cli.cli_shell import holdfast, holdfast_json


def test_runs_side_by_side(storage: Path) -> None:
    told = holdfast_json("compare", storage / "finished", storage / "killed")
    assert told["settings"] == {
        "max_failures": [1, None],  # the job's own config has it too
        "raise_at": [2, None],
        "failure/max_failures": [1, 0],
        "wait_at": [None, 3],
    }
    first, second = told["runs"]
    assert (first["state"], first["reports"], first["failures"], first["attempts"]) == ("finished", 5, 1, 2)
    assert (second["state"], second["reports"], second["failures"], second["attempts"]) == ("interrupted", 3, 0, 1)
    assert first["metrics"] == {"step": 5, "loss": 0.2}
    lines = holdfast("compare", storage / "finished", storage / "killed").stdout.splitlines()
    assert lines[0].split() == ["finished", "killed"]
    table = {cells[0]: cells[1:] for cells in map(str.split, lines) if cells}
    assert table["loss"] == ["0.2", "0.3333"]
    assert table["raise_at"] == ["2", "None"]
    same = holdfast("compare", storage / "stopped", storage / "killed", storage / "stopped").stdout
    assert "All settings are the same." in same


def test_what_cannot_be_compared(storage: Path) -> None:
    assert "Pass two or more runs" in holdfast("compare", storage / "finished", code=2).stderr
    assert "does not exist" in holdfast("compare", storage / "finished", storage / "none", code=2).stderr
