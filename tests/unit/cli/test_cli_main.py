"""The entry point: help, wrong input, closed pipes, missing rights, and a quick start."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli.cli_shell import PATIENCE_S, holdfast
from support.repository import ROOT

COMMANDS = ["run", "ls", "show", "compare", "ui", "report", "watch", "logs", "stop", "checkpoints", "verify", "doctor"]
COMMANDS += ["drill", "cluster", "completion"]
ACTION = {"checkpoints": ["list"], "cluster": ["check"]}
LOOKING = ["show", "logs", "checkpoints", "verify"]  # and change nothing, and say the same each time
ON_A_RUN = ["show", "watch", "logs", "stop", "checkpoints", "verify"]


def python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_help_lists_the_commands_and_the_exit_codes() -> None:
    text = holdfast("--help").stdout
    assert re.findall(r"^    (\w+)\b", text, re.MULTILINE) == COMMANDS
    assert "Exit codes" in text
    for command in COMMANDS:
        help_of_one = holdfast(command, *ACTION.get(command, ()), "--help").stdout
        assert "--json" in help_of_one
        assert "Exit codes" in help_of_one


def test_the_script_of_the_package_is_this_entry_point() -> None:
    found = re.search(
        r'^\[project\.scripts\]\nholdfast = "([\w.]+):(\w+)"$', (ROOT / "pyproject.toml").read_text(), re.M
    )
    assert found is not None
    assert callable(getattr(importlib.import_module(found[1]), found[2]))


def test_the_version() -> None:
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\S*\n", holdfast("--version").stdout)


def test_no_command_and_an_unknown_one() -> None:
    assert "usage: holdfast" in holdfast(code=2).stderr
    assert "invalid choice: 'burn'" in holdfast("burn", code=2).stderr
    assert holdfast("shwo", code=2).stderr.endswith(". Did you mean 'show'?\n")


@pytest.mark.parametrize("command", ON_A_RUN)
def test_paths_that_are_no_run(command: str, storage: Path, tmp_path: Path) -> None:
    for path, remedy in (
        (tmp_path / "none", "does not exist. Pass the directory of a run"),
        (tmp_path, "is not a Holdfast run: it has no run.json. Pass the directory of a run"),
        (storage, f"Try: holdfast ls {storage}"),
        (storage / "finished" / "run.json", "run.json is a file. Pass the directory of a run"),
        ("ftp://host/run", "'ftp://host/run': ftp:// is not supported. Use a plain path, file://, s3://"),
        ("", "the path is empty"),
    ):
        done = holdfast(command, path, code=2)
        assert done.stdout == ""
        assert done.stderr.startswith("holdfast: error: ")
        assert done.stderr.count("\n") == 1
        assert remedy in done.stderr


@pytest.mark.parametrize("command", LOOKING)
def test_ways_to_name_a_run(command: str, storage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = holdfast(command, storage / "killed", "--json").stdout
    assert expected
    monkeypatch.chdir(storage / "failed")
    assert holdfast(command, "../killed", "--json").stdout == expected
    assert holdfast(command, f"file://{storage}/killed", "--json").stdout == expected
    assert holdfast(command, "killed", "--json", HOLDFAST_STORAGE_PATH=str(storage)).stdout == expected


def test_a_wrong_setting_is_named() -> None:
    assert "error: HOLDFAST_PREFORK='maybe'" in holdfast("ls", code=2, HOLDFAST_PREFORK="maybe").stderr


def test_a_journal_of_a_later_version(golden: Path) -> None:
    from holdfast.store.sealed import seal

    segment = golden / "journal" / "000002.jsonl"
    segment.write_bytes(seal(b'{"seq":16,"time":1.0,"kind":"DriverStarted","body":{"epoch":"later"}}'))
    for command in ("show", "checkpoints", "verify"):
        assert "pip install --upgrade holdfast" in holdfast(command, golden, code=1).stderr
    assert "unreadable" in holdfast("ls", golden.parent, code=1).stdout


@pytest.mark.parametrize("command", ON_A_RUN)
def test_a_reader_that_has_gone(command: str, storage: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", command, str(storage / "finished")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=PATIENCE_S) == -signal.SIGPIPE


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux only")
def test_output_that_cannot_be_written(storage: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "holdfast", "ls", str(storage)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ON_A_RUN)
def test_no_output_at_all(command: str, storage: Path) -> None:
    line = f'exec "{sys.executable}" -m holdfast {command} "{storage}/finished" >&-'
    done = subprocess.run(["/bin/sh", "-c", line], stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_name_that_the_terminal_cannot_show(finished: Path) -> None:
    renamed = finished.rename(finished.with_name("läuft\x1b[2J"))
    text = holdfast("ls", finished.parent, PYTHONIOENCODING="ascii").stdout
    assert "l\\xe4uft\\x1b[2J " in text
    assert "\x1b" not in holdfast("show", renamed).stdout


AS_NOBODY = """
import os, sys
from holdfast.cli import main
import locale  # what is imported later may not be readable then
main._module(sys.argv[1])
if os.geteuid() == 0:
    os.setegid(65534); os.seteuid(65534)
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["ls", *ON_A_RUN])
def test_a_run_that_may_not_be_read(command: str, finished: Path) -> None:
    storage = finished.parent
    storage.chmod(0)
    try:
        done = python(AS_NOBODY, command, finished)
    finally:
        storage.chmod(0o700)
    assert done.returncode == 1
    assert "Permission denied. Run this as a user who may read it." in done.stderr
    assert done.stderr.count("\n") == 1


QUICK = """
import sys
from holdfast.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
assert code == 0, code
slow = {"torch", "ray", "numpy", "rich", "pandas", "asyncio", "holdfast.train", "holdfast.engine"} & set(sys.modules)
assert not slow, slow
"""


def test_it_starts_without_what_takes_long_to_import(storage: Path) -> None:
    on_a_run = [[command, storage / "finished"] for command in ON_A_RUN]
    helps = [["--help"], ["run", "--help"], ["cluster", "check", "--help"], ["completion", "bash"]]
    for words in [*on_a_run, ["ls", storage], *helps]:
        done = python(QUICK, *words)
        assert done.returncode == 0, (words, done.stderr)


def test_help_imports_no_command() -> None:
    code = """
import sys
from holdfast.cli.main import main
try:
    main(["--help"])
except SystemExit:
    found = {name for name in sys.modules if name.startswith("holdfast.cli.")}
    assert found == {"holdfast.cli.main"}, found
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
