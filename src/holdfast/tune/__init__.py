"""The names that a tuning script imports. Names, arguments and defaults are those of Ray Tune; docs/moving-from-ray.md
lists the differences."""

from holdfast.errors import TuneError
from holdfast.trackers.trial_callback import Callback
from holdfast.train import (
    Checkpoint,
    CheckpointConfig,
    FailureConfig,
    Result,
    RunConfig,
    SyncConfig,
)
from holdfast.tune.analysis import ExperimentAnalysis
from holdfast.tune.context import TuneContext, get_checkpoint, get_context, report
from holdfast.tune.experiment.experiment_argument import Experiment
from holdfast.tune.progress_reporter import CLIReporter, JupyterNotebookReporter, ProgressReporter
from holdfast.tune.registry import register_env, register_trainable
from holdfast.tune.result_grid import ResultGrid
from holdfast.tune.schedulers import create_scheduler
from holdfast.tune.search import create_searcher
from holdfast.tune.search_space import (
    choice,
    grid_search,
    lograndint,
    loguniform,
    qlograndint,
    qloguniform,
    qrandint,
    qrandn,
    quniform,
    randint,
    randn,
    sample_from,
    uniform,
)
from holdfast.tune.stopper import Stopper
from holdfast.tune.trainable import PlacementGroupFactory, Trainable, with_parameters, with_resources
from holdfast.tune.tune import run, run_experiments
from holdfast.tune.tune_config import ResumeConfig, TuneConfig
from holdfast.tune.tuner import Tuner

from . import ray_paths as _ray_paths  # noqa: F401  imported for what it does

__all__ = [
    "CLIReporter",
    "Callback",
    "Checkpoint",
    "CheckpointConfig",
    "Experiment",
    "ExperimentAnalysis",
    "FailureConfig",
    "JupyterNotebookReporter",
    "PlacementGroupFactory",
    "ProgressReporter",
    "Result",
    "ResultGrid",
    "ResumeConfig",
    "RunConfig",
    "Stopper",
    "SyncConfig",
    "Trainable",
    "TuneConfig",
    "TuneContext",
    "TuneError",
    "Tuner",
    "choice",
    "create_scheduler",
    "create_searcher",
    "get_checkpoint",
    "get_context",
    "grid_search",
    "lograndint",
    "loguniform",
    "qlograndint",
    "qloguniform",
    "qrandint",
    "qrandn",
    "quniform",
    "randint",
    "randn",
    "register_env",
    "register_trainable",
    "report",
    "run",
    "run_experiments",
    "sample_from",
    "uniform",
    "with_parameters",
    "with_resources",
]
