"""A run of 200 workers on 25 agents: stand-ins for these, the real driver, its messages, journal and files.

``make scale`` measures the same with 10,000 workers. Here is no time measured: what counts is how much is said and
decided.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import ROOT

WORKERS, AGENTS, RACK = 200, 25, 5
WITHIN_S = 240


@pytest.mark.timeout(WITHIN_S + 30)
def test_nodes_are_heard_together_and_decided_on_together(tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--workers", str(WORKERS), "--seconds", "1"]
    subprocess.run([*command, "--json", str(out)], check=True, timeout=WITHIN_S, stdout=subprocess.DEVNULL)
    (found,) = json.loads(out.read_text())
    assert found["messages_per_s"] <= 1.01 * found["reports_per_s"] / 8
    assert found["commits"] == 1
    assert (found["attempts"], found["rack_attempts"], found["rack_world_size"]) == (3, 1, WORKERS - 8 * RACK)
    assert found["failures_told"] == 2, "one for the kill, one for all nodes of the rack"
    assert found["journal_records"] < 30
