"""References to shared objects in spaces and configs, and how they are written down.

A reference means nothing in a later session. So a journal holds, in its place, which object of which session it was and
where the space had it: ``{"__ref__": {"session": ..., "name": ..., "at": ["model", "grid_search", 0]}}``. When the
space is given again, the same place in it has the reference of today.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from holdfast.tune.space.domains import Categorical
from holdfast.tune.space.tree import Path, slashed
from holdfast.wire.objects.refs import ObjectLostError, ObjectRef, exists, local

MARK = "__ref__"


def find_refs(tree: Any, path: Path = ()) -> list[tuple[Path, ObjectRef]]:
    """The references in a space or a config and where they are, also in grids and choices."""
    if isinstance(tree, ObjectRef):
        return [(path, tree)]
    return [found for key, child in _children(tree) for found in find_refs(child, (*path, key))]


def check_refs(tree: Any, what: str = "param_space") -> None:
    """Refuse references to what is lost."""
    lost = [slashed(path) for path, ref in find_refs(tree) if not exists(ref)]
    if lost:
        raise ObjectLostError(
            f"{what} refers to objects that are lost, as their session has ended: {', '.join(lost)}. Put them again "
            f"with holdfast.put(), and pass {what} with the new references"
        )


def store_refs(tree: Any, space: Any = None) -> Any:
    """The tree with marks for references; ``space`` is where they came from, if that is not the tree itself."""
    places: dict[ObjectRef, list[Path]] = {}
    for path, ref in find_refs(tree if space is None else space):
        places.setdefault(ref, []).append(path)

    def mark(path: Path, leaf: Any) -> Any:
        if not isinstance(leaf, ObjectRef):
            return leaf
        nearest = max(places.get(leaf, []), key=lambda place: _in_common(place, path), default=None)
        return {MARK: {"session": leaf.session, "name": leaf.name, "at": None if nearest is None else list(nearest)}}

    return _mapped(tree, mark)


def load_refs(tree: Any, space: Any = None) -> Any:
    """The tree with what the marks stand for: what ``space`` has at their places. Without a space, the references that
    were there if this is still their session; else an error that says to pass ``param_space`` again."""

    def load(_path: Path, leaf: Any) -> Any:
        if not is_mark(leaf):
            return leaf
        mark = leaf[MARK]
        if space is None or mark["at"] is None:
            return local.find(mark["session"], mark["name"])
        return _at(space, mark["at"])

    return _mapped(tree, load)


def has_marks(tree: Any) -> bool:
    return is_mark(tree) or any(has_marks(child) for _, child in _children(tree))


def is_mark(node: Any) -> bool:
    return isinstance(node, Mapping) and len(node) == 1 and isinstance(node.get(MARK), Mapping)


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, (list, tuple)):
        yield from enumerate(node)
    elif isinstance(node, Categorical):
        yield from enumerate(node.categories)


def _mapped(node: Any, change: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """The tree anew, with its leaves changed; a mark is a leaf. What holds nothing to change stays the same object."""
    children = [] if is_mark(node) else list(_children(node))
    if not children:
        return change(path, node)
    below = [_mapped(child, change, (*path, key)) for key, child in children]
    if all(new is old for new, (_, old) in zip(below, children, strict=True)):
        return node
    if isinstance(node, Mapping):
        return dict(zip(node, below, strict=True))
    if isinstance(node, Categorical):
        return replace(node, categories=tuple(below))
    if isinstance(node, list):
        return below
    return type(node)(*below) if hasattr(node, "_fields") else tuple(below)


def _in_common(place: Path, path: Path) -> int:
    """How many keys two paths begin with alike."""
    alike = 0
    for one, other in zip(place, path, strict=False):
        if one != other:
            break
        alike += 1
    return alike


def _at(space: Any, path: list[Any]) -> Any:
    node = space
    for key in path:
        children = dict(_children(node))
        if key not in children:
            raise ValueError(
                f"param_space has nothing at {slashed(tuple(path))!r}, where it had a reference when the experiment "
                "began: pass it with the same keys, and with as many values"
            )
        node = children[key]
    if isinstance(node, ObjectRef):
        check_refs({slashed(tuple(path)): node})
    return node
