"""References to shared objects in spaces and configs. They mean nothing in a later session, and so are never stored:
the space has to be passed again, with new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.objects.object_refs import ObjectLostError, ObjectRef, exists
from holdfast.tune.space.domains import Categorical
from holdfast.tune.space.tree import Path, slashed


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


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, (list, tuple)):
        yield from enumerate(node)
    elif isinstance(node, Categorical):
        yield from enumerate(node.categories)
