"""How much each single parameter of a search explains its results.

Results are replaced by their ranks, so outliers and scales do not matter. A parameter's values form groups: each value
its own, or up to ten groups of equal size for numbers that seldom repeat. The importance is the share of the variance
of the ranks that lies between the groups, minus what as many groups would explain by chance (epsilon squared). Effects
that need several parameters together do not show.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

_GROUPS = 10
_FEWEST = 4  # trials
_REPEATED = 3  # average number of trials per value, above which each value of a number is a group


def importances(params: Sequence[Mapping[str, Any]], results: Sequence[float]) -> list[tuple[str, float]]:
    """Each parameter with its importance from 0 to 1, the greatest first. Empty if there are too few results."""
    if len(results) < _FEWEST:
        return []
    ranks = _ranks(results)
    names = list(dict.fromkeys(name for each in params for name in each))
    found = [(name, _importance([each.get(name) for each in params], ranks)) for name in names]
    return sorted(found, key=lambda pair: -pair[1])


def _importance(values: Sequence[Any], ranks: Sequence[float]) -> float:
    groups: dict[Hashable, list[float]] = defaultdict(list)
    for group, rank in zip(_groups(values), ranks, strict=True):
        groups[group].append(rank)
    count, mean = len(ranks), sum(ranks) / len(ranks)
    whole = sum((rank - mean) ** 2 for rank in ranks)
    if len(groups) < 2 or count <= len(groups) or not whole:
        return 0.0
    between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups.values())
    within = (whole - between) / (count - len(groups))
    return max(0.0, (between - (len(groups) - 1) * within) / whole)


def _groups(values: Sequence[Any]) -> list[Hashable]:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    different = len(set(values)) if numbers else 0
    if not numbers or (different <= _GROUPS and different * _REPEATED <= len(values)):
        return [repr(value) for value in values]
    count = min(_GROUPS, max(2, len(values) // 5))
    order = sorted(set(values))
    place = {value: number * count // len(order) for number, value in enumerate(order)}
    return [place[value] for value in values]


def _ranks(values: Sequence[float]) -> list[float]:
    """Equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for at in order[start:end]:
            ranks[at] = (start + end - 1) / 2
        start = end
    return ranks
