"""How far a cluster may grow. Only its configuration has that: open-source Ray does not report it, and a driver only
sees whether there seems to be an autoscaler."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .connection import cluster_address, connected_ray, own_address, ray_module

LAUNCHERS_OWN = Path("~/ray_bootstrap_config.yaml")  # where Ray's launcher puts it on the head
_NO_LIMIT = 2**31 - 1  # what KubeRay makes of a maxReplicas that is not given
_MIRRORED = re.compile(r"node_[0-9a-f]+")  # the type of a node that was started by other means
_STATUS_OF_V1 = b"__autoscaling_status"


@dataclass(frozen=True)
class NodeGroup:
    """A kind of node, and how many of it there may be."""

    name: str
    resources: Mapping[str, float]  # of one node; empty if unknown
    least: int = 0
    most: int | None = None  # None: no limit
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Growth:
    groups: Sequence[NodeGroup]
    most: int | None = None  # nodes of all groups together, without the head


def read_config(path: Path) -> Growth:
    """Read a RayCluster manifest, or a configuration of Ray's cluster launcher."""
    ray_module()  # which installs the other
    import yaml  # type: ignore[import-untyped]

    try:
        every = list(yaml.safe_load_all(path.expanduser().read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"{path} cannot be read: {_line(error)}") from error
    documents = [document for document in every if isinstance(document, dict)]
    try:
        for document in documents:
            if document.get("kind") == "RayCluster":
                return _of_cluster(document)
            if "provider" in document:
                return _of_launcher(document)
    except Exception as error:  # Ray's readers raise arbitrary exceptions
        raise ValueError(f"Ray does not understand {path}: {_line(error)}") from error
    raise ValueError(
        f"{path} is neither a RayCluster manifest nor a configuration of Ray's cluster launcher. Pass one of the two"
    )


def known_growth() -> Growth | None:
    """What is known of the connected cluster without a configuration; None if nothing is."""
    said = _said_by_ray()
    if said is not None:
        return said
    file = LAUNCHERS_OWN.expanduser()
    if not file.is_file() or cluster_address().rpartition(":")[0] != own_address():
        return None
    try:
        return read_config(file)
    except ValueError:
        return None


def seems_to_grow() -> bool:
    """Whether an autoscaler reports to the cluster. Without one, Ray runs a placeholder that only mirrors nodes: in
    version 1 it invents their types, in version 2 these nodes have no provider ids. If that cannot be determined,
    assume that there may be one."""
    try:
        return _reports_by_v1() or _reports_by_v2()
    except Exception:
        return True


def _reports_by_v1() -> bool:
    told = _gcs().internal_kv_get(_STATUS_OF_V1, None)
    report = json.loads(told).get("autoscaler_report") if told else None
    types = (report or {}).get("node_type_mapping") or {}
    return not all(_MIRRORED.fullmatch(str(kind)) for kind in types.values())


def _reports_by_v2() -> bool:
    from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

    told = GetClusterStatusReply.FromString(_gcs().get_cluster_status(timeout_s=10))
    reports = told.autoscaling_state.autoscaler_state_version > 0
    return reports and any(node.instance_id for node in told.cluster_resource_state.node_states)


def _gcs() -> Any:
    return connected_ray()._private.worker.global_worker.gcs_client


def _said_by_ray() -> Growth | None:
    """By a platform that does what open-source Ray does not."""
    config = connected_ray()._private.state.state.get_cluster_config()
    if config is None:
        return None
    groups = [
        NodeGroup(
            kind.name,
            dict(kind.resources),
            max(0, kind.min_count),
            kind.max_count if kind.max_count >= 0 else None,
        )
        for kind in config.node_group_configs
    ]
    return Growth(groups)


def _of_cluster(manifest: dict[str, Any]) -> Growth:
    """Without an autoscaler a group has its replicas, and stays so."""
    from ray.autoscaler._private.kuberay import autoscaling_config

    manifest["metadata"].setdefault("namespace", "default")
    spec = manifest["spec"]
    for group in spec.setdefault("workerGroupSpecs", []):
        if spec.get("enableInTreeAutoscaling"):
            group.setdefault("minReplicas", 0)
            group.setdefault("maxReplicas", _NO_LIMIT)
        else:
            group["minReplicas"] = group["maxReplicas"] = group.get("replicas", 0)
    with _quiet("ray.autoscaler"):
        return Growth(_groups(autoscaling_config._derive_autoscaling_config_from_ray_cr(manifest)))


def _of_launcher(written: dict[str, Any]) -> Growth:
    """Resources that are not given the launcher finds out from the cloud, which is not asked here."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    with _quiet("ray.autoscaler"):
        config = prepare_config(written)
        for kind in config["available_node_types"].values():
            kind.setdefault("resources", {})
        validate_config(config)
    return Growth(_groups(config), config["max_workers"])


def _groups(config: Mapping[str, Any]) -> list[NodeGroup]:
    return [
        NodeGroup(
            name,
            {resource: float(amount) for resource, amount in kind.get("resources", {}).items()},
            kind["min_workers"],
            kind["max_workers"] if kind["max_workers"] < _NO_LIMIT else None,
            kind.get("labels") or {},
        )
        for name, kind in config["available_node_types"].items()
    ]


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Ray logs which defaults it has taken."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _line(error: Exception) -> str:
    """A KeyError's text is only the key."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if isinstance(error, KeyError) or not first else first
