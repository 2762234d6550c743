"""Configurations of a search space, under the path and in the terms of scripts and searchers from Ray."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from holdfast.tune.search_space import grid_search
from holdfast.tune.space.domains import Categorical, RandomState
from holdfast.tune.space.resolve import DependencyCycleError as RecursiveDependencyError
from holdfast.tune.space.tree import Path, domains, grids, is_grid, leaves
from holdfast.tune.space.variants import format_vars, generate

__all__ = [
    "RecursiveDependencyError",
    "assign_value",
    "format_vars",
    "generate_variants",
    "grid_search",
    "parse_spec_vars",
    "resolve_nested_dict",
]


def generate_variants(
    unresolved_spec: dict[str, Any], constant_grid_search: bool = False, random_state: RandomState = None
) -> Iterator[tuple[dict[Path, Any], dict[str, Any]]]:
    """Each combination of the grids: the values drawn for it, by path, and the whole configuration."""
    for variant in generate(unresolved_spec, constant_grid_search=constant_grid_search, random_state=random_state):
        yield variant.resolved, variant.config


def parse_spec_vars(
    spec: dict[str, Any],
) -> tuple[list[tuple[Path, Any]], list[tuple[Path, Any]], list[tuple[Path, Any]]]:
    """The paths of a space with its constants, with its domains, and with its grids as ``Categorical``."""
    drawn, gridded = domains(spec), grids(spec)
    unresolved = {path for path, _ in [*drawn, *gridded]}
    constants = [(path, leaf) for path, leaf in leaves(spec) if path not in unresolved and not is_grid(leaf)]
    return constants, list(drawn), [(path, Categorical(values)) for path, values in gridded]


def resolve_nested_dict(nested_dict: dict[str, Any]) -> dict[Path, Any]:
    """The values of a nested dict by their paths."""
    return dict(_by_path(nested_dict, ()))


def _by_path(node: dict[str, Any], path: Path) -> Iterator[tuple[Path, Any]]:
    for key, value in node.items():
        if isinstance(value, dict):
            yield from _by_path(value, (*path, key))
        else:
            yield (*path, key), value


def assign_value(spec: dict[str, Any], path: Path, value: Any) -> None:
    """Put the value at the path, and make the dicts on the way."""
    node: MutableMapping[str, Any] = spec
    for key in path[:-1]:
        node = node.setdefault(key, {}) if isinstance(node, dict) else node[key]
    node[path[-1]] = value
