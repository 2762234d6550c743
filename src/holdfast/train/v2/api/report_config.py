"""How a report is uploaded and read, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.train.reported import CheckpointConsistencyMode as CheckpointConsistencyMode
from holdfast.train.reported import CheckpointUploadMode as CheckpointUploadMode
