"""An estimator of scikit-learn that learns in parts on each of two workers, with joblib's processes, and a checkpoint
after each part."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import joblib
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier

from holdfast import train
from holdfast.train.collective import barrier
from support.frameworks.framework_job import note, run, strike

PARTS = 10


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    rank = train.get_context().get_world_rank()
    x, y = make_classification(500, 8, random_state=rank)
    model, start = SGDClassifier(random_state=0), 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            model, start = joblib.load(Path(directory, f"model-{rank}.joblib"))
    for part in range(start, PARTS):
        barrier()  # else a rank could be rounds ahead of the other, and strike first
        strike(config, part)
        rows = slice(50 * part, 50 * (part + 1))
        model.partial_fit(x[rows], y[rows], classes=[0, 1])
        scores = joblib.Parallel(n_jobs=2)(joblib.delayed(model.score)(x[at::2], y[at::2]) for at in range(2))
        with tempfile.TemporaryDirectory() as directory:
            joblib.dump((model, part + 1), Path(directory, f"model-{rank}.joblib"))
            metrics = {"part": part + 1, "score": sum(scores) / 2}
            train.report(metrics, train.Checkpoint.from_directory(directory))


def digest(directory: str) -> bytes:
    models = [joblib.load(path)[0] for path in sorted(Path(directory).glob("model-*.joblib"))]
    return b"".join(model.coef_.tobytes() + model.intercept_.tobytes() for model in models)


if __name__ == "__main__":
    run(train.DataParallelTrainer, train_fn, digest, "part")
