"""Prints what Keras reads of a shard when ``fit`` is called more than once: ``python keras_epochs.py CALLS SHARED``.

CALLS: the ``initial_epoch`` and ``epochs`` of each call, as JSON; SHARED: whether one callback serves all calls. The
rows that are read, then those of two passes by hand. Without workers: the callback's session is a stand-in.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

import holdfast.data
from holdfast.train.tensorflow import keras

ROWS = 12


class Epochs(keras.KerasReportCallback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """There is no run to report to."""

    def _report(self, logs: dict[str, Any], with_checkpoint: bool) -> None:
        """Nor here."""


def model_that_tells(seen: list[int]) -> Any:
    class Model(tf.keras.Model):  # type: ignore[misc]
        def train_step(self, data: Any) -> dict[str, Any]:
            seen.extend(data[0].numpy().tolist())
            return {"loss": tf.constant(0.0)}

    inputs = tf.keras.layers.Input((1,))
    model = Model(inputs, inputs)
    model.compile(run_eagerly=True)
    return model


def main(calls: list[tuple[int, int]], shared: bool) -> None:
    shard = holdfast.data.range(ROWS).random_shuffle(seed=1).iterator()
    keras.current = lambda: SimpleNamespace(datasets={})  # type: ignore[assignment, return-value]
    keras.shards_of = lambda _: {"train": shard}
    seen: list[int] = []
    model, data, callback = model_that_tells(seen), shard.to_tf("id", "id", batch_size=4), Epochs()
    for first, end in calls:
        callbacks = [callback if shared else Epochs()]
        model.fit(data, initial_epoch=first, epochs=end, callbacks=callbacks, verbose=0, shuffle=False)
    seen += [row["id"] for _ in range(2) for row in shard.iter_rows()]
    print(json.dumps([seen[at : at + ROWS] for at in range(0, len(seen), ROWS)]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), json.loads(sys.argv[2]))
