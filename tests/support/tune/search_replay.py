"""An experiment's calls to a searcher, noted, and told again to a fresh one that is cut in at every point."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.tune.search import Searcher

Objective = Callable[[dict[str, Any]], dict[str, Any]]
Start = Callable[[], Searcher]


class Call(NamedTuple):
    kind: str  # suggest, result, complete
    trial_id: str
    result: dict[str, Any] | None = None
    error: bool = False
    suggested: Any = None


def run(searcher: Searcher, objective: Objective, trials: int, seed: int = 0, at_once: int = 4) -> list[Call]:
    """Trials start, report twice, and end or fail in an order that the seed gives, until there are ``trials``."""
    order, calls, live, reports = random.Random(seed), list[Call](), dict[str, dict[str, Any]](), dict[str, int]()
    finished, asked = False, 0
    while live or (asked < trials and not finished):
        if asked < trials and not finished and len(live) < at_once and (not live or order.random() < 0.5):
            trial_id = f"t{asked}"
            suggested = searcher.suggest(trial_id)
            calls.append(Call("suggest", trial_id, suggested=copy.deepcopy(suggested)))
            finished = suggested == Searcher.FINISHED
            if isinstance(suggested, dict):
                live[trial_id], reports[trial_id], asked = suggested, 0, asked + 1
            if isinstance(suggested, dict) or not live:
                continue
        trial_id = order.choice(list(live))
        result = {**objective(live[trial_id]), "training_iteration": reports[trial_id] + 1}
        if reports[trial_id] < 2:
            reports[trial_id] += 1
            calls.append(Call("result", trial_id, result))
        else:
            del live[trial_id]
            error = order.random() < 0.15
            calls.append(Call("complete", trial_id, None if error else result, error))
        tell(searcher, calls[-1])
    return calls


def tell(searcher: Searcher, call: Call) -> None:
    if call.kind == "result":
        searcher.on_trial_result(call.trial_id, dict(call.result or {}))
    else:
        searcher.on_trial_complete(call.trial_id, result=call.result, error=call.error)


def suggestions(calls: list[Call]) -> list[Any]:
    return [call.suggested for call in calls if call.kind == "suggest"]


def goes_on_the_same(start: Start, calls: list[Call], cuts: range | None = None) -> None:
    """Up to the cut a fresh searcher hears what an earlier driver's did; after it, it is asked."""
    for cut in cuts if cuts is not None else range(len(calls) + 1):
        searcher = start()
        for position, call in enumerate(calls):
            if call.kind != "suggest":
                tell(searcher, call)
            elif position >= cut:
                assert searcher.suggest(call.trial_id) == call.suggested, f"cut at {cut}, call {position}"
            elif isinstance(call.suggested, dict):
                searcher.replay_suggestion(call.trial_id, call.suggested)
