"""The names that results and their files have, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.core.metric_names import TRAINING_ITERATION
from holdfast.tune.result_metrics import AUTO_KEYS, DEFAULT_METRIC

DONE = "done"
SHOULD_CHECKPOINT = "should_checkpoint"
HOSTNAME, NODE_IP, PID = "hostname", "node_ip", "pid"
TRIAL_ID, EXPERIMENT_TAG, TRIAL_INFO = "trial_id", "experiment_tag", "__trial_info__"
EPISODE_REWARD_MEAN, EPISODES_THIS_ITER, EPISODES_TOTAL = "episode_reward_mean", "episodes_this_iter", "episodes_total"
MEAN_ACCURACY, MEAN_LOSS = "mean_accuracy", "mean_loss"
TIMESTEPS_THIS_ITER, TIMESTEPS_TOTAL = "timesteps_this_iter", "timesteps_total"
TIMESTAMP, TIME_THIS_ITER_S, TIME_TOTAL_S = "timestamp", "time_this_iter_s", "time_total_s"
CONFIG_PREFIX = "config"
DEFAULT_RESULT_KEYS = (TRAINING_ITERATION, TIME_TOTAL_S, MEAN_ACCURACY, MEAN_LOSS)
DEFAULT_EXPERIMENT_INFO_KEYS = ("trainable_name", EXPERIMENT_TAG, TRIAL_ID)
AUTO_RESULT_KEYS = tuple(sorted(AUTO_KEYS))
EXPR_PARAM_FILE, EXPR_PROGRESS_FILE, EXPR_RESULT_FILE = "params.json", "progress.csv", "result.json"
EXPR_ERROR_FILE = "error.txt"
EXPR_PARAM_PICKLE_FILE, EXPR_ERROR_PICKLE_FILE = "params.pkl", "error.pkl"  # never written: nothing is pickled
DEBUG_METRICS = (TRIAL_ID, "experiment_id", "date", TIMESTAMP, PID, HOSTNAME, NODE_IP, CONFIG_PREFIX)
DEFAULT_EXPERIMENT_NAME = "default"

__all__ = [
    "AUTO_RESULT_KEYS",
    "CONFIG_PREFIX",
    "DEBUG_METRICS",
    "DEFAULT_EXPERIMENT_INFO_KEYS",
    "DEFAULT_EXPERIMENT_NAME",
    "DEFAULT_METRIC",
    "DEFAULT_RESULT_KEYS",
    "DONE",
    "EPISODES_THIS_ITER",
    "EPISODES_TOTAL",
    "EPISODE_REWARD_MEAN",
    "EXPERIMENT_TAG",
    "EXPR_ERROR_FILE",
    "EXPR_ERROR_PICKLE_FILE",
    "EXPR_PARAM_FILE",
    "EXPR_PARAM_PICKLE_FILE",
    "EXPR_PROGRESS_FILE",
    "EXPR_RESULT_FILE",
    "HOSTNAME",
    "MEAN_ACCURACY",
    "MEAN_LOSS",
    "NODE_IP",
    "PID",
    "SHOULD_CHECKPOINT",
    "TIMESTAMP",
    "TIMESTEPS_THIS_ITER",
    "TIMESTEPS_TOTAL",
    "TIME_THIS_ITER_S",
    "TIME_TOTAL_S",
    "TRAINING_ITERATION",
    "TRIAL_ID",
    "TRIAL_INFO",
]
