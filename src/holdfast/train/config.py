"""The settings of a run. They are checked once, when they are created; accepted values are safe to use everywhere.

Training and tuning share the classes, so an option that only one of them can use is silently accepted here; the
``unused`` module of each warns once when a run gets it.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from typing import Any, ClassVar, Literal

from holdfast import settings, wrapper
from holdfast.core.budgets import SETTINGS
from holdfast.store.layout import check_name
from holdfast.store.location import Location
from holdfast.train.checks import WrongTypeError, check_bool, check_int, check_number, check_type
from holdfast.train.user_callback import UserCallback


@dataclass
class FailureConfig:
    """Retry policy. A count of -1 means no limit.

    ``max_failures`` counts worker failures, and ``max_preemption_failures`` counts preempted nodes. A killed driver
    counts as neither, so ``controller_failure_limit`` and ``relax_collectives_on_preemption`` have no effect.
    ``fail_fast`` stops a tuning experiment at the first failed trial.

    ``hang_timeout_s``: if a worker makes no report for this long, the stacks of all ranks are saved and the attempt
    ends. "auto" learns the limit from the run: ten times the longest pause between two reports so far, and at least a
    minute. ``max_hang_failures`` gives hangs a separate budget; None counts them in ``max_failures``.
    ``max_same_errors`` fails the run early if the same exception occurs at the same report more often than this; 0
    means never.

    ``preemption_grace_s`` is how long workers may continue after a SIGTERM to save a last checkpoint.
    ``snapshot_replicas`` is the number of other nodes that keep a copy of the state that ``TrainState.snapshot()``
    keeps in memory; that many nodes can be lost together. ``backoff_s`` is the pause before a retry without progress
    since the last one; it doubles up to ``max_backoff_s``.
    """

    max_failures: int = 0
    fail_fast: bool | str = False
    controller_failure_limit: int = -1
    max_preemption_failures: int = -1
    relax_collectives_on_preemption: bool = False
    preemption_grace_s: float = 0.0
    hang_timeout_s: float | str | None = None
    backoff_s: float = 0.5
    max_backoff_s: float = 60.0
    max_hang_failures: int | None = None
    max_same_errors: int = 0
    snapshot_replicas: int = 1

    def __post_init__(self) -> None:
        for name in ("controller_failure_limit", *SETTINGS):
            if getattr(self, name) is not None or getattr(FailureConfig, name) is not None:
                check_int(f"FailureConfig({name}", getattr(self, name), least=-1, note=" (-1: without limit)")
        if not isinstance(self.fail_fast, bool) and str(self.fail_fast).lower() != "raise":
            raise ValueError(f'FailureConfig(fail_fast={self.fail_fast!r}): use True, False or "raise"')
        if self.fail_fast and self.max_failures != 0:
            raise ValueError(
                f"FailureConfig(max_failures={self.max_failures}, fail_fast={self.fail_fast!r}): "
                "fail_fast stops at the first error, so leave max_failures at 0 or fail_fast at False"
            )
        check_bool("FailureConfig(relax_collectives_on_preemption", self.relax_collectives_on_preemption)
        check_number("FailureConfig(preemption_grace_s", self.preemption_grace_s, least=0)
        if self.hang_timeout_s is not None and self.hang_timeout_s != "auto":
            check_number("FailureConfig(hang_timeout_s", self.hang_timeout_s, above=0)
        check_int("FailureConfig(max_same_errors", self.max_same_errors, least=0, note=" (0: without limit)")
        check_int("FailureConfig(snapshot_replicas", self.snapshot_replicas, least=0)
        check_number("FailureConfig(backoff_s", self.backoff_s, least=0)
        check_number("FailureConfig(max_backoff_s", self.max_backoff_s, least=self.backoff_s)


@dataclass
class CheckpointConfig:
    """Which checkpoints are kept: the ``num_to_keep`` newest, or the best by ``checkpoint_score_attribute``.

    The latest checkpoint, the best one, and the one that the run resumed from are never deleted.
    ``checkpoint_frequency`` and ``checkpoint_at_end`` are for trainable classes; a train function decides with
    ``report()``. With ``rank_zero_only``, only rank 0 calls ``report()``, and its checkpoint holds the whole state, as
    with DDP. Otherwise a checkpoint is saved when every rank has reported.
    """

    num_to_keep: int | None = None
    checkpoint_score_attribute: str | None = None
    checkpoint_score_order: Literal["max", "min"] = "max"
    checkpoint_frequency: int | None = 0
    checkpoint_at_end: bool | None = None
    rank_zero_only: bool = False

    def __post_init__(self) -> None:
        if self.num_to_keep is not None:
            check_int("CheckpointConfig(num_to_keep", self.num_to_keep, least=1, note=", or None to keep all")
        if self.checkpoint_score_attribute is not None:
            check_type(
                "CheckpointConfig(checkpoint_score_attribute",
                self.checkpoint_score_attribute,
                str,
                "pass the name of a metric that is reported with each checkpoint",
            )
        if self.checkpoint_score_order not in ("max", "min"):
            raise ValueError(
                f'CheckpointConfig(checkpoint_score_order={self.checkpoint_score_order!r}): use "max" or "min"'
            )
        if self.checkpoint_frequency is not None:
            check_int("CheckpointConfig(checkpoint_frequency", self.checkpoint_frequency, least=0)
        if self.checkpoint_at_end is not None:
            check_bool("CheckpointConfig(checkpoint_at_end", self.checkpoint_at_end)
        check_bool("CheckpointConfig(rank_zero_only", self.rank_zero_only)


@dataclass
class SyncConfig:
    """When staged checkpoints are uploaded: at most ``sync_period`` seconds after they were staged, or immediately (0).

    A checkpoint that a newer one replaces before then (``num_to_keep``) is not uploaded. The other options have no
    effect: ``HOLDFAST_STORAGE_PATIENCE_S`` limits the wait for storage, and only files in a checkpoint are kept.
    """

    sync_period: float = 0
    sync_timeout: float = 1800
    sync_artifacts: bool = False
    sync_artifacts_on_checkpoint: bool = True

    def __post_init__(self) -> None:
        check_number("SyncConfig(sync_period", self.sync_period, least=0)
        check_number("SyncConfig(sync_timeout", self.sync_timeout, above=0)
        check_bool("SyncConfig(sync_artifacts", self.sync_artifacts)
        check_bool("SyncConfig(sync_artifacts_on_checkpoint", self.sync_artifacts_on_checkpoint)


@dataclass
class LoggingConfig:
    """The log level of Holdfast's own loggers, those below "holdfast", in the script's process during a run.

    Their output goes where the script's logging sends it. INFO leaves their level as the script has set it.
    """

    log_level: str = "INFO"

    def __post_init__(self) -> None:
        levels = ("NOTSET", "DEBUG", "INFO", "WARN", "WARNING", "ERROR", "FATAL", "CRITICAL")
        if not isinstance(self.log_level, str) or self.log_level.upper() not in levels:
            raise ValueError(f"LoggingConfig(log_level={self.log_level!r}): use one of {', '.join(levels)}")
        self.log_level = self.log_level.upper()

    @property
    def level(self) -> int:
        return int(getattr(logging, self.log_level))

    @contextmanager
    def in_force(self) -> Iterator[None]:
        logger = logging.getLogger("holdfast")
        before = logger.level
        if self != LoggingConfig():
            logger.setLevel(self.level)
        try:
            yield
        finally:
            logger.setLevel(before)


class BackendConfig:
    """What a framework needs around the train function. A subclass overrides ``wrap``, or, as with Ray, ``backend_cls``
    and ``train_func_context``.

    ``essential`` names the modules that are imported before the first worker starts. ``preload`` names those that are
    imported after the first report, for all workers that start later; with ``preload_early``, as soon as several
    workers have entered the train function. A module that cannot be imported is skipped. ``joins_torchrun`` says
    whether ``wrap`` forms the process group if torchrun started the processes.
    """

    essential: ClassVar[tuple[str, ...]] = ()
    preload: ClassVar[tuple[str, ...]] = ()
    preload_early: ClassVar[bool] = False
    joins_torchrun: ClassVar[bool] = False

    def wrap(self, train_fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a picklable callable that workers call instead of ``train_fn``, with the same arguments."""
        from holdfast.train.backend import Backend, InBackend

        if self.backend_cls is Backend and self.train_func_context is nullcontext:
            return train_fn
        return InBackend(self, train_fn)

    @property
    def backend_cls(self) -> type[Any]:
        """The class whose hooks are called around the train function: a ``holdfast.train.backend.Backend``."""
        from holdfast.train.backend import Backend

        return Backend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        """A function that returns the context manager in which the train function is called."""
        return nullcontext

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether an exception of the framework means that memory ran out.

        ``MemoryError`` and its subclasses, and the exceptions of torch, TensorFlow and JAX, are recognized without it.
        """
        return False

    def to_dict(self) -> dict[str, Any]:
        return {}


def unique_name(prefix: str = "train") -> str:
    return f"{prefix}_{datetime.now(timezone.utc):%Y-%m-%d_%H-%M-%S}_{uuid.uuid4().hex[:6]}"


def _default_storage_path() -> str:
    return settings.load().storage_path


@dataclass
class RunConfig:
    """The name, storage and behaviour of a run.

    (storage_path, name) identifies the run: the same pair resumes it. Without a name it gets a unique one.
    ``storage_path`` is a directory or a URL, or a path in ``storage_filesystem``. ``verbose=0`` shows nothing. ``stop``
    and ``progress_reporter`` are for tuning. ``worker_runtime_env={"env_vars": {...}}`` sets environment variables of
    the workers. ``engine`` is "local", "ray" or an engine; None takes the setting's, then the local one. ``preload``
    names modules that workers need and that are slow to import: they are imported once for all workers and all
    restarts. ``fresh=True`` never resumes: if the name is taken, the run is stored as NAME-2, NAME-3 and so on, and the
    existing run is kept. A script that is restarted after a crash then starts over too; to resume it, leave ``fresh``
    out.
    """

    name: str = None  # type: ignore[assignment]  # None: a unique one is made
    storage_path: str | os.PathLike[str] = field(default_factory=_default_storage_path)
    storage_filesystem: Any = None
    failure_config: FailureConfig = field(default_factory=FailureConfig)
    checkpoint_config: CheckpointConfig = field(default_factory=CheckpointConfig)
    callbacks: list[UserCallback] = field(default_factory=list)
    worker_runtime_env: dict[str, Any] = field(default_factory=dict)
    logging_config: LoggingConfig = field(default_factory=LoggingConfig)
    sync_config: SyncConfig = field(default_factory=SyncConfig)
    verbose: int | None = None
    stop: Any = None
    progress_reporter: Any = None
    log_to_file: bool | str | tuple[str, str] = False
    engine: Any = None
    preload: Sequence[str] = ()
    fresh: bool = False

    def __post_init__(self) -> None:
        self._fill_defaults()
        self.chosen_name = self.name  # without the number that a fresh start adds
        self._check_name()
        given = Location.parse("RunConfig(storage_path", self.storage_path, self.storage_filesystem)
        self._storage = wrapper.in_force().storage(given)
        self.storage_path = self._storage.spelled_as(self.storage_path)
        for name, kind in _NESTED.items():
            remedy = f"pass a holdfast.train.{kind.__name__}"
            check_type(f"RunConfig({name}", getattr(self, name), kind, remedy)
        self._check_env()
        self._check_callbacks()
        if isinstance(self.verbose, (bool, Enum)):
            self.verbose = int(self.verbose)
        if self.verbose is not None:
            check_int("RunConfig(verbose", self.verbose, least=0, note=" (0: silent)")
        if self.stop is not None and not isinstance(self.stop, (Mapping, list)) and not callable(self.stop):
            remedy = 'pass a dict, as in {"epoch": 10}, a callable, or a list of stoppers'
            raise WrongTypeError(f"RunConfig(stop={self.stop!r}): {remedy}")
        self._check_log_to_file()
        check_bool("RunConfig(fresh", self.fresh)
        if isinstance(self.preload, str) or not all(isinstance(name, str) for name in self.preload):
            raise TypeError(f'RunConfig(preload={self.preload!r}): pass a list of module names, as in ["transformers"]')

    @property
    def location(self) -> Location:
        """Where this run is stored."""
        return self._storage / self.name

    def move_to(self, location: Location) -> None:
        """Change the configuration to that of the run stored there."""
        self._storage, self.name = location.parent, location.name
        self.storage_path, self.storage_filesystem = str(location.parent), location.filesystem

    def _fill_defaults(self) -> None:
        """An explicit None means the default, as it does in scripts written for Ray."""
        self.has_own_name = bool(self.name)  # else the same script does not find its run again
        self.name = self.name or unique_name()
        self.storage_path = _default_storage_path() if self.storage_path is None else self.storage_path
        for name, kind in _NESTED.items():
            if getattr(self, name) is None:
                setattr(self, name, kind())
        self.callbacks = [] if self.callbacks is None else self.callbacks
        self.worker_runtime_env = {} if self.worker_runtime_env is None else self.worker_runtime_env
        self.preload = () if self.preload is None else self.preload

    def _check_name(self) -> None:
        check_type("RunConfig(name", self.name, str, "pass a str")
        check_name(self.name, "RunConfig(name")

    def _check_env(self) -> None:
        check_type("RunConfig(worker_runtime_env", self.worker_runtime_env, dict, 'pass a dict, as in {"env_vars": …}')
        variables = self.worker_runtime_env.get("env_vars", {})
        if not isinstance(variables, Mapping) or not all(
            isinstance(name, str) and isinstance(value, (str, int, float)) for name, value in variables.items()
        ):  # the value may be a secret, and is not shown
            raise TypeError(
                'RunConfig(worker_runtime_env={"env_vars": …}): pass a dict of strings, as in {"LEVEL": "1"}'
            )

    def _check_callbacks(self) -> None:
        if not isinstance(self.callbacks, (list, tuple)):
            raise WrongTypeError(f"RunConfig(callbacks={self.callbacks!r}): pass a list of holdfast.train.UserCallback")
        for callback in self.callbacks:
            if not hasattr(callback, "on_trial_result"):  # else it is one of tuning's
                remedy = "pass instances of subclasses of holdfast.train.UserCallback, or of tune.Callback for tuning"
                check_type("RunConfig(callbacks", callback, UserCallback, remedy)
        self.callbacks = list(self.callbacks)

    def _check_log_to_file(self) -> None:
        given = self.log_to_file
        pair = isinstance(given, (tuple, list)) and len(given) == 2 and all(isinstance(part, str) for part in given)
        if not pair and not isinstance(given, (bool, str)):
            raise WrongTypeError(f"RunConfig(log_to_file={given!r}): pass True, False, a file name or two of them")


_NESTED: dict[str, type] = {
    "failure_config": FailureConfig,
    "checkpoint_config": CheckpointConfig,
    "logging_config": LoggingConfig,
    "sync_config": SyncConfig,
}
