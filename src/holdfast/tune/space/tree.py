"""A search space is a tree of dicts, lists and tuples. Its parts are addressed by paths: ("model", "layers", 0).

Trees are never changed: a changed tree is built new, and shares only leaves with the original.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .domains import Domain, categories_of

Path = tuple[Any, ...]


def is_grid(node: Any) -> bool:
    return isinstance(node, dict) and len(node) == 1 and "grid_search" in node


def grid_values(node: Any) -> tuple[Any, ...]:
    return categories_of("grid_search(values", node["grid_search"])


def children(node: Any) -> Iterator[tuple[Any, Any]]:
    """The keys and nodes right below; none below a leaf, a domain or a grid."""
    if isinstance(node, dict) and not is_grid(node):
        yield from node.items()
    elif isinstance(node, (list, tuple)):
        yield from enumerate(node)


def leaves(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything without children, in the order of the tree. An empty dict or list is a leaf too."""
    below = False
    for key, child in children(node):
        below = True
        yield from leaves(child, (*path, key))
    if not below:
        yield path, node


def domains(tree: Any) -> list[tuple[Path, Domain]]:
    return [(path, leaf) for path, leaf in leaves(tree) if isinstance(leaf, Domain)]


def grids(tree: Any) -> list[tuple[Path, tuple[Any, ...]]]:
    """The grids by their sorted paths, which is the order in which they vary, the first one fastest."""
    found = [(path, grid_values(leaf)) for path, leaf in leaves(tree) if is_grid(leaf)]
    return sorted(found, key=lambda grid: sort_key(grid[0]))


def unresolved(space: Any) -> list[Path]:
    """The paths of all domains and grids that have no value yet."""
    return [path for path, leaf in leaves(space) if isinstance(leaf, Domain) or is_grid(leaf)]


def substituted(node: Any, values: Mapping[Path, Any], path: Path = ()) -> Any:
    """The tree with the values at their paths; values may be trees in which others of the values have their place."""
    if path in values:
        node = values[path]
    if is_grid(node):
        return node
    if isinstance(node, dict):
        return {key: substituted(child, values, (*path, key)) for key, child in node.items()}
    if isinstance(node, (list, tuple)):
        items = [substituted(child, values, (*path, position)) for position, child in enumerate(node)]
        if isinstance(node, list):
            return items
        return type(node)(*items) if hasattr(node, "_fields") else tuple(items)
    return node


def sort_key(path: Path) -> list[tuple[bool, Any]]:
    """Sorts numbers, which are positions in lists, before all other keys, which are compared as text."""
    return [(not isinstance(key, int), key if isinstance(key, int) else str(key)) for key in path]


def slashed(path: Path) -> str:
    return "/".join(map(str, path))
