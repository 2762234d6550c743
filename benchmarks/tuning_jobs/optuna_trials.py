"""Trivial trials of Optuna, each written to its storage: how many a second in one process."""

import json
import sys
import time
from pathlib import Path

import optuna

if __name__ == "__main__":
    work, kind = Path(sys.argv[1]), sys.argv[2]
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage: object = f"sqlite:///{work}/optuna.db"
    if kind == "journal":
        backend = optuna.storages.journal.JournalFileBackend(str(work / "optuna.log"))
        storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(storage=storage, sampler=optuna.samplers.RandomSampler())
    count = 300
    began = time.perf_counter()
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=count)
    print(json.dumps({"value": count / (time.perf_counter() - began)}))
