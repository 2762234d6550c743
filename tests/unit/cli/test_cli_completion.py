"""``holdfast completion``: what the shell offers is what the parser takes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support.cli.cli_shell import PATIENCE_S, holdfast


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = tmp_path_factory.mktemp("completion") / "holdfast.bash"
    script.write_text(holdfast("completion", "bash").stdout)
    return script


def offered(script: Path, *words: str, cwd: Path) -> list[str]:
    """What bash offers when the tabulator key is pressed after these words, of which the last may be a part."""
    press = 'COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _shtab_holdfast; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-u", "-c", f'source "{script}"; {press}', "bash", "holdfast", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
        cwd=cwd,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash(bash: Path, tmp_path: Path) -> None:
    (tmp_path / "a-run").mkdir()
    (tmp_path / "script.py").touch()
    listed = re.findall(r"^    (\w+)\b", holdfast("--help").stdout, re.MULTILINE)
    assert offered(bash, "", cwd=tmp_path) == listed
    assert offered(bash, "-", cwd=tmp_path) == ["-h", "--help", "--version"]
    assert offered(bash, "ch", cwd=tmp_path) == ["checkpoints"]
    assert offered(bash, "checkpoints", "e", cwd=tmp_path) == ["export"]
    assert offered(bash, "checkpoints", "delete", "a-run", "--", cwd=tmp_path) == [
        *("--help", "--json", "--keep", "--yes", "--force"),
    ]
    assert offered(bash, "show", "a", cwd=tmp_path) == ["a-run"]
    assert offered(bash, "run", "--max", cwd=tmp_path) == ["--max-failures"]
    assert sorted(offered(bash, "run", "--storage", "", cwd=tmp_path)) == ["a-run", "script.py"]
    assert offered(bash, "completion", "f", cwd=tmp_path) == ["fish"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish(tmp_path: Path) -> None:
    script = tmp_path / "holdfast.fish"
    script.write_text(holdfast("completion", "fish").stdout)
    line = f'source {script}; complete -C "holdfast checkp"; complete -C "holdfast checkpoints export --t"'
    done = subprocess.run(
        ["fish", "--no-config", "-c", line],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stderr == ""
    assert re.findall(r"^(\S+)\t", done.stdout, re.MULTILINE) == ["checkpoints", "--to"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
def test_zsh(tmp_path: Path) -> None:
    """Typed at a terminal: zsh completes nowhere else."""
    script = tmp_path / "holdfast.zsh"
    script.write_text(holdfast("completion", "zsh").stdout)
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "HOME": str(tmp_path), "TERM": "dumb"})
    try:
        type_in(fd, f"autoload -Uz compinit && compinit -u -D; source {script}; echo rea''dy\n", "ready")
        type_in(fd, "holdfast checkp\t", "checkpoints ")
        type_in(fd, "ex\t", "export ")
        type_in(fd, "--t\t", "--to ")
        type_in(fd, "\x15holdfast drill --o\t", "--only ")
        type_in(fd, "\x15holdfast show hold\t", "holdfast.zsh")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def type_in(fd: int, keys: str, expected: str) -> None:
    os.write(fd, keys.encode())
    seen, deadline = "", time.monotonic() + PATIENCE_S
    while expected not in re.sub(r"[^ -~]", "", seen.replace(keys, "")):  # without the echo, and how the cursor moved
        assert time.monotonic() < deadline, seen
        if select.select([fd], [], [], 0.2)[0]:
            seen += os.read(fd, 1 << 16).decode(errors="replace")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_of_every_command_is_in_it(shell: str) -> None:
    """A stand-in for shells that may not be here."""
    script = json.loads(holdfast("completion", shell, "--json").stdout)["script"]
    for name in ("max-failures", "follow", "interval", "export", "delete", "force"):
        assert name in script


def test_without_shtab_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert "pip install 'holdfast[completion]'" in holdfast("completion", "bash", code=2).stderr


def test_an_unknown_shell() -> None:
    assert "invalid choice: 'cmd'" in holdfast("completion", "cmd", code=2).stderr
