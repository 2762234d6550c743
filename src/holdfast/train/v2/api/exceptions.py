"""Errors of training, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.errors import ControllerError as ControllerError
from holdfast.errors import NCCLHangError as NCCLHangError
from holdfast.errors import PreemptionError as PreemptionError
from holdfast.errors import TrainingFailedError as TrainingFailedError
from holdfast.errors import WorkerGroupError as WorkerGroupError
