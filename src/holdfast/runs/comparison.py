"""What runs have in common and where they differ: the settings that ``fit()`` wrote down, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.metric_names import flat_items
from holdfast.runs.reading import TYPED_CONFIG

_SHOWN = 6
# Irrelevant for training: the run's name, its origin, what it prints.
_NOT_SETTINGS = {"id", "name", "run", "trial", "experiment", "kind", "format", "had_train_loop_config", "not_stored"}
_NOT_SETTINGS |= {"verbose", "logging", TYPED_CONFIG}
_CONFIG = "train_loop_config"


def differing_settings(identities: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """The settings that are not the same in all, each with its value in every one; None where one lacks it.

    The train function's config goes by its own names, other settings by their group: ``lr``, ``scaling/num_workers``.
    """
    settings = [_settings(identity) for identity in identities]
    names = list(dict.fromkeys(name for known in settings for name in known))
    values = {name: [known.get(name) for known in settings] for name in names}
    return {name: found for name, found in values.items() if any(_differ(value, found[0]) for value in found)}


def _differ(one: Any, other: Any) -> bool:
    return bool(one != other) and repr(one) != repr(other)  # NaN is never equal to itself


def _settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    groups = {name: value for name, value in identity.items() if name not in _NOT_SETTINGS and name != _CONFIG}
    config = identity.get(_CONFIG)
    return {**(dict(flat_items(config)) if isinstance(config, Mapping) else {}), **dict(flat_items(groups))}


def changes_text(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The settings that differ, with their old and new values; empty if none does."""
    found = [f"{name} {was!r} -> {now!r}" for name, (was, now) in differing_settings([before, after]).items()]
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(found[:_SHOWN]) + more
