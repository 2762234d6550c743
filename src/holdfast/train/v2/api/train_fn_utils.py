"""The functions for a train function, under the path from which scripts from Ray import them."""

from __future__ import annotations

from holdfast.train.api import get_all_reported_checkpoints as get_all_reported_checkpoints
from holdfast.train.api import get_checkpoint as get_checkpoint
from holdfast.train.api import get_context as get_context
from holdfast.train.api import get_dataset_shard as get_dataset_shard
from holdfast.train.api import get_preemption_info as get_preemption_info
from holdfast.train.api import report as report
