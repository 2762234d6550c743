"""What every storage of runs must do with checkpoints. This is a part of the contract in ``store_contract``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import pytest

from holdfast.errors import CheckpointDamagedError, NewerFormatError, StorageError
from holdfast.store import values
from holdfast.store.interfaces import RunStore
from holdfast.store.location import Location
from holdfast.store.manifests import USER_METADATA, FileEntry, Manifest, Shard
from holdfast.store.objects.base import ObjectStore
from holdfast.store.run_at import run_at
from holdfast.store.sealed import seal, unseal

PATIENCE_S = 10.0
FILES = {"model.pt": b"weights" * 300, "shards/0.bin": b"0" * 4096, "empty": b""}


class CheckpointContract(ABC):
    """The tests of checkpoints, and the base of the tests of a run's storage."""

    @pytest.fixture
    def location(self) -> Location:
        raise NotImplementedError("give a fixture that makes an empty place")

    @pytest.fixture
    def store(self, location: Location) -> Iterator[RunStore]:
        store = run_at(location, PATIENCE_S)
        yield store
        store.close()

    @pytest.fixture
    def raw(self, location: Location) -> Iterator[ObjectStore]:
        """The stored bytes themselves, by their paths in the run."""
        raw = location.open(PATIENCE_S)
        yield raw
        raw.close()

    @abstractmethod
    def stage(self, location: Location, id: str, files: Mapping[str, bytes]) -> tuple[list[FileEntry], list[Shard]]:
        """Prepare the files of a checkpoint, without the commit."""

    def staged(
        self, location: Location, id: str, files: Mapping[str, bytes] = FILES, report: int = 0
    ) -> tuple[Manifest, list[Shard]]:
        entries, shards = self.stage(location, id, files)
        return Manifest(0, id, 1, report, report, 2, 1.5, {"loss": float("inf")}, entries, epoch=1), shards

    def commit(self, store: RunStore, id: str, files: Mapping[str, bytes] = FILES, report: int = 0) -> Manifest:
        return store.checkpoints.commit(*self.staged(store.location, id, files, report))

    def test_what_is_only_staged_is_no_checkpoint(self, store: RunStore, location: Location) -> None:
        self.staged(location, "a")
        assert store.checkpoints.scan() == ([], [])
        assert not store.checkpoints.has_manifest("a")
        with pytest.raises(CheckpointDamagedError, match="manifest"):
            store.checkpoints.read_manifest("a")

    def test_a_committed_checkpoint_is_there_as_it_was_staged(self, store: RunStore, raw: ObjectStore) -> None:
        manifest = self.commit(store, "a")
        assert store.checkpoints.has_manifest("a")
        assert store.checkpoints.read_manifest("a") == manifest == store.checkpoints.verify("a")
        assert {entry.path: entry.size for entry in manifest.files} == {p: len(data) for p, data in FILES.items()}
        assert {path: raw.get(f"checkpoints/a/{path}") for path in FILES} == FILES
        assert manifest.metrics == {"loss": float("inf")}

    def test_checkpoints_are_listed_by_report(self, store: RunStore) -> None:
        for report, id in ((3, "a"), (1, "b"), (2, "c")):
            self.commit(store, id, report=report)
        manifests, damage = store.checkpoints.scan()
        assert ([manifest.id for manifest in manifests], damage) == (["b", "c", "a"], [])

    def test_a_name_is_committed_once(self, store: RunStore, location: Location) -> None:
        self.commit(store, "a", {"file": b"first"})
        with pytest.raises(StorageError, match="committed already"):
            self.commit(store, "a", {"file": b"other"}, report=1)
        assert store.checkpoints.read_manifest("a").report == 0

    @pytest.mark.parametrize("id", ["", ".hidden", "a/b", "../a", "a.json"])
    def test_a_name_that_leads_elsewhere_is_refused(self, store: RunStore, id: str) -> None:
        for call in (store.checkpoints.read_manifest, store.checkpoints.delete, store.checkpoints.verify):
            with pytest.raises(ValueError, match="not a valid name"):
                call(id)

    @pytest.mark.parametrize("change", ["flip", "cut", "remove", "add"])
    def test_verifying_names_what_differs(self, store: RunStore, raw: ObjectStore, change: str) -> None:
        self.commit(store, "a")
        key = "checkpoints/a/model.pt"
        match change:
            case "flip":
                flip(raw, key, 500)
            case "cut":
                raw.put(key, raw.get(key)[:-1])
            case "remove":
                raw.delete([key])
            case "add":
                key = "checkpoints/a/more"
                raw.put(key, b"x")
        with pytest.raises(CheckpointDamagedError, match=key.rpartition("/")[2]):
            store.checkpoints.verify("a")
        assert [manifest.id for manifest in store.checkpoints.scan()[0]] == ["a"], "files are not looked into"

    def test_the_users_metadata_may_change_after_the_commit(self, store: RunStore, raw: ObjectStore) -> None:
        below = f"sub/{USER_METADATA}"  # is a file like any other
        manifest = self.commit(store, "a", {**FILES, USER_METADATA: b"{}", below: b"payload"})
        assert [entry.path for entry in manifest.files] == sorted([*FILES, below])
        own = f"checkpoints/a/{USER_METADATA}"
        assert raw.get(own) == b"{}"
        raw.put(own, b'{"changed": true}')
        store.checkpoints.verify("a")
        raw.delete([own])
        store.checkpoints.verify("a")

    @pytest.mark.parametrize("change", ["flip", "cut", "of another", "without its files"])
    def test_a_damaged_manifest_is_named_and_the_others_count(
        self, store: RunStore, raw: ObjectStore, change: str
    ) -> None:
        for id in ("a", "b"):
            self.commit(store, id, {"file": b"x"})
        match change:
            case "flip":
                flip(raw, "checkpoints/a.json", 50)
            case "cut":
                raw.put("checkpoints/a.json", raw.get("checkpoints/a.json")[:-10])
            case "of another":
                raw.put("checkpoints/a.json", raw.get("checkpoints/b.json"))
            case "without its files":
                raw.delete(["checkpoints/a/file"])
        manifests, damage = store.checkpoints.scan()
        assert [manifest.id for manifest in manifests] == ["b"]
        assert [one.path for one in damage] == ["checkpoints/a.json"]
        with pytest.raises(CheckpointDamagedError):
            store.checkpoints.verify("a")

    def test_a_checkpoint_of_a_newer_version_is_refused(self, store: RunStore, raw: ObjectStore) -> None:
        self.commit(store, "a")
        raw.put("checkpoints/a.json", newer(raw.get("checkpoints/a.json")))
        for refused in (lambda: store.checkpoints.read_manifest("a"), store.checkpoints.scan, store.check_format):
            with pytest.raises(NewerFormatError, match="Upgrade Holdfast"):
                refused()

    def test_a_deleted_checkpoint_leaves_nothing(self, store: RunStore, raw: ObjectStore) -> None:
        self.commit(store, "ab", report=1)
        before = contents(raw)
        self.commit(store, "a")
        for _ in range(2):
            store.checkpoints.delete("a")
            assert contents(raw) == before
        store.checkpoints.verify("ab")
        self.commit(store, "a", {"file": b"again"})
        assert store.checkpoints.verify("a").files[0].path == "file"

    def test_a_quarantined_checkpoint_is_not_offered_and_keeps_its_files(
        self, store: RunStore, raw: ObjectStore
    ) -> None:
        manifest = self.commit(store, "a")
        store.checkpoints.quarantine("a", "a disk lied")
        store.checkpoints.quarantine("a", "its manifest is gone")
        assert store.checkpoints.scan() == ([], [])
        assert not store.checkpoints.has_manifest("a")
        assert store.checkpoints.quarantined() == [("a", "a disk lied")], "the first reason says more"
        assert raw.get("checkpoints/a/model.pt") == FILES["model.pt"]
        store.checkpoints.remove_files(manifest)
        assert store.checkpoints.quarantined() == [("a", "a disk lied")]
        assert not [info.key for info in raw.list() if info.key.startswith("checkpoints/a/")]

    def test_a_copy_of_another_runs_checkpoint(self, store: RunStore, location: Location) -> None:
        donor = run_at(location / "donor", PATIENCE_S)
        try:
            source = self.commit(donor, "theirs", report=7)
            target = Manifest(0, "ours", 0, 0, 7, 1, 2.5, source.metrics, source.files)
            assert store.checkpoints.commit_copy(source, donor.checkpoints, target).id == "ours"
            donor.checkpoints.delete("theirs")
            assert [entry.path for entry in store.checkpoints.verify("ours").files] == sorted(FILES)
            source = self.commit(donor, "bad")
            flip(donor.location.open(PATIENCE_S), "checkpoints/bad/model.pt", 8)
            with pytest.raises(CheckpointDamagedError):
                store.checkpoints.commit_copy(source, donor.checkpoints, target)
        finally:
            donor.close()


def contents(raw: ObjectStore) -> dict[str, bytes]:
    return {info.key: raw.get(info.key) for info in raw.list()}


def flip(raw: ObjectStore, key: str, place: int) -> None:
    content = bytearray(raw.get(key))
    content[place] ^= 1
    raw.put(key, bytes(content))


def newer(line: bytes) -> bytes:
    """The same in a format of the future, sealed."""
    fields = values.decode(unseal(line.rstrip(b"\n")) or b"")
    return seal(values.encode({**fields, "format": 1000}))
