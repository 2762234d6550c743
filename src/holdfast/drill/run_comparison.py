"""A run under a fault, compared with the undisturbed one. What differs is said with the step where it begins.

A step's notes are those of the attempt that the history has for it; so each of the two runs has one note for each rank
and step, and with equal world sizes they must be equal. What differs between two undisturbed runs too is noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from holdfast.drill import content
from holdfast.drill.content import Difference
from holdfast.drill.outcome import Record, RunOutcome, SeenAttempt


class Point(NamedTuple):
    """A value at a step that differs from the undisturbed run."""

    name: str
    rank: int
    step: int
    expected: Any
    found: Any


@dataclass
class Differences:
    is_comparable: bool = True  # otherwise the world size differs, and only the reports are counted
    reports: tuple[int, int] = (0, 0)  # expected and found
    metrics: list[Point] = field(default_factory=list)  # the first of each metric
    values: int = 0  # of the last checkpoint, that were compared
    weights: list[Difference] = field(default_factory=list)
    batches: list[Point] = field(default_factory=list)  # the first of each rank
    rates: list[Point] = field(default_factory=list)
    schedules: list[Point] = field(default_factory=list)
    random: list[Point] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        """Whether everything that counts is bit for bit the same; the other fields only explain."""
        same_length = self.reports[0] == self.reports[1]
        return same_length and not (self.metrics or self.weights or self.batches)

    @property
    def is_in_metrics_only(self) -> bool:
        """Whether it looks like a timing that is reported from time to time."""
        return not self.is_none and not (self.weights or self.batches) and self.reports[0] == self.reports[1]

    def without(self, noise: Differences) -> Differences:
        """The differences that remain without those between two undisturbed runs."""
        metrics = {point.name for point in noise.metrics}
        weights = {difference.where for difference in noise.weights}
        sources = {point.name for point in noise.random}
        return replace(
            self,
            metrics=[point for point in self.metrics if point.name not in metrics],
            weights=[difference for difference in self.weights if difference.where not in weights],
            batches=[] if noise.batches else self.batches,
            rates=[] if noise.rates else self.rates,
            schedules=[] if noise.schedules else self.schedules,
            random=[point for point in self.random if point.name not in sources],
        )

    def __str__(self) -> str:
        if not self.is_comparable:
            return "not compared: another world size"
        parts = []
        if self.reports[0] != self.reports[1]:
            parts.append(f"{self.reports[1]} reports, not {self.reports[0]}")
        if self.metrics:
            first = min(self.metrics, key=lambda point: point.step)
            parts.append(f"metrics from step {first.step} ({first.name})")
        if self.weights:
            parts.append(f"{len(self.weights)} of {self.values} values of the last checkpoint")
        if self.batches:
            parts.append(f"data from step {min(point.step for point in self.batches)}")
        return "; ".join(parts) if parts else "none"


def compare(expected: RunOutcome, found: RunOutcome) -> Differences:
    if set(found.world_sizes) != set(expected.world_sizes) or expected.changes_size:
        return Differences(is_comparable=False)
    differences = Differences(reports=(len(expected.rows), len(found.rows)))
    differences.metrics = list(_metrics(expected.rows, found.rows))
    if expected.checkpoint is not None and found.checkpoint is not None:
        differences.values, differences.weights = content.compare(expected.checkpoint, found.checkpoint)
    elif expected.checkpoint is not found.checkpoint:
        differences.weights = [Difference("the last checkpoint", "is there in one of the two only")]
    differences.batches = list(_first(expected, found, "batches"))
    differences.rates = list(_first(expected, found, "rates"))
    differences.schedules = list(_first(expected, found, "schedules"))
    differences.random = list(_random(expected, found))
    return differences


def compare_all(expected: list[RunOutcome], found: list[RunOutcome]) -> Differences:
    """The differences of the first run that differs, if a script has several."""
    if len(found) < len(expected):
        return Differences(reports=(sum(len(run.rows) for run in expected), sum(len(run.rows) for run in found)))
    compared = [compare(one, two) for one, two in zip(expected, counterparts(expected, found), strict=True)]
    return next((differences for differences in compared if not differences.is_none), compared[-1])


def counterparts(expected: list[RunOutcome], found: list[RunOutcome]) -> list[RunOutcome]:
    """The runs to compare: runs with fixed names are compared by name, otherwise the last ones."""
    names = [run.name for run in expected]
    by_name = {run.name: run for run in found}
    if all(name in by_name for name in names):
        return [by_name[name] for name in names]
    return found[-len(expected) :]


def noise_before(expected: RunOutcome, found: RunOutcome) -> Differences | None:
    """What differs without a fault, seen in the steps before anything was restored; None if they do not tell.

    If checkpoints and batches are the same up to there, the script is repeatable, and later differences count.
    """
    if not found.attempts or set(found.world_sizes) != set(expected.world_sizes):
        return None
    first = found.attempts[0].attempt_number
    notes = [note for note in _notes(expected, found) if note[3]["attempt"] == first]
    saved = [note for note in notes if note[2]["files"]]
    if not saved or any(before[what] != after[what] for _, _, before, after in notes for what in ("files", "batches")):
        return None
    steps = max(step for _, step, _, _ in saved)
    return Differences(metrics=list(_metrics(expected.rows[:steps], found.rows[:steps])))


def _metrics(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> Iterator[Point]:
    seen: set[str] = set()
    for step, (before, after) in enumerate(zip(expected, found, strict=False), start=1):
        for name in [*before, *(name for name in after if name not in before)]:
            if name not in seen and not content.same(before.get(name), after.get(name)):
                seen.add(name)
                yield Point(str(name), 0, step, before.get(name), after.get(name))


def _first(expected: RunOutcome, found: RunOutcome, what: str) -> Iterator[Point]:
    """The first step of each rank at which the two were given something else."""
    for rank, step, before, after in _notes(expected, found):
        if before[what] != after[what] and not (what == "batches" and _is_the_rest(before, after)):
            yield Point(what, rank, step, before[what], after[what])


def _is_the_rest(before: Record, after: Record) -> bool:
    """A process that resumed from memory, or replaced a rank, within a step has the last of its batches."""
    rest = after["batches"]
    return bool(after.get("within")) and rest == before["batches"][len(before["batches"]) - len(rest) :]


def _notes(expected: RunOutcome, found: RunOutcome) -> Iterator[tuple[int, int, Record, Record]]:
    for rank, notes in expected.records.items():
        other = found.records.get(rank, {})
        for step in sorted(notes.keys() & other.keys()):
            yield rank, step, notes[step], other[step]


def _random(expected: RunOutcome, found: RunOutcome) -> Iterator[Point]:
    """Random sources that the undisturbed run drew from, and that this run left in another state."""
    for rank, step, before, after in _notes(expected, found):
        for name in before["random"].keys() & after["random"].keys():
            if before["random"][name] != after["random"][name] and _is_drawn_from(expected, rank, name):
                yield Point(name, rank, step, before["random"][name], after["random"][name])


def _is_drawn_from(run: RunOutcome, rank: int, name: str) -> bool:
    return len({record["random"].get(name) for record in run.records[rank].values()}) > 1


def restored(run: RunOutcome) -> Iterable[SeenAttempt]:
    """The attempts that were offered a checkpoint."""
    return (attempt for attempt in run.attempts if attempt.resumed is not None)
