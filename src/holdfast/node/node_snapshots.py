"""A run's snapshots on this node. The agent owns the memory, computes digests in the background, and keeps copies. A
snapshot whose file changed while its digest was computed does not count. A recall computes every digest again. Files
that differ or are missing are fetched from a peer; if no peer has them, the driver is told.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

from holdfast.node.snapshot_dirs import new_directory, remove_directory
from holdfast.node.snapshot_store import CopyRequest, PeerCalls, SnapshotStore, digest_of
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Memory, TookSnapshot
from holdfast.worker.snapshot_buffers import MappedSnapshot, PieceBuffers, SnapshotHeader

SHARED = "shared"


class NodeSnapshots:
    """``run_beside`` runs something in a thread; ``answer`` may be called from any."""

    def __init__(
        self,
        node: str,
        run_beside: Callable[[Callable[[], None]], None],
        answer: Callable[[wire.RunNews], None],
    ) -> None:
        self._node, self._run_beside, self._answer = node, run_beside, answer
        self._directory: Path | None = None
        self._lock = threading.Lock()
        self._held: dict[Path, tuple[str, int, int, bytes]] = {}  # piece, attempt, step, digest
        self._order = wire.Replicate([], False)
        self._uncopied: dict[int, tuple[int, TookSnapshot]] = {}  # by rank, taken before the first order to copy
        self._lines: dict[int, PeerCalls] = {}  # by rank, because ranks bring theirs at the same time
        self._store: SnapshotStore | None = None
        self._recalled: dict[str, str] = {}  # the files of the last recall, by piece
        self._recalled_of: tuple[int, int] | None = None

    def memory(self, order: wire.StartWorkers | None) -> Memory | None:
        """The information for the workers of an attempt; None if no memory is available. Without an order: for an
        attempt that gets its state from a peer."""
        directory = self._made_directory()
        if directory is None:
            return None
        if order is None or order.snapshot is None:
            return Memory(str(directory))
        assert order.snapshot == self._recalled_of, f"{order.snapshot} was not recalled, but {self._recalled_of}"
        return Memory(str(directory), order.snapshot[1], order.taken_by, self._recalled)

    def _made_directory(self) -> Path | None:
        """None if no memory is available."""
        self._directory = self._directory or new_directory()
        return self._directory

    def serve(self, order: wire.OpenStore | wire.Replicate | wire.Recall) -> None:
        match order:
            case wire.OpenStore(address):
                self._open_store(address)
            case wire.Replicate():
                self._replicate(order)
            case wire.Recall():
                self._run_beside(lambda: self._answer(self._recall(order)))

    def taken(self, attempt_number: int, rank: int, message: TookSnapshot) -> None:
        """A worker has written a snapshot."""
        self._run_beside(lambda: self._keep_taken(attempt_number, rank, message))

    def _replicate(self, order: wire.Replicate) -> None:
        """From now on; also what the run's first order comes too late for."""
        with self._lock:
            self._order, uncopied = order, self._uncopied
            self._uncopied = {}
        for rank, (attempt_number, message) in uncopied.items():
            self.taken(attempt_number, rank, message)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
        for lines in self._lines.values():
            lines.close()
        if self._directory is not None:
            remove_directory(self._directory)

    # In other threads

    def _keep_taken(self, attempt_number: int, rank: int, message: TookSnapshot) -> None:
        files = {piece: self._own(path) for piece, path in message.pieces.items()}
        for piece, path in files.items():
            if not self._digest_taken(piece, path, attempt_number, message.step):
                return  # it is being overwritten, because the worker no longer waits for us
        with self._lock:
            order = self._order
            if not order.number:
                self._uncopied[rank] = (attempt_number, message)
        said = (attempt_number, rank, message.step, message.reports, message.moves, list(files))
        self._answer(wire.SnapshotHeld(*said, [], not order.to, message.alike, order.number))
        if order.to:
            copies = [peer.node for peer in order.to if self._bring(rank, peer, files, order.shared, message.keep)]
            self._answer(wire.SnapshotHeld(*said, copies, True, message.alike, order.number))

    def _own(self, path: str) -> Path:
        assert self._directory is not None
        own = Path(path)
        assert own.parent == self._directory, f"{path} is not of this run"
        return own

    def _digest_taken(self, piece: str, path: Path, attempt_number: int, step: int) -> bool:
        try:
            with MappedSnapshot(path) as mapped:
                header = mapped.header
                if (header.attempt_number, header.step) != (attempt_number, step):
                    return False
                digest = digest_of(mapped.content, header)
                if mapped.header != header:
                    return False
        except OSError:
            return False
        self._keep(piece, path, digest, header)
        return True

    def _keep(self, piece: str, path: Path, digest: bytes, header: SnapshotHeader) -> None:
        with self._lock:
            self._held[path] = (piece, header.attempt_number, header.step, digest)

    def _find(self, piece: str, attempt_number: int, step: int) -> tuple[Path, bytes] | None:
        with self._lock:
            for path, (name, *when, digest) in self._held.items():
                if name == piece and when == [attempt_number, step]:
                    return path, digest
        return None

    def _bring(
        self, rank: int, peer: wire.PeerStore, files: dict[str, Path], shared: bool, keep: tuple[int, int] | None
    ) -> bool:
        lines = self._lines.setdefault(rank, PeerCalls())
        for piece, path in files.items():
            if piece == SHARED and not shared:
                continue
            held = self._held[path]
            with MappedSnapshot(path) as mapped:
                if not lines.bring(peer, self._node, piece, mapped, held[3], keep):
                    return False
        return True

    # Recovery

    def _recall(self, order: wire.Recall) -> wire.RunNews:
        found: dict[str, str] = {}
        moved = False
        for piece in order.pieces:
            path = self._verified(piece, order.attempt_number, order.step)
            if path is None:
                path, moved = self._fetched(piece, order), True
            if path is None:
                why = f"{self._node} has no intact copy of {piece}, and no other node has one"
                return wire.Recalled(order.attempt_number, order.step, error=why, number=order.number)
            found[piece] = str(path)
        self._recalled, self._recalled_of = found, (order.attempt_number, order.step)
        return wire.Recalled(order.attempt_number, order.step, moved, number=order.number)

    def _verified(self, piece: str, attempt_number: int, step: int) -> Path | None:
        held = self._find(piece, attempt_number, step)
        if held is None:
            return None
        path, digest = held
        try:
            with MappedSnapshot(path) as mapped:
                header = mapped.header
                intact = (header.attempt_number, header.step) == (attempt_number, step)
                intact = intact and digest_of(mapped.content, header) == digest
        except OSError:
            intact = False
        if not intact:
            with self._lock:
                self._held.pop(path, None)
        return path if intact else None

    def _fetched(self, piece: str, order: wire.Recall) -> Path | None:
        directory = self._made_directory()
        if directory is None:
            return None
        lines = PeerCalls()
        try:
            for peer in order.sources.get(piece, []):
                into = PieceBuffers(directory / "fetched", piece)
                wanted = CopyRequest(self._node, piece, order.attempt_number, order.step)
                if lines.fetch(peer, wanted, into, self._keep):
                    return self._verified(piece, order.attempt_number, order.step)
        except OSError:
            pass  # there is no memory for it
        finally:
            lines.close()
        return None

    def _open_store(self, address: str) -> None:
        directory = self._made_directory()
        if directory is not None and self._store is None:
            with contextlib.suppress(OSError):
                self._store = SnapshotStore(directory, address, self._find, self._keep)
        if self._store is None:
            self._answer(wire.StoreOpen(0, b""))  # no node can bring anything here
        else:
            self._answer(wire.StoreOpen(self._store.port, self._store.token))
