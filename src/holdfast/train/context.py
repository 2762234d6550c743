"""Who this worker is. Every answer comes from the worker's session; nothing is kept here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.store.layout import check_name
from holdfast.store.location import Location

if TYPE_CHECKING:
    from holdfast.worker.session import Session


@dataclass(frozen=True)
class StorageContext:
    """Where the run is stored. For advanced use; it may grow."""

    run_dir: str  # or its URL, without options
    location: Location | None = field(default=None, repr=False, compare=False)  # with the options of the URL

    @property
    def storage_filesystem(self) -> Any:
        """The file system that you passed to ``RunConfig``, or a pyarrow one; the paths of this object are paths in
        it."""
        return (self.location or Location.parse("StorageContext(run_dir", self.run_dir)).as_filesystem()

    @property
    def storage_fs_path(self) -> str:
        """``storage_path``, under the name that it has in Ray."""
        return self.storage_path

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

    def extract_checkpoint_dir_name_from_path(self, checkpoint_path: str) -> str:
        """The name of a checkpoint of this run, from its path or URL."""
        top = self.build_checkpoint_path_from_name("x")[:-1]
        inside = checkpoint_path.partition("://")[2] or checkpoint_path
        if not inside.startswith(top) or inside == top:
            raise ValueError(
                f"extract_checkpoint_dir_name_from_path({checkpoint_path!r}): pass a path below {self.run_dir}/"
            )
        return inside[len(top) :].removeprefix("checkpoints/").rstrip("/")


FREE_UNTIL = "free_until"  # of a trial: up to this report its driver has nothing to decide
TRIAL = "holdfast.trial"  # among the metadata: what tuning says of the trial
OWN_DIRECTORY = "own_directory"  # in that: whether the trial has a separate working directory


class TrainContext:
    """Describes the current worker and its run; ``get_context()`` returns it. Without tuning, the run is the only
    trial.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_world_size(self) -> int:
        """Return how many workers the current attempt has. In an elastic run, other attempts may have other numbers."""
        return self._session.world_size

    def get_world_rank(self) -> int:
        """Return this worker's number among all workers, from 0."""
        return self._session.rank

    def get_local_rank(self) -> int:
        """Return this worker's number among the workers on its node, from 0."""
        return self._session.local_rank

    def get_local_world_size(self) -> int:
        """Return how many workers are on this node."""
        return self._session.local_world_size

    def get_node_rank(self) -> int:
        """Return the number of this worker's node among the nodes with workers, from 0."""
        return self._session.node_rank

    def get_experiment_name(self) -> str:
        """Return ``RunConfig(name)`` of the run, or of the experiment that the trial belongs to."""
        return str(self._trial.get("experiment", self._session.run_name))

    def get_trial_name(self) -> str:
        """Return the trial's name; without tuning, the run's."""
        return str(self._trial.get("name", self._session.run_name))

    def get_trial_id(self) -> str:
        """Return the trial's id; without tuning, the run's name."""
        return str(self._trial.get("id", self._session.run_name))

    def get_trial_resources(self) -> dict[str, float]:
        """Return the resources of all the trial's bundles together; empty without tuning."""
        return dict(self._trial.get("resources", {}))

    def get_trial_dir(self) -> str:
        """Return the directory of the trial, or of the run, on this machine."""
        return self._session.run_dir

    def get_storage(self) -> StorageContext:
        """Return where the run is stored: ``experiment_fs_path`` is its directory or URL."""
        return StorageContext(str(self._session.location or ""), self._session.location)

    def get_metadata(self) -> dict[str, Any]:
        """Return the ``metadata`` that was passed to the trainer."""
        return {key: value for key, value in self._session.metadata.items() if key != TRIAL}

    @property
    def _trial(self) -> dict[str, Any]:
        trial: dict[str, Any] = self._session.metadata.get(TRIAL, {})
        return trial


def get_context() -> TrainContext:
    """Return the context of this worker: its ranks, the world size, the run."""
    from holdfast.train.api import session_for

    return TrainContext(session_for("get_context"))
