"""``holdfast cluster check`` where there is no cluster: said at once. With one: see tests/clusters."""

from __future__ import annotations

import socket

import pytest
from cli_shell import holdfast


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_nobody_answers(free_port: int) -> None:
    done = holdfast("cluster", "check", "--workers", "2", "--address", f"127.0.0.1:{free_port}", code=2)
    assert "no Ray cluster answers at" in done.stderr
    assert "ray start --head" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a RUN, or --workers N or --workers MIN:MAX"),
        (["--workers", "many"], "give a number, as in 4, or a range, as in 1:4"),
        (["--workers", "2", "--address", "nonsense"], "'nonsense' is no address; give host:port"),
    ],
)
def test_wrong_input(arguments: list[str], words: str) -> None:
    assert words in holdfast("cluster", "check", *arguments, code=2).stderr
