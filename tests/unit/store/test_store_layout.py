from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.store.layout import RunLayout, check_name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "a/b", "/a", "a\\b", "a\0b", "x" * 201, "é" * 101, "a.json", "a.json.damaged", "\ud800"],
)
def test_unsafe_names_are_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(ValueError, match=r"not a valid name: .* Use letters"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "epoch-0005", "x" * 200, "größe", "a b", "a..b", "checkpoint_000001.tmp"])
def test_safe_names_pass(name: str) -> None:
    check_name(name)


def test_a_name_that_is_no_string_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="must be a string, not int"):
        check_name(5)  # type: ignore[arg-type]


def test_no_checkpoint_name_leads_out_of_the_run() -> None:
    layout = RunLayout(Path("run"))
    for method in (layout.checkpoint_dir, layout.manifest_file, layout.quarantine_file):
        with pytest.raises(ValueError):
            method("../other")


def test_the_places_of_a_run_are_stable() -> None:
    layout = RunLayout(Path("run"))
    places = {
        layout.run_file: "run.json",
        layout.lease_file: "lease.json",
        layout.segment_file(3): "journal/000003.jsonl",
        layout.checkpoint_dir("c"): "checkpoints/c",
        layout.manifest_file("c"): "checkpoints/c.json",
        layout.shard_dir(1, 2, 3): ".staging/attempt-0001-report-000002/rank-3",
        layout.metrics_file(1, 0): "metrics/attempt-0001/rank-0.jsonl",
        layout.log_file(12, 3): "logs/attempt-0012/rank-3.log",
    }
    assert {layout.relative(path): path for path in places} == {name: path for path, name in places.items()}


def test_segments_are_found_by_number_and_strangers_are_passed_over(layout: RunLayout) -> None:
    assert layout.segments() == []
    layout.journal_dir.mkdir(parents=True)
    for name in ["000010.jsonl", "000002.jsonl", "1000000.jsonl", "x.jsonl", "000003.jsonl.bak", "²2.jsonl", ".tmp"]:
        (layout.journal_dir / name).touch()
    assert [epoch for epoch, _ in layout.segments()] == [2, 10, 1000000]
