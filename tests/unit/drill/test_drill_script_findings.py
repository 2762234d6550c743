"""What a drill says of the script as a whole."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from holdfast.drill import content
from holdfast.drill.content import RANDOM, Difference
from holdfast.drill.drill_verdict import ADVICE, PROBLEM
from holdfast.drill.fault_plan import plan
from holdfast.drill.faults import Address
from holdfast.drill.run_comparison import Differences
from holdfast.drill.script_findings import of_the_script
from holdfast.train.torch import rng_state
from support.drill.drill_outcomes import outcome


def saved(path: Path, **other: Any) -> Path:
    path.mkdir()
    torch.save({"weight": torch.ones(2), "rng": {**rng_state(), **other}}, path / "state-0.pt")
    return path


def test_an_unseeded_generator_is_not_the_scripts_fault(tmp_path: Path) -> None:
    before = saved(tmp_path / "before")
    after = saved(tmp_path / "after", numpy=["MT19937", [1] * 624, 0, 0, 0.0])
    differences = content.compare(before, after).differences
    assert differences == [Difference("state-0.pt: rng.numpy", f"{RANDOM} of numpy")]
    (finding,) = of_the_script([outcome()], Differences(weights=differences), all_passed=True)
    assert (finding.code, finding.severity) == ("not-seeded", ADVICE)
    assert "random generator of numpy is not seeded" in finding.text
    assert "the script is correct" in finding.text
    assert finding.remedy.endswith("numpy.random.seed(0)")


@pytest.mark.parametrize(
    ("source", "file", "state"),
    [
        ("numpy", "own.pkl", lambda seed: np.random.RandomState(seed).get_state()),
        ("numpy", "own.pkl", lambda seed: np.random.RandomState(seed).get_state(legacy=False)),
        ("numpy", "own.pkl", lambda seed: np.random.default_rng(seed).bit_generator.state),
        ("python", "own.pkl", lambda seed: random.Random(seed).getstate()),
        ("torch", "own.pt", lambda seed: torch.Generator().manual_seed(seed).get_state()),
    ],
)
def test_a_generator_is_known_wherever_the_script_saves_its_state(
    tmp_path: Path, source: str, file: str, state: Any
) -> None:
    for number, name in enumerate(("before", "after")):
        (tmp_path / name).mkdir()
        value = {"weight": 1.0, "noise": {"mine": state(number)}}
        with open(tmp_path / name / file, "wb") as opened:
            (torch.save if file == "own.pt" else pickle.dump)(value, opened)
    differences = content.compare(tmp_path / "before", tmp_path / "after").differences
    assert differences == [Difference(f"{file}: noise.mine", f"{RANDOM} of {source}")]
    (finding,) = of_the_script([outcome()], Differences(weights=differences), all_passed=True)
    assert (finding.code, finding.severity) == ("not-seeded", ADVICE)
    assert f"random generator of {source} is not seeded" in finding.text


def test_weights_that_differ_without_a_fault_are() -> None:
    noise = Differences(
        weights=[Difference("a: rng.numpy", f"{RANDOM} of numpy"), Difference("a: weight", "off by up to 1")]
    )
    (finding,) = of_the_script([outcome()], noise, all_passed=True)
    assert (finding.code, finding.severity) == ("not-repeatable", PROBLEM)


def test_a_script_in_which_only_rank_0_reports() -> None:
    run = outcome(workers=3)
    run.records = {0: run.records[0]}
    (finding,) = of_the_script([run], Differences(), all_passed=True)
    assert (finding.code, finding.severity) == ("rank-zero-only", PROBLEM)
    assert finding.text.startswith("ranks 1-2 never called report()")
    run.identity["checkpoint"] = {"rank_zero_only": True}
    assert of_the_script([run], Differences(), all_passed=True) == []


def test_faults_strike_ranks_that_report() -> None:
    run = outcome(workers=3)
    run.records = {0: run.records[0]}
    faults, _ = plan([Address("worker-kill"), Address("exception"), Address("segfault")], [run], seed=0)
    assert {fault.rank for fault in faults} == {0}


def test_ranks_that_overwrite_each_others_files() -> None:
    run = outcome()
    run.records[1][1]["files"] = {"state.json": "another digest"}
    (finding,) = of_the_script([run], Differences(), all_passed=True)
    assert (finding.code, finding.severity) == ("same-file-name", ADVICE)
    assert "ranks 0 and 1 save different content as 'state.json'" in finding.text
    assert "get_world_rank()" in finding.remedy
    (finding,) = of_the_script([run], Differences(), all_passed=False)
    assert finding.severity == PROBLEM
