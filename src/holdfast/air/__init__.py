"""What older scripts from Ray import from ``ray.air``."""

from __future__ import annotations

from holdfast.train import CheckpointConfig as CheckpointConfig
from holdfast.train import FailureConfig as FailureConfig
from holdfast.train import Result as Result
from holdfast.train import RunConfig as RunConfig
from holdfast.train import ScalingConfig as ScalingConfig
