"""One curve in few buckets. All buckets have the same number of reports; each keeps their least and greatest value."""

from __future__ import annotations

import math
from array import array
from typing import Any

from holdfast.core.metric_names import flat_items, number

BUCKETS = 600  # per curve; at most twice as many while it grows
METRICS = 64  # per run
_FIELDS = 4  # per bucket: x and y of the least value, then of the greatest
BUCKET_BYTES = 8 * _FIELDS

Point = tuple[float, float]
Bucket = tuple[float, float, float, float]


class BucketedCurve:
    """When there are too many buckets, pairs of neighbours are merged."""

    __slots__ = ("_buckets", "_filled", "_last", "_limit", "_open", "_width", "odd")

    def __init__(self, limit: int = BUCKETS) -> None:
        self._buckets = array("d")
        self._limit = limit
        self._width = 1  # reports in a bucket
        self._open: Bucket = (0.0, 0.0, 0.0, 0.0)  # the bucket that is being filled
        self._filled = 0
        self._last: Point = (0.0, 0.0)
        self.odd = 0  # values that are NaN or infinite

    @property
    def count(self) -> int:
        return len(self._buckets) // _FIELDS

    def add(self, x: float, y: float) -> None:
        if not math.isfinite(y):
            self.odd += 1
            return
        if self._width == 1:
            self._buckets.extend((x, y, x, y))
            if len(self._buckets) >= 2 * _FIELDS * self._limit:
                self._halve()
            return
        self._last = x, y
        self._take((x, y, x, y), 1)

    def fit(self, limit: int) -> None:
        """From now on, keep fewer than twice ``limit`` buckets."""
        self._limit = limit
        while self.count >= 2 * limit:
            self._halve()

    def points(self) -> list[Point]:
        """In the order of the reports. Exact as long as there are few reports."""
        points: list[Point] = []
        values = iter(self._buckets)
        for low_x, low, high_x, high in zip(values, values, values, values, strict=True):
            points += sorted({(low_x, low), (high_x, high)})
        if self._filled:
            points.append(self._last)
        return points

    def _take(self, bucket: Bucket, reports: int) -> None:
        self._open = _merged(self._open, bucket) if self._filled else bucket
        self._filled += reports
        if self._filled >= self._width:
            self._buckets.extend(self._open)
            self._filled = 0
            if self.count >= 2 * self._limit:
                self._halve()

    def _halve(self) -> None:
        values = iter(self._buckets)
        known = list(zip(values, values, values, values, strict=True))
        alone = known.pop() if len(known) % 2 else None
        self._buckets = array("d")
        for first, second in zip(known[::2], known[1::2], strict=True):
            self._buckets.extend(_merged(first, second))
        if alone is not None:  # it comes before those in the open bucket
            self._open = _merged(alone, self._open) if self._filled else alone
            if not self._filled:
                self._last = max((alone[0], alone[1]), (alone[2], alone[3]))
            self._filled += self._width
        self._width *= 2


def _merged(a: Bucket, b: Bucket) -> Bucket:
    low = a if a[1] <= b[1] else b
    high = a if a[3] >= b[3] else b
    return low[0], low[1], high[2], high[3]


class AttemptCurves:
    """The curves of one attempt, one per metric."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.curves: dict[str, BucketedCurve] = {}
        self.last = -1  # index
        self.reports = 0
        self.offset = 0  # bytes that have been read
        self.rest = b""
        self._limit = BUCKETS

    def add(self, row: dict[str, Any]) -> None:
        index = row["index"]
        x = self.base + index + 1
        for name, value in flat_items(row["metrics"]):
            y = value if type(value) is float else number(value)
            if y is None:
                continue
            curve = self.curves.get(name)
            if curve is None:
                if len(self.curves) >= METRICS:
                    continue
                curve = self.curves[name] = BucketedCurve(self._limit)
            curve.add(x, y)
        self.last = index
        self.reports += 1

    def fit(self, limit: int) -> None:
        if limit != self._limit:
            self._limit = limit
            for curve in self.curves.values():
                curve.fit(limit)

    @property
    def seen(self) -> int:
        """Bytes read so far, including an unfinished last line."""
        return self.offset + len(self.rest)
