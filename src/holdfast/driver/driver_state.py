"""Everything that a driver knows about its run: the state of the core, and the registries beside it. Only the kernel
changes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.core.run import events as ev
from holdfast.core.run.placement import WorkerNeeds
from holdfast.core.run.state import RankStatus, RunState
from holdfast.core.run.timers import Timer
from holdfast.runs.past import Past
from holdfast.store.layout import RunLayout

from .accounts import Accounts
from .attempts import Attempts
from .effects import Effect, Now, Warn
from .handover_notices import HandoverNotices
from .node_registry import NodeRegistry
from .outbox import Outbox
from .peers import Peers
from .plan import Plan
from .regroups import Regroups
from .reports import ReportBook
from .requests import Requests
from .shard_registry import ShardRegistry
from .site import Site
from .snapshot_registry import SnapshotRegistry
from .stacks import AttemptStacks
from .storage_lag import StorageLag
from .validation_tasks import ValidationTasks
from .verification import Verification


class DriverState:
    def __init__(self, plan: Plan, site: Site, past: Past, epoch: int) -> None:
        self.plan, self.site, self.past, self.epoch = plan, site, past, epoch
        self.run = RunState(past.state)
        self.now = Now(0.0, 0.0)
        self.effects: list[Effect] = []  # the time of the inputs that are being handled
        self.queue: deque[ev.Event] = deque()  # events that the core gets next
        self.timers: dict[Timer | str, float] = {}  # when they are due, by the monotonic clock
        self.values: dict[tuple[int, int], bytes] = {}  # by attempt and process, what those of rank 0 returned
        self.value: bytes | None = None  # of the one that counts
        self.stacks = AttemptStacks()
        layout, emit = RunLayout(site.run_dir), self.emit
        least = plan.spec.min_workers or plan.spec.num_workers
        self.nodes = NodeRegistry(WorkerNeeds(plan.cpus_per_worker, plan.gpus_per_worker, plan.placement, least))
        self.outbox = Outbox(self.nodes, emit, plan.spec.files, site.keeps_files)
        self.validations = ValidationTasks(plan, past, self.outbox)
        self.peers = Peers(self.nodes, self.outbox.send)
        self.attempts = Attempts(self.nodes, self.outbox, site)
        self.shards = ShardRegistry(self.nodes, self.outbox, self.attempts, layout, site)
        self.snapshots = SnapshotRegistry(self.nodes, self.outbox, plan.snapshot_replicas)
        self.book = ReportBook(emit, plan.on_report is not None)
        self.accounts = Accounts(site.log_address)
        self.requests = Requests(self.outbox, emit, self.attempts.node_of, past.validated)
        self.regroups = Regroups(self.outbox)
        self.verification = Verification(self.outbox, self.shards, emit)
        self.handover = HandoverNotices(self.nodes, self.outbox, self.attempts)
        self.lag = StorageLag(site.staging_limit_gb, self.shards.size, site.most_waiting)

    @property
    def emit(self) -> Callable[[Effect], None]:
        return lambda effect: self.effects.append(effect)

    def warn(self, text: str) -> None:
        self.effects.append(Warn(text))

    def note_returned(self, event: ev.WorkerReturned) -> None:
        """It has been stepped. A process whose rank was given to another one has not returned for that rank."""
        run, (attempt_number, number, process) = self.run, (event.attempt_number, event.rank, event.process)
        if attempt_number != run.attempt_number or number >= len(run.ranks):
            return
        if run.ranks[number].status is RankStatus.RETURNED and run.ranks[number].process == process:
            self.book.returned(number)
            if number == 0:
                self.value = self.values.get((attempt_number, process))

    def stored(self) -> set[str]:
        """The ids of the committed checkpoints, including those that were just found."""
        found = (event.record.id for event in self.queue if isinstance(event, ev.Committed))
        return {c.id for c in self.run.checkpoints}.union(found)

    def slots(self) -> int:
        """How many workers fit."""
        return self.nodes.slots_up_to(self.plan.spec.num_workers)

    def tell_of_room(self) -> None:
        if self.site.grows:
            self.queue.append(ev.Capacity(self.slots()))
