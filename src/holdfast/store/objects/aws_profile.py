"""The credentials of an AWS profile, which obstore does not look for.

Keys in the shared credentials file are read here, again every minute, because tools that rotate credentials rewrite the
file. Profiles that need more than the file (single sign-on, roles, credential processes) are resolved by boto3, if it
is installed. boto3 is too large to require it for a file of two lines. obstore's own provider needs Python 3.11.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from holdfast.errors import StorageDeniedError

FRESH_S = 60.0
_RESOLVED = {"sso_session", "sso_start_url", "role_arn", "credential_process"}


def provider() -> Callable[[], dict[str, Any]] | None:
    """What obstore calls for credentials; None if the profile has no keys."""
    if _keys() is not None:
        return _credentials
    return _resolved() if _RESOLVED & _configuration().keys() else None


def region() -> str | None:
    return _configuration().get("region")


def _resolved() -> Callable[[], dict[str, Any]]:
    try:
        import boto3
    except ImportError:
        raise StorageDeniedError(
            f"The AWS profile {_profile()!r} uses single sign-on, a role or a credential process, which needs boto3. "
            "Install it: pip install 'holdfast[aws]'"
        ) from None
    found = boto3.Session().get_credentials()

    def fresh() -> dict[str, Any]:
        keys = found.get_frozen_credentials()
        return _expiring({"access_key_id": keys.access_key, "secret_access_key": keys.secret_key, "token": keys.token})

    return fresh


def _configuration() -> dict[str, str]:
    """The profile in the configuration file, where sections are named "profile x"."""
    profile = _profile()
    section = profile if profile == "default" else f"profile {profile}"
    return _section(_file("AWS_CONFIG_FILE", "config"), section)


def _credentials() -> dict[str, Any]:
    keys = _keys()
    if keys is None:
        raise PermissionError("the AWS profile no longer has credentials")
    return _expiring(keys)


def _expiring(keys: dict[str, Any]) -> dict[str, Any]:
    return {**keys, "expires_at": datetime.now(timezone.utc) + timedelta(seconds=FRESH_S)}


def _keys() -> dict[str, Any] | None:
    section = _section(_file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), _profile())
    try:
        return {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
            "token": section.get("aws_session_token"),
        }
    except KeyError:
        return None


def _profile() -> str:
    return os.environ.get("AWS_PROFILE") or "default"


def _file(variable: str, name: str) -> Path:
    return Path(os.environ.get(variable) or Path("~/.aws") / name).expanduser()


def _section(path: Path, name: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):
        return {}
    return dict(parser[name]) if parser.has_section(name) else {}
