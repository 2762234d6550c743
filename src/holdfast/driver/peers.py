"""Whether the nodes of a run can reach each other. A new node tests some of the others while training continues. Each
connects to the other, because a firewall may block one direction. If two nodes cannot reach each other at the second
try either, one of them is used only if the others are not enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.wire import messages as wire

from .node_registry import NodeRegistry

_MOST = 8  # nodes that a new one meets: with many of them all pairs would be too many
_ATTEMPTS = 2  # at the first try, one may have been about to leave


@dataclass(frozen=True)
class _Meeting:
    host: str
    guest: str
    attempt: int = 1


class Peers:
    def __init__(self, nodes: NodeRegistry, send: Callable[[str, wire.Message], None]) -> None:
        self._nodes, self._send = nodes, send
        self._arranged = 0
        self._meetings: dict[int, _Meeting] = {}  # by number, until their outcome is known
        self._strangers: set[frozenset[str]] = set()  # pairs that cannot reach each other
        self._met: set[str] = set()  # nodes that have been tested

    def joined(self, node: str) -> None:
        if node in self._met:  # the node has come back
            self.lost(node)
        self._met.add(node)
        for other in [id for id in self._nodes.ids if id != node and not self._nodes.is_draining(id)][-_MOST:]:
            self._arrange(_Meeting(other, node))
            self._arrange(_Meeting(node, other))

    def lost(self, node: str) -> None:
        """Earlier results about the node no longer count."""
        self._met.discard(node)
        self._meetings = {n: m for n, m in self._meetings.items() if node not in (m.host, m.guest)}
        self._strangers = {pair for pair in self._strangers if node not in pair}
        self._nodes.set_apart(self._to_be_set_apart())

    def hear(self, node: str, message: wire.DoorOpen | wire.Met) -> str | None:
        """A message for a person, if this one makes a difference."""
        meeting = self._meetings.get(message.meeting)
        if meeting is None or node != (meeting.host if isinstance(message, wire.DoorOpen) else meeting.guest):
            return None
        if isinstance(message, wire.DoorOpen) and not message.error:
            address = self._nodes.address(meeting.host)
            self._send(meeting.guest, wire.Meet(message.meeting, address, message.port, message.token))
            return None
        del self._meetings[message.meeting]
        if not message.error:
            return None
        if meeting.attempt < _ATTEMPTS:
            self._arrange(replace(meeting, attempt=meeting.attempt + 1))
            return None
        return self._cannot_talk(meeting, message.error)

    def _arrange(self, meeting: _Meeting) -> None:
        self._arranged += 1
        self._meetings[self._arranged] = meeting
        self._send(meeting.host, wire.OpenDoor(self._arranged, self._nodes.address(meeting.host)))

    def _cannot_talk(self, meeting: _Meeting, why: str) -> str | None:
        pair = frozenset((meeting.host, meeting.guest))
        if pair in self._strangers:
            return None  # the other way is known
        self._strangers.add(pair)
        apart = self._to_be_set_apart()
        self._nodes.set_apart(apart)
        left_out = meeting.guest if meeting.guest in apart else meeting.host
        return (
            f"{meeting.guest} cannot talk to {meeting.host} at {self._nodes.address(meeting.host)} ({why}): "
            f"{left_out} is used only where the other nodes are not enough"
        )

    def _to_be_set_apart(self) -> set[str]:
        """The fewest nodes to leave out so that the rest can reach each other. Nodes in the most broken pairs go first;
        of equals, the youngest."""
        age = {id: place for place, id in enumerate(self._nodes.ids)}
        pairs, apart = set(self._strangers), set()
        while pairs:
            count = Counter(node for pair in pairs for node in pair)
            worst = max(count, key=lambda node: (count[node], age.get(node, -1)))
            apart.add(worst)
            pairs = {pair for pair in pairs if worst not in pair}
        return apart
