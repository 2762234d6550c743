"""The error of a failed training, under the path that scripts from Ray import it from."""

from __future__ import annotations

from holdfast.errors import TrainingFailedError as TrainingFailedError
