"""From a searcher's suggestion to the config of a trial."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.tune.space.tree import Path, slashed, substituted, unresolved


def complete(param_space: Mapping[str, Any], suggestion: Mapping[str, Any]) -> dict[str, Any]:
    """The whole config: the suggestion, and the constants of ``param_space`` around it."""
    config: dict[str, Any] = substituted(_merged(param_space, suggestion), {})
    left = unresolved(config)
    if left:
        raise ValueError(
            f"The searcher suggests no value for {slashed(left[0])!r}, which param_space leaves to be searched; "
            "leave it out of param_space or add it to the searcher's own space"
        )
    return config


def searched(param_space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a trial's config that was searched, by flat names such as "optimizer/lr"."""
    found = ((path, _at(config, path)) for path in unresolved(dict(param_space)))
    return {slashed(path): value for path, value in found if value is not _MISSING}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        under = below.get(key)
        merged[key] = _merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _at(node: Any, path: Path) -> Any:
    for key in path:
        try:
            node = node[key]
        except (KeyError, IndexError, TypeError):
            return _MISSING
    return node


_MISSING = object()
