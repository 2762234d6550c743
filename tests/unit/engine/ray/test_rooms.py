"""What an experiment asks Ray for, by the rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from holdfast.engine.ray import trial_grants
from holdfast.engine.ray.trial_grants import GrantRequest, TrialGrants


class Group:
    """A placement group that is granted at once, on the first node that it may be on."""

    def __init__(
        self,
        name: str,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        labels: Sequence[Mapping[str, str]] = (),
        avoiding: Collection[str] = (),
    ) -> None:
        self._avoiding, self.labels = avoiding, [dict(labels[0]) if labels else {} for _ in bundles]
        named = self.labels[0].get("ray.io/node-id")
        self.nodes = [named or next((node for node in "ab" if node not in avoiding), "")] * len(bundles)
        MADE.append(self)
        self.is_whole = self.was_granted = all(self.nodes)

    def avoids(self, nodes: Collection[str]) -> bool:
        return any(node in self._avoiding for node in nodes)

    def look(self, alive: Collection[str]) -> None: ...

    def gpus(self, index: int) -> list[str]:
        return []

    def remove(self) -> None: ...


MADE: list[Group] = []


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> TrialGrants:
    monkeypatch.setattr(trial_grants, "Reservation", Group)
    MADE.clear()
    found = TrialGrants("experiment")
    found.reserve("1", GrantRequest([{"CPU": 1.0}], "PACK", ()))
    return found


def look(asked: TrialGrants, doubted: str, ready: str) -> list[str]:
    """Where there is room, after the thread that looks at the cluster has done so."""
    asked.look("ab")
    asked.balance(set(doubted), set(), lambda _: False)
    found = asked.by_node()
    asked.note_shown(ready)
    return list(found)


def test_room_on_a_node_that_gets_no_agent_is_asked_for_elsewhere(asked: TrialGrants) -> None:
    assert look(asked, doubted="", ready="") == ["a"]
    assert look(asked, doubted="a", ready="") == ["b"]


def test_room_is_asked_for_anew_when_a_node_turns_out_to_be_there(asked: TrialGrants) -> None:
    assert look(asked, doubted="ab", ready="") == []
    assert look(asked, doubted="a", ready="b") == ["b"]
    assert look(asked, doubted="", ready="ab") == ["b"], "what was granted stays"


def test_room_that_a_trial_may_have_is_kept_until_it_is_given_back(asked: TrialGrants) -> None:
    assert look(asked, doubted="", ready="a") == ["a"]
    assert look(asked, doubted="a", ready="") == ["a"]
    asked.give_back("1")
    assert look(asked, doubted="a", ready="") == []


def test_room_on_a_node_that_a_trial_names_is_asked_for_once(asked: TrialGrants) -> None:
    asked.give_back("1")
    asked.reserve("2", GrantRequest([{"CPU": 1.0}], "PACK", [{"ray.io/node-id": "a"}]))
    for _ in range(3):
        assert look(asked, doubted="a", ready="") == ["a"]
    assert len(MADE) == 1
