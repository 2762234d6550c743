"""``holdfast completion``: what the shell offers is what the parser takes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from cli_shell import PATIENCE_S, holdfast


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    script = tmp_path_factory.mktemp("completion") / "holdfast.bash"
    script.write_text(holdfast("completion", "bash").stdout)
    return script


def offered(script: Path, *words: str, cwd: Path) -> list[str]:
    """What bash offers when the tabulator key is pressed after these words, of which the last may be a part."""
    command = (
        f'source "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($#-1)); _holdfast; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(
        ["bash", "-u", "-c", command, "bash", "holdfast", *words],
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
    assert offered(bash, "", cwd=tmp_path) == [*listed, "-h", "--help", "--version"]
    assert offered(bash, "ch", cwd=tmp_path) == ["checkpoints"]
    assert offered(bash, "checkpoints", "e", cwd=tmp_path) == ["export"]
    assert offered(bash, "checkpoints", "delete", "a-run", "--", cwd=tmp_path) == [
        *("--help", "--json", "--keep", "--yes", "--force"),
    ]
    assert offered(bash, "show", "a", cwd=tmp_path) == ["a-run"]
    assert offered(bash, "run", "--max", cwd=tmp_path) == ["--max-failures"]
    assert sorted(offered(bash, "run", "--storage", "", cwd=tmp_path)) == ["a-run", "script.py"]
    assert offered(bash, "completion", "f", cwd=tmp_path) == ["fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_option_of_every_command_is_in_it(shell: str) -> None:
    """A stand-in for shells that may not be here: the words are there, and quotes are in pairs."""
    script = json.loads(holdfast("completion", shell, "--json").stdout)["script"]
    for name in ("max-failures", "follow", "interval", "export", "delete", "force"):
        assert name in script
    for line in script.splitlines():
        assert re.sub(r"\\.", "", line).count("'") % 2 == 0
        assert re.sub(r"\\.", "", line).count('"') % 2 == 0


def test_an_unknown_shell() -> None:
    assert "invalid choice: 'cmd'" in holdfast("completion", "cmd", code=2).stderr
