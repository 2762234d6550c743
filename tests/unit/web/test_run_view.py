"""What the page of a run says about its failures."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.failures import Evidence
from holdfast.core.run import events as ev
from holdfast.core.run.state import Outcome, RunSpec
from holdfast.runs.stored_experiment import open_stored
from holdfast.store import metrics
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.web.run_view import run_view
from support.web.large_runs import checkpoint_of, write_stored


def test_a_hang_that_names_no_report_is_located_by_those_of_its_attempt(tmp_path: Path) -> None:
    writer = metrics.MetricsWriter(RunLayout(tmp_path))
    (tmp_path / "metrics").mkdir()
    writer.append(1, 0, b"".join(metrics.line(index, 10.0 + index, {"loss": 1.0}) for index in range(7)))
    writer.close()
    events = [
        ev.DriverStarted(1, RunSpec(num_workers=2, max_failures=3)),
        ev.AttemptStarted(1, 2, None, 0),
        ev.WorkerFailed(1, 1, Evidence(stalled_s=5.0)),
        ev.AttemptStarted(2, 2, checkpoint_of(4), 4),
        ev.RunEnded(Outcome.STOPPED, "", True),
    ]
    entries = [(20.0 + number, ev.journalled(event)) for number, event in enumerate(events)]
    write_stored(tmp_path, {"name": "run", "trainer": "T", "id": "1"}, entries)
    [failure] = run_view(open_stored(Location.parse("x", tmp_path))).failures
    assert (failure.account.at, failure.account.lost) == (7, 3)
