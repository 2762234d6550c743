"""References to shared objects in spaces and configs. They mean nothing in a later session, and so are never stored:
the space has to be passed again, with new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.objects.object_refs import ObjectLostError, ObjectRef, exists
from holdfast.train.ray_data import is_ray_data
from holdfast.train.trainer import DataParallelTrainer
from holdfast.tune.space.domains import Categorical
from holdfast.tune.space.tree import Path, slashed


def find_refs(tree: Any, path: Path = ()) -> list[tuple[Path, ObjectRef]]:
    """The references in a space or a config and where they are, also in grids and choices."""
    if isinstance(tree, ObjectRef):
        return [(path, tree)]
    return [found for key, child in _children(tree) for found in find_refs(child, (*path, key))]


def check_refs(tree: Any, what: str = "param_space") -> None:
    """Reject references to lost objects."""
    lost = [slashed(path) for path, ref in find_refs(tree) if not exists(ref)]
    if lost:
        raise ObjectLostError(
            f"{what} refers to objects that are lost, as their session has ended: {', '.join(lost)}. Put them again "
            f"with holdfast.put(), and pass {what} with the new references"
        )


def check_ray_data(trainable: Any, space: Any, on_ray: bool) -> None:
    """Refuse datasets of Ray Data if no worker could read them."""
    if on_ray:
        return
    datasets = {"datasets": trainable.datasets} if isinstance(trainable, DataParallelTrainer) else {}
    own = getattr(trainable, "parameters", ())
    given = {name: value for parameters in own for name, value in parameters.refs.items()}
    for path in [*_ray_data(space), *_ray_data(datasets), *_ray_data(given)]:
        raise ValueError(
            f"{slashed(path)} is a dataset of Ray Data, which trials cannot read on this engine. Set "
            'RunConfig(engine="ray"), or use holdfast.data, which reads the same files on both engines.'
        )


def _ray_data(tree: Any, path: Path = ()) -> list[Path]:
    if is_ray_data(tree):
        return [path]
    return [found for key, child in _children(tree) for found in _ray_data(child, (*path, key))]


def _children(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, Mapping):
        yield from node.items()
    elif isinstance(node, (list, tuple)):
        yield from enumerate(node)
    elif isinstance(node, Categorical):
        yield from enumerate(node.categories)
