"""Ranks of DDP trainings are killed at random places of random steps, 500 of them: ``make soak``.

Each run has 2 to 4 ranks, every other one a standby worker, and a kill about every eighth step. No completed step is
repeated, and the weights are those of the undisturbed run, bit for bit. At the end it prints how long it took until the
ranks had formed their group again after the driver had heard of a loss; how long that may take is not tested.
"""

from __future__ import annotations

import os
import statistics
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
    took: dict[str, list[float]] = {"with a standby": [], "without": []}
    seed, left = SEED, KILLS
    while left > 0:
        world_size = 2 + seed % 3
        if world_size not in undisturbed:
            undisturbed[world_size] = tmp_path / f"undisturbed-{world_size}"
            trained(undisturbed[world_size], world_size, [])
        kills = drawn_kills(seed, world_size, min(left, steps_of(world_size) // EVERY), steps_of(world_size))
        directory = tmp_path / f"seed-{seed}"
        result = trained(directory, world_size, kills, standby_workers=seed % 2)
        for failure in result.ledger.failures:
            if failure.live and failure.recovered_s is not None:
                took["with a standby" if failure.standby else "without"].append(failure.recovered_s)
        check_that_no_step_was_lost(directory, world_size, kills, undisturbed[world_size])
        seed, left = seed + 1, left - len(kills)
        print(f"seed {seed - 1}: {world_size} ranks, {len(kills)} kills; {left} to go", flush=True)
    for how, times in took.items():
        if len(times) > 1:
            p50, p99 = (statistics.quantiles(times, n=100)[at] for at in (49, 98))
            print(f"{len(times)} recoveries {how}: p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms", flush=True)
