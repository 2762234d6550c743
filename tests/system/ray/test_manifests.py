"""The clusters of examples/cluster are what Ray makes of them, and have room for the run that they are meant for."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast.cli.cluster.cluster_verdict import judge
from holdfast.engine.demand import Demand
from holdfast.engine.ray import growth, ray_capacity
from holdfast.engine.ray.growth import Growth, read_config
from holdfast.engine.ray.ray_capacity import RayCapacity
from holdfast.train import RunConfig, ScalingConfig
from holdfast.train.worker_demand import demand_of
from support.repository import EXAMPLES

CLUSTERS = EXAMPLES / "cluster"
MANIFESTS = ("kuberay.yaml", "launcher.yaml")
ANYTHING = "*"  # names of somebody's choice, or fields that are not KubeRay's
# The fields of the RayCluster's definition that we use. Kubernetes drops others with a warning, and the autoscaler does
# not look at them.
POD: dict[str, Any] = {
    "spec": {
        "terminationGracePeriodSeconds": None,
        "containers": {
            "name": None,
            "image": None,
            "env": {"name": None, "value": None},
            "lifecycle": {"preStop": {"exec": {"command": None}}},
            "resources": {"limits": {ANYTHING: None}, "requests": {ANYTHING: None}},
            "volumeMounts": {"name": None, "mountPath": None},
        },
        "volumes": {"name": None, "emptyDir": {"sizeLimit": None}},
    }
}
FIELDS: dict[str, Any] = {
    "apiVersion": None,
    "kind": None,
    "metadata": {"name": None, "namespace": None},
    "spec": {
        "rayVersion": None,
        "enableInTreeAutoscaling": None,
        "autoscalerOptions": {"version": None, "idleTimeoutSeconds": None, "upscalingMode": None},
        "gcsFaultToleranceOptions": {"redisAddress": None},
        "headGroupSpec": {"rayStartParams": {"num-cpus": None}, "template": POD},
        "workerGroupSpecs": {
            "groupName": None,
            "minReplicas": None,
            "maxReplicas": None,
            "replicas": None,
            "rayStartParams": {},
            "template": POD,
        },
    },
}


def demand() -> Demand:
    return demand_of(ScalingConfig(num_workers=(1, 8), use_gpu=True), RunConfig())


def room(found: Growth) -> RayCapacity:
    return RayCapacity([], [ray_capacity._type(group, demand()) for group in found.groups], found.most)


def unknown(written: Any, known: Mapping[str, Any] | None, path: str = "") -> Iterator[str]:
    """Where something stands that the definition does not have. A list's entries are all of one kind."""
    if isinstance(written, list):
        for item in written:
            yield from unknown(item, known, path)
    elif isinstance(written, dict):
        for key, value in written.items():
            names = known or {}
            if key not in names and ANYTHING not in names:
                yield f"{path}/{key}"
            else:
                yield from unknown(value, names.get(key, names.get(ANYTHING)), f"{path}/{key}")


def manifest() -> dict[str, Any]:
    written: dict[str, Any] = yaml.safe_load((CLUSTERS / "kuberay.yaml").read_text())
    return written


def every_key(written: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Each key with the mapping that it is in, but for what is somebody's choice."""
    if isinstance(written, list):
        for item in written:
            yield from every_key(item)
    elif isinstance(written, dict):
        for key, value in written.items():
            yield written, key
            if key not in ("limits", "requests"):
                yield from every_key(value)


@pytest.mark.parametrize("name", MANIFESTS)
def test_ray_reads_it_and_it_grows_from_the_fewest_to_the_most_workers(name: str) -> None:
    found = room(read_config(CLUSTERS / name))
    head, group = found.types
    assert (head.seats, head.most) == (0, 0), "no worker beside the driver"
    assert (group.seats, group.least, group.most) == (1, 1, 8)
    assert found.limit in (None, 8)
    assert found.in_time == 8
    assert judge(demand(), found).grade == 2, "it waits until nodes are added, and never for more than there may be"


@pytest.mark.parametrize("name", MANIFESTS)
def test_it_names_the_range_that_it_is_meant_for(name: str) -> None:
    least, most = re.findall(r"num_workers=\((\d+), (\d+)\)", (CLUSTERS / name).read_text())[0]
    assert (int(least), int(most)) == (demand().least, demand().most)
    assert f"--workers {least}:{most} --gpus 1" in (CLUSTERS / name).read_text()


def test_a_word_that_the_launcher_does_not_know_is_refused(tmp_path: Path) -> None:
    written = yaml.safe_load((CLUSTERS / "launcher.yaml").read_text())
    written["min_wrokers"] = 1
    (tmp_path / "launcher.yaml").write_text(yaml.safe_dump(written))
    with pytest.raises(ValueError, match="min_wrokers"):
        read_config(tmp_path / "launcher.yaml")


def test_kuberay_knows_all_that_it_is_told() -> None:
    assert list(unknown(manifest(), FIELDS)) == []


def test_no_word_of_it_can_be_misspelt() -> None:
    for number, (_, key) in enumerate(every_key(manifest())):
        misspelt = copy.deepcopy(manifest())
        mapping, same = list(every_key(misspelt))[number]
        assert same == key
        mapping[f"{key}x"] = mapping.pop(key)
        assert len(list(unknown(misspelt, FIELDS))) == 1, f"{key}x"


def test_an_autoscaler_that_looks_at_labels_is_asked_for() -> None:
    assert manifest()["spec"]["autoscalerOptions"]["version"] == "v2"


def test_an_agent_that_was_given_notice_ends_before_its_pod_does() -> None:
    spec = manifest()["spec"]
    (head,) = spec["headGroupSpec"]["template"]["spec"]["containers"]
    grace = next(one["value"] for one in head["env"] if one["name"] == "HOLDFAST_PREEMPTION_GRACE_S")
    assert float(grace) < spec["workerGroupSpecs"][0]["template"]["spec"]["terminationGracePeriodSeconds"]


def test_a_cluster_without_an_autoscaler_does_not_grow(tmp_path: Path) -> None:
    written = manifest()
    written["spec"]["enableInTreeAutoscaling"] = False
    (tmp_path / "fixed.yaml").write_text(yaml.safe_dump(written))
    assert room(read_config(tmp_path / "fixed.yaml")).in_time == 1


def test_a_group_without_limits_has_those_of_kuberay(tmp_path: Path) -> None:
    written = manifest()
    (group,) = written["spec"]["workerGroupSpecs"]
    del group["minReplicas"], group["maxReplicas"]
    (tmp_path / "free.yaml").write_text(f"kind: Service\n---\n{yaml.safe_dump(written)}")
    assert [(found.least, found.most) for found in read_config(tmp_path / "free.yaml").groups] == [(0, 0), (0, None)]


def test_labels_of_a_node_type_are_those_of_its_nodes(tmp_path: Path) -> None:
    written = yaml.safe_load((CLUSTERS / "launcher.yaml").read_text())
    written["available_node_types"]["gpu_worker"]["labels"] = {"zone": "b"}
    (tmp_path / "launcher.yaml").write_text(yaml.safe_dump(written))
    labels = {group.name: group.labels for group in read_config(tmp_path / "launcher.yaml").groups}
    assert labels == {"head": {}, "gpu_worker": {"zone": "b"}}


def test_nodes_of_which_the_launcher_asks_the_cloud_later_have_no_resources_yet(tmp_path: Path) -> None:
    written = yaml.safe_load((CLUSTERS / "launcher.yaml").read_text())
    del written["available_node_types"]["gpu_worker"]["resources"]
    (tmp_path / "launcher.yaml").write_text(yaml.safe_dump(written))
    found = room(read_config(tmp_path / "launcher.yaml"))
    assert not found.is_known
    assert judge(demand(), found).can_start


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is neither a RayCluster manifest nor a configuration of Ray's cluster launcher"),
        ("- a list", "is neither a RayCluster manifest nor"),
        ("a: [", "cannot be read"),
        ("kind: RayCluster", "Ray does not understand .*metadata"),
        ("kind: RayCluster\nmetadata: {name: a}\nspec: {}", "Ray does not understand .*headGroupSpec"),
        ("provider: {type: nobodys}", "Ray does not understand"),
    ],
)
def test_a_file_that_says_nothing_of_a_cluster(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(text)
    with pytest.raises(ValueError, match=words) as caught:
        read_config(tmp_path / "cluster.yaml")
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be read: .*No such file"):
        read_config(tmp_path / "cluster.yaml")


@pytest.mark.parametrize(("head", "known"), [("10.0.0.1:6379", True), ("10.0.0.2:6379", False)])
def test_the_launchers_own_file_is_that_of_the_cluster_whose_head_it_is_on(
    head: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ray_bootstrap_config.yaml").write_text((CLUSTERS / "launcher.yaml").read_text())
    monkeypatch.setattr(growth, "_said_by_ray", lambda: None)
    monkeypatch.setattr(growth, "own_address", lambda: "10.0.0.1")
    monkeypatch.setattr(growth, "cluster_address", lambda: head)
    found = growth.known_growth()
    assert (found is not None and found.most == 8) is known
    (tmp_path / "ray_bootstrap_config.yaml").write_text("nonsense")
    assert growth.known_growth() is None
