"""The keys of an AWS profile, read from the shared credentials file as the AWS tools do; obstore does not.

Read again every minute: tools that rotate credentials rewrite the file. Profiles that need more than the file
(single sign-on, roles, credential processes) are not followed.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

FRESH_S = 60.0


def provider() -> Callable[[], dict[str, Any]] | None:
    """What obstore calls for credentials; None if the profile has no keys."""
    return _credentials if _keys() is not None else None


def region() -> str | None:
    """The region in the configuration file, where sections are named "profile x"."""
    profile = _profile()
    section = profile if profile == "default" else f"profile {profile}"
    return _section(_file("AWS_CONFIG_FILE", "config"), section).get("region")


def _credentials() -> dict[str, Any]:
    keys = _keys()
    if keys is None:
        raise PermissionError("the AWS profile has no credentials any more")
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
