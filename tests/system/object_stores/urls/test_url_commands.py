"""The command line on runs that real jobs have stored on an S3 server."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.location import Location
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from support.cli.cli_shell import PATIENCE_S, finish_job, holdfast, holdfast_json, start, start_job
from support.object_stores.remote_runs import commit, flip, open_at
from support.object_stores.servers import S3Server

ON_A_RUN = ["show", "logs", "checkpoints", "verify"]


@pytest.fixture(scope="session")
def driven(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A storage path with three runs: finished (after one failure), failed and killed. Only to look at."""
    marks = tmp_path_factory.mktemp("marks")
    storage = f"s3://{s3.make_bucket()}/runs"
    with pytest.MonkeyPatch.context() as context:
        for name, value in s3.environment.items():
            context.setenv(name, value)
        context.setenv("HOLDFAST_SCRATCH_DIR", str(marks / "scratch"))
        finish_job(start_job(storage, "finished", marks=str(marks), raise_at=2, max_failures=1))
        (marks / "raised-2").unlink()
        finish_job(start_job(storage, "failed", marks=str(marks), raise_at=2), code=1)
        killed = start_job(storage, "killed", marks=str(marks), wait_at=3)
        wait_for_checkpoint(f"{storage}/killed", "checkpoint_000003")
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=PATIENCE_S)
        open_at(storage).put("no-run/notes.txt", b"")
    return storage


@pytest.fixture
def storage(driven: str, bucket: str) -> str:
    """The same, with the environment to reach it."""
    assert bucket
    return driven


@pytest.fixture
def finished(storage: str, bucket: str) -> str:
    """A copy of the finished run, to be damaged."""
    source, target = open_at(f"{storage}/finished"), open_at(f"{bucket}/copies/finished")
    for info in source.list():
        target.put(info.key, source.get(info.key))
    return f"{bucket}/copies/finished"


def wait_for_checkpoint(url: str, id: str) -> None:
    objects = open_at(f"{url}/checkpoints")
    deadline = time.monotonic() + PATIENCE_S
    while not any(info.key == f"{id}.json" for info in objects.level().objects):
        assert time.monotonic() < deadline, f"{id} did not come"
        time.sleep(0.02)


def content(url: str) -> dict[str, bytes]:
    objects = open_at(url)
    return {info.key: objects.get(info.key) for info in objects.list()}


def test_ls(storage: str) -> None:
    rows = holdfast_json("ls", storage)
    assert [(row["name"], row["state"], row["reports"], row["last_checkpoint"]) for row in rows] == [
        ("failed", "failed", 2, "checkpoint_000002"),
        ("finished", "finished", 5, "checkpoint_000005-g2"),
        ("killed", "interrupted", 3, "checkpoint_000003"),
    ]
    assert [row["path"] for row in rows] == [f"{storage}/{name}" for name in ("failed", "finished", "killed")]
    assert holdfast_json("ls", f"{storage}/finished") == [rows[1]]
    assert holdfast("ls", storage).stdout.splitlines()[2].split()[:4] == [
        "finished",
        "finished",
        "5",
        "checkpoint_000005-g2",
    ]
    done = holdfast("ls", f"{storage}/nothing")
    assert (done.stdout, done.stderr) == ("", f"no runs in {storage}/nothing\n")


@pytest.mark.parametrize("command", ["logs", "verify"])
def test_ways_to_name_a_run(command: str, storage: str) -> None:
    expected = holdfast(command, f"{storage}/finished", "--json").stdout
    assert expected
    assert holdfast(command, f"{storage}/finished/", "--json").stdout == expected
    assert holdfast(command, "finished", "--json", HOLDFAST_STORAGE_PATH=storage).stdout == expected


def test_show(storage: str) -> None:
    found = holdfast_json("show", f"{storage}/finished")
    assert (found["name"], found["path"], found["state"]) == ("finished", f"{storage}/finished", "finished")
    assert (found["reports"], found["metrics"]["step"], found["damage"]) == (5, 5, [])
    assert [failure["cause"] for failure in found["failures"]] == ["user error"]
    assert "planned failure at 2" in found["failures"][0]["text"]
    assert found["checkpoints"] == holdfast_json("checkpoints", f"{storage}/finished")["checkpoints"]
    assert [checkpoint["report"] for checkpoint in found["checkpoints"]][-3:] == [3, 4, 5]
    text = holdfast("show", f"{storage}/failed").stdout
    assert f"path        {storage}/failed" in text
    assert "planned failure at 2" in text


def test_logs(storage: str) -> None:
    own = ["begins at 2", "step 3", "step 4", "step 5", "last words"]
    assert holdfast("logs", f"{storage}/finished").stdout.splitlines() == [
        f"(rank {rank}) {f'rank {rank} {line}' if 'begins' in line else line}" for rank in (0, 1) for line in own
    ]
    first = holdfast("logs", f"{storage}/finished", "--attempt", 1, "--rank", 1).stdout.splitlines()
    assert first[:3] == ["rank 1 begins at 0", "step 1", "step 2"]
    assert "no log of rank 9. It has: 0, 1." in holdfast("logs", f"{storage}/finished", "--rank", 9, code=2).stderr


def test_a_log_in_parts_is_printed_byte_for_byte(finished: str) -> None:
    log = f"{finished}/logs/attempt-0002"
    open_at(log).put("rank-0.log", b"\xff first line\r\nsecond ")
    open_at(log).put("rank-0.log.1", b"line\nthird")
    open_at(log).put("rank-0.log.10", b" line\n")
    assert [
        json.loads(line)["line"] for line in holdfast("logs", finished, "--rank", 0, "--json").stdout.splitlines()
    ] == [
        "\N{REPLACEMENT CHARACTER} first line\r",
        "second line",
        "third line",
    ]


def test_verify_says_what_is_good_and_what_would_be_resumed(storage: str) -> None:
    lines = holdfast("verify", f"{storage}/killed").stdout.splitlines()
    assert lines[0] == "run.json             good"
    assert lines[1].startswith("journal              good: ")
    assert lines[2] == "metrics              good: 6 reports in 2 files"
    assert lines[-3].startswith("checkpoint_000003    good: report 3, 3 files, ")
    assert lines[-2:] == ["the run would resume from checkpoint_000003 (report 3)", "all 6 good"]


def of_a_checkpoint(url: str, name: str) -> str:
    """The one object below a URL with such a name."""
    (key,) = [info.key for info in open_at(url).list() if name in info.key]
    return key


def flip_in(name: str) -> Any:
    return lambda url: flip(url, of_a_checkpoint(url, name))


NEWEST, OLDER = "checkpoint_000005-g2", "checkpoint_000004-g2"  # in remote storage no name is used twice
DAMAGE: dict[str, tuple[Any, str, str]] = {
    "a bit in a file": (flip_in(f"{NEWEST}/rank-0"), "rank-0 has other content than was committed", OLDER),
    "a file that is gone": (
        lambda url: open_at(url).delete([f"checkpoints/{NEWEST}/rank-1"]),
        "rank-1 is missing",
        OLDER,
    ),
    "a file that is cut": (
        lambda url: open_at(url).put(f"checkpoints/{NEWEST}/rank-1", b"x"),
        "rank-1 has 1 bytes instead of 2000",
        OLDER,
    ),
    "a file too many": (
        lambda url: open_at(url).put(f"checkpoints/{NEWEST}/more", b""),
        "more does not belong to it",
        OLDER,
    ),
    "a bit in a manifest": (flip_in(f"{NEWEST}.json"), "its content does not match its checksum", OLDER),
    "a manifest that is gone": (
        lambda url: open_at(url).delete([f"checkpoints/{NEWEST}.json"]),
        "it is missing, so the checkpoint is lost",
        OLDER,
    ),
    "a bit in run.json": (flip_in("run.json"), "run.json (file): ", NEWEST),
    "a bit in the reports": (flip_in("metrics/attempt-0002/rank-1.jsonl"), "it is not an intact report", NEWEST),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_verify_names_damage(finished: str, what: str) -> None:
    inflict, named, resumed = DAMAGE[what]
    inflict(finished)
    done = holdfast("verify", finished, code=1)
    (line,) = [line for line in done.stdout.splitlines() if "DAMAGED" in line]
    assert named in line
    assert f"the run would resume from {resumed}" in done.stdout
    assert "1 of " in done.stdout.splitlines()[-1]


def test_verify_names_damage_to_the_journal(finished: str) -> None:
    last = max(info.key for info in open_at(finished).list("journal/"))
    flip(finished, last)
    found = holdfast_json("verify", finished, code=1)
    (check,) = [check for check in found["checks"] if check["what"] == "journal"]
    assert check["damage"][0]["path"] == last
    assert holdfast_json("show", finished, code=1)["damage"] == check["damage"]


def test_every_bit_counts(finished: str) -> None:
    """In-process, for speed: the same reader that the command uses."""
    from holdfast.errors import CheckpointDamagedError
    from holdfast.runs.stored_run import StoredRun

    run = StoredRun(Location.parse("path", finished))
    key = f"checkpoints/{NEWEST}/rank-0"
    objects = open_at(finished)
    intact = objects.get(key)
    for bit in range(0, len(intact) * 8, len(intact) * 8 // 100):
        data = bytearray(intact)
        data[bit // 8] ^= 1 << bit % 8
        objects.put(key, bytes(data))
        with pytest.raises(CheckpointDamagedError, match="rank-0 has other content"):
            run.verify(NEWEST)
    objects.put(key, intact)
    run.verify(NEWEST)


def test_what_was_set_aside_is_listed_and_is_no_new_damage(finished: str) -> None:
    RemoteCheckpoints(open_at(finished)).quarantine(NEWEST, "a disk lied")
    kept = holdfast_json("checkpoints", finished)
    assert kept["quarantined"] == [{"id": NEWEST, "why": "a disk lied"}]
    found = holdfast_json("verify", finished)
    assert found["quarantined"] == kept["quarantined"]
    assert found["resume"]["id"] == OLDER


def test_what_a_relieved_driver_committed_late_does_not_count(finished: str) -> None:
    commit(finished, "late", report=9, epoch=0)
    found = holdfast_json("verify", finished)
    assert (found["good"], found["resume"]["id"]) == (True, NEWEST)
    commit(finished, "next", report=9, epoch=99)
    assert holdfast_json("verify", finished)["resume"] == {"id": "next", "report": 9}


def test_files_that_their_user_has_put_elsewhere(finished: str) -> None:
    commit(finished, "mine", report=9, epoch=99, elsewhere="my-files/first")
    assert holdfast_json("verify", finished)["resume"]["id"] == "mine"
    flip(finished, "my-files/first/model.pt")
    found = holdfast_json("verify", finished, code=1)
    assert "model.pt has other content" in found["checks"][-1]["damage"][0]["what"]
    assert found["resume"]["id"] == NEWEST


def test_a_run_that_lost_what_it_is(finished: str) -> None:
    flip(finished, "run.json")
    objects = open_at(finished)
    objects.delete([info.key for info in objects.list("journal/")])
    done = holdfast("ls", finished, code=1)
    assert f"holdfast: {finished}: what it is was lost; holdfast verify {finished} says more" in done.stderr
    assert "the run would resume from checkpoint_000005-g2" in holdfast("verify", finished, code=1).stdout


def test_nothing_is_changed(finished: str) -> None:
    before = content(finished)
    for command in ("ls", *ON_A_RUN):
        holdfast(command, finished)
    assert content(finished) == before


def test_a_run_at_work_is_seen_and_followed(bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/runs/run"
    job = start_job(f"{bucket}/runs", marks=str(tmp_path), wait_at=3)  # type: ignore[arg-type]
    wait_for_checkpoint(url, "checkpoint_000003")
    found = holdfast_json("show", url)
    assert (found["state"], found["driver"]["pid"]) == ("running", job.pid)
    assert holdfast_json("ls", f"{bucket}/runs")[0]["state"] == "running"
    assert holdfast_json("verify", url)["resume"]["id"] == "checkpoint_000003"
    follower = start([sys.executable, "-m", "holdfast", "logs", url, "--rank", "0", "--follow"])
    (tmp_path / "go").touch()
    finish_job(job)
    output, errors = follower.communicate(timeout=PATIENCE_S)
    assert (follower.returncode, errors) == (0, "")
    assert output.splitlines() == ["rank 0 begins at 0", *(f"step {step}" for step in range(1, 6)), "last words"]
    assert holdfast_json("show", url)["driver"] is None


def refused(*arguments: object, **environment: str) -> str:
    done = holdfast(*arguments, code=2, **environment)
    assert done.stdout == ""
    assert done.stderr.startswith("holdfast: error: ")
    assert done.stderr.count("\n") == 1
    assert "hidden" not in done.stderr
    return done.stderr


SECRET = "?access_key_id=AKIDTEST&secret_access_key=hidden"


@pytest.mark.parametrize("command", ["show", "verify"])
def test_urls_that_are_no_run(command: str, storage: str) -> None:
    assert f"{storage}/none does not exist" in refused(command, f"{storage}/none{SECRET}")
    assert f"Try: holdfast ls {storage}" in refused(command, f"{storage}{SECRET}")
    assert f"{storage}/no-run is not a Holdfast run" in refused(command, f"{storage}/no-run")


def test_wrong_urls(storage: str) -> None:
    assert "S3:// is not known" not in refused("show", f"S3://{storage.removeprefix('s3://')}{SECRET}")
    assert "'ftp://host/runs': ftp:// is not supported" in refused("ls", f"ftp://host/runs{SECRET}")
    assert "give credentials by environment variables" in refused("ls", "s3://me:hidden@bucket/runs")
    assert "name the bucket" in refused("ls", f"s3:///runs{SECRET}")
    assert "no_such_option" in refused("ls", f"{storage}?no_such_option=1&secret_access_key=hidden")
    stderr = holdfast("show", f"{storage}/finished", f"{storage}/failed{SECRET}", code=2).stderr
    assert "unrecognized arguments" in stderr
    assert "hidden" not in stderr


def test_storage_that_cannot_be_reached(storage: str) -> None:
    assert "NoSuchBucket" in refused("verify", f"s3://no-such-bucket/run{SECRET}")
    said = refused("ls", f"{storage}{SECRET}", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    assert "cannot be reached" in said
    assert "Check the network" in said


def test_storage_that_refuses_this_user(storage: str) -> None:
    with refusing_server() as url:
        said = refused("verify", f"{storage}/finished", AWS_ENDPOINT_URL=url)
    assert "403 Forbidden AccessDenied" in said
    assert "Check the credentials" in said
    assert "There are no credentials" in refused("ls", storage, AWS_ACCESS_KEY_ID="")


@contextlib.contextmanager
def refusing_server() -> Iterator[str]:
    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>AccessDenied</Code></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusal) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(PATIENCE_S)
