"""Which faults strike where: whatever the user leaves open is drawn at random within what the undisturbed run
reached."""

from __future__ import annotations

import random
from collections.abc import Sequence

from holdfast.drill.faults import IN_REDUCTION, IN_UPDATE, KINDS, Address, Fault
from holdfast.drill.outcome import RunOutcome

_WITHOUT_FILES = ("before", "after", "report", IN_REDUCTION, IN_UPDATE)  # the points of a report without a checkpoint


def plan(
    addresses: Sequence[Address], undisturbed: Sequence[RunOutcome], seed: int
) -> tuple[list[Fault], list[tuple[str, str]]]:
    """The faults, and the names of those that cannot be rehearsed, with the reason.

    Each is drawn independently, from the seed and its name: adding one changes no other.
    """
    longest = max(undisturbed, key=lambda run: len(run.rows))
    faults: list[Fault] = []
    skipped: list[tuple[str, str]] = []
    for number, address in enumerate(addresses):
        why = _why_not(address.name, longest)
        if why:
            skipped.append((address.name, why))
            continue
        again = number if address in addresses[:number] else 0
        faults.append(_drawn(address, longest, random.Random(f"{seed} {address.name} {again}")))
    return faults, skipped


def _why_not(name: str, run: RunOutcome) -> str:
    """Why this fault cannot be rehearsed with the run; empty if it can."""
    if name in run.cannot:
        return run.cannot[name]
    if KINDS[name].where == "nodes" and run.changes_size:
        return "the script adds and removes nodes itself; rehearse it with fixed nodes"
    if name == "stop" and (run.identity.get("scaling") or {}).get("num_workers") == 0:
        return "the train function runs in the driver's own process, so nothing could restart it"
    if name == "corruption" and not run.checkpoint_steps:
        return "there is no checkpoint"
    if name == "memory-corruption" and not _is_noted(run, "in_memory"):
        return "nothing is in memory: the train function takes no snapshots"
    if name == "reduce-kill" and (not _is_noted(run, "reduces") or max(run.world_sizes, default=1) < 2):
        return "no gradients are reduced: the train function has no model in DistributedDataParallel on several workers"
    if name == "update-kill" and not _is_noted(run, "steps"):
        return "no optimizer of torch makes updates"
    return ""


def _is_noted(run: RunOutcome, what: str) -> bool:
    return any(note.get(what) for notes in run.records.values() for note in notes.values())


def _drawn(address: Address, run: RunOutcome, chance: random.Random) -> Fault:
    kind = KINDS[address.name]
    savers = [rank for rank, notes in run.records.items() if any(note["files"] for note in notes.values())]
    points = kind.points if savers else [point for point in kind.points if point in _WITHOUT_FILES]
    point = chance.choice(points) if address.point is None else address.point
    reporters = [rank for rank in range(min(run.world_sizes, default=1)) if rank in run.records or not run.records]
    rank = chance.choice(savers if point == "staged" and savers else reporters or [0])
    # After the first checkpoint, so that there is something to restore; and not so late that the run never reaches it.
    last = len(run.rows) - 1 if point in _WITHOUT_FILES else max(run.checkpoint_steps, default=1)
    if run.changes_size:
        last //= 2  # it may be shorter the next time
    first = min(min(run.checkpoint_steps, default=0) + 2, len(run.rows))
    step = chance.randint(min(first, max(1, last)), max(1, last))
    return Fault(
        address.name,
        rank=rank if address.rank is None else address.rank,
        step=step if address.step is None else address.step,
        point=point,
        seconds=kind.seconds if address.seconds is None else address.seconds,
    )
