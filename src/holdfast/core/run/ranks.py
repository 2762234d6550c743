"""The ranks of an attempt, and sets of them, as frozen values that are cheap to change one by one.

Ten thousand ranks change ten thousand times a second, and every change makes a new value. So no change copies them all,
and answers that are needed after every change are counted, not searched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, structs

_CHUNK = 64  # ranks that are copied for a change


NO_PROCESS = -1


class RankStatus(str, Enum):
    STARTING = "starting"
    RUNNING = "running"
    RETURNED = "returned"
    DEAD = "dead"


class Rank(Struct, frozen=True):
    status: RankStatus = RankStatus.STARTING
    reports: int = 0
    seen: float = 0.0  # when it last made progress
    stopped: bool = False
    armed: bool = False  # it can do its step again when a peer is lost
    silent: bool = False  # it never reports, because only rank 0 does
    process: int = 0  # the number of the replacement that its process came with; 0: it began with the attempt
    before: int = NO_PROCESS  # the previous process of the rank, until the current one trains


class Ranks:
    """The ranks of one attempt, by number."""

    __slots__ = ("_chunks", "_reports", "_size", "statuses")

    def __init__(self, ranks: Iterable[Rank] = ()) -> None:
        known = tuple(ranks)
        self._size = len(known)
        self._chunks = tuple(known[at : at + _CHUNK] for at in range(0, len(known), _CHUNK))
        self.statuses: Mapping[RankStatus, int] = Counter(rank.status for rank in known)
        # By the number of reports: how many of the ranks that may still report have made so many
        self._reports: dict[int, int] = Counter(rank.reports for rank in known if _may_report(rank))

    @classmethod
    def alike(cls, rank: Rank, count: int) -> Ranks:
        new = cls.__new__(cls)
        whole, rest = divmod(count, _CHUNK)
        new._size = count
        new._chunks = ((rank,) * _CHUNK,) * whole + (((rank,) * rest,) if rest else ())
        new.statuses = {rank.status: count} if count else {}
        new._reports = {rank.reports: count} if count and _may_report(rank) else {}
        return new

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Rank]:
        return (rank for chunk in self._chunks for rank in chunk)

    def __getitem__(self, rank: int) -> Rank:
        if not 0 <= rank < self._size:
            raise IndexError(f"rank {rank} of {self._size}")
        return self._chunks[rank // _CHUNK][rank % _CHUNK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranks) and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Ranks({list(self)})"

    def changed(self, rank: int, **fields: Any) -> Ranks:
        before = self[rank]
        after = structs.replace(before, **fields)
        chunks = list(self._chunks)
        chunk = list(chunks[rank // _CHUNK])
        chunk[rank % _CHUNK] = after
        chunks[rank // _CHUNK] = tuple(chunk)
        new = Ranks.__new__(Ranks)
        new._size, new._chunks, new.statuses, new._reports = self._size, tuple(chunks), self.statuses, self._reports
        is_same = after.status is before.status
        if not is_same:
            new.statuses = _moved(self.statuses, before.status, after.status)
        if not is_same or after.reports != before.reports:
            was = before.reports if _may_report(before) else None
            new._reports = _moved(self._reports, was, after.reports if _may_report(after) else None)
        return new

    def has(self, status: RankStatus) -> bool:
        return status in self.statuses

    @property
    def have_all_returned(self) -> bool:
        return self.statuses.get(RankStatus.RETURNED, 0) == self._size

    def have_made(self, index: int) -> bool:
        """Whether every rank that reports has made its report ``index``, or has returned."""
        return not self._reports or min(self._reports) > index

    def behind(self, index: int) -> list[int]:
        """Those that have not, and may still make it."""
        return [r for r, rank in enumerate(self) if rank.reports <= index and _may_report(rank)]


def _may_report(rank: Rank) -> bool:
    return rank.status is not RankStatus.RETURNED and not rank.silent


def _moved(counts: Mapping[Any, int], before: Any, after: Any) -> dict[Any, int]:
    """Move one from one count to the other; None stands for no count."""
    new = dict(counts)
    if after is not None:
        new[after] = new.get(after, 0) + 1
    if before is not None:
        new[before] -= 1
        if not new[before]:
            del new[before]
    return new


class RankSet(Struct, frozen=True):
    """Some ranks of an attempt: a bit for each."""

    bits: int = 0

    @classmethod
    def of(cls, *ranks: int) -> RankSet:
        bits = 0
        for rank in ranks:
            bits |= 1 << rank
        return cls(bits)

    def adding(self, rank: int) -> RankSet:
        return RankSet(self.bits | 1 << rank)

    def __or__(self, other: RankSet) -> RankSet:
        return RankSet(self.bits | other.bits)

    def __contains__(self, rank: int) -> bool:
        return bool(self.bits >> rank & 1)

    def __bool__(self) -> bool:
        return self.bits != 0

    def __iter__(self) -> Iterator[int]:
        """In order."""
        return (rank for rank, bit in enumerate(reversed(bin(self.bits)[2:])) if bit == "1")


def in_words(ranks: Iterable[int]) -> str:
    """As in "rank 3" and "ranks 1-3, 7"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and spans[-1][1] == rank - 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    listed = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans)
    return f"rank{'' if len(spans) == 1 and spans[0][0] == spans[0][1] else 's'} {listed}"
