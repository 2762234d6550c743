"""An experiment that is stored under a name is never taken for another one in silence."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.errors import TuneError


def squares(config: dict[str, Any]) -> dict[str, Any]:
    return {"value": config["x"] ** 2}


def cubes(config: dict[str, Any]) -> dict[str, Any]:
    return {"value": config["x"] ** 3}


def fails(config: dict[str, Any]) -> dict[str, Any]:
    raise ValueError(config["x"])


def search(
    storage: Path, trainable: Any = squares, xs: Any = (1, 2), callbacks: Any = None, fresh: bool = False, **config: Any
) -> Any:
    return tune.Tuner(
        trainable,
        param_space={"x": tune.grid_search(list(xs))},
        tune_config=tune.TuneConfig(max_concurrent_trials=1, **config),
        run_config=tune.RunConfig(storage_path=str(storage), name="named", verbose=0, callbacks=callbacks, fresh=fresh),
    )


def values(grid: Any) -> list[float]:
    return [result.metrics["value"] for result in grid]


class Interrupts(tune.Callback):
    def on_trial_complete(self, *_args: Any, **_info: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def interrupted(storage: Path, trainable: Any = squares) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(storage, trainable, (1, 2, 3), [Interrupts()]).fit()


def test_a_finished_one_is_not_run_again_and_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    search(tmp_path).fit()
    assert capfd.readouterr().err == ""
    assert values(search(tmp_path).fit()) == [1, 4]
    said = capfd.readouterr().err
    assert "Experiment 'named' has already finished (2 trials). Nothing was run" in said
    assert "RunConfig(name=...) or set RunConfig(fresh=True)" in said


def test_a_fresh_one_is_stored_beside_the_old_ones(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    search(tmp_path).fit()
    other = search(tmp_path, cubes, fresh=True)
    assert values(other.fit()) == [1, 8]
    assert "experiment 'named' already exists and is kept. fresh=True starts a new one: 'named-2'" in (
        capfd.readouterr().err
    )
    assert values(other.fit()) == [1, 8]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["named", "named-2", "named-3"]
    assert values(search(tmp_path).fit()) == [1, 4]
    with pytest.raises(ValueError, match="Remove fresh=True"):
        tune.Tuner.restore(str(tmp_path / "named"), squares, run_config=tune.RunConfig(fresh=True))


def test_what_failed_in_it_can_be_retried_as_the_message_says(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    search(tmp_path, fails).fit()
    search(tmp_path, fails).fit()
    assert "(2 trials, 2 failed)" in capfd.readouterr().err
    grid = tune.Tuner.restore(str(tmp_path / "named"), fails, resume_errored=True).fit()
    assert grid.num_errors == 2


@pytest.mark.parametrize("is_over", [True, False], ids=["finished", "interrupted"])
def test_another_search_of_that_name_is_refused(tmp_path: Path, is_over: bool) -> None:
    search(tmp_path, xs=(1, 2, 3)).fit() if is_over else interrupted(tmp_path)
    with pytest.raises(TuneError, match=r"param_space\['x'\]: .*\[1, 2, 3\].* -> .*\[3, 4, 5\]") as refused:
        search(tmp_path, xs=(3, 4, 5)).fit()
    assert "RunConfig(name=...)" in str(refused.value)
    assert "Tuner.restore(" in str(refused.value)
    with pytest.raises(TuneError, match="the trainable: 'squares' -> 'cubes'"):
        search(tmp_path, cubes, (1, 2, 3)).fit()
    assert values(search(tmp_path, xs=(1, 2, 3)).fit()) == [1, 4, 9], "a refusal has changed it"


def test_constants_may_differ_while_it_is_unfinished(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A script may draw a directory of its own each time; the trials that there are keep what they had."""

    def tuner(callbacks: Any, constant: int) -> Any:
        made = search(tmp_path, squares, (1, 2, 3), callbacks)
        made._definition.param_space["constant"] = constant
        made._definition.run_config.verbose = 1
        return made

    with pytest.raises(KeyboardInterrupt):
        tuner([Interrupts()], 1).fit()
    constants = [result.config["constant"] for result in tuner(None, 2).fit()]
    assert constants[0] == 1
    assert constants[-1] == 2
    assert "param_space['constant']: 1 -> 2" in capfd.readouterr().err
    with pytest.raises(TuneError, match=r"param_space\['constant'\]: 2 -> 3"):
        tuner(None, 3).fit()


def test_changed_code_is_another_search_once_it_has_finished(tmp_path: Path) -> None:
    search(tmp_path).fit()
    changed = _named(lambda config: {"value": -config["x"]}, "squares")
    with pytest.raises(TuneError, match="the code of squares"):
        search(tmp_path, changed).fit()


def test_an_interrupted_one_resumes_with_fixed_code(tmp_path: Path) -> None:
    interrupted(tmp_path)
    fixed = _named(lambda config: {"value": -config["x"]}, "squares")
    assert values(search(tmp_path, fixed, (1, 2, 3)).fit()) == [1, -2, -3]


def test_other_settings_are_named_when_it_resumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    search(tmp_path).fit()
    again = search(tmp_path, num_samples=2)
    again._definition.run_config.verbose = 1
    assert values(again.fit()) == [1, 4, 1, 4]
    assert "resumes with changed settings: num_samples: 1 -> 2" in capfd.readouterr().err


def test_a_restore_may_change_the_search(tmp_path: Path) -> None:
    search(tmp_path).fit()
    tuner = tune.Tuner.restore(str(tmp_path / "named"), squares, param_space={"x": tune.grid_search([1, 2, 3])})
    assert values(tuner.fit()) == [1, 4, 9]


def _named(function: Any, name: str) -> Any:
    function.__name__ = name
    return function
