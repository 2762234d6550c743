"""What happens in one simulated run, drawn from its seed: the limits, the training, and the faults.

A fault is planned as a kind and an occasion of that kind (the third commit, the fortieth point where a driver can be
killed). So every schedule has a finite number of faults, and the run must end once all of them have happened.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from msgspec import Struct, structs

from holdfast.core.run.state import RunSpec

MEAN_CHANCE = {
    "worker crash": 18.0,
    "worker exception": 18.0,
    "several workers at once": 18.0,
    "hang": 18.0,
    "SIGSTOP": 18.0,
    "start-up death": 3.0,
    "start-up hang": 3.0,
    "seal failure": 4.0,
    "commit failure": 2.0,
    "commit failure after the manifest": 2.0,
    "damaged checkpoint": 4.0,
    "lost manifest": 4.0,
    "driver killed": 60.0,
    "torn journal tail": 8.0,
    "stop asked": 25.0,
    "stop asked with grace": 12.0,
    "stop asked between attempts": 4.0,
    "stop asked at once": 25.0,
    "message of an old attempt": 10.0,
    "attempt gone said twice": 2.0,
    "timer fired while it was cancelled": 3.0,
    "bug at one report": 1.5,
    "clock jumps": 25.0,
    "clock stands still": 25.0,
    "wall clock jumps": 10.0,
    "storage slow": 4.0,
}
MEAN_CHANCE_HERE = {"agent killed": 15.0}  # where this machine is the only node
TOGETHER = {  # rarely by chance
    "bug at one report": "torn journal tail",
    "stop asked with grace": "commit failure",
    "driver killed while a node is cut off": "node cut off",
}
MEAN_CHANCE_REMOTE = {
    "gather failure": 3.0,
    "upload failure": 2.0,
    "slow upload": 2.0,
    "storage away": 4.0,
    "staged lost": 3.0,
    "commit out of reach": 2.0,
    "commit out of reach after the manifest": 2.0,
    "storage away when a checkpoint is read": 3.0,
    "clean-up failure": 3.0,
}
MEAN_CHANCE_NODES = {
    "node lost": 15.0,
    "node cut off": 15.0,
    "node drained": 12.0,
    "node joins": 12.0,
    "node cannot talk to others": 3.0,
    "driver killed while a node is cut off": 1.5,
    "node not fit to train on": 3.0,
}
MEAN_CHANCE_LIVE = {  # where a lost rank alone is replaced
    "standby killed": 2.0,
    "worker killed in a collective": 14.0,
    "worker killed while ranks are replaced": 5.0,
    "node lost while ranks are replaced": 8.0,
}
CHANCES = {**MEAN_CHANCE, **MEAN_CHANCE_HERE, **MEAN_CHANCE_REMOTE, **MEAN_CHANCE_NODES, **MEAN_CHANCE_LIVE}
KINDS = tuple(CHANCES)
OCCASIONS = (  # not planned: they follow from the faults
    "staged files were lost when they were verified",
    "an attempt resumed from what was staged",
    "a checkpoint was superseded before its upload",
    "the next driver took over what was staged",
    "the next driver took up what the last one had not heard",
    "workers waited for storage",
    "a worker waited at a hand-over",
    "an attempt was handed over to resize",
    "an attempt was handed over before its node went",
    "an attempt was handed over to stop",
    "a run waited for room",
    "a failure was laid to the loss of a node",
    "a node rested",
    "a node came back from its rest",
    "an attempt was handed over before it began",
    "a worker outlived its driver",
    "a driver waited for the end of what it could not reach",
    "a node came back while it was waited for",
    "a driver could not continue without storage",
    "a snapshot was complete on all ranks",
    "an attempt resumed from memory",
    "an attempt resumed from the memory of another node",
    "a snapshot was lost with its nodes",
    "a snapshot was damaged",
    "a rank was silent",
    "a rank was replaced alone",
    "a standby took a rank",
    "a rank moved to another node",
    "ranks could not be replaced alone",
    "a survivor took the step that others had completed",
)
MAX_WORLD = 4
FENCE_S = 15.0  # how long a cut-off node keeps running


class Workload(Struct, frozen=True):
    """The train function, the same for every attempt. What a rank does depends only on the report's number."""

    totals: tuple[int, ...]  # by rank: it returns after this many reports of the run
    files_every: tuple[int, ...]  # by rank: reports with files; 0: never
    pace: tuple[float, ...]  # by rank: seconds a report
    names: tuple[str, ...]  # names by report number, in turn; for an empty one the run chooses
    validate_every: int
    urgent_every: int  # reports for which the worker waits until they are durable
    scores: tuple[float | None, ...]  # by report number
    upload_s: float  # how long an upload may take
    bug_at: int  # the report at which the script may raise
    bug_times: int  # how many times in a row
    rank_zero_only: bool = False  # the other ranks do the same work but do not report

    def has_files(self, rank: int, report: int) -> bool:
        every = self.files_every[rank]
        return every > 0 and report % every == 0

    def name(self, report: int) -> str | None:
        if not self.names:
            return None
        return self.names[report % len(self.names)].format(report=report) or None

    def validates(self, report: int) -> bool:
        return self.validate_every > 0 and report % self.validate_every == 0

    def score(self, report: int) -> float | None:
        return self.scores[report] if report < len(self.scores) else None

    def is_urgent(self, report: int) -> bool:
        return self.urgent_every > 0 and report % self.urgent_every == 0


class Schedule(Struct, frozen=True):
    spec: RunSpec
    workload: Workload
    faults: dict[str, frozenset[int]]
    worlds: tuple[int, ...]  # the number of workers that each driver asks for; the last one repeats
    most_waiting: int  # how many checkpoints may wait for storage before workers wait
    free_space: int  # bytes
    revivals: int  # how many times a person starts the run again after its end
    nodes: tuple[tuple[int, float], ...]  # the capacity of each, and when it joins; empty: capacity does not matter
    snapshots: bool = False  # workers keep their state in memory after each report
    replicas: int = 1  # how many other nodes have a copy of it
    moves: bool = True  # another number of workers can resume from it

    @property
    def is_live(self) -> bool:
        """Whether lost ranks are replaced alone."""
        return self.spec.regroup_timeout_s > 0

    def spec_of(self, epoch: int) -> RunSpec:
        world = self.worlds[min(epoch - 1, len(self.worlds) - 1)]
        return structs.replace(self.spec, num_workers=world, min_workers=min(world, self.spec.min_workers))


class Faults:
    """The planned faults, and which of them happened."""

    def __init__(self, planned: dict[str, frozenset[int]]) -> None:
        self._planned = planned
        self._chances = dict.fromkeys(planned, 0)
        self.happened: Counter[str] = Counter()

    def is_planned(self, kind: str) -> bool:
        return kind in self._planned

    def hit(self, kind: str) -> bool:
        """Whether the fault happens on this occasion."""
        planned = self._planned.get(kind)
        if planned is None:
            return False
        self._chances[kind] += 1
        return self._chances[kind] in planned

    def count(self, kind: str) -> None:
        self.happened[kind] += 1


def draw(rng: Random) -> Schedule:
    remote, with_nodes = rng.random() < 0.5, rng.random() < 0.5
    world = rng.randint(1, MAX_WORLD)
    spec = RunSpec(
        num_workers=world,
        min_workers=rng.choice((0, 1, 1, rng.randint(1, world))) if with_nodes else 0,
        resize_interval_s=rng.choice((0.0, 1.0, 5.0)),
        max_preemption_failures=rng.choice((-1, -1, 0, 1)),
        max_hang_failures=rng.choice((None, None, 0, 1)),
        max_same_errors=rng.choice((0, 0, 1, 2)),
        bad_node_failures=rng.choice((0, 1, 2, 3)),
        bad_node_rest_s=rng.choice((5.0, 60.0)),
        max_failures=rng.choice((-1, -1, 0, 1, 2, 5)),
        num_to_keep=rng.choice((None, 1, 1, 2, 3)),
        scored=rng.random() < (0.3 if remote else 0.5),
        score_order=rng.choice(("max", "min")),
        backoff_s=rng.choice((0.5, 4.0)),
        start_timeout_s=20.0,
        hang_timeout_s=rng.choice((0.0, 30.0)),
        learns_hangs=rng.random() < 0.5,
        stopped_grace_s=rng.choice((0.0, 2.0, 2.0)),
        missing_warning_s=rng.choice((0.0, 3.0)),
        nodes_hold_files=remote,
        sync_period_s=rng.choice((0.0, 0.0, 3.0, 40.0)) if remote else 0.0,
        lease_s=FENCE_S if with_nodes else 0.0,
    )
    worlds = [spec.num_workers]
    if rng.random() < 0.2:
        worlds += [rng.randint(1, MAX_WORLD), rng.randint(1, MAX_WORLD)]
    most_waiting = rng.choice((1, 5, 64)) if remote else 64
    faults = _draw_faults(rng, remote, with_nodes)
    workload, revivals = _draw_workload(rng, remote, with_nodes), rng.choice((0, 0, 1, 2))
    nodes = _draw_nodes(rng, max(worlds)) if with_nodes else ()
    free_space = rng.choice((4 << 20, 1 << 50)) if remote else 1 << 50
    schedule = Schedule(spec, workload, faults, tuple(worlds), most_waiting, free_space, revivals, nodes)
    return _with_live_ranks(_with_silent_ranks(_with_snapshots(Random(repr(schedule)), schedule)))


def _with_snapshots(rng: Random, schedule: Schedule) -> Schedule:
    """With separate random numbers: runs without snapshots stay the same."""
    if rng.random() < 0.6:
        return schedule
    workload = schedule.workload
    if rng.random() < 0.6:  # otherwise the state in memory is rarely newer than the one on disk
        workload = structs.replace(workload, files_every=(rng.choice((0, 3, 5)),) * MAX_WORLD)
    replicas, moves = rng.choice((0, 1, 1, 2)), rng.random() < 0.5
    return structs.replace(schedule, workload=workload, snapshots=True, replicas=replicas, moves=moves)


def _with_silent_ranks(schedule: Schedule) -> Schedule:
    """In some runs only rank 0 reports; with separate random numbers. Snapshots need a report of every rank."""
    if schedule.snapshots or Random(f"{schedule} silent").random() > 0.15:
        return schedule
    spec = structs.replace(schedule.spec, rank_zero_only=True)
    workload = structs.replace(schedule.workload, rank_zero_only=True)
    return structs.replace(schedule, spec=spec, workload=workload)


def _with_live_ranks(schedule: Schedule) -> Schedule:
    """In some runs all ranks do their steps together, and lost ranks are replaced alone; with separate random
    numbers."""
    rng, most = Random(f"{schedule} live"), max(schedule.worlds)
    if rng.random() > 0.2 or most < 2 or schedule.spec.rank_zero_only:
        return schedule
    workload, spec, faults = schedule.workload, schedule.spec, dict(schedule.faults)
    together = max(3, *workload.totals)
    workload = structs.replace(workload, totals=(together,) * MAX_WORLD)
    standbys = rng.choice((0, 1, 1, 2))
    spec = structs.replace(spec, standby_workers=standbys, regroup_timeout_s=rng.choice((2.0, 10.0)))
    nodes = schedule.nodes
    if nodes and rng.random() < 0.85:  # ranks of a node that will be removed can move
        nodes = (*nodes, (2, 0.0))
        faults["node drained"] = faults.get("node drained", frozenset()) | {rng.randint(1, 12), rng.randint(1, 12)}
    for kind in rng.choices(
        [*MEAN_CHANCE_LIVE, "worker killed in a collective", "several workers at once"], k=rng.randint(2, 6)
    ):
        chance = 1 + int(rng.expovariate(1.0 / CHANCES[kind]))
        faults[kind] = faults.get(kind, frozenset()) | {chance}
    return structs.replace(schedule, spec=spec, workload=workload, faults=faults, nodes=nodes)


def _draw_nodes(rng: Random, room: int) -> tuple[tuple[int, float], ...]:
    """Together the nodes have capacity for all workers. Usually some are present from the start."""
    nodes: list[tuple[int, float]] = []
    while sum(room for room, _ in nodes) < room:
        nodes.append((rng.randint(1, 2), rng.choice((0.0, rng.random() * 15.0)) if nodes else 0.0))
    return tuple(nodes)


def _draw_workload(rng: Random, remote: bool, with_nodes: bool) -> Workload:
    total = rng.randint(2, 9) if remote else rng.randint(0, 6)
    if with_nodes:
        total += rng.choice((0, 3, 6))
    early = rng.random() < 0.3
    totals = tuple(rng.randint(0, total) if early else total for _ in range(MAX_WORLD))
    alike = rng.choice((None, 1, 2))
    return Workload(
        totals=totals,
        files_every=tuple(rng.choice((0, 1, 1, 2, 3)) if alike is None else alike for _ in range(MAX_WORLD)),
        pace=tuple(rng.choice((0.1, 0.5, 1.0)) for _ in range(MAX_WORLD)),
        names=rng.choice(((), (), (), ("best",), ("step-{report}",), ("best", "best-g2"), ("", "checkpoint_000001"))),
        validate_every=rng.choice((0, 0, 1, 2)),
        urgent_every=rng.choice((0, 0, 0, 1, 2)),
        scores=tuple(rng.choice((None, float("nan"), 0.0, 1.0, 2.0, float(i))) for i in range(total + 1)),
        upload_s=rng.choice((0.5, 5.0, 20.0, 60.0)),
        bug_at=rng.randint(1, max(1, total)),
        bug_times=rng.randint(1, 3),
    )


def _draw_faults(rng: Random, remote: bool, with_nodes: bool) -> dict[str, frozenset[int]]:
    """A few kinds for each run, so that some runs meet the same kind many times."""
    planned: dict[str, set[int]] = {}
    kinds = rng.sample(list(MEAN_CHANCE), rng.randint(1, 5))
    if remote:
        kinds += rng.sample(list(MEAN_CHANCE_REMOTE), rng.randint(1, 3))
    if with_nodes:
        kinds += rng.sample(list(MEAN_CHANCE_NODES), rng.randint(1, 4))
    elif rng.random() < 0.3:
        kinds += MEAN_CHANCE_HERE
    kinds += [TOGETHER[kind] for kind in kinds if kind in TOGETHER]
    for _ in range(rng.choice((0, 1, 2, 3, 5, 8, 12)) + (3 if remote else 0) + (3 if with_nodes else 0)):
        kind = rng.choice(kinds)
        planned.setdefault(kind, set()).add(1 + int(rng.expovariate(1.0 / CHANCES[kind])))
    return {kind: frozenset(chances) for kind, chances in planned.items()}
