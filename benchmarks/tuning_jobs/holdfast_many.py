"""Very many trials through the experiment's machine and its journal: what each costs in memory, and whether the rate
holds. Processes are left out: each trial is added, started, reports once and ends."""

import gc
import json
import os
import queue
import sys
import time
from pathlib import Path

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.advance import propose
from holdfast.core.experiment.commands import Journal
from holdfast.driver.storage import DiskStorage
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.tune.experiment.live_experiment import ExperimentSpec, LiveExperiment
from holdfast.tune.experiment.restore import entry_of
from holdfast.tune.experiment.trial_names import TrialNames
from holdfast.tune.experiment.trial_storage import JournalBatch
from holdfast.tune.experiment.user_policy import UserPolicy
from holdfast.tune.schedulers import ASHAScheduler
from holdfast.tune.search import BasicVariantGenerator
from holdfast.tune.search_space import uniform
from holdfast.tune.stopper import NoopStopper


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    storage, count = Path(sys.argv[1]), int(sys.argv[2])
    space = {"x": uniform(0, 1), "y": uniform(0, 1)}
    searcher = BasicVariantGenerator(random_state=0)
    searcher.set_search_properties("loss", "min", space, num_samples=count)
    scheduler = ASHAScheduler("training_iteration", "loss", "min", max_t=10)
    names = TrialNames("many", "trainable")
    policy = UserPolicy(searcher, scheduler, NoopStopper(), space, names, lambda _config: [{"CPU": 1.0}], "loss")
    spec = ExperimentSpec("loss", "min", count, total_resources={"CPU": 2.0})
    experiment = LiveExperiment(spec, Location.parse("storage", storage), policy)
    disk = DiskStorage(RunLayout(storage / "experiment"), queue.SimpleQueue(), None)
    disk.acquire()
    disk.open()
    batch = JournalBatch(disk)
    marks = []

    def take_in(event: ev.Event) -> None:
        written = experiment.apply(event, time.time())[0]
        assert isinstance(written, Journal)
        batch.note([entry_of(written.event, space)])

    began = time.perf_counter()
    for number in range(count):
        if number % (count // 10) == 0:
            marks.append((time.perf_counter() - began, resident()))
        added = propose(experiment.state, policy)
        assert added is not None
        trial = added.trial
        metrics = {"loss": added.config["x"]}
        for event in (added, ev.Started(trial, time.time()), ev.Reported(trial, 1, metrics, None, time.time())):
            take_in(event)
        batch.write()
        ended = ev.Ended(trial)
        take_in(ended)
        batch.write()
        batch.sync_if_due(time.monotonic())
    marks.append((time.perf_counter() - began, resident()))
    disk.close(True)
    disk.release()
    tenth = count / 10
    found = {
        "rate": count / marks[-1][0],
        "first_rate": tenth / (marks[1][0] - marks[0][0]),
        "last_rate": tenth / (marks[-1][0] - marks[-2][0]),
        "bytes_each": (marks[-1][1] - marks[1][1]) / (count - tenth),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
