"""What is done to a run of the soak, drawn from its seed: the shape of the run, and its faults.

A fault strikes when rank 0 has come to a step, or so long after the fault before it, while the run recovers. What it
strikes is chosen when it strikes, from what is there then.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

KINDS = {
    "worker killed": 3.0,
    "worker stopped": 1.0,
    "worker hangs": 0.5,
    "agent killed": 2.0,
    "agent stopped": 0.7,
    "agent gets SIGTERM": 1.0,
    "any process killed": 1.5,
    "driver killed": 3.0,
    "driver gets SIGTERM": 1.0,
    "driver stopped for a time": 1.0,
    "node removed": 2.0,
    "node drained": 3.0,
    "node drained on short notice": 1.0,
    "node joins": 1.0,
}
ELASTIC_KINDS = {"node joins": 4.0}
CUTS = {"link cut": 4.0, "link cut for a moment": 2.0, "link cut one way": 2.5}
SHAPES = {(96, 6): 16, (101, 7): 15, (120, 8): 15}  # samples and global batch, and how many steps an epoch has
STEPS_LEFT = 0.7  # no fault waits for a step behind this part of the run


@dataclass(frozen=True)
class Fault:
    kind: str
    part: float  # of the run's steps, which rank 0 must have made
    after_s: float  # then, or after the fault before
    at_once: bool = False  # it does not wait for a step: the run is still at the fault before, or at its start
    lasts_s: float = 0.0
    choice: float = 0.0  # of what is there, which: from 0 to 1
    replaced_after_s: float | None = None  # a node that goes has a successor
    of_rank: int | None = None  # what strikes a link strikes this rank's, whatever the choice
    forgotten: bool = False  # the next driver is not told of that node


@dataclass(frozen=True)
class Plan:
    seed: int
    torch: bool
    switched: bool  # nodes have a network between them
    workers: int | tuple[int, int]
    nodes: tuple[int, ...]  # the CPUs of each
    samples: int
    batch: int
    epochs: int
    every: int
    asks: bool
    in_step: bool
    resize_s: float
    grace_s: float
    placement: str
    pause_s: float = 0.02
    hang_s: float = 6.0
    waits_at: int | None = None  # the step at which ranks wait until all faults have struck
    faults: tuple[Fault, ...] = field(default=())

    @property
    def least(self) -> int:
        return self.workers if isinstance(self.workers, int) else self.workers[0]

    @property
    def most(self) -> int:
        return self.workers if isinstance(self.workers, int) else self.workers[1]

    @property
    def steps(self) -> int:
        return SHAPES[self.samples, self.batch] * self.epochs

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most

    @property
    def undisturbed(self) -> Plan:
        """On one node. An elastic run ends with the same chain whatever its sizes were."""
        workers = self.most if self.is_fixed else 1
        return replace(self, faults=(), switched=False, nodes=(workers,), workers=workers, in_step=True, every=5)


def draw(seed: int, can_cut: bool = True) -> Plan:
    rng = random.Random(seed)
    torch, switched, elastic = rng.random() < 0.05, rng.random() < 0.3, rng.random() < 0.5
    least = rng.choice((1, 1, 2)) if elastic else rng.choice((1, 2, 2, 3))
    workers = (least, least + rng.choice((1, 2, 3))) if elastic else least
    samples, batch = rng.choice(list(SHAPES))
    plan = Plan(
        seed=seed,
        torch=torch,
        switched=switched and can_cut,
        workers=workers,
        nodes=draw_nodes(rng, least, elastic),
        samples=samples,
        batch=batch,
        epochs=3,
        every=rng.choice((1, 1, 2, 5)),
        asks=rng.random() < 0.8,
        in_step=rng.random() < 0.7,
        resize_s=rng.choice((0.0, 0.0, 0.3)),
        grace_s=rng.choice((0.0, 2.0)),
        placement=rng.choice(("PACK", "SPREAD")),
        hang_s=120.0 if torch else 6.0,  # a first step may have to import for long
    )
    kinds = {**KINDS, **(ELASTIC_KINDS if elastic else {}), **(CUTS if plan.switched else {})}
    if torch:
        del kinds["worker hangs"]
    faults = draw_faults(rng, kinds, elastic)
    joins = any(fault.kind == "node joins" for fault in faults)
    return replace(plan, faults=faults, pause_s=0.05 if joins else 0.02)  # a new node must come before the end


def draw_nodes(rng: random.Random, least: int, elastic: bool) -> tuple[int, ...]:
    """Room for the smallest attempt, and sometimes for more."""
    nodes: list[int] = []
    while sum(nodes) < least:
        nodes.append(rng.choice((1, 1, 2)))
    extra = rng.choice((0, 1, 2)) if elastic else rng.choice((0, 0, 1))
    return (*nodes, *(1 for _ in range(extra)))


def draw_faults(rng: random.Random, kinds: dict[str, float], elastic: bool) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    parts = sorted(rng.uniform(0.0, STEPS_LEFT) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    for number, part in enumerate(parts):
        at_once = rng.random() < (0.3 if number else 0.08)
        kind = rng.choices(list(kinds), list(kinds.values()))[0]
        lasts = {
            "agent stopped": 8.0,  # if it is still there then
            "driver stopped for a time": rng.choice((rng.uniform(0.1, 1.5), rng.uniform(4.0, 6.0))),
            "node drained": rng.uniform(3.0, 5.0),
            "node drained on short notice": rng.uniform(0.0, 0.5),
            "link cut": rng.uniform(4.0, 8.0),
            "link cut for a moment": rng.uniform(0.05, 1.0),
            "link cut one way": rng.uniform(4.0, 8.0),
        }.get(kind, 0.0)
        after = rng.uniform(0.0, 0.8) if at_once else rng.uniform(0.0, 0.03)
        successor = rng.uniform(0.0, 0.6) if not elastic or rng.random() < 0.6 else None
        faults.append(Fault(kind, part, after, at_once, lasts, rng.random(), successor))
    return tuple(faults)
