"""``PlacementGroupFactory``, under the path that scripts from Ray import it from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.tune.resources import PlacementGroupFactory as PlacementGroupFactory
from holdfast.tune.resources import request_of


def resource_dict_to_pg_factory(spec: Mapping[str, Any] | None = None) -> PlacementGroupFactory:
    """Turn a dict such as ``{"cpu": 2, "gpu": 1, "custom_resources": {...}}`` into a request with one bundle."""
    return request_of("resource_dict_to_pg_factory(spec", spec or {"cpu": 1})
