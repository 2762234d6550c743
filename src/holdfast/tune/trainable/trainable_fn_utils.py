"""What a trainable calls, under the path that scripts from Ray import it from."""

from __future__ import annotations

from holdfast.tune import Checkpoint as Checkpoint
from holdfast.tune import get_checkpoint as get_checkpoint
from holdfast.tune import report as report
