"""Where the workers of a node ask the node's actor for what only a process of Ray's can do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection, Listener
from typing import Any

from holdfast.engine.ray.data_splits import serve_batches
from holdfast.engine.ray.ray_carrier import RayCarrier
from holdfast.objects import actor_client
from holdfast.objects.object_session import own_session


class ActorServer:
    """Each conversation has a separate thread, which ends with it."""

    def __init__(self) -> None:
        self._session = own_session()
        carrier = RayCarrier(self._session)
        self._answers: dict[str, Callable[..., Any]] = {
            "send": carrier.send,
            "fetch": carrier.fetch,
            "discard": carrier.discard,
        }
        self._listener = Listener(str(actor_client.path_in(self._session)), family="AF_UNIX", backlog=64)
        self._closed = False
        threading.Thread(target=self._serve, name="holdfast-door", daemon=True).start()

    def close(self) -> None:
        """No process is left that could ask."""
        self._closed = True
        with contextlib.suppress(OSError):  # so that the listener wakes up
            actor_client.knock_at(actor_client.path_in(self._session)).close()
        with contextlib.suppress(FileNotFoundError):  # the end of the agent has removed it already
            self._listener.close()
        self._session.close()

    def _serve(self) -> None:
        while not self._closed:
            try:
                conversation = self._listener.accept()
            except OSError:
                continue  # the caller has disconnected again
            threading.Thread(target=self._converse, args=[conversation], name="holdfast-asked", daemon=True).start()

    def _converse(self, conversation: Connection) -> None:
        with conversation, contextlib.suppress(EOFError, OSError):  # a worker that was killed
            question, *arguments = conversation.recv()
            if question == "batches":
                serve_batches(conversation, *arguments)
                return
            try:
                answer = self._answers[question](*arguments)
            except Exception as error:
                answer = error
            conversation.send(answer)
