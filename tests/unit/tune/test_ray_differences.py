"""What a script from Ray meets that differs on purpose, and what of Ray's it can ask of a search space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import tune


def test_a_string_is_no_list_of_choices() -> None:
    with pytest.raises(TypeError, match="pass a list of values"):
        tune.choice("abc")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (tune.uniform(0, 1), "(0.0, 1.0)"),
        (tune.randint(2, 5), "(2, 5)"),
        (tune.choice(["a", 1]), "['a', 1]"),
        (tune.randn(), "(unknown)"),
    ],
)
def test_what_a_domain_holds_in_rays_words(domain: Any, text: str) -> None:
    assert domain.domain_str == text


def test_each_search_without_a_name_is_named_after_its_trainable(tmp_path: Path) -> None:
    def own(_config: dict[str, Any]) -> None: ...

    run = tune.RunConfig(storage_path=str(tmp_path))
    names = [tune.Tuner(own, run_config=run)._definition.run_config.name for _ in range(2)]
    assert all(name.startswith("own_") for name in names)
    assert names[0] != names[1], "both would be the same experiment"
    run = tune.RunConfig(name="given", storage_path=str(tmp_path))
    assert tune.Tuner(own, run_config=run)._definition.run_config.name == "given"


def test_one_searcher_converts_spaces() -> None:
    from holdfast.tune.search.bayesopt import BayesOptSearch
    from holdfast.tune.search.hyperopt import HyperOptSearch
    from holdfast.tune.search.optuna import OptunaSearch

    kinds = [OptunaSearch, HyperOptSearch, BayesOptSearch]
    assert [hasattr(kind, "convert_search_space") for kind in kinds] == [True, False, False]


class Counts(tune.Callback):
    def __init__(self) -> None:
        self.known: list[int] = []

    def on_trial_result(self, iteration: int, trials: Any, trial: Any, result: Any, **info: Any) -> None:
        self.known.append(len(trials))


def test_trials_are_created_when_there_is_capacity(tmp_path: Path) -> None:
    counts = Counts()
    run = tune.RunConfig(name="few", storage_path=str(tmp_path), verbose=0, callbacks=[counts])
    config = tune.TuneConfig(num_samples=6, max_concurrent_trials=1)
    grid = tune.Tuner(lambda _: {"x": 1}, tune_config=config, run_config=run).fit()
    assert len(grid) == 6
    assert counts.known[0] <= 2, "there is one that runs, and no queue of those that wait"
