"""scikit-learn and joblib in a worker. The guide docs/sklearn.md explains it."""

import tempfile

import joblib
from sklearn.datasets import make_classification
from sklearn.linear_model import SGDClassifier

from holdfast import train
from holdfast.train import DataParallelTrainer


def train_fn():
    x, y = make_classification(600, 8, random_state=0)
    model, start = SGDClassifier(random_state=0), 0
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            model, start = joblib.load(f"{directory}/model.joblib")
    for part in range(start, 6):
        rows = slice(100 * part, 100 * (part + 1))
        model.partial_fit(x[rows], y[rows], classes=[0, 1])
        halves = [(x[at::2], y[at::2]) for at in range(2)]
        scores = joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(model.score)(*half) for half in halves)
        with tempfile.TemporaryDirectory() as directory:
            joblib.dump((model, part + 1), f"{directory}/model.joblib")
            train.report({"part": part + 1, "score": sum(scores) / 2}, train.Checkpoint.from_directory(directory))


if __name__ == "__main__":
    trainer = DataParallelTrainer(
        train_fn,
        scaling_config=train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 2}),
        run_config=train.RunConfig(
            name="parts", storage_path="runs", failure_config=train.FailureConfig(max_failures=3)
        ),
    )
    print(trainer.fit().metrics)
