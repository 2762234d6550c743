"""What a run asks Ray for, and holds, when nodes are lost: by the rules, and on a real cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest
from ray.util import placement_group_table

from holdfast.engine.demand import Demand
from holdfast.engine.ray import worker_grants
from holdfast.engine.ray.ray_nodes import look
from holdfast.wire.messages import Seat
from support.ray_clusters.ray_machines import Machines, RayScene, wait_until


class Group:
    """A placement group of a cluster that grants what a test tells it to."""

    def __init__(
        self,
        name: str,
        bundles: Sequence[Mapping[str, float]],
        strategy: str,
        labels: Sequence[Mapping[str, str]] = (),
        avoiding: Collection[str] = (),
    ) -> None:
        self.strategy, self.avoiding = strategy, set(avoiding)
        self.labels = [dict(labels[index]) for index in range(len(bundles))]
        self.nodes = [""] * len(bundles)
        self.was_granted = self.is_removed = False
        self.looks = 0
        MADE.append(self)

    @property
    def is_whole(self) -> bool:
        return all(self.nodes)

    def avoids(self, nodes: Collection[str]) -> bool:
        return any(node in self.avoiding for node in nodes)

    def grant(self, *nodes: str) -> None:
        self.nodes, self.was_granted = list(nodes), True

    def look(self, alive: Collection[str]) -> None:
        self.looks += 1
        self.nodes = [node if node in alive else "" for node in self.nodes]

    def gpus(self, index: int) -> list[str]:
        return []

    def remove(self) -> None:
        self.is_removed = True


MADE: list[Group] = []


@pytest.fixture(autouse=True)
def groups(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    MADE.clear()
    if "machines" not in request.fixturenames:
        monkeypatch.setattr(worker_grants, "Reservation", Group)


def held() -> list[Group]:
    return [group for group in MADE if not group.is_removed]


ALL = ("a", "b", "c", "d")


class Run:
    """Its first group is granted on the nodes that are given, and its other seats on ``c``."""

    def __init__(
        self, least: int, most: int, *nodes: str, strategy: str = "PACK", labels: Sequence[dict[str, str]] = ()
    ) -> None:
        self._seats = worker_grants.WorkerGrants(Demand(least, most, strategy=strategy, labels=labels), "run")
        MADE[0].grant(*nodes)
        self._seats.look(ALL)
        self.balance(busy="abc")
        for group in MADE[1:]:
            group.grant("c")

    def by_node(self) -> dict[str, list[Seat]]:
        return self._seats.by_node()

    def balance(self, doubted: str = "", going: str = "", busy: str = "", lost: str = "") -> bool:
        """Each a string of nodes; Ray knows of those that are lost."""
        self._seats.look([node for node in ALL if node not in lost])
        return self._seats.balance({*doubted, *going, *lost}, {*going}, lambda node: bool(node) and node in busy)


def test_a_seat_on_a_lost_node_goes_back_as_soon_as_there_is_another() -> None:
    run = Run(1, 1, "a")
    assert run.balance(doubted="a")
    assert [group.was_granted for group in held()] == [True, False], "the node may turn out to be there"
    assert MADE[1].avoiding == {"a"}
    assert not run.balance(doubted="a"), "it is asked for once"
    MADE[1].grant("b")
    run.balance(doubted="a", busy="b")
    assert held() == [MADE[1]]


def test_a_seat_on_a_lost_node_goes_back_when_ray_has_noticed() -> None:
    run = Run(1, 1, "a")
    run.balance(doubted="a")
    run.balance(lost="a")
    assert held() == [MADE[1]]


def test_a_node_that_was_only_doubted_is_used_again() -> None:
    run = Run(1, 1, "a")
    run.balance(doubted="a")
    run.balance()
    assert held() == [MADE[0]]


def test_a_seat_is_asked_for_anew_when_a_node_turns_out_to_be_there() -> None:
    run = Run(1, 2, "a")
    run.balance(doubted="bc")
    assert [group.avoiding for group in held()] == [set(), set(), {"b", "c"}]
    run.balance(doubted="c")
    assert [group.avoiding for group in held()] == [set(), set(), {"c"}]


def test_a_seat_is_not_asked_for_anew_because_a_node_is_taken() -> None:
    run = Run(1, 2, "a", strategy="STRICT_SPREAD")
    run.balance(doubted="c")
    run.balance(doubted="c")
    assert [group.avoiding for group in MADE] == [set(), {"a"}, {"a", "c"}]


def test_a_whole_group_that_is_lost_is_asked_for_as_one_again() -> None:
    run = Run(2, 2, "a", "a", strategy="STRICT_PACK")
    run.balance(doubted="a")
    assert [(len(group.nodes), group.strategy) for group in held()] == [(2, "STRICT_PACK")] * 2
    MADE[1].grant("b", "b")
    run.balance(doubted="a", busy="b")
    assert held() == [MADE[1]]


def test_an_elastic_run_that_loses_all_it_has_begins_anew_as_a_whole() -> None:
    run = Run(2, 4, "a", "a", strategy="STRICT_PACK")
    for group in MADE[1:]:
        group.nodes, group.was_granted = [""], False
    run.balance(doubted="a")
    waiting = [(len(group.nodes), group.strategy) for group in held() if not group.was_granted]
    assert waiting == [(2, "STRICT_PACK"), (1, "PACK"), (1, "PACK")]
    made = len(MADE)
    run.balance(doubted="a")
    assert len(MADE) == made, "it is asked for once"
    run.balance()
    assert [(len(group.nodes), group.was_granted) for group in held()] == [(2, True), (1, False), (1, False)]


@pytest.mark.parametrize("strategy", ["PACK", "STRICT_SPREAD"])
def test_what_turns_out_to_be_there_is_not_asked_for(strategy: str) -> None:
    run = Run(3, 3, "a", "b", "c", strategy=strategy)
    run.balance(doubted="ab")
    run.balance(doubted="abc")
    run.balance(doubted="b")
    waiting = [group for group in held() if not group.was_granted]
    assert [len(group.nodes) for group in waiting] == [1]
    assert waiting[0].avoiding >= {"b"}


def test_a_seat_is_asked_for_with_the_labels_of_the_one_that_was_lost() -> None:
    zones = [{"zone": zone} for zone in "abc"]
    run = Run(2, 3, "a", "b", labels=zones)
    assert [group.labels for group in held()] == [zones[:2], zones[2:]]
    run.balance(lost="b")
    assert [group.labels for group in held() if not group.was_granted] == [[zones[1]]]
    MADE[2].grant("d")
    MADE[0].grant("a", "b")  # Ray has made it whole by itself
    run.balance(doubted="a", busy="bcd")
    assert [group.labels for group in held() if not group.was_granted] == [[zones[0]]]
    made = len(MADE)
    run.balance(doubted="a", busy="bcd")
    assert len(MADE) == made, "what is too much has other labels"


def test_a_seat_on_a_node_that_its_labels_name_is_not_asked_for_elsewhere() -> None:
    run = Run(1, 1, "a", labels=[{"ray.io/node-id": "a"}])
    assert not run.balance(doubted="a")
    assert run.balance(lost="a")
    assert not run.balance(lost="a")


def test_what_lives_of_a_group_is_kept_and_the_rest_is_asked_for() -> None:
    run = Run(2, 2, "a", "b")
    run.balance(doubted="a", busy="b")
    assert [len(group.nodes) for group in held()] == [2, 1]
    MADE[1].grant("c")
    MADE[0].grant("d", "b")  # Ray has made it whole by itself
    assert not run.balance(doubted="a", busy="bc")
    assert len(held()) == 2, "somebody sits there"
    assert set(run.by_node()) == {"d", "b"}, "but nobody will after the next restart"
    run.balance(doubted="a", busy="bd")
    assert held() == [MADE[0]]


def test_no_two_share_a_node_after_a_loss_either_where_that_is_asked_for() -> None:
    run = Run(3, 3, "a", "b", "c", strategy="STRICT_SPREAD")
    run.balance(doubted="ab", busy="c")
    assert [(len(group.nodes), group.strategy) for group in held()] == [(3, "STRICT_SPREAD"), (2, "STRICT_SPREAD")]
    assert MADE[1].avoiding == {"a", "b", "c"}


def test_of_many_that_wait_a_few_are_looked_at_at_a_time_and_all_in_turn() -> None:
    run = Run(1, 101, "a")
    for group in MADE[1:]:
        group.nodes, group.was_granted, group.looks = [""], False, 0
    run.balance()
    assert sum(group.looks for group in MADE[1:]) <= 16
    for _ in range(15):
        run.balance()
    assert min(group.looks for group in MADE[1:]) == 1
    for group in MADE[1:60]:
        group.grant("c")
        group.was_granted = False
    before = MADE[59].looks
    run.balance()
    assert MADE[59].looks > before, "where some are granted, the next may be as well"


def test_what_was_too_much_is_not_when_another_node_is_lost() -> None:
    run = Run(2, 2, "a", "b")
    run.balance(doubted="a", busy="b")
    MADE[1].grant("c")
    MADE[0].grant("d", "b")
    run.balance(doubted="a", busy="bc")
    run.balance(doubted="ad", busy="bc")
    assert set(run.by_node()) >= {"b", "c"}
    assert len(held()) == 2


def test_what_ray_has_reserved_again_goes_back_if_nobody_sits_there() -> None:
    run = Run(1, 1, "a")
    run.balance(doubted="a")
    MADE[1].grant("b")
    MADE[0].grant("d")  # between two looks
    run.balance(doubted="a", busy="b")
    assert set(run.by_node()) == {"b"}, "first the driver is told"
    assert held() == MADE
    run.balance(doubted="a", busy="b")
    assert held() == [MADE[1]]


def test_an_elastic_run_that_loses_its_first_seat_keeps_the_others() -> None:
    run = Run(1, 3, "a")
    run.balance(lost="a", busy="c")
    assert len(held()) == 3
    assert [group.nodes for group in held() if group.was_granted] == [["c"], ["c"]]


def test_a_seat_is_kept_while_somebody_sits_on_a_node_that_will_go() -> None:
    run = Run(1, 1, "a")
    run.balance(going="a", busy="a")
    assert [group.was_granted for group in held()] == [True, False]
    run.balance(going="a")
    assert held() == [MADE[1]]


def reserved() -> int:
    """The bundles of all placement groups of the cluster, granted or not."""
    groups = placement_group_table().values()
    return sum(len(group["bundles"]) for group in groups if group["state"] != "REMOVED")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("workers", [1, 2])
def test_on_ray_no_seat_is_reserved_twice_for_long(machines: Machines, scene: RayScene, workers: int) -> None:
    """If all of the first group is lost, never; else until the next restart, when Ray has reserved it again."""
    machines.top_up(4)

    def act() -> None:
        scene.await_steps(3, world=workers)
        assert reserved() == workers
        lost = scene.node_of(0)
        machines.kill(lost)
        scene.await_record("GroupStarted", 2)
        scene.await_steps(3, world=workers)
        wait_until(lambda: lost not in look(), "Ray notices")
        if workers == 1:
            assert reserved() == 1
            return
        wait_until(lambda: has_all(machines), "Ray reserves it again")
        scene.kill_worker(0)
        scene.await_record("GroupStarted", 3)
        wait_until(lambda: reserved() == workers, "what is too much goes back")

    with scene.meanwhile(act):
        result = scene.trainer(workers, max_failures=2).fit()
    scene.check(result)


def has_all(machines: Machines) -> bool:
    """Whether all that is reserved is granted, on nodes that live."""
    groups = [group for group in placement_group_table().values() if group["state"] != "REMOVED"]
    where = [node for group in groups for node in group["bundles_to_node_id"].values()]
    return all(group["state"] == "CREATED" for group in groups) and set(where) <= set(machines.nodes)
