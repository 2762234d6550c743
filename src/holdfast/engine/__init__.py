"""Where processes live. The local engine is embedded and the default."""

from __future__ import annotations

from typing import Any


def choose(engine: Any, in_process: bool) -> Any:
    """The engine that a setting names, or the one that was passed."""
    if in_process:
        from .inprocess import InProcessEngine

        return InProcessEngine()
    if engine == "local":
        from .local import LocalEngine

        return LocalEngine()
    if isinstance(engine, str):
        raise ValueError(f'engine={engine!r}: this version has the engine "local"')
    return engine
