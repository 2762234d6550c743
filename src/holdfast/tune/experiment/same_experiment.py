"""Whether the experiment stored under a name is the one that the script means.

An interrupted experiment continues, unless the script searches something else. Its trials keep their constants. A
finished experiment is not run again, and a message says so. No difference is silently ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.errors import TuneError
from holdfast.tune.experiment.code_fingerprint import is_other_code
from holdfast.tune.experiment.stored_definition import made
from holdfast.tune.space.domains import Domain
from holdfast.tune.space.tree import is_grid, leaves, slashed
from holdfast.tune.space.variants import describe

_SETTINGS = ("metric", "mode", "num_samples", "max_concurrent_trials", "time_budget_s")
_OBJECTS = ("scheduler", "search_alg", "stop")
_NOT_THE_SAME_SEARCH = ("metric", "mode", "scheduler", "search_alg")  # differences that count only once it has finished
_MOST = 100  # characters of a value


class SettingDifference(NamedTuple):
    name: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name}: {_short(self.before)} -> {_short(self.now)}"


def check_same(
    known: Mapping[str, Any], given: Mapping[str, Any], where: str, is_over: bool
) -> list[SettingDifference]:
    """Refuse an experiment that searches something else. Returns the other differences."""
    searched = _of_search(known, given)
    others = _of_settings(known, given)
    constants = _of_space(known, given, "constants")
    if is_over:
        searched += constants
        searched += [other for other in others if other.name in _NOT_THE_SAME_SEARCH]
        if is_other_code(known.get("code", ""), given.get("code", "")):
            searched.append(SettingDifference(f"the code of {given['trainable']}", "as it was", "changed"))
    if searched:
        state = "finished" if is_over else "unfinished"
        raise TuneError(
            f"{where} holds a different experiment, which is {state}. It differs in {_listed(searched)}. "
            "To start a new one, choose another RunConfig(name=...) or set RunConfig(fresh=True). To resume the stored "
            f"one with this script, use Tuner.restore({where!r}, trainable=...)."
        )
    return constants + others


def space_in_words(space: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """A search space for comparison: its domains and grids, and its constants, each by its flat name."""
    searched: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for path, leaf in leaves(dict(space)):
        (searched if isinstance(leaf, Domain) or is_grid(leaf) else constants)[slashed(path)] = describe(leaf)
    return {"searched": searched, "constants": constants}


def keys_of(space: Mapping[str, Any], prefix: str = "") -> set[str]:
    """The flat names of everything in a search space."""
    found = set()
    for key, value in space.items():
        found.add(f"{prefix}{key}")
        if isinstance(value, Mapping) and not is_grid(value):
            found |= keys_of(value, f"{prefix}{key}/")
    return found


def resumed_text(name: str, differences: list[SettingDifference]) -> str:
    return f"Experiment {name!r} resumes with changed settings: {_listed(differences)}"


def finished_text(name: str, where: str, finished: int, failed: int) -> str:
    ended = f"{finished} trial{'s' if finished != 1 else ''}{f', {failed} failed' if failed else ''}"
    again = f" Tuner.restore({where!r}, trainable=..., resume_errored=True) retries what failed." if failed else ""
    return (
        f"Experiment {name!r} has already finished ({ended}). Nothing was run; these are its results. To search again, "
        f"choose another RunConfig(name=...) or set RunConfig(fresh=True).{again}"
    )


def _of_search(known: Mapping[str, Any], given: Mapping[str, Any]) -> list[SettingDifference]:
    found = []
    if known["trainable"] != given["trainable"]:
        found.append(SettingDifference("the trainable", known["trainable"], given["trainable"]))
    return found + _of_space(known, given, "searched")


def _of_space(known: Mapping[str, Any], given: Mapping[str, Any], part: str) -> list[SettingDifference]:
    space = _space_of(known)
    if space is None:
        return []
    before, now = space[part], given["space"][part]
    changed = (name for name in dict.fromkeys([*before, *now]) if before.get(name, _ABSENT) != now.get(name, _ABSENT))
    return [
        SettingDifference(f"param_space[{name!r}]", before.get(name, _ABSENT), now.get(name, _ABSENT))
        for name in changed
    ]


def _of_settings(known: Mapping[str, Any], given: Mapping[str, Any]) -> list[SettingDifference]:
    found = [SettingDifference(name, known.get(name), given.get(name)) for name in _SETTINGS]
    for name in _OBJECTS:
        before, now = (_object(identity, name) for identity in (known, given))
        found.append(SettingDifference(name, before, now))
    return [each for each in found if each.before != each.now]


def _object(identity: Mapping[str, Any], name: str) -> Any:
    """Its class and arguments; if it cannot be stored, its type."""
    return identity["stored"].get(name, identity["lacking"].get(name))


def _space_of(identity: Mapping[str, Any]) -> Any:
    """Earlier versions stored only a space that could be recreated."""
    if "space" in identity:
        return identity["space"]
    stored = identity["stored"].get("param_space")
    return None if stored is None else space_in_words(made(stored))


class _Absent:
    def __repr__(self) -> str:
        return "(absent)"


_ABSENT = _Absent()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 1]}…"


def _listed(differences: list[SettingDifference]) -> str:
    return "; ".join(map(str, differences))
