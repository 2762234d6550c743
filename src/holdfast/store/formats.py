"""If a format is newer than this version knows, the run is refused and nothing is changed.

``run.json`` and the manifests hold the format's number. A version that changes any format first writes the new number
into ``run.json``, with its own version. Every format keeps the seal, so damage cannot look like a newer format.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast import __version__
from holdfast.errors import NewerFormatError
from holdfast.store import values
from holdfast.store.layout import RunLayout
from holdfast.store.regular import read_whole
from holdfast.store.sealed import unseal

FORMAT = 1


def check(fields: Any, where: str) -> None:
    """Call this first on a decoded file, because a newer format may have other fields."""
    number = fields.get("format") if isinstance(fields, dict) else None
    if type(number) is not int or number <= FORMAT:
        return
    version = fields.get("version")
    author = f"Holdfast {version[:40]}" if isinstance(version, str) else "a newer version of Holdfast"
    raise NewerFormatError(
        f"{where} was written by {author} in format {number}. Holdfast {__version__} reads formats up to {FORMAT}; "
        "nothing was changed. Upgrade Holdfast (pip install --upgrade holdfast), then run the same command again."
    )


def check_line(line: bytes, where: str) -> None:
    """NewerFormatError if this is an intact line of a newer format. Damage is left to other readers."""
    data = unseal(line.rstrip(b"\n"))
    try:
        fields = None if data is None else values.decode(data)
    except ValueError:
        return
    check(fields, where)


def check_run(layout: RunLayout) -> None:
    """NewerFormatError if a newer version has written into a run, or into an experiment and its trials."""
    files = [layout.run_file, *layout.checkpoints_dir.glob("*.json"), *layout.root.glob("*/checkpoints/*.json")]
    check_lines((str(file), _content(file)) for file in files)


def check_lines(lines: Iterable[tuple[str, bytes | None]]) -> None:
    for where, line in lines:
        if line is not None:
            check_line(line, where)


def _content(file: Path) -> bytes | None:
    try:
        return read_whole(file)
    except OSError:
        return None
