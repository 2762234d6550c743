"""Names of environment variables, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.train.ray_variables import HONOURED, TUNE_CALLBACKS

RAY_TUNE_CALLBACKS_ENV_VAR = TUNE_CALLBACKS
TUNE_ENV_VARS = set(HONOURED)  # Ray's variables that have an effect
