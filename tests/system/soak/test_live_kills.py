"""Ranks of DDP trainings are killed at random places of random steps, 500 of them: ``make soak``.

Each run has 2 to 4 ranks, every other one a standby worker, and a kill about every eighth step. No completed step is
repeated, and the weights are those of the undisturbed run, bit for bit.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.faults.live_training import check_that_no_step_was_lost, drawn_kills, steps_of, trained

KILLS = int(os.environ.get("SOAK_LIVE_KILLS", "500"))
SEED = int(os.environ.get("SOAK_SEED", "0"))
EVERY = 8


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_no_step_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REGROUP_TIMEOUT_S", "120")
    undisturbed: dict[int, Path] = {}
    seed, left = SEED, KILLS
    while left > 0:
        world_size = 2 + seed % 3
        if world_size not in undisturbed:
            undisturbed[world_size] = tmp_path / f"undisturbed-{world_size}"
            trained(undisturbed[world_size], world_size, [])
        kills = drawn_kills(seed, world_size, min(left, steps_of(world_size) // EVERY), steps_of(world_size))
        directory = tmp_path / f"seed-{seed}"
        trained(directory, world_size, kills, standby_workers=seed % 2)
        check_that_no_step_was_lost(directory, world_size, kills, undisturbed[world_size])
        seed, left = seed + 1, left - len(kills)
        print(f"seed {seed - 1}: {world_size} ranks, {len(kills)} kills; {left} to go", flush=True)
