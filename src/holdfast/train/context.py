"""Who this worker is. Every answer comes from the worker's session; nothing is kept here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.store.layout import check_name

if TYPE_CHECKING:
    from holdfast.worker.session import Session


@dataclass(frozen=True)
class StorageContext:
    """Where the run is stored. For advanced use; it may grow."""

    run_dir: str  # or its URL, without options

    @property
    def storage_path(self) -> str:
        return self.run_dir.rpartition("/")[0] or "/"

    @property
    def experiment_dir_name(self) -> str:
        return self.run_dir.rpartition("/")[2]

    @property
    def experiment_fs_path(self) -> str:
        return self.run_dir

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        """Where a checkpoint of your own may be saved in the run's storage, to be reported with NO_UPLOAD. In an object
        store it is without the scheme, as with Ray: write ``f"s3://{path}"``."""
        check_name(checkpoint_name, "build_checkpoint_path_from_name(checkpoint_name")
        return f"{self.run_dir.partition('://')[2] or self.run_dir}/{checkpoint_name}"


TRIAL = "holdfast.trial"  # among the metadata: what tuning says of the trial
OWN_DIRECTORY = "own_directory"  # in that: whether the trial has a working directory of its own


class TrainContext:
    """What ``get_context()`` returns inside a train function. Plain training has one trial, which is the run itself."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_world_size(self) -> int:
        """How many workers the present attempt has; another attempt of an elastic run may have another number."""
        return self._session.world_size

    def get_world_rank(self) -> int:
        """This worker's number among all of them, from 0."""
        return self._session.rank

    def get_local_rank(self) -> int:
        """This worker's number among those on its node, from 0."""
        return self._session.local_rank

    def get_local_world_size(self) -> int:
        """How many workers are on this node."""
        return self._session.local_world_size

    def get_node_rank(self) -> int:
        """The number of this worker's node among those with workers, from 0."""
        return self._session.node_rank

    def get_experiment_name(self) -> str:
        """``RunConfig(name)``: of the run, or of the experiment that the trial belongs to."""
        return str(self._trial.get("experiment", self._session.run_name))

    def get_trial_name(self) -> str:
        """The trial's name; outside of tuning the run's."""
        return str(self._trial.get("name", self._session.run_name))

    def get_trial_id(self) -> str:
        """The trial's id; outside of tuning the run's name."""
        return str(self._trial.get("id", self._session.run_name))

    def get_trial_resources(self) -> dict[str, float]:
        """Of all the trial's bundles together; empty outside of tuning."""
        return dict(self._trial.get("resources", {}))

    def get_trial_dir(self) -> str:
        """The directory of the trial, or of the run, on this machine."""
        return self._session.run_dir

    def get_storage(self) -> StorageContext:
        """Where the run is stored: ``experiment_fs_path`` is its directory or URL."""
        return StorageContext(self._session.run_url or self._session.run_dir)

    def get_metadata(self) -> dict[str, Any]:
        """The ``metadata`` that was passed to the trainer."""
        return {key: value for key, value in self._session.metadata.items() if key != TRIAL}

    @property
    def _trial(self) -> dict[str, Any]:
        trial: dict[str, Any] = self._session.metadata.get(TRIAL, {})
        return trial


def get_context() -> TrainContext:
    """Who this worker is: its ranks, the world size, the run."""
    from holdfast.train.api import session_for

    return TrainContext(session_for("get_context"))
