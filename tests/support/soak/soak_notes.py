"""What the workers of a run noted, read as it grows: the attempts that there were, and what each of their ranks did."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Step:
    time: float
    rank: int
    number: int
    epoch: int
    samples: tuple[int, ...]


@dataclass
class Attempt:
    attempt_number: int
    world: int
    starts: dict[int, int] = field(default_factory=dict)  # by rank: the step that it went on from
    pids: dict[int, int] = field(default_factory=dict)
    nodes: dict[int, str] = field(default_factory=dict)
    first: float = 0.0
    last: float = 0.0
    steps: list[Step] = field(default_factory=list)

    @property
    def base(self) -> int:
        return next(iter(self.starts.values()))

    @property
    def reached(self) -> int:
        """By rank 0."""
        return max((step.number for step in self.steps if step.rank == 0), default=self.base)


class Notes:
    def __init__(self, path: Path) -> None:
        self._path, self._read, self._rest = path, 0, b""
        path.touch()
        self.attempts: dict[int, Attempt] = {}
        self.worlds: set[tuple[int, int]] = set()  # that the ranks were told, by attempt
        self.reached = 0

    def read_on(self) -> None:
        with open(self._path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(*json.loads(line))

    def _take(self, kind: str, time: float, attempt_number: int, rank: int, world: int, *values: object) -> None:
        attempt = self.attempts.setdefault(attempt_number, Attempt(attempt_number, world, first=time))
        attempt.first, attempt.last = min(attempt.first, time), max(attempt.last, time)
        self.worlds.add((attempt_number, world))
        if kind == "start":
            step, pid, node = values
            attempt.starts[rank], attempt.pids[rank], attempt.nodes[rank] = int(str(step)), int(str(pid)), str(node)
        else:
            number, epoch, samples = values
            attempt.steps.append(Step(time, rank, int(str(number)), int(str(epoch)), tuple(samples)))  # type: ignore[arg-type]
            if rank == 0:
                self.reached = max(self.reached, attempt.steps[-1].number)

    @property
    def in_order(self) -> list[Attempt]:
        return [self.attempts[attempt_number] for attempt_number in sorted(self.attempts)]
