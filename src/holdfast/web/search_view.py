"""The page of a search and its data: pages of the trials table, and the data of the plots, both of bounded size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.metric_names import number
from holdfast.runs.search_history import ExploitRecord
from holdfast.ui.display_picture import value_text
from holdfast.web import wording
from holdfast.web.importance import importances
from holdfast.web.search_index import SearchRow, SearchSnapshot

_ROWS = 20
_LINES = 1_500  # in the parallel coordinates and in slices
_CURVES = 60
_PARAMS = 12
_IMPROVEMENTS = 1_000
_EXPLOITS = 400
_STOPS = 20  # iterations
_REPORTED = 5_000


def trials_json(found: SearchSnapshot, query: Mapping[str, str]) -> dict[str, Any]:
    """One page of the table, sorted and filtered here, because there may be very many trials."""
    rows: Sequence[SearchRow] = found.rows
    if query.get("status"):
        rows = [row for row in rows if row.status == query["status"]]
    words = query.get("q", "").casefold().split()
    if words:
        rows = [row for row in rows if all(word in row.text for word in words)]
    sort = query.get("sort", "")
    down = query.get("down") == "1"
    rows = _sorted(rows, sort, down) if sort else rows
    start = int(query["from"]) if query.get("from", "").isdecimal() else 0
    shown = rows[start : start + _ROWS]
    return {
        "total": len(rows),
        "from": start,
        "size": _ROWS,
        "metric": wording.line(found.history.metric),
        "mode": found.history.mode,
        "params": param_names(found.rows),
        "rows": [_trial_json(found, row) for row in shown],
    }


def all_trials_json(found: SearchSnapshot) -> dict[str, Any]:
    """The best trials, as many as fit into a report file, which sorts and filters them in the browser."""
    names = param_names(found.rows)
    rows = sorted(found.rows, key=lambda row: _worth(row, found.history.mode))[:_REPORTED]
    kept = {row.id for row in rows}
    return {
        "size": _ROWS,
        "metric": wording.line(found.history.metric),
        "mode": found.history.mode,
        "params": names,
        "left_out": len(found.rows) - len(rows),
        "rows": [
            {
                **_trial_json(found, row),
                "number": row.value,
                "lastNumber": row.last,
                "values": [row.params.get(name) for name in names],
            }
            for row in found.rows
            if row.id in kept
        ],
    }


def _trial_json(found: SearchSnapshot, row: SearchRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": wording.line(row.name),
        "address": row.directory,
        "status": row.status,
        "cut": row.id in found.history.stops,
        "iteration": row.iteration,
        "value": "-" if row.value is None else value_text(row.value),
        "last": "-" if row.last is None else value_text(row.last),
        "params": [wording.value(row.params[n]) if n in row.params else "-" for n in param_names(found.rows)],
        "seconds": row.seconds,
        "text": row.error or row.reason,
        "is_best": row is found.best,
    }


def _sorted(rows: Sequence[SearchRow], sort: str, down: bool) -> list[SearchRow]:
    def key(row: SearchRow) -> Any:
        if sort in ("value", "last", "iteration", "seconds", "changed"):
            return getattr(row, sort)
        if sort in ("name", "status"):
            return getattr(row, sort)
        return row.params.get(sort.removeprefix("param:"))

    def typed(value: Any) -> tuple[int, float, str]:
        plain = number(value)
        return (1, 0.0, str(value)) if plain is None else (0, plain, "")

    known = [(row, value) for row in rows if (value := key(row)) is not None]
    missing = [row for row in rows if key(row) is None]
    known.sort(key=lambda pair: typed(pair[1]), reverse=down)
    return [*(row for row, _ in known), *missing]  # unknown values come last in both orders


def param_names(rows: Sequence[SearchRow]) -> list[str]:
    names: dict[str, None] = {}
    for row in rows[:200]:
        names.update(dict.fromkeys(row.params))
    return list(names)[:_PARAMS]


def plots_json(found: SearchSnapshot) -> dict[str, Any]:
    history = found.history
    names = param_names(found.rows)
    scored = [row for row in found.rows if row.value is not None]
    shown = _chosen(scored, history.mode, _LINES)
    return {
        "metric": wording.line(history.metric),
        "mode": history.mode,
        "params": [{"name": name, **_axis([row.params.get(name) for row in shown])} for name in names],
        "trials": [[wording.line(row.name), row.value, row.directory] for row in shown],
        "is_sample": len(shown) < len(scored),
        "scored": len(scored),
        "importance": importances(
            [{n: r.params.get(n) for n in names} for r in scored], [r.value or 0.0 for r in scored]
        ),
        "best": [
            [better.results, better.value, wording.line(better.trial)]
            for better in history.improvements[-_IMPROVEMENTS:]
        ],
        "results": history.results,
        "curves": _curves(found),
        "stops": _stops(found),
        "exploits": _tree(found),
    }


def _axis(values: Sequence[Any]) -> dict[str, Any]:
    """Numbers as they are; other values as their index in a list of texts."""
    numbers = [number(value) for value in values]
    finite = [value for value in numbers if value is not None and math.isfinite(value)]
    if values and len(finite) == len(values):
        low, high = min(finite), max(finite)
        return {"values": finite, "log": low > 0 and high / low >= 100}
    texts = [wording.value(value)[:40] for value in values]
    names = sorted(set(texts))[:50]
    place = {text: at for at, text in enumerate(names)}
    return {"values": [place.get(text, 0) for text in texts], "names": names, "log": False}


def _chosen(scored: Sequence[SearchRow], mode: str, most: int) -> list[SearchRow]:
    """The best trials and an even sample of the others. The worst come first, so that the best are drawn on top."""
    if len(scored) > most:
        order = sorted(scored, key=lambda row: row.value or 0.0, reverse=mode == "max")
        best, rest = order[: most // 4], order[most // 4 :]
        step = len(rest) / (most - len(best))
        scored = [*best, *(rest[int(at * step)] for at in range(most - len(best)))]
    return sorted(scored, key=lambda row: row.value or 0.0, reverse=mode != "max")


def _curves(found: SearchSnapshot) -> list[dict[str, Any]]:
    """The curves of the best trial, of those that were stopped, and of some others."""
    history = found.history
    scored = [row for row in found.rows if row.id in history.curves]
    order = sorted(scored, key=lambda row: _worth(row, history.mode))
    best = order[: _CURVES // 3]
    stopped = [row for row in order[len(best) :] if row.id in history.stops][-_CURVES // 3 :]
    taken = {row.id for row in (*best, *stopped)}
    others = [row for row in scored if row.id not in taken]
    step = max(1, len(others) // max(1, _CURVES - len(taken)))
    chosen = [*others[::step][: _CURVES - len(taken)], *stopped, *reversed(best)]
    return [
        {
            "name": wording.line(row.name),
            "address": row.directory,
            "x": [x for x, _ in history.curves[row.id].points],
            "y": [y for _, y in history.curves[row.id].points],
            "status": row.status,
            "stopped": row.id in history.stops,
            "why": row.error or row.reason,
            "is_best": bool(best) and row is best[0],
        }
        for row in chosen
    ]


def _stops(found: SearchSnapshot) -> list[dict[str, Any]]:
    """How many trials the scheduler stopped at each iteration, with one of its reasons."""
    stops: dict[int, list[str]] = {}
    for iteration, reason in found.history.stops.values():
        stops.setdefault(iteration, []).append(reason)
    return [
        {"iteration": iteration, "count": len(reasons), "why": wording.line(reasons[-1])[:200]}
        for iteration, reasons in sorted(stops.items())
    ][:_STOPS]


def _worth(row: SearchRow, mode: str) -> float:
    value = math.inf if row.value is None else row.value
    return -value if mode == "max" and row.value is not None else value


def _tree(found: SearchSnapshot) -> list[dict[str, Any]]:
    """Which trial copied which, in order, with the changes of the configuration."""
    names = {row.id: row for row in found.rows}

    def told(exploit: ExploitRecord) -> dict[str, Any]:
        changed = [
            [wording.line(str(key)), wording.value(exploit.before.get(key)), wording.value(value)]
            for key, value in exploit.after.items()
            if exploit.before.get(key) != value
        ]
        return {
            "trial": wording.line(names[exploit.trial].name) if exploit.trial in names else exploit.trial,
            "donor": wording.line(names[exploit.donor].name) if exploit.donor in names else exploit.donor,
            "iteration": exploit.iteration,
            "continued": exploit.continued,
            "time": wording.moment(exploit.time),
            "changed": changed[:8],
        }

    return [told(exploit) for exploit in found.history.exploits[-_EXPLOITS:]]
