"""What paths, URLs and file systems mean, and that no secret is shown."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from obstore.store import LocalStore, MemoryStore, S3Store

from holdfast.errors import StorageDeniedError
from holdfast.store.location import Location
from holdfast.store.objects import aws_profile
from support.object_stores.servers import KEYS, S3Server


def parse(path: Any, filesystem: Any = None) -> Location:
    return Location.parse("RunConfig(storage_path", path, filesystem)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/runs", "/data/runs"),
        ("/data/../x/", "/x"),
        ("file:///data/a%20b", "/data/a b"),
        ("file://localhost/d", "/d"),
    ],
)
def test_local_paths(text: str, path: str) -> None:
    location = parse(text)
    assert (location.path, str(location), location.takes_uploads) == (Path(path), path, False)
    assert location.name == Path(path).name


def s3_store(endpoint: str) -> S3Store:
    return S3Store("b", endpoint=endpoint, region="us-east-1", client_options={"allow_http": True}, **KEYS)


def s3_of_fsspec(**options: Any) -> Any:
    return SimpleNamespace(protocol="s3", _strip_protocol=str, storage_options=options)


@pytest.mark.parametrize(
    ("url", "filesystem", "environment", "server"),
    [
        ("s3://b/x", None, {}, ""),
        ("s3://b/x?endpoint=http://one/", None, {"AWS_ENDPOINT_URL": "http://two"}, "endpoint=http://one"),
        ("s3://b/x?endpoint_override=one", None, {}, "endpoint=one"),
        ("s3://b/x", None, {"AWS_ENDPOINT_URL": "http://two/"}, "endpoint=http://two"),
        ("s3://b/x", None, {"AWS_ENDPOINT_URL": "a", "AWS_ENDPOINT_URL_S3": "http://s3"}, "endpoint=http://s3"),
        ("gs://b/x?base_url=http://one", None, {}, "endpoint=http://one"),
        ("az://c/x", None, {"AZURE_STORAGE_ACCOUNT_NAME": "mine"}, "account_name=mine"),
        ("az://c/x?account=mine", None, {}, "account_name=mine"),
        ("x", s3_store("http://one"), {}, "endpoint=http://one"),
        ("x", DirFileSystem("/d", MemoryFileSystem()), {}, ""),
        ("x", s3_of_fsspec(endpoint_url="e", key="k"), {}, "endpoint=e"),
        ("x", s3_of_fsspec(client_kwargs={"endpoint_url": "e"}, key="k"), {}, "endpoint=e"),
    ],
)
def test_a_place_is_known_by_its_server_too_and_without_secrets(
    url: str, filesystem: Any, environment: dict[str, str], server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    location = parse(url, filesystem)
    assert location.identity == f"{location} {server}"


ARROW = """
from pyarrow.fs import S3FileSystem, SubTreeFileSystem
from holdfast.store.location import Location
options = {"access_key": "k", "secret_key": "s", "region": "us-east-1", "scheme": "http"}
filesystem = S3FileSystem(endpoint_override="127.0.0.1:5", **options)
for given in (filesystem, SubTreeFileSystem("below", filesystem)):
    print(Location.parse("x", "x", given).identity)
"""


def test_a_place_on_a_file_system_of_pyarrow_is_known_by_its_server() -> None:
    """In a process of its own, as pyarrow keeps threads and files."""
    done = subprocess.run([sys.executable, "-c", ARROW], capture_output=True, text=True, timeout=60)
    assert done.stdout.split("\n") == ["s3://x endpoint=127.0.0.1:5", "subtree://x endpoint=127.0.0.1:5", ""], (
        done.stderr
    )


def test_a_wrapped_file_system_of_fsspec_has_an_identity(tmp_path: Path) -> None:
    from pyarrow.fs import FSSpecHandler, PyFileSystem

    wrapped = PyFileSystem(FSSpecHandler(DirFileSystem(path=str(tmp_path), fs=LocalFileSystem())))
    assert parse("runs", wrapped).identity.strip() == str(parse("runs", wrapped))


def test_a_trial_is_below_its_experiment_on_a_filesystem_of_pyarrow(tmp_path: Path) -> None:
    """The name of its type is a word without a meaning in a URL."""
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    given = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    own = parse("runs/one", given) / "t0"
    again = parse(own.within, given)
    assert again == own
    assert again.filesystem is given
    assert parse("s3://bucket/x").within == "s3://bucket/x"


def test_a_local_place_is_known_by_its_path() -> None:
    assert parse("/data/runs").identity == "/data/runs"


def test_paths_relative_to_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    assert parse("~/runs").path == Path("/home/me/runs")
    assert parse("runs").path == tmp_path / "runs"
    assert parse(Path("runs")).path == tmp_path / "runs"


@pytest.mark.parametrize(
    ("text", "shown", "name", "parent"),
    [
        ("s3://bucket/runs/a", "s3://bucket/runs/a", "a", "s3://bucket/runs"),
        ("s3a://bucket//runs/", "s3://bucket/runs", "runs", "s3://bucket"),
        ("s3://bucket", "s3://bucket", "bucket", "s3://bucket"),
        ("gs://bucket/x", "gs://bucket/x", "x", "gs://bucket"),
        ("az://container/x", "az://container/x", "x", "az://container"),
        ("memory://test/x", "memory://test/x", "x", "memory://test"),
        ("s3://b/x?region=eu&secret_access_key=SECRET", "s3://b/x", "x", "s3://b"),
        (
            "abfss://c@account.dfs.core.windows.net/x",
            "abfss://c@account.dfs.core.windows.net/x",
            "x",
            "abfss://c@account.dfs.core.windows.net",
        ),
    ],
)
def test_urls(text: str, shown: str, name: str, parent: str) -> None:
    location = parse(text)
    assert (str(location), location.name, str(location.parent)) == (shown, name, parent)
    assert location.takes_uploads
    assert location.path is None
    assert str(location / "more") == f"{shown}/more"
    assert "SECRET" not in repr(location)


def test_a_location_is_a_value() -> None:
    one, same = parse("s3://bucket/a?region=eu"), parse("s3://bucket/") / "a"
    assert one == same
    assert hash(one) == hash(same)
    assert one != parse("s3://bucket/b")
    assert parse(one) is one
    again = pickle.loads(pickle.dumps(one))
    assert again == one
    assert again.options == (("region", "eu"),)


@pytest.mark.parametrize(
    ("path", "error", "told"),
    [
        ("", ValueError, "the path is empty; pass a directory"),
        (b"/data", TypeError, r"pass a str or a pathlib\.Path"),
        (7, TypeError, r"RunConfig\(storage_path=7\): pass a str"),
        ("file://host/data", ValueError, "three slashes"),
        ("ftp://host/data?password=SECRET", ValueError, "ftp:// is not supported. Use a plain path, file://, s3://"),
        ("s3://", ValueError, "name the bucket"),
        ("s3://KEY:SECRET@bucket/x", ValueError, "credentials by environment"),
        ("s3://bucket/a#b?token=SECRET", ValueError, "#"),
        ("s3://bucket/../x", ValueError, r"\.\."),
    ],
)
def test_mistakes_are_told_without_secrets(path: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told) as caught:
        parse(path)
    assert "SECRET" not in str(caught.value)


def test_file_systems_of_the_user(tmp_path: Path) -> None:
    s3 = S3Store("bucket", prefix="deep", region="us-east-1", **KEYS)
    assert str(parse("runs/", s3)) == "s3://bucket/deep/runs"
    assert parse("/runs", LocalStore(tmp_path)).path == tmp_path / "runs"
    assert parse(str(tmp_path), LocalFileSystem()).path == tmp_path
    assert str(parse("memory://x/y", MemoryFileSystem())) == "memory:///x/y"
    arrow_local = SimpleNamespace(type_name="local", get_file_info=None)
    assert parse(str(tmp_path), arrow_local).path == tmp_path
    arrow_s3 = SimpleNamespace(type_name="s3", get_file_info=None)
    assert str(parse("bucket/runs", arrow_s3)) == "s3://bucket/runs"
    with pytest.raises(ValueError, match="without a scheme"):
        parse("s3://bucket/runs", s3)
    with pytest.raises(TypeError, match="of type dict: pass a store of obstore"):
        parse("runs", {})


def test_what_is_in_memory_stays_in_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="MemoryStore"):
        pickle.dumps(parse("x", MemoryStore()))
    for location in (parse("memory://test/x"), parse("/x", MemoryFileSystem())):
        sent = pickle.dumps(location)
        assert pickle.loads(sent) == location
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(os, "getpid", lambda: -1)
            with pytest.raises(TypeError, match="memory of another process"):
                pickle.loads(sent)


def test_a_configured_store_goes_along() -> None:
    location = parse("runs", S3Store("bucket", region="us-east-1", **KEYS))
    assert pickle.loads(pickle.dumps(location)).filesystem.config["access_key_id"] == KEYS["access_key_id"]


def test_one_memory_by_name() -> None:
    parse("memory://shared/a").open(5.0).put("k", b"v")
    assert parse("memory://shared").open(5.0).get("a/k") == b"v"
    assert parse("memory://other").open(5.0).list() == []


@pytest.mark.parametrize("how", ["environment", "service endpoint", "options", "pyarrow options", "profile"])
def test_the_usual_ways_to_say_where_and_who(
    s3: S3Server, how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    keys = f"access_key_id={KEYS['access_key_id']}&secret_access_key={KEYS['secret_access_key']}"
    query = ""
    if how == "environment":
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
    elif how == "service endpoint":
        for name, value in s3.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.url)
    elif how == "options":
        query = f"?endpoint={s3.url}&region=eu-west-1&{keys}"
    elif how == "pyarrow options":
        query = f"?endpoint_override=127.0.0.1:{s3.port}&scheme=http&region=eu-west-1&{keys}"
    else:
        write_profile(tmp_path / ".aws" / "credentials")
        monkeypatch.setenv("AWS_PROFILE", "work")
        query = f"?endpoint={s3.url}"
    store = parse(f"s3://{s3.make_bucket()}/runs{query}").open(10.0)
    store.put("k", b"v")
    assert store.get("k") == b"v"
    assert "secret" not in store.url
    store.close()


def write_profile(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(
        "[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n"
        f"[work]\naws_access_key_id = {KEYS['access_key_id']}\naws_secret_access_key = {KEYS['secret_access_key']}\n"
    )


def test_a_profile_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    assert (aws_profile.provider(), aws_profile.region()) == (None, None)
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n[profile work]\nregion = eu-west-2\n")
    for number in (1, 2):
        (tmp_path / "keys").write_text(
            f"[default]\naws_access_key_id=k{number}\naws_secret_access_key=a%b\naws_session_token=t{number}\n"
        )
        provider = aws_profile.provider()
        assert provider is not None
        found = provider()
        assert (found["access_key_id"], found["secret_access_key"], found["token"]) == (
            f"k{number}",
            "a%b",
            f"t{number}",
        )
    assert aws_profile.region() == "eu-west-1"
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert (aws_profile.provider(), aws_profile.region()) == (None, "eu-west-2")


def test_a_profile_that_is_more_than_keys_is_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = {"Version": 1, "AccessKeyId": "k", "SecretAccessKey": "s", "SessionToken": "t"}
    (tmp_path / "said").write_text(json.dumps(said))
    (tmp_path / "config").write_text(f"[profile work]\ncredential_process = cat {tmp_path / 'said'}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "work")
    provider = aws_profile.provider()
    assert provider is not None
    found = provider()
    assert (found["access_key_id"], found["secret_access_key"], found["token"]) == ("k", "s", "t")
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(StorageDeniedError, match=r"pip install 'holdfast\[aws\]'"):
        aws_profile.provider()


def test_other_clouds_take_their_options() -> None:
    parse("gs://bucket/x?anonymous=true&endpoint=http://127.0.0.1:1").open(1.0).close()
    parse("az://container/x?account=me&account_key=a2V5&endpoint=http://127.0.0.1:1/me").open(1.0).close()
    parse("abfss://container@me.dfs.core.windows.net/x?account_key=a2V5").open(1.0).close()


def test_no_credentials_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(StorageDeniedError, match=r"no credentials for s3://bucket/x\. Set AWS_ACCESS_KEY_ID"):
        parse("s3://bucket/x").open(10.0)
    parse("s3://bucket/x?anonymous=true").open(10.0).close()


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(ValueError, match=r"s3://bucket/x: the store cannot be set up: .*nonsense"):
        parse("s3://bucket/x?anonymous=true&nonsense=1").open(10.0)


def test_a_location_imports_no_store() -> None:
    script = (
        "import sys; from holdfast.store.location import Location\n"
        "Location.parse('x(y', 's3://bucket/a') / 'b'\n"
        "print([name for name in ('obstore', 'fsspec', 'pyarrow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
