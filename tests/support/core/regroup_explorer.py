"""Random stories of an attempt whose ranks are lost and replaced, told to the core alone, and judged after each event.

A story keeps for itself who lives, who waits and what was counted; a seed tells the same story again.
"""

from __future__ import annotations

from random import Random

from holdfast.core.failures import Evidence
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import regrouping, timers
from holdfast.core.run.state import Durable, Phase, RankStanding, RankStatus, RunSpec, RunState, Verdict
from holdfast.core.run.step import replay, step

KILLED, RAISED, NODE_LOST = (
    Evidence(signal=9),
    Evidence(exception="RuntimeError", message="x"),
    Evidence(node_lost=True),
)


class RegroupStory:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.size = self.random.randint(2, 4)
        budget = self.random.choice((-1, -1, 2, 5))
        times = {"regroup_timeout_s": 10.0, "backoff_s": 0.0}
        self.wanted = self.random.choice((0, 0, 1, 2))  # standbys
        spec = RunSpec(num_workers=self.size, max_failures=budget, standby_workers=self.wanted, **times)
        self.state, self.shadow, self.timers = RunState(), Durable(), set[object]()
        self.counted = self.answers = self.used = 0
        self.standbys: dict[int, str] = {}  # that live: starting, ready or lost unheard
        self.gone: set[int] = set()  # that took a rank, or whose end was told
        self.steps = [0] * self.size  # that each rank has completed
        self.waiting: set[int] = set()
        self.joining: set[int] = set()  # replaced, and not yet back
        self.armed: set[int] = set()
        self.lost_since: set[int] = set()  # since all were one attempt
        self.joined: set[int] = set()  # and cannot yet do a step again
        self.over = False
        self._often = (
            *[self._advance] * 2,
            self._kill,
            *[self._ask] * 3,
            *[self._join] * 2,
            *[self._arm] * 3,
            *[self._stand_by] * 2,
            self._say_late,
            self._rare,
        )
        self.tell(ev.DriverStarted(1, spec))
        for rank in range(self.size):
            self.tell(ev.WorkerReady(1, rank))
        for rank in range(self.size):
            if self.random.random() < 0.95:
                self._arm(rank)

    def play(self, events: int) -> None:
        for _ in range(events):
            if self.over:
                return
            self.random.choice(self._often)()
        self._let_time_pass()

    # What happens

    def _advance(self) -> None:
        """All ranks complete a step, or, when one was lost, some survivors do, who are not more than one ahead."""
        if self.lost_since or self.waiting:
            return
        self.steps = [count + 1 for count in self.steps]

    def _kill(self, evidence: Evidence = KILLED) -> None:
        rank = self.random.randrange(self.size)
        if not self.lost_since and not self.waiting and self.random.random() < 0.3:  # some had made the update
            for other in self.random.sample(range(self.size), self.random.randint(1, self.size)):
                self.steps[other] += 1
        self._lose(rank, evidence)

    def _lose(self, rank: int, evidence: Evidence) -> None:
        survivors = set(range(self.size)) - self.lost_since - {rank}
        may_live = evidence is KILLED and bool(survivors) and survivors <= self.armed
        event = regrouping.judged(self.state, ev.WorkerFailed(1, rank, evidence, "node"))
        assert not event.live or may_live, f"rank {rank} is replaced, and {survivors} of {self.armed} can wait for it"
        assert not event.follows or (self.lost_since and evidence is RAISED), f"{event} follows from nothing"
        instead = evidence is NODE_LOST and self.state.durable.charge is not None  # the cause of what was counted
        counts = self.state.durable.is_undecided and not event.follows and self.state.attempt_lives and not instead
        self.counted += counts
        self.waiting.discard(rank)
        self.joining.discard(rank)
        self.armed.discard(rank)
        self.joined.discard(rank)
        self.lost_since.add(rank)
        self.joining.discard(rank)
        commands = self.tell(event)
        replaced = [command.rank for command in commands if isinstance(command, do.ReplaceRank)]
        assert replaced in ([], [rank])
        assert not replaced or event.live
        if event.standby and replaced:
            assert event.live
            assert self.promoted == [event.standby], f"{event}, and {self.promoted} took a rank"

    def _ask(self) -> None:
        """A survivor notices, maybe before the driver does."""
        free = [r for r in range(self.size) if r in self.armed and r not in self.waiting and r not in self.lost_since]
        if free and (self.lost_since or self.random.random() < 0.1):
            rank = self.random.choice(free)
            self.waiting.add(rank)
            self.tell(ev.RegroupAsked(1, rank, RankStanding(self.steps[rank], 0), self._process_of(rank)))

    def _join(self) -> None:
        for rank in sorted(self.joining)[:1]:
            self.joining.discard(rank)
            self.waiting.add(rank)
            process = self._process_of(rank)
            self.tell(ev.WorkerReady(1, rank, process))
            self.tell(ev.RegroupAsked(1, rank, RankStanding(-1, 0, joins=True), process))

    def _arm(self, rank: int | None = None) -> None:
        """One that has joined can do its steps again from now on."""
        if rank is None and self.joined:
            rank = self.joined.pop()
        if rank is not None:
            self.armed.add(rank)
            self.tell(ev.WorkerArmed(1, rank, self._process_of(rank)))

    def _process_of(self, rank: int) -> int:
        return self.state.ranks[rank].process

    def _say_late(self) -> None:
        """A process whose rank another one has by now was not dead yet, or is heard late. That is no news."""
        late = [rank for rank in sorted(self.lost_since) if self._process_of(rank) > 0]
        if not late or self.over:
            return
        rank = self.random.choice(late)
        before, joins = self.random.randrange(self._process_of(rank)), self.random.random() < 0.5
        known, state = RankStanding(-1 if joins else self.steps[rank], 0, joins), self.state
        for event in (
            ev.WorkerArmed(1, rank, before),
            ev.RegroupAsked(1, rank, known, before),
            ev.WorkerReady(1, rank, before),
            ev.WorkerReturned(1, rank, before),
            ev.WorkerStopped(1, rank, True, before),
        ):
            assert self.tell(event) == [], f"{event} of a process whose rank {self._process_of(rank)} has"
        assert self.state == state, "what such a process says has changed something"

    def _stand_by(self) -> None:
        """A standby comes to where it waits, or ends; its end may not be heard of before it is told to take a rank."""
        if not self.standbys:
            return
        number = self.random.choice(sorted(self.standbys))
        if self.standbys[number] == "lost":
            del self.standbys[number]
            self.gone.add(number)
            self.tell(ev.StandbyLost(1, number, "it was killed"))
        elif self.random.random() < 0.2:
            self.standbys[number] = "lost"
        elif self.standbys[number] == "starting":
            self.standbys[number] = "ready"
            self.tell(ev.StandbyReady(1, number, self.random.choice(("node", "node", "other"))))
        elif timers.STANDBY in self.timers:
            self.timers.discard(timers.STANDBY)
            self.tell(ev.TimerFired(timers.STANDBY))

    def _take(self, command: do.ReplaceRank) -> None:
        """A process for the rank. One that was lost before it heard of that says so, and is no process for it."""
        self.promoted.append(command.standby)
        assert command.standby not in self.gone, f"{command}, which is gone"
        if self.standbys.get(command.standby) != "lost":
            self.standbys.pop(command.standby, None)
            self.gone.add(command.standby)
            self.joining.add(command.rank)
            self.used += 1

    def _rare(self) -> None:
        what = self.random.random()
        if what < 0.1:
            self._kill(NODE_LOST)
        elif what < 0.3 and self.waiting:
            self._lose(self.random.randrange(self.size), RAISED)
        elif what < 0.35:
            self.tell(ev.StopAsked(grace_s=self.random.choice((0.0, 15.0))))
        elif what < 0.4:
            rank = self.random.randrange(self.size)
            self.tell(ev.WorkerReturned(1, rank, self._process_of(rank)))
        elif what < 0.5 and timers.REGROUP in self.timers:
            self._let_time_pass()

    def _let_time_pass(self) -> None:
        if not self.over and timers.REGROUP in self.timers:
            self.timers.discard(timers.REGROUP)
            self.tell(ev.TimerFired(timers.REGROUP))
            is_waited_for = timers.REGROUP in self.timers or not self.waiting
            assert self.over or is_waited_for, "ranks wait, and nothing is waited for"

    # What the core does about it

    def tell(self, event: ev.Event) -> list[do.Command]:
        done: list[do.Command] = []
        self.promoted: list[int] = []
        self._step(event, done)
        for command in done:
            if isinstance(command, do.SetTimer):
                self.timers.add(command.timer)
            elif isinstance(command, do.CancelTimer):
                self.timers.discard(command.timer)
            elif isinstance(command, do.RegroupRanks):
                self._judge_answer(command)
            elif isinstance(command, do.StopAttempt):
                self.over = True
            elif isinstance(command, do.ReplaceRank):
                self._take(command) if command.standby else self.joining.add(command.rank)
            elif isinstance(command, do.StartStandby):
                assert command.number not in self.standbys, f"{command} twice"
                assert self.armed == set(range(self.size)), "a standby before all ranks can wait for one"
                self.standbys[command.number] = "starting"
                living = [number for number, how in self.standbys.items() if how != "lost"]
                assert len(living) <= self.wanted, f"{living}, and {self.wanted} were wanted"
        self._judge()
        return done

    def _step(self, event: ev.Event, done: list[do.Command]) -> None:
        assert not (self.over and isinstance(event, ev.Regrouped)), "an attempt that ends is formed again"
        if event.durable:
            self.shadow = replay(self.shadow, event)
        self.state, commands, _ = step(self.state, event, 0.0)
        for command in commands:
            if isinstance(command, do.Decide):
                decided = command.event
                if isinstance(decided, ev.WorkerFailed):  # as the kernel does
                    decided = regrouping.judged(self.state, decided)
                    self.counted += self.state.durable.is_undecided and not decided.follows
                    self.lost_since.add(decided.rank)
                    if decided.live:
                        self.waiting.discard(decided.rank)
                        self.armed.discard(decided.rank)
                        self.joined.discard(decided.rank)
                self._step(decided, done)
            else:
                done.append(command)

    def _judge_answer(self, command: do.RegroupRanks) -> None:
        self.answers += 1
        everybody = set(range(self.size))
        assert self.waiting == everybody, f"only {self.waiting} wait"
        assert set(command.replaced) == self.lost_since
        survivors = everybody - self.lost_since
        newest = max(self.steps[rank] for rank in survivors)
        assert command.source in survivors
        assert self.steps[command.source] == newest, f"{command} with {self.steps}"
        self.steps = [newest] * self.size
        self.joined |= self.lost_since
        self.waiting, self.lost_since = set(), set()

    def _judge(self) -> None:
        durable, attempt = self.state.durable, self.state.attempt
        assert durable == self.shadow, f"live {durable}, replayed {self.shadow}"
        assert durable.spent.get("failures", 0) == self.counted, f"{durable.spent}, not {self.counted}"
        spent = 0 <= durable.spec.max_failures < self.counted
        assert (durable.verdict is Verdict.FAIL) == spent or durable.verdict is Verdict.STOP
        if self.over:
            assert self.state.phase is not Phase.RUNNING
            assert timers.REGROUP not in self.timers, "an attempt that has ended is waited for"
            return
        assert attempt is not None
        regroup = attempt.regroup
        assert regroup is None or timers.REGROUP in self.timers, "ranks wait without an end"
        assert regroup is None or set(regroup.asked) <= self.waiting, f"{regroup} waits for the dead"
        dead = [rank for rank, known in enumerate(attempt.ranks) if known.status is RankStatus.DEAD]
        assert not dead, f"the attempt lives without rank {dead}"
        self._judge_standbys()

    def _judge_standbys(self) -> None:
        """A rank that is replaced has a process, or one of which it will be heard that it has not."""
        attempt = self.state.attempt
        assert attempt is not None
        taken = {one.rank for number, one in attempt.standbys.items() if self.standbys.get(number) == "lost"}
        missing = self.lost_since - self.joining - self.waiting - taken
        assert attempt.regroup is None or not missing, f"no process for rank {missing}"
        living = {number for number, how in self.standbys.items() if how != "lost"}
        assert set(attempt.standbys) >= living, f"{living} live, {attempt.standbys} are known"


def explore(seeds: range, events: int = 40) -> int:
    """Tell stories; returns how often an attempt was formed again. Raises AssertionError with the seed."""
    answers = used = 0
    for seed in seeds:
        try:
            story = RegroupStory(seed)
            story.play(events)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        answers += story.answers
        used += story.used
    assert used > len(seeds) // 30, f"only {used} standbys were used"
    return answers
