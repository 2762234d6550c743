"""The import lines of Ray's guides, in our own table: those of Train's and of Tune's guides, examples and API pages.

Each line is Ray's with the root as ``ray``. ``changed`` gives the line that a script has after its root was changed.
"""

from __future__ import annotations

import re

TRAIN = """
import ray.train
import ray.train.collective
import ray.train.huggingface.transformers
import ray.train.lightning
import ray.train.tensorflow
import ray.train.torch
from ray import train
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train import CheckpointConsistencyMode, CheckpointUploadMode
from ray.train import ControllerError, TrainingFailedError, WorkerGroupError
from ray.train import DataConfig
from ray.train import LoggingConfig
from ray.train import PreemptionError, PreemptionInfo
from ray.train import ReportedCheckpoint, ReportedCheckpointStatus
from ray.train import Result
from ray.train import SyncConfig
from ray.train import TrainContext
from ray.train import UserCallback
from ray.train import ValidationConfig, ValidationTaskConfig
from ray.train import get_all_reported_checkpoints
from ray.train import get_checkpoint, get_context, get_dataset_shard, report
from ray.train import get_preemption_info
from ray.train.backend import Backend, BackendConfig
from ray.train.base_trainer import TrainingFailedError
from ray.train.collective import barrier, broadcast_from_rank_zero
from ray.train.constants import TRAIN_DATASET_KEY
from ray.train.context import TrainContext
from ray.train.data_parallel_trainer import DataParallelTrainer
from ray.train.error import SessionMisuseError
from ray.train.huggingface.transformers import RayTrainReportCallback, prepare_trainer
from ray.train.lightgbm import LightGBMTrainer, RayTrainReportCallback
from ray.train.lightgbm import LightGBMConfig
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
from ray.train.lightning import RayDeepSpeedStrategy
from ray.train.lightning import RayFSDPStrategy
from ray.train.tensorflow import TensorflowConfig
from ray.train.tensorflow import TensorflowTrainer
from ray.train.tensorflow import prepare_dataset_shard
from ray.train.tensorflow.keras import ReportCheckpointCallback
from ray.train.torch import TorchConfig
from ray.train.torch import TorchTrainer
from ray.train.torch import enable_reproducibility
from ray.train.torch import get_device, get_devices
from ray.train.torch import prepare_data_loader, prepare_model
from ray.train.torch.config import TorchConfig
from ray.train.torch.torch_trainer import TorchTrainer
from ray.train.torch.train_loop_utils import prepare_data_loader, prepare_model
from ray.train.torch.xla import TorchXLAConfig
from ray.train.v2.api.callback import UserCallback
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError
from ray.train.v2.api.report_config import CheckpointUploadMode
from ray.train.v2.api.result import Result
from ray.train.v2.jax import JaxTrainer
from ray.train.horovod import HorovodConfig, HorovodTrainer
from ray.train.xgboost import RayTrainReportCallback, XGBoostTrainer
from ray.train.xgboost import XGBoostConfig
from ray.air.integrations.mlflow import setup_mlflow
from ray.air.integrations.wandb import setup_wandb
from ray.tune.integration.ray_train import TuneReportCallback
"""

TUNE = """
import ray.tune
import ray.tune.schedulers
import ray.tune.search
from ray import tune
from ray.air.integrations.comet import CometLoggerCallback
from ray.air.integrations.mlflow import MLflowLoggerCallback, setup_mlflow
from ray.air.integrations.wandb import WandbLoggerCallback, setup_wandb
from ray.tune import CLIReporter, JupyterNotebookReporter, ProgressReporter
from ray.tune import Callback
from ray.tune import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, SyncConfig, TuneConfig, Tuner
from ray.tune import Experiment, ExperimentAnalysis, run, run_experiments
from ray.tune import PlacementGroupFactory
from ray.tune import ResultGrid
from ray.tune import ResumeConfig
from ray.tune import Stopper
from ray.tune import Trainable, register_trainable, with_parameters, with_resources
from ray.tune.analysis import ExperimentAnalysis
from ray.tune.callback import Callback
from ray.tune.error import TuneError
from ray.tune.execution.placement_groups import PlacementGroupFactory
from ray.tune.experiment import Trial
from ray.tune.experiment.trial import Trial
from ray.tune.integration.keras import TuneReportCheckpointCallback
from ray.tune.integration.lightgbm import TuneReportCheckpointCallback
from ray.tune.integration.pytorch_lightning import TuneReportCallback, TuneReportCheckpointCallback
from ray.tune.integration.xgboost import TuneReportCheckpointCallback
from ray.tune.logger import CSVLoggerCallback, JsonLoggerCallback, LoggerCallback, TBXLoggerCallback
from ray.tune.logger.aim import AimLoggerCallback
from ray.tune.progress_reporter import CLIReporter
from ray.tune.registry import register_env
from ray.tune.result_grid import ResultGrid
from ray.tune.schedulers import ASHAScheduler, AsyncHyperBandScheduler
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.schedulers import HyperBandScheduler
from ray.tune.schedulers import MedianStoppingRule
from ray.tune.schedulers import PopulationBasedTraining, PopulationBasedTrainingReplay
from ray.tune.schedulers import ResourceChangingScheduler
from ray.tune.schedulers import create_scheduler
from ray.tune.schedulers.async_hyperband import ASHAScheduler
from ray.tune.schedulers.hb_bohb import HyperBandForBOHB
from ray.tune.schedulers.hyperband import HyperBandScheduler
from ray.tune.schedulers.pb2 import PB2
from ray.tune.schedulers.pbt import PopulationBasedTraining
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources, ResourceChangingScheduler
from ray.tune.schedulers.trial_scheduler import TrialScheduler
from ray.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from ray.tune.search.ax import AxSearch
from ray.tune.search.basic_variant import BasicVariantGenerator
from ray.tune.search.bayesopt import BayesOptSearch
from ray.tune.search.bohb import TuneBOHB
from ray.tune.search.hyperopt import HyperOptSearch
from ray.tune.search.nevergrad import NevergradSearch
from ray.tune.search.optuna import OptunaSearch
from ray.tune.search.sample import Categorical, Domain, Float, Integer
from ray.tune.search.searcher import Searcher
from ray.tune.search.zoopt import ZOOptSearch
from ray.tune.stopper import CombinedStopper, ExperimentPlateauStopper, FunctionStopper, MaximumIterationStopper
from ray.tune.stopper import TimeoutStopper, TrialPlateauStopper
from ray.tune.trainable import Trainable
from ray.tune.trainable.util import with_parameters
from ray.tune.tune_config import TuneConfig
from ray.tune.tuner import Tuner
from ray.tune.utils import validate_save_restore
"""

# Others of the pages below doc/source/train and doc/source/tune that were read in the stored copies of Ray's repository
MORE = """
import ray.data
from ray import air, tune
from ray import cloudpickle as pickle
from ray.air import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.data import DataIterator, Dataset, NodeIdStr
from ray.data.collate_fn import ArrowBatchCollateFn, CollateFn
from ray.train.torch import TorchCheckpoint
from ray.train.v2.api.report_config import CheckpointConsistencyMode, CheckpointUploadMode
from ray.tune import get_checkpoint, get_context, report
from ray.tune.syncer import SyncConfig
"""

NOT_HERE = {
    "from ray.train.torch.xla import TorchXLAConfig": "AWS Trainium and TPUs are not supported",
    "from ray import cloudpickle as pickle": "a copy of cloudpickle: import that",
}


def lines(table: str) -> list[str]:
    return table.strip().splitlines()


def changed(line: str) -> str:
    return re.sub(r"^(import|from) ray\b", r"\1 holdfast", line)
