"""The schedules of population-based training, in files as Ray Tune writes them: ``pbt_global.txt`` with all changes of
configurations, and ``pbt_policy_<trial>.txt``, which ``PopulationBasedTrainingReplay`` reads.

They are a copy of the scheduler's state, and are rewritten if they may be incomplete.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.store.disk import replace_file
from holdfast.trackers.logger_callback import json_text
from holdfast.tune.schedulers.decision import Exploit, policy_rows

GLOBAL = "pbt_global.txt"


class PbtFiles:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write_all(self, exploits: Sequence[Exploit]) -> None:
        if exploits:
            self._write(GLOBAL, [exploit.policy_row() for exploit in exploits])
        for trial in {exploit.trial_id for exploit in exploits}:
            self._write_policy(exploits, trial)

    def add(self, exploits: Sequence[Exploit], trial: str) -> None:
        """The last one of this trial is new."""
        newest = next((exploit for exploit in reversed(exploits) if exploit.trial_id == trial), None)
        if newest is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
            with (self._directory / GLOBAL).open("a") as file:
                file.write(f"{json_text(newest.policy_row())}\n")
            self._write_policy(exploits, trial)

    def _write_policy(self, exploits: Sequence[Exploit], trial: str) -> None:
        self._write(f"pbt_policy_{trial}.txt", policy_rows(exploits, trial))

    def _write(self, name: str, rows: Sequence[object]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_file(self._directory / name, "".join(f"{json_text(row)}\n" for row in rows).encode())
