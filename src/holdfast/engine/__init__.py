"""Where processes live. The local engine is embedded and the default; on clusters it is Ray."""

from __future__ import annotations

from typing import Any

from .demand import Demand


def choose(engine: Any, in_process: bool, demand: Demand | None = None) -> Any:
    """The engine that a setting names, or the one that was passed. ``demand``: the run's request to a cluster."""
    if in_process:
        from holdfast.engine.local.in_process import InProcessEngine

        return InProcessEngine()
    if engine == "local":
        from holdfast.engine.local.local_engine import LocalEngine

        return LocalEngine()
    if engine == "ray":
        from holdfast.engine.ray.ray_engine import RayEngine

        return RayEngine(demand or Demand())
    if isinstance(engine, str):
        raise ValueError(f'engine={engine!r}: use "local" or "ray"')
    return engine
