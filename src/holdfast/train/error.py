"""Errors of training, under the path that scripts from Ray import them from."""

from __future__ import annotations

from holdfast.worker.session import SessionMisuseError as SessionMisuseError
