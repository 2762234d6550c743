"""Wrappers of a trainable, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.tune.trainable import with_parameters as with_parameters
from holdfast.tune.trainable import with_resources as with_resources
