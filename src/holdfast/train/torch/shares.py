"""How an epoch is cut into global batches, and a global batch into the parts of each rank. Pure arithmetic.

Where global batches begin and end depends on the samples that are left and on the global batch size, never on the world
size: so workers of any number can continue at any of these points. No global batch is larger than asked for, and
only an epoch that is smaller has one below half of that: too little for a last one, which might leave ranks without a
sample, is shared by the last two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class SharePart(NamedTuple):
    """One of ``passes`` over the global batch that begins at ``start`` and has ``size`` samples, counted from 0. All
    ranks make the same passes; each has its own samples in them."""

    start: int
    size: int
    number: int
    passes: int

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def is_last(self) -> bool:
        return self.number == self.passes - 1

    def positions(self, rank: int, world_size: int) -> range:
        """This rank's positions in the epoch. A rank for which nothing is left repeats another's sample, which has no
        weight: it has to take part in the collectives of the step."""
        slot = self.number * world_size + rank
        if slot >= self.size:
            repeated = self.start + slot % self.size
            return range(repeated, repeated + 1)
        return range(self.start + slot, self.end, world_size * self.passes)

    def weight(self, rank: int, world_size: int) -> float:
        """The factor for the mean loss of this part, so that gradients that are summed over the passes and averaged
        over the ranks are those of the mean over the global batch."""
        if self.number * world_size + rank >= self.size:
            return 0.0
        return len(self.positions(rank, world_size)) * world_size / self.size


class Cut(NamedTuple):
    """How epochs are divided. ``most`` is the largest number of samples that a rank takes at a time; None is its
    share."""

    batch: int
    drop_last: bool
    world_size: int
    most: int | None = None

    def next_size(self, left: int) -> int:
        """The size of the next global batch when so many samples are left; 0 at the end of the epoch."""
        if left < self.batch:
            return 0 if self.drop_last else left
        after = left - self.batch
        return (left + 1) // 2 if 0 < 2 * after < self.batch and not self.drop_last else self.batch

    def passes(self, size: int) -> int:
        return 1 if self.most is None else -(-size // (self.world_size * self.most))

    def parts_of(self, start: int, size: int) -> Iterator[SharePart]:
        passes = self.passes(size)
        return (SharePart(start, size, number, passes) for number in range(passes))

    def parts(self, samples: int, cursor: int = 0) -> Iterator[SharePart]:
        """All that is to be done from the cursor on to the end of an epoch of so many samples."""
        while (size := self.next_size(samples - cursor)) > 0:
            yield from self.parts_of(cursor, size)
            cursor += size

    def count_parts(self, samples: int) -> int:
        """How many parts a whole epoch has, without going through it: all but the last two batches are alike."""
        alike = max(0, samples // self.batch - 1)
        return alike * self.passes(self.batch) + sum(1 for _ in self.parts(samples, alike * self.batch))

    def count_samples(self, samples: int, rank: int) -> int:
        """How many samples a rank has in a whole epoch, those that it repeats included."""
        alike = max(0, samples // self.batch - 1)
        each = sum(len(part.positions(rank, self.world_size)) for part in self.parts_of(0, self.batch))
        rest = self.parts(samples, alike * self.batch)
        return alike * each + sum(len(part.positions(rank, self.world_size)) for part in rest)
