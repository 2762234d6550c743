"""Two machines in one: a network namespace, joined to ours by a cable that can be cut."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

import pytest

from holdfast.engine.local.agent_process import Network


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.fail(
            f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}. The tests of nodes across a network need "
            "iproute2 and the right to make network namespaces (root, or CAP_SYS_ADMIN and CAP_NET_ADMIN)."
        )


@dataclass
class Cable:
    """Between this machine and a node that has a network of its own."""

    name: str
    driver: str
    node: str

    @property
    def network(self) -> Network:
        return Network(("ip", "netns", "exec", self.name), self.driver, self.node)

    def cut(self) -> None:
        """Both ways, and nobody is told: no reset, no end of file."""
        ip("link", "set", f"{self.name}d", "down")

    def fix(self) -> None:
        ip("link", "set", f"{self.name}d", "up")

    def silence_node(self) -> None:
        """What the node sends is lost; what the driver sends still arrives."""
        ip("-n", self.name, "route", "add", "blackhole", f"{self.driver}/32")
