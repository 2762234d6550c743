"""A run as one HTML file, and results as a notebook shows them: complete, without network, and nothing of it runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holdfast.runs.stored_experiment import open_stored
from holdfast.store.location import Location
from holdfast.train import Result
from holdfast.tune import ResultGrid
from holdfast.web.report_file import report_page
from support.web.large_runs import write_run, write_search
from support.web.shown_runs import HOSTILE, train_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    train_run(storage, "run", says=HOSTILE, raises=[2], retries=0, metric=HOSTILE)
    return storage / "run"


def test_a_report_has_everything_inside(run: Path) -> None:
    page = report_page(open_stored(Location.parse("x", run)))
    ours = re.sub(r"<script>/\*\*.*?</script>", "", page, flags=re.DOTALL)
    assert "Recovery timeline" in page
    assert "Plotly" in page
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=", ours)
    assert "default-src 'none'" in page
    assert HOSTILE not in page
    assert "&lt;script&gt;document" in page


def test_a_report_of_many_reports_stays_small(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 20_000)
    assert len(report_page(open_stored(Location.parse("x", tmp_path / "run")))) < 6_000_000


def test_a_report_of_a_search_has_its_trials_inside(tmp_path: Path) -> None:
    write_search(tmp_path / HOSTILE.replace("/", "_"), 120, exploits=True)
    page = report_page(open_stored(Location.parse("x", tmp_path / HOSTILE.replace("/", "_"))))
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert len(data["trials"]["rows"]) == 120
    assert len(data["plots"]["exploits"]) == 119
    assert "2 of 120 trials failed" in page
    assert "ValueError: diverged" in page
    assert HOSTILE.replace("/", "_") not in page


def test_results_show_themselves_in_a_notebook(run: Path) -> None:
    result = Result.from_path(run)
    html = result._repr_html_()
    assert "✕ failed" in html
    assert "<polyline" in html
    assert HOSTILE not in html
    grid = ResultGrid([result, result], experiment_path=HOSTILE, metric="loss", mode="min")._repr_html_()
    assert "2 trials: 0 done, 2 failed" in grid
    assert HOSTILE not in grid
