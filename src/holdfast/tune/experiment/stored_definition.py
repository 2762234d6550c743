"""What of an experiment's definition goes into its record, and how it comes back.

Plain values are stored as they are; domains, schedulers, searchers and stoppers of Holdfast's own by their class and
arguments. The rest, objects and functions of the user's, is not: where it is needed again it must be passed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from holdfast.store import values
from holdfast.tune import schedulers, search, stopper
from holdfast.tune.recorded import Recorded
from holdfast.tune.space import domains
from holdfast.tune.space.tree import grid_values, is_grid

_MADE, _DOMAIN, _OF_SPACE = "__made__", "__domain__", "__of_space__"
_DOMAINS: dict[str, Any] = {
    kind.__name__: kind for kind in (domains.Float, domains.Normal, domains.Integer, domains.Categorical)
}


class NotStorableError(ValueError):
    """``where`` leads to what cannot be stored."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class Missing:
    """The place of a value that was not stored, by the path that leads to it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<not stored: {self.path}>"


def described(value: Any, where: str) -> Any:
    """A form of the value that JSON holds; NotStorableError if there is none."""
    if isinstance(value, Recorded):
        name = type(value).__name__
        if _classes().get(name) is not type(value):
            raise NotStorableError(f"{where}: {name}")
        arguments = {key: described(item, f"{where}({key})") for key, item in (value.made_with or {}).items()}
        return {_MADE: name, "arguments": arguments}
    if isinstance(value, domains.Domain):
        if type(value).__name__ not in _DOMAINS:
            raise NotStorableError(where)
        own = {f.name: described(getattr(value, f.name), where) for f in fields(value)}  # type: ignore[arg-type]
        return {_DOMAIN: type(value).__name__, **own}
    if isinstance(value, Mapping):
        return {key: described(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(item, f"{where}[{number}]") for number, item in enumerate(value)]
    if not _is_storable(value):
        raise NotStorableError(where)
    return value


def made(value: Any) -> Any:
    """What ``described`` described."""
    if isinstance(value, Mapping):
        if _MADE in value:
            kind = _classes()[value[_MADE]]
            arguments = {key: made(item) for key, item in value["arguments"].items()}
            more = [item for key in list(arguments) if key.startswith("*") for item in arguments.pop(key)]
            return kind(*more, **arguments)
        if _DOMAIN in value:
            own = {key: made(item) for key, item in value.items() if key != _DOMAIN}
            return _DOMAINS[value[_DOMAIN]](**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})
        return {key: made(item) for key, item in value.items()}
    return [made(item) for item in value] if isinstance(value, list) else value


def _classes() -> dict[str, type[Recorded]]:
    from holdfast.tune.search import optuna

    modules = (schedulers, search, optuna, stopper)
    found = {name: kind for module in modules for name, kind in vars(module).items() if isinstance(kind, type)}
    return {name: kind for name, kind in found.items() if issubclass(kind, Recorded)}


def _is_storable(value: Any) -> bool:
    try:
        values.encode(value)
    except (TypeError, ValueError):
        return False
    return True


# Configurations


def config_to_store(config: Mapping[str, Any], space: Any) -> dict[str, Any]:
    """A trial's config, in which what cannot be stored is said by where in ``param_space`` it comes from."""
    return {key: _to_store(value, _below(space, key)) for key, value in config.items()}


def _to_store(value: Any, node: Any) -> Any:
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_store(item, _below(node, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not _is_storable(value):
        return [_to_store(item, _below(node, number)) for number, item in enumerate(value)]
    if _is_storable(value):
        return value
    choices = _choices(node)
    if choices is not None:
        place = next((number for number, choice in enumerate(choices) if choice is value), None)
        return {_OF_SPACE: "choice", "number": place} if place is not None else {_OF_SPACE: "lost"}
    return {_OF_SPACE: "constant"} if node is value or type(node) is type(value) else {_OF_SPACE: "lost"}


def config_from_store(config: Mapping[str, Any], space: Any, path: str = "") -> dict[str, Any]:
    """The config again. What the space does not have becomes ``Missing``."""
    return {key: _from_store(value, _below(space, key), f"{path}{key}") for key, value in config.items()}


def _from_store(value: Any, node: Any, path: str) -> Any:
    if isinstance(value, list):
        return [_from_store(item, _below(node, number), f"{path}/{number}") for number, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if _OF_SPACE not in value:
        return config_from_store(value, node, f"{path}/")
    choices = _choices(node)
    if value[_OF_SPACE] == "choice" and choices is not None and value["number"] < len(choices):
        return choices[value["number"]]
    if value[_OF_SPACE] == "constant" and node is not None and choices is None:
        return node
    return Missing(path)


def missing_in(config: Any) -> list[str]:
    if isinstance(config, Missing):
        return [config.path]
    items = config.values() if isinstance(config, Mapping) else config if isinstance(config, list) else ()
    return [path for item in items for path in missing_in(item)]


def _choices(node: Any) -> list[Any] | None:
    if isinstance(node, domains.Categorical):
        return list(node.categories)
    return list(grid_values(node)) if is_grid(node) else None


def _below(node: Any, key: Any) -> Any:
    if is_grid(node) or node is None:
        return None
    try:
        return node[key]
    except (KeyError, IndexError, TypeError):
        return None
