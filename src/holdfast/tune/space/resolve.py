"""Draws one configuration: every domain once, each after its dependencies.

A function reads the configuration through a view that draws values on access. So the order is always right, each
function is called once, and a cycle is found where it closes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

from .domains import Domain, RandomSource
from .tree import Path, domains, is_grid, slashed, substituted


class DependencyCycleError(ValueError):
    """Functions of ``sample_from`` wait for each other."""


class GridPendingError(Exception):
    """A function reads a value of a grid that has no value yet."""


class Drawing:
    """One pass through the space. ``held`` are values that were drawn before and are kept."""

    def __init__(self, space: Any, source: RandomSource, held: Mapping[Path, Any] | None = None) -> None:
        self._space = space
        self._source = source
        self._under_way: list[Path] = []
        self.drawn: dict[Path, Any] = dict(held or {})

    def draw_all(self) -> Any:
        """The configuration, with everything drawn."""
        for path, domain in domains(self._space):
            self.draw(path, domain)
        return substituted(self._space, self.drawn)

    def draw_without_grids(self) -> None:
        """Draw everything that does not depend on a grid."""
        for path, domain in domains(self._space):
            try:
                self.draw(path, domain)
            except GridPendingError:
                continue

    def draw(self, path: Path, domain: Domain) -> Any:
        if path in self.drawn:
            return self.drawn[path]
        if path in self._under_way:
            chain = [*self._under_way[self._under_way.index(path) :], path]
            names = " -> ".join(map(slashed, chain))
            raise DependencyCycleError(f"sample_from: {names} depend on each other; remove one of these dependencies")
        self._under_way.append(path)
        try:
            value = self._call(path, domain)
        finally:
            self._under_way.pop()
        self.drawn[path] = value
        for below, nested in domains(value):
            self.draw((*path, *below), nested)
        return value

    def _call(self, path: Path, domain: Domain) -> Any:
        value: Any = domain
        try:
            while isinstance(value, Domain):  # a function may return a domain
                value = value.draw(self._source, ConfigView(self, (), self._space, is_root=True))
        except (DependencyCycleError, GridPendingError):
            raise
        except Exception as error:
            raise ValueError(f"param_space: {slashed(path)!r} could not be drawn: {error!r}") from error
        return substituted(value, {})  # values shown by a view now belong to the caller

    def look(self, path: Path, node: Any) -> Any:
        """A node as a function sees it."""
        if isinstance(node, Domain):
            node = self.draw(path, node)
        if is_grid(node):
            raise GridPendingError(f"sample_from: {slashed(path)!r} is a grid_search inside a value that is drawn")
        if isinstance(node, dict):
            return ConfigView(self, path, node)
        if isinstance(node, (list, tuple)):
            return ListView(self, path, node)
        return node


class ConfigView(dict[str, Any]):
    """A dict that draws values on access. Its root also answers to ``spec.config``, an older way to write it."""

    def __init__(self, drawing: Drawing, path: Path, node: dict[str, Any], is_root: bool = False) -> None:
        super().__init__(node)
        self.__dict__.update(_drawing=drawing, _path=path, _is_root=is_root)

    def __getitem__(self, key: str) -> Any:
        if key in self:
            return self._drawing.look((*self._path, key), super().__getitem__(key))
        if key == "config" and self._is_root:
            return ConfigView(self._drawing, self._path, dict(super().items()))
        raise KeyError(key)

    def __getattr__(self, name: str) -> Any:
        if name == "config" and self._is_root:
            return ConfigView(self._drawing, self._path, dict(super().items()))
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[str]:  # that it is ours keeps dict(view) and **view from going past __getitem__
        return super().__iter__()

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return substituted(self, {})

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()

    def __eq__(self, other: object) -> bool:
        return self.copy() == other

    __hash__ = None


class ListView(list[Any]):
    """A list, or a tuple, that draws values on access."""

    def __init__(self, drawing: Drawing, path: Path, node: Iterable[Any]) -> None:
        super().__init__(node)
        self._drawing = drawing
        self._path = path

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        if isinstance(key, slice):
            return [self[position] for position in range(*key.indices(len(self)))]
        position = range(len(self))[key]
        return self._drawing.look((*self._path, position), super().__getitem__(position))

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, (list, tuple)) else other)

    __hash__ = None
