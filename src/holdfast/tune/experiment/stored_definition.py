"""How the definition of an experiment is stored in its record and restored. Plain values are stored as they are.
Holdfast's own domains, schedulers, searchers and stoppers are stored as their class and arguments. Objects and
functions of the user are not stored: they must be passed again if they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from holdfast.store import typed_values as typed
from holdfast.tune import schedulers, search, stopper
from holdfast.tune.recorded import Recorded
from holdfast.tune.space import domains
from holdfast.tune.space.tree import grid_values, is_grid

_MADE, _DOMAIN, _OF_SPACE = "__made__", "__domain__", "__of_space__"
_DOMAINS: dict[str, Any] = {
    kind.__name__: kind for kind in (domains.Float, domains.Normal, domains.Integer, domains.Categorical)
}


class NotStorableError(ValueError):
    """The value at ``where`` cannot be stored."""

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
    """The value in a form that JSON can hold; NotStorableError if there is none."""
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
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: described(item, f"{where}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [described(item, f"{where}[{number}]") for number, item in enumerate(value)]
        return items if isinstance(value, list) else typed.describe_tuple(value, items, where)
    try:
        return typed.to_json(value)
    except TypeError:
        raise NotStorableError(where) from None


def made(value: Any) -> Any:
    """The value that ``described`` was given."""
    if isinstance(value, Mapping):
        if _MADE in value:
            kind = _classes()[value[_MADE]]
            arguments = {key: made(item) for key, item in value["arguments"].items()}
            more = [item for key in list(arguments) if key.startswith("*") for item in arguments.pop(key)]
            return kind(*more, **arguments)
        if _DOMAIN in value:
            own = {key: made(item) for key, item in value.items() if key != _DOMAIN}
            return _DOMAINS[value[_DOMAIN]](**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})
        if value.get(typed.TYPE) in ("tuple", "namedtuple"):
            return typed.make_tuple(dict(value), made(value[typed.VALUE]))
        if typed.TYPE in value:
            return typed.from_json(dict(value))
        return {key: made(item) for key, item in value.items()}
    return [made(item) for item in value] if isinstance(value, list) else value


def _classes() -> dict[str, type[Recorded]]:
    from holdfast.tune.search import ax, bayesopt, bohb, hyperopt, nevergrad, optuna, zoopt

    modules = (schedulers, search, ax, bayesopt, bohb, hyperopt, nevergrad, optuna, zoopt, stopper)
    found = {name: kind for module in modules for name, kind in vars(module).items() if isinstance(kind, type)}
    return {name: kind for name, kind in found.items() if issubclass(kind, Recorded)}


# Configurations


def config_to_store(config: Mapping[str, Any], space: Any) -> dict[str, Any]:
    """A trial's config with the types of its values. A value that cannot be stored is represented by its place in
    ``param_space``."""
    return {key: _to_store(value, _below(space, key)) for key, value in config.items()}


def _to_store(value: Any, node: Any) -> Any:
    try:
        return typed.to_json(value)
    except TypeError:
        pass
    choices = _choices(node)
    if choices is not None:
        return _of_choices(value, choices)
    if is_same(value, node):
        return {_OF_SPACE: "constant"}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _to_store(item, _below(node, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_to_store(item, _below(node, number)) for number, item in enumerate(value)]
        try:
            return items if isinstance(value, list) else typed.describe_tuple(value, items, "")
        except TypeError:
            return {_OF_SPACE: "lost"}
    is_constant = type(node) is type(value) and not isinstance(node, domains.Domain)
    return {_OF_SPACE: "constant" if is_constant else "lost"}


def _of_choices(value: Any, choices: list[Any]) -> dict[str, Any]:
    """The index of the chosen option; for a choice that contains domains, the values drawn there."""
    for number, choice in enumerate(choices):
        if is_same(value, choice):
            return {_OF_SPACE: "choice", "number": number}
    for number, choice in enumerate(choices):
        if isinstance(value, (dict, list, tuple)) and type(choice) is type(value):
            within = _to_store(value, choice)
            if '"lost"' not in repr(within).replace("'", '"'):
                return {_OF_SPACE: "within", "number": number, "value": within}
    return {_OF_SPACE: "lost"}


def is_same(value: Any, other: Any) -> bool:
    """Containers are rebuilt with each config; their leaves are not."""
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(is_same(item, other[key]) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return len(value) == len(other) and all(map(is_same, value, other))
    try:
        return bool(value == other)
    except (TypeError, ValueError, RuntimeError):  # arrays compare by element
        return False


def config_from_store(config: Mapping[str, Any], space: Any, path: str = "") -> dict[str, Any]:
    """The config again. Values that are not in the space become ``Missing``."""
    return {key: _from_store(value, _below(space, key), f"{path}{key}") for key, value in config.items()}


def _from_store(value: Any, node: Any, path: str) -> Any:
    if isinstance(value, list):
        return [_from_store(item, _below(node, number), f"{path}/{number}") for number, item in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    if _OF_SPACE in value:
        return _of_space(value, node, path)
    if typed.TYPE not in value:
        return config_from_store(value, node, f"{path}/")
    try:
        if value[typed.TYPE] in ("tuple", "namedtuple"):
            return typed.make_tuple(dict(value), _from_store(value[typed.VALUE], node, path))
        return typed.from_json(dict(value))
    except typed.UnknownTypeError:
        return Missing(path)


def _of_space(value: Mapping[str, Any], node: Any, path: str) -> Any:
    how, choices = value[_OF_SPACE], _choices(node)
    if how in ("choice", "within") and choices is not None and value["number"] < len(choices):
        choice = choices[value["number"]]
        return choice if how == "choice" else _from_store(value["value"], choice, path)
    if how == "constant" and node is not None and not isinstance(node, domains.Domain) and choices is None:
        return node
    return Missing(path)


def missing_in(config: Any) -> list[str]:
    if isinstance(config, Missing):
        return [config.path]
    items = config.values() if isinstance(config, Mapping) else config if isinstance(config, (list, tuple)) else ()
    return [path for item in items for path in missing_in(item)]


def filled(config: Any, drawn: Any) -> Any:
    """The config with its missing values taken from one that was drawn again, if both agree in everything else."""
    if isinstance(config, Missing):
        return drawn
    if isinstance(config, dict) and isinstance(drawn, dict) and config.keys() == drawn.keys():
        return {key: filled(item, drawn[key]) for key, item in config.items()}
    if isinstance(config, (list, tuple)) and type(config) is type(drawn) and len(config) == len(drawn):
        items = [filled(*pair) for pair in zip(config, drawn, strict=True)]
        if isinstance(config, list):
            return items
        return type(config)(*items) if hasattr(config, "_fields") else tuple(items)
    if is_same(config, drawn):
        return config
    raise ValueError("another config was drawn")


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
