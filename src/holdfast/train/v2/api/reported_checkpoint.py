"""What ``get_all_reported_checkpoints`` returns, under the path that scripts from Ray import it from."""

from __future__ import annotations

from holdfast.train.reported import ReportedCheckpoint as ReportedCheckpoint
from holdfast.train.reported import ReportedCheckpointStatus as ReportedCheckpointStatus
