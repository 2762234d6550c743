"""The definition of an experiment by its script: stored in its record, and rebuilt from that for a restore."""

from __future__ import annotations

import math
import os
import random
import socket
import sys
import uuid
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from holdfast.store.location import Location
from holdfast.train import ray_variables
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.config import CheckpointConfig, FailureConfig, RunConfig
from holdfast.train.scaling_config import ScalingConfig
from holdfast.tune.experiment.same_experiment import keys_of, space_in_words
from holdfast.tune.experiment.stored_definition import NotStorableError, described, made
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler, TrialScheduler
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.searcher import Searcher, taken_by
from holdfast.tune.stopper import Stopper, as_stopper
from holdfast.tune.tune_config import TuneConfig

KIND = "experiment"
_STORED = ("metric", "mode", "num_samples", "max_concurrent_trials")


@dataclass(frozen=True)
class Definition:
    """``prefix`` starts the ids of all trials, ``seed`` is for objects without a seed; both are drawn once.
    ``start_from`` is a checkpoint for every trial's first start; it is not stored."""

    trainable_name: str
    param_space: Mapping[str, Any]
    tune_config: TuneConfig
    run_config: RunConfig
    prefix: str = ""
    seed: int = 0
    start_from: Checkpoint | None = None
    code: str = ""  # the fingerprint of the trainable's

    def drawn(self) -> Definition:
        """``random.seed`` and ``np.random.seed`` before ``fit()`` seed the search, as with Ray Tune."""
        return replace(self, prefix=uuid.uuid4().hex[:8], seed=_drawn_seed())

    @property
    def stopper(self) -> Stopper:
        """Create a new stopper from all criteria that may stop trials."""
        stop = self.run_config.stop
        return as_stopper(stop.fresh() if isinstance(stop, Stopper) else stop, self.tune_config.budget_s)

    def scheduler(self) -> TrialScheduler:
        """Create a new one, to which the journal can be replayed."""
        given = self.tune_config.scheduler
        scheduler: TrialScheduler = FIFOScheduler() if given is None else given.fresh()
        seed = taken_by(scheduler.set_search_properties, {"seed": self.seed})
        scheduler.set_search_properties(self.tune_config.metric, self.tune_config.mode, **seed)
        return scheduler

    def searcher(self) -> Searcher:
        config = self.tune_config
        searcher: Searcher = BasicVariantGenerator() if config.search_alg is None else config.search_alg.fresh()
        spec = {"num_samples": config.num_samples, "seed": self.seed}
        takes = searcher.set_search_properties(
            config.metric, config.mode, self.param_space, **taken_by(searcher.set_search_properties, spec)
        )
        if not takes and isinstance(searcher, BasicVariantGenerator):
            raise ValueError(
                "TuneConfig(search_alg=BasicVariantGenerator(...)) was already used by another experiment. "
                "Create a new one for each."
            )
        return searcher

    @property
    def knows_samples(self) -> bool:
        """Whether all trials can run at any time, because no searcher holds some back."""
        return self.tune_config.search_alg is None

    @property
    def total_samples(self) -> float:
        searcher = self.searcher()
        if isinstance(searcher, BasicVariantGenerator):
            return searcher.total_samples
        samples = self.tune_config.num_samples
        return float("inf") if samples < 0 else samples

    @property
    def _total_trials(self) -> int | None:
        """The number of trials, for readers, which have no searcher to ask; None without a limit."""
        total = self.total_samples
        return int(total) if math.isfinite(total) else None

    @property
    def has_own_directories(self) -> bool:
        """Whether each trial runs in a separate working directory."""
        return self.tune_config.chdir_to_trial_dir and os.environ.get(ray_variables.CHDIR_TO_TRIAL_DIR, "1") != "0"

    @property
    def host(self) -> dict[str, Any]:
        return {"hostname": socket.gethostname(), "node_ip": "127.0.0.1"}

    # Its record

    def identity(self) -> dict[str, Any]:
        config, run = self.tune_config, self.run_config
        parts = {
            "param_space": self.param_space,
            "scheduler": config.scheduler,
            "search_alg": config.search_alg,
            "stop": run.stop,
        }
        stored: dict[str, Any] = {}
        lacking: dict[str, str] = {}
        for name, part in parts.items():
            try:
                stored[name] = described(part, name)
            except NotStorableError as error:
                lacking[name] = error.where
        return {
            "kind": KIND,
            "name": run.name,
            "trainable": self.trainable_name,
            "code": self.code,
            "keys": sorted(keys_of(self.param_space)),
            "space": space_in_words(self.param_space),
            "prefix": self.prefix,
            "seed": self.seed,
            **{name: getattr(config, name) for name in _STORED},
            "total_trials": self._total_trials,
            "time_budget_s": config.budget_s,
            "chdir_to_trial_dir": config.chdir_to_trial_dir,
            "failure": asdict(run.failure_config),
            "checkpoint": asdict(run.checkpoint_config),
            "verbose": run.verbose,
            "engine": run.engine if isinstance(run.engine, str) else None,
            "callbacks": [type(callback).__name__ for callback in run.callbacks],
            "stored": stored,
            "lacking": lacking,
        }


def restored(
    identity: Mapping[str, Any],
    location: Location,
    param_space: Mapping[str, Any] | None,
    tune_config: TuneConfig | None,
    run_config: RunConfig | None,
) -> Definition:
    """The stored definition, with the objects that are passed again. ValueError names what must be passed."""
    stored, lacking = identity["stored"], identity["lacking"]
    if param_space is None:
        if "param_space" in lacking:
            raise ValueError(
                f"Tuner.restore(param_space=...): pass it again; {lacking['param_space']} is an object or a function, "
                "which is not stored"
            )
        param_space = made(stored["param_space"])
    if tune_config is None:
        for name in ("scheduler", "search_alg"):
            if name in lacking:
                raise ValueError(
                    f"Tuner.restore(tune_config=TuneConfig(...)): pass it again; {lacking[name]} cannot be stored"
                )
        tune_config = TuneConfig(
            **{name: identity[name] for name in _STORED},
            time_budget_s=identity["time_budget_s"],
            chdir_to_trial_dir=identity.get("chdir_to_trial_dir", True),
            scheduler=made(stored["scheduler"]),
            search_alg=made(stored["search_alg"]),
        )
    if run_config is None:
        if "stop" in lacking:
            raise ValueError(
                f"Tuner.restore(run_config=RunConfig(stop=...)): pass it again; {lacking['stop']} cannot be stored"
            )
        if identity.get("callbacks"):
            warnings.warn(
                f"Tuner.restore: {', '.join(identity['callbacks'])} are not stored, and are not called unless you "
                f"pass them again with run_config=RunConfig(callbacks=[...])",
                UserWarning,
                stacklevel=4,
            )
        run_config = RunConfig(
            verbose=identity.get("verbose"),
            failure_config=FailureConfig(**identity["failure"]),
            checkpoint_config=CheckpointConfig(**identity["checkpoint"]),
            stop=made(stored["stop"]),
        )
    if run_config.engine is None:
        run_config.engine = identity.get("engine")
    run_config.move_to(location)
    return Definition(identity["trainable"], param_space, tune_config, run_config, identity["prefix"], identity["seed"])


def _drawn_seed() -> int:
    """Draw from a generator that the script may have seeded: numpy's if the script seeded it, otherwise Python's."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and hasattr(numpy, "get_bit_generator") and numpy.get_bit_generator().seed_seq is None:
        return int(numpy.randint(1 << 31))  # a generator that was seeded by hand has no seed sequence
    return random.randrange(1 << 31)


def scaling_of(bundles: list[dict[str, float]]) -> ScalingConfig:
    """The resources of a trial that is one process: it gets the first bundle."""
    head = bundles[0] if bundles else {"CPU": 1.0}
    return ScalingConfig(
        num_workers=1, use_gpu=head.get("GPU", 0) > 0, resources_per_worker={"CPU": head.get("CPU", 0.0), **head}
    )


def is_local_logging_wanted() -> bool:
    return not ray_variables.is_on(ray_variables.NO_DEFAULT_LOGGERS)
