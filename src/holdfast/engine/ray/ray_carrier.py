"""Shared objects between nodes, through Ray's object store: an object is copied to each other node once, as a file
there.

Workers are not Ray processes; the actor of their node fetches for them. Other nodes lose an object with the process
that put it into Ray's store: the driver, or the actor of the node on which a worker put it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

from holdfast.engine.ray.connection import connected_ray, ray_module
from holdfast.objects import object_refs
from holdfast.objects.object_session import ObjectSession


@dataclass(frozen=True)
class Handle:
    """``object`` is a pickled reference of Ray's."""

    node: str
    job: str
    object: bytes


class RayCarrier:
    """For a Ray process: a driver, or the actor of a node. ``session``: where it keeps fetched objects; by default the
    process's own."""

    def __init__(self, session: ObjectSession | None = None) -> None:
        context = connected_ray().get_runtime_context()
        self._node, self._job, self._pid = context.get_node_id(), context.get_job_id(), os.getpid()
        self._session = session
        self._lock = threading.Lock()
        self._one_at_a_time: dict[str, threading.Lock] = {}
        self._sent: dict[str, tuple[Any, Handle]] = {}  # by the object's name: what keeps it in Ray's store
        self._fetched: dict[str, Path] = {}

    @property
    def is_open(self) -> bool:
        ray = ray_module()
        here = os.getpid() == self._pid and ray.is_initialized()
        return here and ray.get_runtime_context().get_job_id() == self._job

    def send(self, path: Path) -> Handle:
        ray = connected_ray()
        with self._turn(path.name):
            if path.name not in self._sent:
                with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as memory:
                    object = ray.put(PickleBuffer(memory))
                self._sent[path.name] = object, Handle(self._node, self._job, ray.cloudpickle.dumps(object))
            return self._sent[path.name][1]

    def fetch(self, ref: object_refs.ObjectRef) -> Path:
        if not self.has(ref):
            raise object_refs.lost(ref)
        if ref.handle.node == self._node:
            return object_refs.path_of(ref)
        with self._turn(ref.name):
            if ref.name not in self._fetched:
                self._fetched[ref.name] = self._bring(ref)
            return self._fetched[ref.name]

    def _bring(self, ref: object_refs.ObjectRef) -> Path:
        ray = connected_ray()
        try:
            data = memoryview(ray.get(ray.cloudpickle.loads(ref.handle.object)))
        except ray.exceptions.RayError as error:
            raise object_refs.lost(ref) from error
        return (self._session or object_refs.local.session()).write([data])

    def has(self, ref: object_refs.ObjectRef) -> bool:
        handle = ref.handle
        if not isinstance(handle, Handle) or handle.job != self._job:
            return False
        return handle.node != self._node or os.path.exists(os.path.join(ref.place, ref.name))

    def discard(self, ref: object_refs.ObjectRef) -> None:
        with self._turn(ref.name):
            object, _ = self._sent.pop(ref.name, (None, None))
            if object is not None:  # Ray keeps objects that others pickled until it is told not to
                core = connected_ray()._private.worker.global_worker.core_worker
                with contextlib.suppress(AttributeError):
                    core.remove_object_ref_reference(object)

    def _turn(self, name: str) -> threading.Lock:
        with self._lock:
            return self._one_at_a_time.setdefault(name, threading.Lock())
