"""What a trial prints and logs is in its files too."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.tune.trainable import output_files


def test_a_handler_that_the_script_made_earlier_writes_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output_files, "current", lambda: SimpleNamespace(run_dir=str(tmp_path)))
    handler = logging.StreamHandler(sys.stderr)
    monkeypatch.setattr(logging.root, "handlers", [handler])
    stream = handler.stream
    output_files.with_output_files(lambda _config: logging.getLogger("own").warning("logged"), True)({})
    assert (tmp_path / "stderr").read_text() == "logged\n"
    assert capsys.readouterr().err == "logged\n"
    assert handler.stream is stream
