"""What the workers of a run noted, read as it grows: the groups that there were, and what each of their ranks did."""

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
class Group:
    generation: int
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
        self.groups: dict[int, Group] = {}
        self.worlds: set[tuple[int, int]] = set()  # that the ranks were told, by generation
        self.reached = 0

    def read_on(self) -> None:
        with open(self._path, "rb") as file:
            file.seek(self._read)
            data = file.read()
        self._read += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(*json.loads(line))

    def _take(self, kind: str, time: float, generation: int, rank: int, world: int, *values: object) -> None:
        group = self.groups.setdefault(generation, Group(generation, world, first=time))
        group.first, group.last = min(group.first, time), max(group.last, time)
        self.worlds.add((generation, world))
        if kind == "start":
            step, pid, node = values
            group.starts[rank], group.pids[rank], group.nodes[rank] = int(str(step)), int(str(pid)), str(node)
        else:
            number, epoch, samples = values
            group.steps.append(Step(time, rank, int(str(number)), int(str(epoch)), tuple(samples)))  # type: ignore[arg-type]
            if rank == 0:
                self.reached = max(self.reached, group.steps[-1].number)

    @property
    def in_order(self) -> list[Group]:
        return [self.groups[generation] for generation in sorted(self.groups)]
