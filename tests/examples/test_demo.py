"""What `make demo` shows is true, and a demo that proves nothing does not pass."""

from __future__ import annotations

import pytest
from example_shell import Shell


@pytest.mark.timeout(300)
def test_demo(shell: Shell) -> None:
    output = shell.run("demo.py")
    assert "this is my last line: SIGKILL" in output
    assert "I go on" in output
    assert output.count("identical") == 2
    assert "DIFFER" not in output
    shell.wait_for_no_process()
    assert shell.temporary_files() == []
