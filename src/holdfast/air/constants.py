"""The names that results and their files have, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.train.data import TRAIN_DATASET_KEY as TRAIN_DATASET_KEY

TRAINING_ITERATION, TIMESTAMP, TIME_THIS_ITER_S = "training_iteration", "timestamp", "time_this_iter_s"
EXPR_PARAM_FILE, EXPR_PROGRESS_FILE, EXPR_RESULT_FILE = "params.json", "progress.csv", "result.json"
EXPR_ERROR_FILE = "error.txt"
EXPR_PARAM_PICKLE_FILE, EXPR_ERROR_PICKLE_FILE = "params.pkl", "error.pkl"  # never written: nothing is pickled
EVALUATION_DATASET_KEY, MODEL_KEY, PREPROCESSOR_KEY = "evaluation", "model", "_preprocessor"
TENSOR_COLUMN_NAME = "__value__"
