"""The configurations of an experiment, in order: first the points that were asked for, then sample after sample.

Each sample goes through the whole grid. The grids are sorted by their paths, and the first varies fastest.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .domains import Categorical, Domain, RandomSource, RandomState, source_of
from .resolve import Drawing, GridPendingError
from .tree import Path, grid_values, grids, is_grid, leaves, slashed, sort_key, substituted

_NOT_FOR_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")


class Variant(NamedTuple):
    config: dict[str, Any]
    resolved: dict[Path, Any]  # drawn values and grid values, by path


def generate(
    space: Mapping[str, Any],
    num_samples: int = 1,
    *,
    points_to_evaluate: Sequence[Mapping[str, Any]] = (),
    constant_grid_search: bool = False,
    random_state: RandomState = None,
) -> Iterator[Variant]:
    """All variants; endless for ``num_samples=-1``. Each point replaces one sample.

    With ``constant_grid_search``, drawn values that depend on no grid stay the same throughout one sample's grid.
    """
    checked, source = _checked(space), source_of(random_state)
    points = [_with_point(checked, point, number) for number, point in enumerate(points_to_evaluate)]
    left = itertools.count() if num_samples < 0 else range(num_samples - len(points))
    return itertools.chain.from_iterable(
        _sample(tree, source, constant_grid_search) for tree in itertools.chain(points, (checked for _ in left))
    )


def count_variants(
    space: Mapping[str, Any], num_samples: int = 1, points_to_evaluate: Sequence[Mapping[str, Any]] = ()
) -> float:
    """How many variants there will be: a whole number, or infinity for ``num_samples=-1``."""
    checked = _checked(space)
    points = [_with_point(checked, point, number) for number, point in enumerate(points_to_evaluate)]
    if num_samples < 0:
        return math.inf
    return sum(map(_grid_size, points)) + max(0, num_samples - len(points)) * _grid_size(checked)


def _checked(space: Any) -> dict[str, Any]:
    if not isinstance(space, Mapping):
        raise TypeError(f"param_space={space!r}: pass a dict")
    return dict(space)


def _grid_size(tree: Any) -> int:
    return math.prod(sum(map(_grid_size, values)) for _, values in grids(tree))


def _sample(tree: Any, source: RandomSource, constant: bool) -> Iterator[Variant]:
    held = {}
    if constant:
        first = Drawing(tree, source)
        first.draw_without_grids()
        held = first.drawn
    return _expanded(tree, source, held, {})


def _expanded(tree: Any, source: RandomSource, held: dict[Path, Any], known: dict[Path, Any]) -> Iterator[Variant]:
    axes = grids(tree)
    if axes:
        paths = [path for path, _ in axes]
        for point in itertools.product(*(values for _, values in reversed(axes))):
            values = dict(zip(paths, reversed(point), strict=True))
            yield from _expanded(substituted(tree, values), source, held, {**known, **values})
        return
    drawing = Drawing(tree, source, held)
    try:
        config = drawing.draw_all()
    except GridPendingError as error:
        raise ValueError(f"{error}; a function cannot read it") from None
    resolved = {**known, **drawing.drawn}
    if grids(config):
        yield from _expanded(config, source, held, resolved)
    else:
        yield Variant(config, {path: _at(config, path) for path in resolved})


def _at(config: Any, path: Path) -> Any:
    for key in path:
        config = config[key]
    return config


def _with_point(space: dict[str, Any], point: Any, number: int) -> Any:
    if not isinstance(point, Mapping):
        raise TypeError(f"points_to_evaluate[{number}]={point!r}: pass a dict")
    return substituted(space, dict(_overlaid(space, point, (), f"points_to_evaluate[{number}]")))


def _overlaid(node: Any, value: Any, path: Path, argument: str) -> Iterator[tuple[Path, Any]]:
    """The paths of the space at which the point says what to take, and what."""
    if isinstance(node, dict) and isinstance(value, Mapping) and not is_grid(node):
        for key, item in value.items():
            if key not in node:
                raise ValueError(f"{argument}: {slashed((*path, key))!r} is not in param_space; add it there")
            yield from _overlaid(node[key], item, (*path, key), argument)
        return
    if isinstance(node, (list, tuple)) and isinstance(value, (list, tuple)) and len(node) == len(value):
        for position, item in enumerate(value):
            yield from _overlaid(node[position], item, (*path, position), argument)
        return
    domain = Categorical(grid_values(node)) if is_grid(node) else node
    fits = domain.is_valid(value) if isinstance(domain, Domain) else Categorical((domain,)).is_valid(value)
    if not fits:
        warnings.warn(f"{argument}: {slashed(path)!r} is {value!r}, and param_space says {domain!r}", stacklevel=3)
    yield path, value


def flatten(resolved: Mapping[Path, Any]) -> dict[str, Any]:
    """The resolved values by names such as "model/lr"."""
    return {slashed(path): value for path, value in resolved.items()}


def format_vars(resolved_vars: Mapping[Path, Any]) -> str:
    """A tag for a trial that is fit for the name of a directory: ``lr=0.0100,layers=2``."""
    ordered = sorted(resolved_vars.items(), key=lambda item: sort_key(item[0]))
    return ",".join(f"{_clean(path[-1])}={_clean(value)}" for path, value in ordered)


def _clean(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else _NOT_FOR_NAMES.sub("_", str(value)).strip("_")


def flat_keys(space: Mapping[str, Any]) -> list[str]:
    """The names of all parameters of a space, as far as they are known before drawing."""
    return [slashed(path) for path, _ in leaves(dict(space)) if path]


def describe(node: Any) -> Any:
    """The space as JSON, for people and for comparison. What JSON cannot hold is described by its type or name."""
    if isinstance(node, Domain):
        return {key: describe(value) for key, value in node.describe().items()}
    if isinstance(node, Mapping):
        return {str(key): describe(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [describe(item) for item in node]
    if node is None or isinstance(node, (bool, int, str)):
        return node
    if isinstance(node, float):
        return float(node) if math.isfinite(node) else str(node)
    return _described_object(node)


def _described_object(node: Any) -> Any:
    item = getattr(node, "item", None)  # of numpy's and torch's scalars
    if callable(item):
        try:
            return describe(item())
        except (TypeError, ValueError, RuntimeError):
            pass
    named = node if hasattr(node, "__qualname__") else type(node)
    return {"object": f"{named.__module__}.{named.__qualname__}"}
