"""``holdfast cluster check`` where there is no cluster: said at once. With one: see tests/system/ray."""

from __future__ import annotations

import socket

import pytest

from support.cli.cli_shell import holdfast
from support.repository import EXAMPLES


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
        ([], "pass a RUN, --workers N or --workers MIN:MAX"),
        (["--workers", "many"], "use a number, as in 4, or a range, as in 1:4"),
        (["--workers", "2", "--address", "nonsense"], "'nonsense' is not an address. Use host:port"),
        (["--workers", "2", "--config", "nowhere.yaml"], "nowhere.yaml cannot be read: "),
    ],
)
def test_wrong_input(arguments: list[str], words: str) -> None:
    done = holdfast("cluster", "check", *arguments, code=2)
    assert words in done.stderr
    assert not done.stdout
    assert "usage:" in done.stderr or done.stderr.count("\n") == 1


def test_a_configuration_is_read_without_a_word_of_rays(free_port: int) -> None:
    config = EXAMPLES / "cluster" / "launcher.yaml"
    here = f"127.0.0.1:{free_port}"
    done = holdfast("cluster", "check", "--workers", "2", "--config", config, "--address", here, code=2)
    assert "no Ray cluster answers at" in done.stderr
    assert done.stderr.count("\n") == 1
