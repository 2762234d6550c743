"""Nodes of a real Ray cluster on which no agent can be started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.train as train
from holdfast import tune
from holdfast.errors import ControllerError
from support.elastic.elastic_job import Scene
from support.ray_clusters import cluster_job
from support.ray_clusters.ray_machines import Machines, RayScene, left_over, wait_until

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
HERE = Path(holdfast.__file__).parent
ANOTHER = f"""
__path__ = [{str(HERE)!r}]
exec(compile(open({str(HERE / "__init__.py")!r}).read(), "holdfast", "exec"))
"""
OLDER = ANOTHER + '__version__ = "0.0.1"'
NONE = 'raise ModuleNotFoundError("No module named holdfast")'
AGENT = (
    ANOTHER
    + """
import subprocess
class Popen(subprocess.Popen):
    def __init__(self, command, *args, **options):
        if "holdfast.engine.ray.agent_main" in command:
            {instead}
        super().__init__(command, *args, **options)
subprocess.Popen = Popen
"""
)
FULL = AGENT.format(instead='raise OSError("there are too many processes")')
QUITS = AGENT.format(instead='command = ["true"]')


def add(machines: Machines, home: Path, code: str, resource: str, **options: Any) -> str:
    """A node on which ``import holdfast`` does this."""
    package = home / "elsewhere" / "holdfast"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    env_vars = {"PYTHONPATH": str(package.parent)}
    return machines.add(1, resources={resource: 1}, env_vars=env_vars, **options)


def trainer(scene: Scene, workers: int | tuple[int, int], resource: str, gpus: int = 0) -> Any:
    made = scene.trainer(workers, cluster_job.train_fn)
    made.scaling_config = train.ScalingConfig(
        num_workers=workers,
        use_gpu=gpus > 0,
        resources_per_worker={"CPU": 1, resource: 1},
        elastic_resize_monitor_interval_s=0.0,
    )
    return made


@pytest.mark.parametrize("gpus", [0, 1])
@pytest.mark.parametrize(
    ("code", "words"),
    [(NONE, "cannot import Holdfast"), (OLDER, "has Holdfast 0.0.1, and the driver")],
    ids=["none", "older"],
)
def test_what_is_wrong_from_the_beginning_ends_the_run(
    code: str, words: str, gpus: int, machines: Machines, scene: RayScene
) -> None:
    resource = f"{len(code)}-wrong-{gpus}"
    node = add(machines, scene.home, code, resource, num_gpus=gpus)
    with pytest.raises(ControllerError, match=words):
        trainer(scene, 1, resource, gpus).fit()
    machines.kill(node)


def test_a_node_that_joins_and_is_wrong_does_not_end_a_run(
    machines: Machines, scene: RayScene, capfd: pytest.CaptureFixture[str]
) -> None:
    machines.add(1, resources={"late": 1})

    def act() -> None:
        scene.await_steps(3, world=1)
        wrong = add(machines, scene.home, OLDER, "late")
        wait_until(lambda: seen("has Holdfast 0.0.1"), "the complaint")
        scene.await_steps(3, world=1)
        machines.kill(wrong)
        machines.add(1, resources={"late": 1})
        scene.await_steps(3, world=2)

    said = ""

    def seen(words: str) -> bool:
        nonlocal said
        said += capfd.readouterr().err
        return words in said

    with scene.meanwhile(act):
        result = trainer(scene, (1, 2), "late").fit()
    scene.check(result)
    assert scene.kinds() == []


@pytest.mark.parametrize(
    ("code", "words"), [(FULL, "too many processes"), (QUITS, "did not reach the driver")], ids=["full", "quits"]
)
def test_a_trial_does_not_wait_for_a_node_that_never_gets_an_agent(
    code: str, words: str, machines: Machines, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    resource = f"{len(code)}-trial"
    add(machines, tmp_path, code, resource)

    class AddOne(tune.Callback):
        def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
            if words in capfd.readouterr().err:
                machines.add(1, resources={resource: 1})

    trainable = tune.with_resources(lambda _: tune.report({"done": 1}), {"cpu": 1, resource: 1})
    run = tune.RunConfig(name="run", storage_path=str(tmp_path), engine="ray", verbose=0, callbacks=[AddOne()])
    grid = tune.Tuner(trainable, run_config=run).fit()
    assert [result.metrics["done"] for result in grid] == [1]
    wait_until(lambda: not left_over(), "the end of all that the experiment had")
