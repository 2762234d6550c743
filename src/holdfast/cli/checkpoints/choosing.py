"""Which checkpoints of a run are meant. One that the run does not have is an error that names those that it has."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.metric_names import flat_items, metric_number
from holdfast.runs.stored_run import StoredRun
from holdfast.store.manifests import Manifest

ID_HELP = "a checkpoint's name, as holdfast checkpoints lists it"
_SHOWN = 20


def chosen(stored: StoredRun, ids: Sequence[str]) -> list[Manifest]:
    """The checkpoints with these names, in the order of their reports; all if no name is given."""
    manifests = stored.manifests()[0]
    known = [manifest.id for manifest in manifests]
    for id in ids:
        if id not in known:
            has = ", ".join(known[-_SHOWN:]) or "none"
            more = f" and {len(known) - _SHOWN} older ones" if len(known) > _SHOWN else ""
            raise ValueError(f"{stored.location} has no checkpoint {id!r}. It has: {has}{more}.")
    return [manifest for manifest in manifests if not ids or manifest.id in ids]


def best(stored: StoredRun, metric: str | None, mode: str) -> Manifest:
    """The best checkpoint by that metric, or by the run's CheckpointConfig; of equals the newest."""
    found = stored.read(with_driver=False)
    if metric is None:
        if not found.past.state.spec.scored:
            raise ValueError(
                f"{stored.location} has no CheckpointConfig(checkpoint_score_attribute=...). Use --best --metric "
                f"NAME with --mode max or min."
            )
        id = found.checkpoints[-1][0]
        return next(manifest for manifest in found.manifests if manifest.id == id)
    sign = -1 if mode == "min" else 1
    values = [(metric_number(found.metrics_with(manifest), metric), manifest) for manifest in found.manifests]
    scored = [(sign * value, manifest.report, manifest) for value, manifest in values if value is not None]
    if not scored:
        names = sorted({name for manifest in found.manifests for name, _ in flat_items(found.metrics_with(manifest))})
        has = ", ".join(names) or "none"
        raise ValueError(f"No checkpoint of {stored.location} has a number for {metric!r}. Their metrics: {has}.")
    return max(scored, key=lambda one: one[:2])[2]
