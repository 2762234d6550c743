"""Errors of tuning, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.errors import TuneError as TuneError
