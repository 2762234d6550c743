"""A node is killed, or joins: how long until the next step, and how many steps are done again?

DDP workers, one on each node, steps of 30 ms, a checkpoint every 20. Two workers with a third node in reserve, and an
elastic range of 1 to 2 that shrinks when a node is killed and grows when one joins. Each node is an agent, or a raylet,
with its own processes on this machine. A node is chosen by chance, and killed at a random moment, as often as there are
repeats.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from pathlib import Path

from measure import Findings, Goal, Options, Summary, main, progress, ratio, summary
from peers import NAMES, Job, available, work_directory

STEP_S, CHECKPOINT_EVERY = 0.03, 20
RESIZE_EVERY_S = 1.0
WARM_STEPS, WARM_S = 60, 20.0
TIMES_FASTER = 10
KILLED = "node killed, with a spare node"
SHRUNK, GROWN = "node killed, continues with 1", "node joins, continues with 2"


@dataclass(frozen=True)
class Attempt:
    """One call of the train function on one rank."""

    rank: int
    world: int
    entered: float
    node: str
    steps: list[tuple[float, int]]


@dataclass(frozen=True)
class Change:
    to_first_step: float
    steps_again: int


def attempts(log: Path) -> list[Attempt]:
    """All calls so far, oldest first."""
    found = []
    for path in log.iterdir():
        rank, world, entered, node = path.name.split("-", 3)
        lines = path.read_text().split("\n")[:-1]  # a line without its end is still being written
        steps = [(float(at), int(step)) for at, step in (line.split() for line in lines)]
        found.append(Attempt(int(rank), int(world), int(entered) / 1e9, node, steps))
    return sorted(found, key=lambda attempt: attempt.entered)


class Nodes:
    """A run on nodes, and what is done to them."""

    def __init__(self, system: str, work: Path, nodes: int, workers: int | tuple[int, int]) -> None:
        orders = work / f"{system}-{nodes}-orders"
        self._orders, self._acts = orders, orders.with_suffix(".acts")
        self._orders.touch()
        self._acts.touch()
        shape = {"nodes": nodes, "workers": workers, "resize_every_s": RESIZE_EVERY_S}
        pace = {"step_s": STEP_S, "checkpoint_every": CHECKPOINT_EVERY}
        files = {"orders": str(self._orders), "acts": str(self._acts)}
        self.job = Job(system, "nodes", work, **shape, **pace, **files)

    def group(self, world: int, since: float = 0.0) -> dict[int, Attempt]:
        """The newest of that size that has begun since, by rank."""
        late = [a for a in attempts(self.job.log) if a.entered > since and a.world == world]
        return {attempt.rank: attempt for attempt in late}

    def await_steps(self, world: int, steps: int, since: float = 0.0) -> list[Attempt]:
        """That all ranks of a group of that size have made so many."""

        def made() -> bool:
            group = self.group(world, since)
            return len(group) == world and all(len(attempt.steps) >= steps for attempt in group.values())

        self.job.wait_for(made, f"{steps} steps with {world} workers", 600)
        return list(self.group(world, since).values())

    def warm_up(self, world: int, chance: random.Random) -> None:
        """Nothing is done before the group has trained for a while, and all nodes have been there for as long."""
        group = self.await_steps(world, WARM_STEPS)
        began = max(attempt.steps[0][0] for attempt in group)
        time.sleep(max(0.0, began + WARM_S - time.monotonic()) + chance.uniform(0.0, 1.0))

    def order(self, order: str) -> float:
        """When it was carried out."""
        count = len(self._acts.read_text().splitlines())
        with self._orders.open("a") as file:
            file.write(order + "\n")
        self.job.wait_for(lambda: len(self._acts.read_text().splitlines()) > count, f"the order {order!r}", 60)
        return float(self._acts.read_text().splitlines()[count])

    def change(self, order: str, world: int) -> Change:
        """Until all ranks of the next group have made their first step."""
        since = self.order(order)
        after = self.await_steps(world, 1, since)
        began = min(attempt.entered for attempt in after)
        last = max(a.steps[-1][1] for a in attempts(self.job.log) if a.entered < began and a.steps)
        first_step = max(attempt.steps[0][0] for attempt in after)
        return Change(first_step - since, last - min(attempt.steps[0][1] for attempt in after) + 1)


def with_a_reserve(system: str, repeats: int, chance: random.Random, work: Path) -> list[Change]:
    nodes, found = Nodes(system, work, 3, 2), []
    with nodes.job:
        for number in range(repeats):
            nodes.warm_up(2, chance)
            victim = nodes.group(2)[chance.randrange(2)].node
            found.append(nodes.change(f"kill {victim}", 2))
            progress(f"{NAMES[system]}, {KILLED} {number + 1}: {found[-1]}")
            nodes.order("add")
    return found


def elastic(system: str, repeats: int, chance: random.Random, work: Path) -> tuple[list[Change], list[Change]]:
    nodes = Nodes(system, work, 2, (1, 2))
    shrunk, grown = [], []
    with nodes.job:
        for number in range(repeats):
            nodes.warm_up(2, chance)
            victim = nodes.group(2)[chance.randrange(2)].node
            shrunk.append(nodes.change(f"kill {victim}", 1))
            progress(f"{NAMES[system]}, {SHRUNK} {number + 1}: {shrunk[-1]}")
            nodes.warm_up(1, chance)
            grown.append(nodes.change("add", 2))
            progress(f"{NAMES[system]}, {GROWN} {number + 1}: {grown[-1]}")
    return shrunk, grown


def measure(system: str, repeats: int, seed: int, work: Path) -> dict[str, list[Change]]:
    chance = random.Random(seed)
    killed = with_a_reserve(system, repeats, chance, work)
    shrunk, grown = elastic(system, repeats, chance, work)
    return {KILLED: killed, SHRUNK: shrunk, GROWN: grown}


def goals(times: dict[tuple[str, str], Summary], lost: dict[tuple[str, str], Summary]) -> list[Goal]:
    found = []
    for what in (KILLED, SHRUNK, GROWN):
        if {(what, "holdfast"), (what, "ray")} <= times.keys():
            faster = times[what, "ray"].median / times[what, "holdfast"].median
            text = f"{what}: at least {TIMES_FASTER} times faster than Ray Train"
            found.append(Goal(text, f"{faster:.1f}", faster >= TIMES_FASTER))
    if (GROWN, "holdfast") in lost:
        most = max(lost[GROWN, "holdfast"].values)
        found.append(Goal("a planned resize loses no step", f"{most:.0f} at most", most == 0))
    return found


def run(options: Options) -> Findings:
    findings = Findings(
        "Nodes that leave and join", ["", "", "event to next step", "against Holdfast", "steps repeated"]
    )
    times: dict[tuple[str, str], Summary] = {}
    lost: dict[tuple[str, str], Summary] = {}
    systems = available(options.systems, among=("holdfast", "ray"))
    with work_directory(options.work_dir) as work:
        for system in systems:
            for what, changes in measure(system, options.repeats, options.seed, work).items():
                times[what, system] = summary([change.to_first_step for change in changes])
                lost[what, system] = summary([change.steps_again for change in changes])
                findings.samples[f"{system}: {what}"] = [vars(change) for change in changes]
    for what in (KILLED, SHRUNK, GROWN):
        for system in systems:
            ours = times[what, "holdfast"].median if "holdfast" in systems else None
            taken = times[what, system]
            row = [what, NAMES[system], taken.show("s"), ratio(taken.median, ours), lost[what, system].show()]
            findings.rows.append(row)
    findings.goals = goals(times, lost)
    findings.notes = [
        f"A step takes {STEP_S * 1000:.0f} ms; a checkpoint is made every {CHECKPOINT_EVERY} steps. "
        f"Both consider a resize every {RESIZE_EVERY_S:.0f} s. A joining node is timed from the call that adds it."
    ]
    return findings


if __name__ == "__main__":
    main(__doc__, run)
