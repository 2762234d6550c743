"""Snapshots between nodes: each node sends copies to its peers and fetches from them what it lacks. A caller proves
that it knows the token that the driver has distributed (``handshake``). A request is a length, a msgpack body, and for
a copy its bytes. Received data goes into two reused buffers per piece, so the memory for copies is bounded. A copy
counts when its digest is correct.
"""

from __future__ import annotations

import contextlib
import mmap
import re
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import xxhash

from holdfast.node.handshake import AgentListener, call, receive_exactly
from holdfast.wire.messages import PeerStore
from holdfast.worker.snapshot_buffers import DATA_AT, MappedSnapshot, PieceBuffers, SnapshotHeader, header_of

WITHIN_S = 10.0  # of silence before a peer is given up
_CHUNK = 1 << 22
_MOST = 1 << 20  # bytes of a request, without the copy
_LENGTH = struct.Struct("!I")
_PIECE = re.compile(r"(shared|rank-[0-9]{1,9})\Z")


Keep = Callable[[str, Path, bytes, SnapshotHeader], None]  # piece, file, digest, and the content of the header


class CopyRequest(msgspec.Struct, frozen=True):
    node: str  # the node that asks
    piece: str
    attempt_number: int
    step: int
    data_size: int = 0  # of the copy that follows; nothing follows if ``digest`` is empty
    meta_size: int = 0
    digest: bytes = b""
    keep: tuple[int, int] | None = None  # the copy of this snapshot (attempt, step) is not overwritten


def digest_of(content: mmap.mmap | bytes, header: SnapshotHeader) -> bytes:
    """The digest of the step and its content, computed in pieces so that other threads can run in between."""
    digest = xxhash.xxh3_128(msgspec.msgpack.encode(tuple(header)))
    with memoryview(content) as view:
        for at in range(DATA_AT, header.size, _CHUNK):
            with view[at : min(at + _CHUNK, header.size)] as part:
                digest.update(part)
    return digest.digest()


class SnapshotStore:
    """Takes copies from other nodes and gives them, until it is closed. ``find`` says which file has a piece, and
    ``keep`` is told of each copy that has arrived."""

    def __init__(
        self,
        directory: Path,
        address: str,
        find: Callable[[str, int, int], tuple[Path, bytes] | None],
        keep: Keep,
    ) -> None:
        self._directory, self._find, self._keep = directory, find, keep
        self._buffers: dict[tuple[str, str], PieceBuffers] = {}
        self._open = True
        self._callers: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = AgentListener(address)
        self.port, self.token = self._listener.port, self._listener.token
        threading.Thread(target=self._admit, name="holdfast-store", daemon=True).start()

    def close(self) -> None:
        self._open = False
        with self._lock:
            for caller in self._callers:
                with contextlib.suppress(OSError):
                    caller.shutdown(socket.SHUT_RDWR)

    def _admit(self) -> None:
        try:
            while (caller := self._listener.admit(lambda: self._open)) is not None:
                with self._lock:
                    self._callers.add(caller)
                threading.Thread(target=self._serve, args=(caller,), name="holdfast-copies", daemon=True).start()
        finally:
            self._listener.close()

    def _serve(self, caller: socket.socket) -> None:
        with caller, contextlib.suppress(OSError, msgspec.DecodeError, ValueError):
            while self._open:
                request = msgspec.msgpack.decode(_receive_body(caller), type=CopyRequest)
                if not _PIECE.match(request.piece) or not re.fullmatch(r"[\w.:@-]{1,200}", request.node):
                    break
                if request.digest:
                    caller.sendall(b"\x01" if self._take(caller, request) else b"\x00")
                else:
                    self._give(caller, request)
        with self._lock:
            self._callers.discard(caller)

    def _take(self, caller: socket.socket, request: CopyRequest) -> bool:
        key = request.node, request.piece
        if key not in self._buffers:
            self._buffers[key] = PieceBuffers(self._directory / f"of-{request.node}", request.piece)
        return receive_copy(caller, request, self._buffers[key], self._keep)

    def _give(self, caller: socket.socket, request: CopyRequest) -> None:
        found = self._find(request.piece, request.attempt_number, request.step)
        with contextlib.ExitStack() as stack:
            mapped = stack.enter_context(MappedSnapshot(found[0])) if found is not None else None
            if found is None or mapped is None or _is_other(mapped.header, request):
                _send_body(caller, msgspec.structs.replace(request, digest=b""))
            else:
                send_copy(caller, request.node, request.piece, mapped, found[1])


def _is_other(header: SnapshotHeader, request: CopyRequest) -> bool:
    return (header.attempt_number, header.step) != (request.attempt_number, request.step)


def send_copy(
    peer: socket.socket,
    node: str,
    piece: str,
    mapped: MappedSnapshot,
    digest: bytes,
    keep: tuple[int, int] | None = None,
) -> None:
    header = mapped.header
    _send_body(peer, CopyRequest(node, piece, *header, digest, keep))
    with memoryview(mapped.content) as view:
        for at in range(DATA_AT, header.size, _CHUNK):
            with view[at : min(at + _CHUNK, header.size)] as part:
                peer.sendall(part)


def receive_copy(peer: socket.socket, request: CopyRequest, into: PieceBuffers, keep: Keep) -> bool:
    """Whether the copy arrived intact. Then it counts."""
    header = SnapshotHeader(request.attempt_number, request.step, request.data_size, request.meta_size)
    if header.step < 0 or min(header.data_size, header.meta_size) < 0:
        raise ValueError("the description of the snapshot is invalid")
    file = into.next(request.keep)
    content = file.begin(header.data_size, header.meta_size)
    with memoryview(content) as view:
        at = DATA_AT
        while at < header.size:
            with view[at : min(at + _CHUNK, header.size)] as part:
                got = peer.recv_into(part)
            if not got:
                raise ConnectionResetError("the other node closed the connection")
            at += got
    meta = content[DATA_AT + header.data_size : header.size]
    if digest_of(content, header) != request.digest:
        return False
    file.commit(header.attempt_number, header.step, header.data_size, meta)
    assert header_of(content) == header
    keep(request.piece, file.path, request.digest, header)
    return True


class PeerCalls:
    """The connections to other nodes, which stay open. Used by one thread at a time."""

    def __init__(self) -> None:
        self._lines: dict[PeerStore, socket.socket] = {}

    def bring(
        self,
        peer: PeerStore,
        node: str,
        piece: str,
        mapped: MappedSnapshot,
        digest: bytes,
        keep: tuple[int, int] | None = None,
    ) -> bool:
        """Whether the peer has it now. ``keep``: its copy of that one stays."""

        def use(line: socket.socket) -> bool:
            send_copy(line, node, piece, mapped, digest, keep)
            return line.recv(1) == b"\x01"

        return self._with_line(peer, use)

    def fetch(self, peer: PeerStore, wanted: CopyRequest, into: PieceBuffers, keep: Keep) -> bool:
        """Whether the peer had it, and it is here now."""

        def use(line: socket.socket) -> bool:
            _send_body(line, wanted)
            given = msgspec.msgpack.decode(_receive_body(line), type=CopyRequest)
            same = (given.attempt_number, given.step) == (wanted.attempt_number, wanted.step)
            return bool(given.digest) and same and receive_copy(line, given, into, keep)

        return self._with_line(peer, use)

    def _with_line(self, peer: PeerStore, use: Callable[[socket.socket], bool]) -> bool:
        """Use the open connection; if it is broken, a new one."""
        for fresh in (False, True):
            try:
                if fresh or peer not in self._lines:
                    self._lines[peer] = call(peer.address, peer.port, peer.token, WITHIN_S)
                    self._lines[peer].settimeout(WITHIN_S)
                return use(self._lines[peer])
            except (OSError, msgspec.DecodeError, ValueError):
                broken = self._lines.pop(peer, None)
                if broken is not None:
                    broken.close()
        return False

    def close(self) -> None:
        for line in self._lines.values():
            line.close()
        self._lines.clear()


def _send_body(peer: socket.socket, request: CopyRequest) -> None:
    body = msgspec.msgpack.encode(request)
    peer.sendall(_LENGTH.pack(len(body)) + body)


def _receive_body(peer: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(receive_exactly(peer, _LENGTH.size))
    if length > _MOST:
        raise ValueError("the request is too long")
    return receive_exactly(peer, length)
