"""The faults that a drill knows, and how one is written: ``name@rank=1,step=5``. Data only; nothing here strikes.

A step is a report of the run, counted from 1 over all its attempts.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

# Where in the life of a report a fault strikes, in order.
IN_WORKER = ("before", "staged", "after")
IN_REDUCTION, IN_UPDATE = "reduce", "update"  # within a training step that leads to it, halfway
IN_DRIVER = ("report", "files", "manifest", "committed", "journalled")


class FaultKind(NamedTuple):
    text: str
    where: str  # "worker", "driver", "nodes", "disk" or "storage": where it strikes, and what the run must have for it
    points: tuple[str, ...] = ()  # the first is the default
    seconds: float = 0.0  # how long it lasts, if it ends on its own


KINDS: dict[str, FaultKind] = {
    "worker-kill": FaultKind("a worker gets SIGKILL", "worker", IN_WORKER),
    "reduce-kill": FaultKind(
        "a worker gets SIGKILL while gradients are reduced, so that its peers wait for it in an all-reduce",
        "worker",
        (IN_REDUCTION,),
    ),
    "update-kill": FaultKind(
        "a worker gets SIGKILL when all gradients are reduced, before optimizer.step() makes the update",
        "worker",
        (IN_UPDATE,),
    ),
    "segfault": FaultKind("a worker reads address 0", "worker", IN_WORKER),
    "stop": FaultKind("a worker gets SIGSTOP", "worker", IN_WORKER),
    "gil-hold": FaultKind("a worker holds Python's lock and does nothing", "worker", IN_WORKER, 3.0),
    "exception": FaultKind("the train function raises in a worker", "worker", IN_WORKER),
    "oom": FaultKind("a worker runs out of memory", "worker", IN_WORKER),
    "corruption": FaultKind("the newest checkpoint is damaged, then a worker is killed", "worker", IN_WORKER),
    "memory-corruption": FaultKind(
        "the snapshots in a node's memory are damaged, then a worker is killed", "worker", IN_WORKER
    ),
    "driver-kill": FaultKind("the driver gets SIGKILL, and the script is run again", "driver", IN_DRIVER),
    "node-kill": FaultKind("the node of a rank is lost", "nodes", ("report",)),
    "partition": FaultKind("the node of a rank is cut off from the driver; both keep running", "nodes", ("report",)),
    "drain": FaultKind(
        "the node of a rank gets a preemption notice, and is removed at its deadline", "nodes", ("report",), 10.0
    ),
    "slow-disk": FaultKind("every write to the run's disk takes 0.1 s longer", "disk", ("report",), 5.0),
    "disk-full": FaultKind("the run's disk has no space left", "disk", ("report",), 2.0),
    "outage": FaultKind("the run's object store does not answer", "storage", ("report",), 3.0),
    "throttling": FaultKind(
        "the run's object store answers late, and refuses every third request", "storage", ("report",), 4.0
    ),
}


class Fault(Struct, frozen=True):
    name: str
    rank: int = 0
    step: int = 1
    point: str = ""
    seconds: float = 0.0

    @property
    def kind(self) -> FaultKind:
        return KINDS[self.name]

    def __str__(self) -> str:
        parts = [f"rank={self.rank}", f"step={self.step}"]
        if self.point and self.point != self.kind.points[0]:
            parts.append(f"point={self.point}")
        if self.seconds and self.seconds != self.kind.seconds:
            parts.append(f"seconds={self.seconds:g}")
        return f"{self.name}@{','.join(parts)}"


class Address(NamedTuple):
    """A fault as a user writes it; the plan chooses the parts that are None."""

    name: str
    rank: int | None = None
    step: int | None = None
    point: str | None = None
    seconds: float | None = None


def parse(text: str) -> Address:
    name, _, rest = text.partition("@")
    check(name)
    fields: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals or key not in ("rank", "step", "point", "seconds"):
            raise ValueError(f"--fault {text}: {part!r} is not known; write rank=, step=, point= or seconds=")
        fields[key] = value
    point = fields.get("point")
    if point is not None and point not in KINDS[name].points:
        raise ValueError(f"--fault {text}: {name} has no such point. Use one of {', '.join(KINDS[name].points)}")
    try:
        rank = int(fields["rank"]) if "rank" in fields else None
        step = int(fields["step"]) if "step" in fields else None
        seconds = float(fields["seconds"]) if "seconds" in fields else None
    except ValueError:
        raise ValueError(f"--fault {text}: rank and step are whole numbers, seconds is a number") from None
    if (rank is not None and rank < 0) or (step is not None and step < 1) or (seconds is not None and seconds < 0):
        raise ValueError(f"--fault {text}: ranks count from 0, steps from 1, and no time is negative")
    return Address(name, rank, step, point, seconds)


def check(name: str) -> None:
    if name not in KINDS:
        raise ValueError(f"unknown fault {name!r}. The faults are: {', '.join(KINDS)}")
