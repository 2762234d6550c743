"""What the tests of engines share."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from support.engine.two_machines import Cable, ip


@pytest.fixture
def cable() -> Iterator[Cable]:
    number = os.getpid() % 16000
    prefix = f"10.{77 + number // 64 // 256}.{number // 64 % 256}"
    base = number % 64 * 4
    cable = Cable(f"hf{number}", f"{prefix}.{base + 1}", f"{prefix}.{base + 2}")
    ip("netns", "add", cable.name)
    try:
        ip("link", "add", f"{cable.name}d", "type", "veth", "peer", "name", f"{cable.name}n", "netns", cable.name)
        ip("address", "add", f"{cable.driver}/30", "dev", f"{cable.name}d")
        ip("-n", cable.name, "address", "add", f"{cable.node}/30", "dev", f"{cable.name}n")
        for device in ("lo", f"{cable.name}n"):
            ip("-n", cable.name, "link", "set", device, "up")
        ip("link", "set", f"{cable.name}d", "up")
        yield cable
    finally:
        subprocess.run(["ip", "link", "delete", f"{cable.name}d"], capture_output=True)
        ip("netns", "delete", cable.name)
