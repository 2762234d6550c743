"""What ``holdfast ui`` answers: pages and data of runs, and nothing to whoever has no token."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.runs.stored_experiment import open_stored
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from support.web.shown_runs import HOSTILE, search, train_run
from support.web.web_server import PATIENCE_S, WebServer, web_server

SCRIPT = Path(__file__).parents[2] / "support" / "web" / "shown_runs.py"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("storage")
    train_run(storage, "shaken", kills=[3], raises=[5])
    train_run(storage, "failing", raises=[2], retries=0)
    train_run(storage, "hostile", says=f"{HOSTILE}\x1b[31m\x1b]0;owned\x07", raises=[2], retries=0, metric=HOSTILE)
    search(storage, "search")
    shutil.copytree(storage / "shaken", storage / "damaged")
    (storage / "damaged" / "run.json").write_text("{")
    journal = storage / "damaged" / "journal" / "000001.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:4], b"garbage\n", *lines[5:]]))
    return storage


@pytest.fixture(scope="module")
def server(storage: Path) -> Iterator[WebServer]:
    with web_server(storage) as server:
        yield server


def test_the_list_shows_every_run_with_its_state(server: WebServer) -> None:
    text = server.get("/").text
    for name in ("shaken", "failing", "hostile", "damaged", "search"):  # before all of them have been read
        assert f"/{name}" in text
    _until(lambda: "badge reading" not in server.get("/").text)
    text = server.get("/").text
    assert "8 of 8 epochs" in text
    assert "planned failure at 2" in text
    assert "9 of 9 trials" in text
    damaged = text.partition('data-address="0/damaged"')[2].partition("</tr>")[0]
    assert "run.json is damaged" in damaged
    assert "The journal is damaged" in damaged


def test_a_run_page_tells_what_happened(server: WebServer) -> None:
    text = server.get("/run/0/shaken").text
    assert "rank 1 was killed by SIGKILL" in text
    assert "planned failure at 5" in text
    assert "checkpoint_000004" in text
    assert "retry 2 of 3" in text
    assert "productive" in text
    assert text.count('<span class="tl-bar attempt') == 3


def test_curves_have_what_was_kept_and_what_was_taken_back(server: WebServer) -> None:
    data = server.get("/data/curves/0/shaken").json()
    assert data["share"] == 1
    loss = next(metric for metric in data["metrics"] if metric["name"] == "loss")
    kept = sorted(x for part in loss["kept"] for x in part["x"])
    assert kept == list(range(1, 9))
    assert [failure["kind"] for failure in data["failures"]] == ["crash", "user error"]
    assert any(3 in part["x"] for part in loss["undone"])


def test_logs_come_from_their_end_from_a_byte_on_and_by_search(server: WebServer) -> None:
    whole = server.get("/data/log/0/shaken?attempt=1&rank=0").json()
    assert whole["lines"][1] == "epoch 0 "
    first = len(whole["lines"][0]) + len("\n")
    later = server.get(f"/data/log/0/shaken?attempt=1&rank=0&from={first}").json()
    assert later["lines"][0] == "epoch 0 "
    assert server.get(f"/data/log/0/shaken?attempt=1&rank=0&from={whole['next']}").json()["lines"] == []
    found = server.get("/data/log/0/shaken?attempt=1&rank=0&q=EPOCH%202").json()
    assert found["matches"] == [[4, "epoch 2 "]]


def test_a_checkpoint_is_verified_on_request(server: WebServer, storage: Path) -> None:
    page = server.get("/run/0/shaken").text
    token = page.split('name="token" value="')[-1].split('"')[0] if 'name="token"' in page else ""
    token = token or page.split('data-token="')[1].split('"')[0]
    form = {"token": token, "id": "checkpoint_000008"}
    assert server.post("/verify/0/shaken", form).json()["ok"]
    weights = storage / "damaged" / "checkpoints" / "checkpoint_000008" / "rank-0.json"
    weights.write_text("7")
    assert not server.post("/verify/0/damaged", form).json()["ok"]
    assert server.post("/verify/0/shaken", {**form, "token": "wrong"}).status == 403


def test_a_damaged_run_is_shown_with_its_damage(server: WebServer) -> None:
    text = server.get("/run/0/damaged").text
    assert "Damaged files" in text
    assert "<code>run.json</code>" in text
    assert "<code>journal/000001.jsonl</code>" in text


def test_pending_checkpoints_of_an_interrupted_run(server: WebServer, storage: Path) -> None:
    run = storage / "cut-off"
    shutil.copytree(storage / "shaken", run)
    journal = run / "journal" / "000001.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    assert b"RunEnded" in lines[-1]
    journal.write_bytes(b"".join(lines[:-1]))
    assert "pending" not in server.get("/run/0/cut-off").text
    for rank in (0, 1):
        shard = RunLayout(run).shard_dir(3, 7, rank)
        shard.mkdir(parents=True)
        (shard / "weights").write_bytes(b"x" * 600)
    text = server.get("/run/0/cut-off").text
    assert "Interrupted: no driver is running" in text
    assert "Rerun the same command to resume from checkpoint_000008." in text
    assert "1 pending" in text
    assert "1.2 kB, 2 ranks" in text
    assert "saved when the run resumes" in text
    assert 'class="tl-mark pending"' in text
    shutil.rmtree(run)


def test_a_hostile_run_is_nothing_but_text(server: WebServer) -> None:
    for path in ("/", "/run/0/hostile"):
        text = server.get(path).text
        assert "<script>document" not in text
        assert "<img src=x" not in text
        assert "\x1b" not in text
    for path in ("/data/curves/0/hostile", "/data/log/0/hostile?attempt=1&rank=0"):
        answer = server.get(path)
        assert answer.headers["Content-Type"] == "application/json"
        assert "\\u001b" not in answer.text


def test_every_answer_forbids_inline_scripts_and_framing(server: WebServer) -> None:
    for path in ("/", "/run/0/shaken", "/nowhere", "/static/holdfast.js", "/data/curves/0/shaken"):
        headers = server.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "default-src 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"


def test_without_the_token_nothing_is_told(server: WebServer) -> None:
    for path in ("/", "/run/0/shaken", "/data/curves/0/shaken", "/events", "/?token=wrong", "/?token="):
        answer = server.request("GET", path)
        assert answer.status == 401
        assert "shaken" not in answer.text
    assert server.request("GET", "/", {"Cookie": f"holdfast_ui_{server.port}=wrong"}).status == 401


def test_the_link_becomes_a_cookie_that_scripts_cannot_read(server: WebServer) -> None:
    answer = server.request("GET", f"/run/0/shaken?a=1&token={server.token}")
    assert answer.status == 303
    assert answer.headers["Location"] == "/run/0/shaken?a=1"
    assert "HttpOnly" in answer.headers["Set-Cookie"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_another_name_for_this_machine_is_refused(server: WebServer, host: str) -> None:
    assert server.get("/", Host=host).status == 403


def test_a_page_of_another_site_is_refused(server: WebServer) -> None:
    assert server.get("/data/curves/0/shaken", Origin="http://evil.example").status == 403
    assert server.get("/data/curves/0/shaken", Origin="null").status == 403
    assert server.get("/data/curves/0/shaken", Origin=server.origin).status == 200
    form = {"token": "anything"}
    assert server.request("POST", "/stop/0/shaken", server.cookie, form).status == 403


@pytest.mark.parametrize(
    "address", ["0/..", "0/../storage", "0/%2e%2e", "0/%2Fetc", "7/shaken", "x/shaken", "0/nowhere", "0"]
)
def test_an_address_does_not_lead_out_of_the_storage(server: WebServer, address: str) -> None:
    for page in ("run", "data/curves"):
        assert server.get(f"/{page}/{address}").status in (404, 307)


def test_static_files_come_with_the_package_and_with_plotly(server: WebServer) -> None:
    assert b"Plotly" in server.get("/static/plotly.min.js").body
    assert ".timeline" in server.get("/static/holdfast.css").text
    assert server.get("/static/..%2fguard.py").status == 404


def test_a_browser_that_leaves_before_its_answer_does_not_end_the_server(storage: Path) -> None:
    """The server writes headers and body one after the other: the first write to a closed connection makes the second
    one fail."""
    with web_server(storage) as server:
        assert server.get("/static/holdfast.css").status == 200
        server.process.send_signal(
            signal.SIGSTOP
        )  # so that it reads each request when its connection is closed already
        try:
            for _ in range(5):
                with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
                    connection.sendall(
                        f"GET /static/holdfast.css HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode()
                    )
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert server.get("/static/holdfast.css").status == 200
        assert server.process.poll() is None


def test_a_search_is_sorted_filtered_and_paged_by_the_server(server: WebServer, storage: Path) -> None:
    assert "of 9 done" in server.get("/experiment/0/search").text
    assert open_stored(Location.parse("x", storage / "search")).identity()["total_trials"] == 9  # a grid has one sample
    assert server.get("/run/0/search").status == 307
    found = server.get("/data/trials/0/search?sort=value").json()
    values = [float(row["value"]) for row in found["rows"]]
    assert values == sorted(values)
    assert (found["total"], found["params"]) == (9, ["lr", "width"])
    failed = server.get("/data/trials/0/search?status=ERROR&q=planned").json()
    assert [row["params"][1] for row in failed["rows"]] == ["3", "3", "3"]
    assert len(server.get("/data/trials/0/search?from=8").json()["rows"]) == 1
    trial = found["rows"][0]["address"]
    assert "0.3" in server.get(f"/run/0/search/{trial}").text


def test_the_plots_of_a_search(server: WebServer) -> None:
    plots = server.get("/data/experiment/0/search").json()
    assert [param["name"] for param in plots["params"]] == ["lr", "width"]
    assert len(plots["trials"]) == 9
    assert plots["trials"][-1][1] == min(trial[1] for trial in plots["trials"])
    assert {curve["status"] for curve in plots["curves"]} == {"TERMINATED", "ERROR"}
    best = [point[1] for point in plots["best"]]
    assert best == sorted(best, reverse=True)


def test_runs_are_compared(server: WebServer) -> None:
    text = server.get("/compare?run=0/shaken&run=0/failing").text.replace("<wbr>", "")
    assert "Settings that differ" in text
    assert "failure/max_failures" in text
    data = server.get("/data/compare?run=0/shaken&run=0/failing").json()
    loss = next(metric for metric in data["metrics"] if metric["name"] == "loss")
    assert [len(run["x"]) for run in loss["runs"]] == [8, 2]
    assert server.get("/compare?run=0/shaken").status == 400
    assert server.get("/compare?run=0/shaken&run=0/search").status == 404


def test_an_empty_storage_says_how_to_begin(tmp_path: Path) -> None:
    with web_server(tmp_path / "none") as server:
        assert "No runs yet" in server.get("/").text


def test_a_living_run_is_followed_and_stopped(tmp_path: Path) -> None:
    config = json.dumps({"epochs": 10_000, "pause_s": 0.05})
    with web_server(tmp_path) as server, subprocess.Popen([sys.executable, SCRIPT, tmp_path, "living", config]) as job:
        try:
            _until(lambda: "/run/0/living" in server.get("/").text and "epochs" in server.get("/run/0/living").text)
            _until(lambda: server.get("/data/curves/0/living").json()["metrics"])
            page = server.get("/run/0/living").text
            assert "badge running" in page
            token = page.split('name="token" value="')[1].split('"')[0]
            assert server.post("/stop/0/living", {"token": "wrong"}).status == 403
            assert server.post("/stop/0/living", {"token": token}).status == 303
            job.wait(PATIENCE_S)
            assert "badge stopped" in server.get("/run/0/living").text
        finally:
            job.kill()


def _until(true: object) -> None:
    assert callable(true)
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.1)
