"""Runs on nodes that come and go, with what their seeds do to them: ``make soak RUNS=200 SEED=0 MINUTES=40``.

Every run ends, with the weights of the undisturbed run where that is one of the same size; in its surviving history
each sample is there once in each epoch; no two of its attempts train at once; nothing is left behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from support.soak.soak_arena import Arena
from support.soak.soak_plan import Fault, Plan, draw

RUNS = int(os.environ.get("SOAK_RUNS", "200"))
SEED = int(os.environ.get("SOAK_SEED", "0"))
MINUTES = float(os.environ.get("SOAK_MINUTES", "60"))
SLOTS = int(os.environ.get("SOAK_SLOTS", "2"))
SAMPLE = ("worker killed", "agent killed", "driver killed", "node drained", "node joins", "link cut")


def soak(home: Path, draws: Callable[[int, bool], Plan], seeds: range, minutes: float) -> None:
    with Arena(home, os.getpid(), SLOTS).opened() as arena:
        plans = [draws(seed, arena.can_cut) for seed in seeds]
        found = arena.run_all(plans, time.monotonic() + minutes * 60)
    print(f"\n{found}")
    assert not found.wrong, "\n".join(found.wrong)
    assert not found.repeated
    assert not found.orphans


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_soak(tmp_path: Path) -> None:
    soak(tmp_path, draw, range(SEED, SEED + RUNS), MINUTES)


def draw_sample(number: int, can_cut: bool) -> Plan:
    """One fault each, in the middle."""
    kind = SAMPLE[number]
    cut = kind == "link cut" and can_cut
    workers: int | tuple[int, int] = (1, 3) if kind in ("node joins", "node drained") else 2
    nodes = (1,) if kind == "node joins" else (1, 1)
    fault = Fault(kind if cut or kind != "link cut" else "agent stopped", 0.3, 0.0, lasts_s=5.0, replaced_after_s=0.1)
    shape = {"torch": False, "switched": cut, "workers": workers, "nodes": nodes, "samples": 96, "batch": 6}
    shape["in_step"] = True
    return replace(draw(number), **shape, pause_s=0.05 if kind == "node joins" else 0.02, faults=(fault,))


@pytest.mark.timeout(900)
def test_a_sample(tmp_path: Path) -> None:
    soak(tmp_path, draw_sample, range(len(SAMPLE)), minutes=10)
