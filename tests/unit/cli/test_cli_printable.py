"""What is stored may have been written by somebody else: on a terminal it can be read, and do nothing more."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast import cli as commands
from holdfast.printable import UNPRINTABLE, printable, printable_json, printable_lines
from holdfast.store import values
from holdfast.store.journal import line
from holdfast.store.layout import check_name
from holdfast.store.sealed import seal, unseal
from support.cli.cli_shell import PATIENCE_S, holdfast, holdfast_json

EVIL = "evil\x1b]0;owned\x07\x1b[2J\x9b1A\u202etxt.\u2028\r\n[red][link=file:///]x"
SHOWN = r"evil\x1b]0;owned\x07\x1b[2J\x9b1A\u202etxt.\u2028"
HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def evil(finished: Path) -> Path:
    """A run with such a name, whose checkpoints, metrics, failures and configuration say such things too."""
    (finished.parent / "of-others").mkdir()
    root = finished.rename(finished.parent / "of-others" / EVIL.replace("/", "_"))
    home = root / "checkpoints"
    newest = max(path for path in home.iterdir() if path.suffix == ".json")
    fields = values.decode(unseal(newest.read_bytes()[:-1]) or b"")
    fields |= {"id": "evil\x1b[2J\x9b", "metrics": {EVIL: EVIL, "loss": 0.5}, "report": 99}
    shutil.copytree(newest.with_suffix(""), home / fields["id"])
    (home / f"{fields['id']}.json").write_bytes(seal(values.encode(fields)))
    (home / "gone\x1b[2J.json.damaged").write_bytes(b"")
    (home / "gone\x1b[2J.json.damaged.txt").write_text(EVIL)
    (newest.with_suffix("") / EVIL.replace("/", "_")).write_text("does not belong to it")
    segment = max((root / "journal").iterdir())
    number = len(segment.read_bytes().splitlines()) + 1
    told = {"outcome": "failed", "reason": EVIL}
    with segment.open("ab") as file:
        file.write(line(number, time.time(), "RunEnded", told))
        file.write(EVIL.encode())
    identity = values.decode(unseal((root / "run.json").read_bytes()[:-1]) or b"")
    identity["run"] |= {"trainer": EVIL, "train_loop_config": {EVIL: EVIL}}
    (root / "run.json").write_bytes(seal(values.encode(identity)))
    return root


COMMANDS: dict[str, list[str]] = {
    "ls": ["ls", "STORAGE"],
    "show": ["show", "RUN"],
    "checkpoints": ["checkpoints", "RUN"],
    "checkpoints verify": ["checkpoints", "verify", "RUN"],
    "checkpoints of a wrong name": ["checkpoints", "verify", "RUN", "other"],
    "verify": ["verify", "RUN"],
    "stop": ["stop", "RUN"],
    "watch": ["watch", "RUN"],
    "logs": ["logs", "RUN", "--attempt", "77"],
    "no such run": ["show", "STORAGE/x\x1b[2J"],
    "too much": ["show", "RUN", "RUN"],
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
def test_nothing_stored_reaches_a_terminal_as_it_is(evil: Path, command: list[str]) -> None:
    words = [word.replace("STORAGE", str(evil.parent)).replace("RUN", str(evil)) for word in command]
    shown = on_terminal(words)
    assert shown
    assert not HARMFUL.search(shown.replace("\x1b[H\x1b[J", "").replace("\x1b[2J", "", int("watch" in command)))
    assert "\n[red]" not in shown, "a name began a line of its own"


@pytest.mark.parametrize(("command", "code"), [("show", 1), ("checkpoints", 0), ("verify", 1)])
def test_json_has_the_exact_values_and_is_safe_too(evil: Path, command: str, code: int) -> None:
    found = holdfast_json(command, evil, code=code)
    assert found["path"] == str(evil)
    assert not HARMFUL.search(holdfast(command, evil, "--json", code=code).stdout)


def test_ls_lists_a_run_of_such_a_name_and_show_says_it(evil: Path) -> None:
    assert SHOWN in holdfast("ls", evil.parent).stdout
    assert SHOWN in holdfast("show", evil, code=1).stdout
    assert [row["name"] for row in holdfast_json("ls", evil.parent)] == [evil.name]


@pytest.mark.parametrize(
    "character", ["\n", "\t", "\x1b", "\x07", "\x7f", "\x9b", "\u202e", "\u2066", "\u2028", "\u2029"]
)
def test_no_new_run_gets_such_a_name(character: str) -> None:
    with pytest.raises(ValueError, match="control character"):
        check_name(f"a{character}b")


def test_ordinary_unicode_stays() -> None:
    text = "Größe 模型 модель 👩‍🔬 é שלום"
    assert printable(text) == printable_lines(text) == text
    check_name("Größe-模型-👩‍🔬")


def test_json_says_the_same_in_safe_characters() -> None:
    value = {"text": "".join(map(chr, range(0x2100))) + "\u202e\ud800"}
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == value
    assert not UNPRINTABLE.search(text.replace("\n", ""))


def test_logs_are_exact_in_a_pipe_and_harmless_on_a_terminal(finished: Path) -> None:
    log = max((finished / "logs").iterdir()) / "rank-0.log"
    log.write_bytes(b"plain\n\x1b[31mred\x1b[0m\x1b[2J\x1b]0;owned\x07 \xff\n")
    piped = subprocess.run(
        [sys.executable, "-m", "holdfast", "logs", str(finished), "--rank", "0"],
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert piped.stdout == log.read_bytes()
    shown = on_terminal(["logs", str(finished), "--rank", "0"])
    assert "\x1b[31mred" in shown
    assert not HARMFUL.search(re.sub(r"\x1b\[[0-9;]*m", "", shown))


def on_terminal(words: list[str]) -> str:
    """What a command writes to a terminal, standard error included."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "holdfast", *words]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
    os.close(theirs)
    data, deadline = b"", time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline and select.select([ours], [], [], PATIENCE_S)[0]:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            data += piece
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        os.close(ours)
    return data.decode().replace("\r\n", "\n")


def test_no_command_prints_past_the_one_place() -> None:
    """``output`` makes text safe; these print only what is Holdfast's own, or do it themselves."""
    allowed = {"output.py", "main.py", "completion.py", "drill.py", "deleting.py"}
    home = Path(str(commands.__file__)).parent
    found = {path.name for path in home.rglob("*.py") if any(map(is_print, ast.walk(ast.parse(path.read_text()))))}
    assert found <= allowed


def is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
