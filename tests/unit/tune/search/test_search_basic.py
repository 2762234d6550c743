"""Grid and random search, and the searchers that wrap another one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Repeater, Searcher
from holdfast.tune.search.suggestion import complete, searched
from holdfast.tune.search_space import choice, grid_search, sample_from, uniform
from support.tune.search_replay import Start, goes_on_the_same, run, suggestions

SPACE = {
    "a": grid_search([1, 2]),
    "b": uniform(0, 1),
    "net": {"units": [choice([8, 16]), 32]},
    "sum": sample_from(lambda config: config["a"] + config["b"]),
}


def basic(num_samples: int = 4, space: dict[str, Any] = SPACE, **options: Any) -> BasicVariantGenerator:
    searcher = BasicVariantGenerator(**{"random_state": 7, **options})
    assert searcher.set_search_properties("loss", "min", space, num_samples=num_samples)
    return searcher


def objective(config: dict[str, Any]) -> dict[str, Any]:
    return {"loss": config["b"] * config["a"]}


def ask(searcher: Searcher, count: int) -> list[Any]:
    return [searcher.suggest(f"t{number}") for number in range(count)]


def test_all_variants_come_once_and_then_it_is_finished() -> None:
    *configs, end = ask(basic(num_samples=2), 5)
    assert [config["a"] for config in configs] == [1, 2, 1, 2]
    assert len({config["b"] for config in configs}) == 4
    assert all(config["sum"] == config["a"] + config["b"] and config["net"]["units"][1] == 32 for config in configs)
    assert end == Searcher.FINISHED
    assert basic(num_samples=2).total_samples == 4


def test_points_take_the_place_of_samples() -> None:
    searcher = basic(4, points_to_evaluate=[{"a": 2, "b": 0.5}, {"a": 1}, {"b": 0.25}])
    assert searcher.total_samples == 6
    configs = ask(searcher, 7)
    assert [config["a"] for config in configs[:-1]] == [2, 1, 1, 2, 1, 2]
    assert [configs[number]["b"] for number in (0, 2, 3)] == [0.5, 0.25, 0.25]
    assert configs[-1] == Searcher.FINISHED


def test_a_constant_grid_keeps_what_is_drawn() -> None:
    configs = ask(basic(2, constant_grid_search=True), 4)
    assert [config["b"] for config in configs[::2]] == [config["b"] for config in configs[1::2]]
    assert configs[0]["b"] != configs[2]["b"]


def test_no_more_than_max_concurrent_are_out() -> None:
    searcher = basic(max_concurrent=2)
    first, second, third = ask(searcher, 3)
    assert first is not None
    assert second is not None
    assert third is None
    searcher.on_trial_complete("t0")
    assert isinstance(searcher.suggest("t2"), dict)
    assert searcher.suggest("t3") is None


def test_a_grid_without_end_or_beyond_memory_begins_at_once() -> None:
    huge = {str(axis): grid_search(range(1000)) for axis in range(6)}
    assert ask(basic(1, huge), 2)[1] == {"0": 1, **{str(axis): 0 for axis in range(1, 6)}}
    endless = basic(-1)
    assert endless.total_samples == math.inf
    assert all(isinstance(config, dict) for config in ask(endless, 50))


@pytest.mark.parametrize("state", [3, lambda: numpy.random.default_rng(3), lambda: numpy.random.RandomState(3)])
def test_the_same_random_state_gives_the_same_configs(state: Any) -> None:
    make = state if callable(state) else lambda: state
    source = make()
    assert ask(basic(random_state=make()), 8) == ask(basic(random_state=source), 8)
    assert ask(basic(random_state=source), 8) == ask(basic(random_state=make()), 8)  # it is not used up


def test_the_experiments_seed_is_used_only_if_there_is_none() -> None:
    def seeded(own: int | None, default: int) -> list[Any]:
        searcher = BasicVariantGenerator(random_state=own)
        searcher.set_search_properties("loss", "min", SPACE, num_samples=4, seed=default)
        return ask(searcher, 4)

    assert seeded(None, 1) == seeded(None, 1) == seeded(1, 2)
    assert seeded(None, 1) != seeded(None, 2)


def test_raised_num_samples_go_on_where_the_fewer_ended() -> None:
    assert ask(basic(5), 10)[:4] == ask(basic(2), 4)


def limited(max_concurrent: int = 2, batch: bool = False) -> Callable[[], Searcher]:
    class Unlimited(BasicVariantGenerator):
        def set_max_concurrency(self, max_concurrent: int) -> bool:
            return False

    def start() -> Searcher:
        inner = Unlimited(random_state=1)
        searcher = ConcurrencyLimiter(inner, max_concurrent, batch=batch)
        assert searcher.set_search_properties("loss", "min", SPACE, num_samples=10)
        return searcher

    return start


STARTS: list[Start] = [
    lambda: basic(10),
    lambda: basic(10, points_to_evaluate=[{"a": 2}], max_concurrent=2),
    lambda: basic(10, constant_grid_search=True),
    limited(),
    limited(3, batch=True),
    lambda: Repeater(basic(5), repeat=3),
    lambda: ConcurrencyLimiter(Repeater(basic(5), repeat=2), 3),
]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("seed", range(3))
def test_interrupted_anywhere_a_searcher_goes_on_the_same(start: Start, seed: int) -> None:
    calls = run(start(), objective, trials=15, seed=seed)
    assert sum(isinstance(suggestion, dict) for suggestion in suggestions(calls)) >= 10
    goes_on_the_same(start, calls)


def test_a_limit_that_is_lowered_for_the_restore_does_not_lose_what_was_out() -> None:
    whole, searcher = ask(limited(9)(), 4), limited(1)()
    for number in range(3):
        searcher.replay_suggestion(f"t{number}", whole[number])
    for number in range(3):
        assert searcher.suggest("t3") is None
        searcher.on_trial_complete(f"t{number}", {"loss": 1.0})
    assert searcher.suggest("t3") == whole[3]


@pytest.mark.parametrize("start", [lambda: basic(10, max_concurrent=2), limited(2)])
def test_a_trial_that_is_resumed_after_its_error_counts_again(start: Start) -> None:
    searcher = start()
    whole = ask(start(), 2)
    assert ask(searcher, 2) == whole
    searcher.on_trial_complete("t0", error=True)
    searcher.on_trial_resume("t0", whole[0])
    assert searcher.suggest("t2") is None
    searcher.on_trial_complete("t0", {"loss": 1.0})
    assert isinstance(searcher.suggest("t2"), dict)


class Noting(Searcher):
    """Suggests numbers, and notes what it hears."""

    def __init__(self, limits_itself: bool = False) -> None:
        super().__init__("loss", "min")
        self.heard: list[tuple[str, Any, bool]] = []
        self.asked: list[str] = []
        self.limit = 0
        self._limits_itself = limits_itself

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.limit = max_concurrent
        return self._limits_itself

    def suggest(self, trial_id: str) -> dict[str, Any]:
        self.asked.append(trial_id)
        return {"x": len(self.asked)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self.heard.append((trial_id, result, error))


def test_the_limiter_passes_the_ends_on_as_they_come() -> None:
    inner = Noting()
    limiter = ConcurrencyLimiter(inner, 2)
    assert ask(limiter, 3) == [{"x": 1}, {"x": 2}, None]
    limiter.on_trial_complete("t1", {"loss": 1.0})
    limiter.on_trial_complete("t1", {"loss": 1.0})  # a second time: not its trial any more
    limiter.on_trial_complete("stranger", {"loss": 1.0})
    assert inner.heard == [("t1", {"loss": 1.0}, False)]
    assert limiter.suggest("t3") == {"x": 3}


def test_a_batch_is_passed_on_when_it_is_whole() -> None:
    inner = Noting()
    limiter = ConcurrencyLimiter(inner, 2, batch=True)
    ask(limiter, 2)
    limiter.on_trial_complete("t1", error=True)
    assert inner.heard == []
    assert limiter.suggest("t2") is None  # the batch is not over
    limiter.on_trial_complete("t0", {"loss": 0.5})
    assert inner.heard == [("t1", None, True), ("t0", {"loss": 0.5}, False)]
    assert limiter.suggest("t2") == {"x": 3}


def test_a_searcher_that_limits_itself_is_left_to_it() -> None:
    inner = Noting(limits_itself=True)
    limiter = ConcurrencyLimiter(inner, 1)
    assert ask(limiter, 3) == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert inner.limit == 1
    assert limiter.set_max_concurrency(5)
    assert inner.limit == 5


def test_the_repeater_gives_each_config_several_times_and_tells_the_mean() -> None:
    inner = Noting()
    repeater = Repeater(inner, repeat=3)
    configs = ask(repeater, 6)
    assert configs == [{"x": x, "__trial_index__": index} for x in (1, 2) for index in range(3)]
    assert inner.asked == ["t0", "t3"]
    repeater.on_trial_complete("t1", {"loss": 1.0})
    repeater.on_trial_complete("t0", {"loss": math.nan})
    repeater.on_trial_complete("t3", None, error=True)
    repeater.on_trial_complete("stranger", {"loss": 9.0})
    assert inner.heard == []
    repeater.on_trial_complete("t2", {"loss": 2.0})
    assert inner.heard == [("t0", {"loss": 1.5}, False)]


def test_when_all_repetitions_failed_the_trial_has() -> None:
    inner = Noting()
    repeater = Repeater(inner, repeat=2, set_index=False)
    assert ask(repeater, 2) == [{"x": 1}, {"x": 1}]
    repeater.on_trial_complete("t0", error=True)
    repeater.on_trial_complete("t1", error=True)
    assert inner.heard == [("t0", None, True)]


def test_wrappers_have_the_metric_of_what_they_wrap_also_if_it_comes_late() -> None:
    searcher = ConcurrencyLimiter(Repeater(BasicVariantGenerator(), 2), 4)
    assert (searcher.metric, searcher.mode) == (None, None)
    searcher.set_search_properties("loss", "min", {})
    assert (searcher.metric, searcher.mode) == ("loss", "min")


def test_a_searcher_of_ones_own_needs_only_two_methods() -> None:
    searcher = Noting()
    assert searcher.set_search_properties("loss", "min", {}) is False
    searcher.on_trial_resume("t0", {"x": 1})
    searcher.on_trial_result("t0", {})
    searcher.replay_suggestion("t0", {"x": 1})
    assert searcher.suggest("t1") == {"x": 2}
    with pytest.raises(NotImplementedError, match="replaying the journal"):
        searcher.save("somewhere")
    with pytest.raises(NotImplementedError, match="did not suggest"):
        searcher.add_evaluated_point({"x": 1}, 0.5)


def test_grid_and_random_search_are_saved_and_restored(tmp_path: Path) -> None:
    space = {"g": grid_search([1, 2, 3]), "x": uniform(0, 1)}

    def start() -> BasicVariantGenerator:
        searcher = BasicVariantGenerator(random_state=4, max_concurrent=2)
        assert searcher.set_search_properties("loss", "min", space, num_samples=2)
        return searcher

    one, other = start(), start()
    for name in ("t0", "t1"):
        one.suggest(name)
    one.on_trial_complete("t0")
    one.save_to_dir(str(tmp_path), "first")
    other.restore_from_dir(str(tmp_path))
    assert other.get_state() == one.get_state() == {"given": 2, "live": ["t1"]}
    for name in ("t2", "t3", "t4"):
        assert other.suggest(name) == one.suggest(name)
        for searcher in (one, other):
            searcher.on_trial_complete(name)
    with pytest.raises(RuntimeError, match="no searcher state"):
        other.restore_from_dir(str(tmp_path / "nothing"))


def test_a_suggestion_is_completed_by_the_constants_around_it() -> None:
    space = {"lr": uniform(0, 1), "net": {"depth": 2, "width": choice([1, 2])}, "tags": ["a"]}
    config = complete(space, {"lr": 0.5, "net": {"width": 2}, "extra": 1})
    assert config == {"lr": 0.5, "net": {"depth": 2, "width": 2}, "tags": ["a"], "extra": 1}
    assert config["tags"] is not space["tags"]
    assert searched(space, config) == {"lr": 0.5, "net/width": 2}
    with pytest.raises(ValueError, match="no value for 'net/width'"):
        complete(space, {"lr": 0.5})


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: BasicVariantGenerator(max_concurrent=-1), ValueError, "max_concurrent=-1"),
        (lambda: basic(0.5), TypeError, "num_samples=0.5"),
        (lambda: basic(-2), ValueError, "num_samples=-2"),
        (lambda: BasicVariantGenerator(random_state="seed"), TypeError, "random_state='seed'"),
        (lambda: ConcurrencyLimiter(basic(), 0), ValueError, "max_concurrent=0"),
        (lambda: ConcurrencyLimiter("basic", 1), TypeError, "pass a Searcher"),
        (lambda: Repeater(basic(), 0), ValueError, "repeat=0"),
        (lambda: Searcher("loss", "lowest"), ValueError, "mode='lowest'"),
        (lambda: Searcher(["loss"], "min"), ValueError, "give each metric its mode"),
        (lambda: Searcher(["a", "b"], ["min"]), ValueError, "give each metric its mode"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


def test_a_wrapper_takes_the_state_of_an_earlier_version() -> None:
    """It was that of the searcher inside."""
    inner, other = basic(5), basic(5)
    ask(ConcurrencyLimiter(inner, 9), 2)
    ConcurrencyLimiter(other, 9).set_state(inner.get_state())
    assert other.get_state() == inner.get_state()


def test_wrappers_are_saved_and_restored_with_what_they_know(tmp_path: Path) -> None:
    """Else a restored limiter hears of no end, and a restored repeater starts the next set in the middle of one."""

    def start() -> ConcurrencyLimiter:
        return ConcurrencyLimiter(Repeater(basic(5), repeat=2), 3)

    one, other = start(), start()
    ask(one, 3)
    one.on_trial_complete("t0", {"loss": 1.0})
    one.save_to_dir(str(tmp_path), "first")
    other.restore_from_dir(str(tmp_path))
    assert other._progress() == one._progress()
    assert other.searcher._progress() == one.searcher._progress()  # type: ignore[attr-defined]
    assert other.suggest("t3") == one.suggest("t3")
    for searcher in (one, other):
        searcher.on_trial_complete("t1", {"loss": 2.0})
    assert other.get_state()["searcher"]["searcher"] == one.get_state()["searcher"]["searcher"]
    bare = basic(5)
    bare.restore_from_dir(str(tmp_path))
    other.restore(str(next(tmp_path.glob("*.json"))))
    assert bare.get_state() == other.searcher.searcher.get_state()  # type: ignore[attr-defined]
