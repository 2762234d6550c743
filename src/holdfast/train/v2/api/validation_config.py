"""How checkpoints are validated, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.train.validation import ValidationConfig as ValidationConfig
from holdfast.train.validation import ValidationFn as ValidationFn
from holdfast.train.validation import ValidationTaskConfig as ValidationTaskConfig
