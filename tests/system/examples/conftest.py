"""Fixtures that run examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.examples.example_shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run directory of an example that nothing happened to; each example is run once for all tests."""
    done: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in done:
            shell = Shell(tmp_path_factory.mktemp("undisturbed"))
            try:
                shell.run(name, "--storage-path", str(shell.storage), "--run-name", "undisturbed")
                assert shell.temporary_files() == []
            finally:
                shell.close()
            done[name] = shell.storage / "undisturbed"
        return done[name]

    return run
