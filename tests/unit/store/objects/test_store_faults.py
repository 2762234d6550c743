"""A server that throttles, resets, cuts, hangs and loses replies: what the caller gets is right or a clear error."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from holdfast.errors import ObjectExistsError, StorageDeniedError, StorageError, StorageUnavailableError
from holdfast.store.objects import obstores, verdicts
from holdfast.store.objects.obstores import ObstoreObjects
from support.object_stores.scripted_server import ScriptedServer, scripted_server

JOIN_S = 30.0


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        yield server


@pytest.fixture
def store(server: ScriptedServer) -> Iterator[ObstoreObjects]:
    store = ObstoreObjects(server.store(), "s3://bucket", patience_s=30.0)
    assert store.creates_safely
    server.requests.clear()
    yield store
    store.close()


@pytest.mark.parametrize("fault", ["503", "429", "500", "reset", "truncate", "403", "expired", "no bucket"])
def test_a_fault_that_ends_is_not_seen(server: ScriptedServer, store: ObstoreObjects, fault: str) -> None:
    server.objects["a"] = content = os.urandom(1000)
    server.script.extend([fault] * 3)
    assert store.get("a") == content
    assert len(server.requests) == 4
    server.script.extend([fault] * 3)
    store.put("b", content)
    assert server.objects["b"] == content
    server.script.extend([fault] * 3)
    store.delete(["b"])
    assert "b" not in server.objects


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [
        ("503", StorageUnavailableError, "503 Service Unavailable SlowDown"),
        ("reset", StorageUnavailableError, "cannot be reached"),
        ("truncate", StorageUnavailableError, "body error"),
        ("403", StorageDeniedError, "403 Forbidden AccessDenied.*credentials"),
        ("expired", StorageDeniedError, "ExpiredToken.*credentials"),
        ("no bucket", StorageDeniedError, "NoSuchBucket.*bucket exists"),
    ],
)
def test_a_fault_that_stays_is_told(
    server: ScriptedServer, store: ObstoreObjects, fault: str, kind: type[StorageError], told: str
) -> None:
    server.objects["a"] = b"0123456789"
    server.always = fault
    with pytest.raises(kind, match=f"^Could not read s3://bucket/a: .*{told}") as caught:
        store.with_patience(0.3).get("a")
    assert type(caught.value) is kind


def test_a_server_that_hangs_is_asked_again(server: ScriptedServer, store: ObstoreObjects) -> None:
    server.objects["a"] = b"content"
    server.script.append("hang")
    assert store.with_patience(1.0).get("a") == b"content"
    server.release.set()


def test_closing_ends_a_call_that_waits(server: ScriptedServer, store: ObstoreObjects) -> None:
    server.always = "403"
    caught: list[BaseException] = []

    def call() -> None:
        try:
            store.with_patience(3600.0).get("a")
        except StorageUnavailableError as error:
            caught.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    while not server.requests and thread.is_alive():
        thread.join(0.01)
    store.close()
    thread.join(JOIN_S)
    assert not thread.is_alive()
    assert "closed" in str(caught[0]) or "403" in str(caught[0])


def test_a_create_whose_reply_was_lost_has_won(server: ScriptedServer, store: ObstoreObjects) -> None:
    server.script.extend(["lost reply", "503"])
    store.create("token", b"mine")
    assert server.objects["token"] == b"mine"
    assert server.requests.count("PUT token") == 3


def test_a_create_that_came_second_has_lost(server: ScriptedServer, store: ObstoreObjects) -> None:
    server.objects["token"] = b"theirs"
    server.script.extend(["503", "reset"])
    with pytest.raises(ObjectExistsError, match="s3://bucket/token already exists"):
        store.create("token", b"mine")
    assert server.objects["token"] == b"theirs"


def test_the_probe_is_not_misled_by_a_lost_reply(server: ScriptedServer) -> None:
    server.script.append("lost reply")
    store = ObstoreObjects(server.store(), "s3://bucket", patience_s=30.0)
    assert store.creates_safely
    assert server.objects == {}
    store.close()


def test_an_outage_does_not_decide_what_a_server_can(server: ScriptedServer) -> None:
    store = ObstoreObjects(server.store(), "s3://bucket", patience_s=0.2)
    server.always = "503"
    with pytest.raises(StorageUnavailableError):
        store.create("token", b"mine")
    server.always = ""
    assert store.creates_safely
    store.close()


def test_a_server_that_ignores_ranges_is_served_around(server: ScriptedServer, store: ObstoreObjects) -> None:
    server.objects["a"] = b"0123456789"
    server.ranges = False
    assert store.get_range("a", 2, 3) == b"234"
    assert store.get_range("a", 5, 5) == b"56789"


def test_a_store_is_not_used_across_a_fork(store: ObstoreObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(obstores, "_runtime_pid", os.getpid() + 1)
    with pytest.raises(StorageError, match="forked"):
        store.get("a")


def test_a_signed_address_is_not_shown() -> None:
    error = OSError("request to https://account.blob.core.windows.net/c/k?sv=1&sig=SECRET failed")
    assert "SECRET" not in str(verdicts.judge("read", "az://c/k", error))
    assert "account.blob" in str(verdicts.judge("read", "az://c/k", error))


def test_a_clock_that_is_wrong_is_named() -> None:
    said = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>RequestTimeTooSkewed</Code></Error>"
    assert "clock" in verdicts.remedy(verdicts.judge("write", "s3://b/k", OSError(said)))
