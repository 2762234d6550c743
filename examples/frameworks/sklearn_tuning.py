"""scikit-learn in the trials of an experiment. The guide docs/sklearn.md explains it."""

from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import cross_val_score

from holdfast import train, tune


def objective(config):
    x, y = make_classification(300, 8, random_state=0)
    forest = RandomForestClassifier(n_estimators=20, max_depth=config["max_depth"], n_jobs=1, random_state=0)
    tune.report({"accuracy": cross_val_score(forest, x, y, cv=3).mean()})


if __name__ == "__main__":
    tuner = tune.Tuner(
        objective,
        param_space={"max_depth": tune.grid_search([2, 4, 8])},
        tune_config=tune.TuneConfig(metric="accuracy", mode="max"),
        run_config=train.RunConfig(name="forests", storage_path="runs"),
    )
    print(tuner.fit().get_best_result().config)
