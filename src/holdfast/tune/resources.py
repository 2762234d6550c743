"""The request of a trial: bundles of resources, each of which must fit on one node.

However it was written, a request becomes a ``PlacementGroupFactory`` here, and is checked only here. "CPU" and "GPU"
may be fractions; any other name is a custom resource, including "memory" (in bytes).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.train.checks import WrongTypeError, check_number
from holdfast.train.scaling_config import ScalingConfig

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_CUSTOM = "custom_resources"


class PlacementGroupFactory:
    """The resource bundles of a trial. The first is for the trainable itself, and may be empty. The others are for
    workers that it starts.

    ``options`` are for Ray's placement groups, where trials run on Ray.
    """

    def __init__(self, bundles: Sequence[Mapping[str, float]], strategy: str = "PACK", **options: Any) -> None:
        if isinstance(bundles, (str, Mapping)) or not isinstance(bundles, Iterable):
            raise TypeError(f'PlacementGroupFactory(bundles={bundles!r}): pass a list of dicts, as in [{{"CPU": 1}}]')
        if strategy not in STRATEGIES:
            raise ValueError(f"PlacementGroupFactory(strategy={strategy!r}): use one of {', '.join(STRATEGIES)}")
        parsed = [parse_bundle(f"PlacementGroupFactory(bundles[{n}]", bundle) for n, bundle in enumerate(bundles)]
        if not any(parsed):
            raise ValueError(
                f"PlacementGroupFactory(bundles={bundles!r}): it asks for nothing; ask for a fraction at "
                'least: [{"CPU": 0.1}]'
            )
        if not all(parsed[1:]):
            raise ValueError(f"PlacementGroupFactory(bundles={bundles!r}): only the first bundle may be empty")
        self._head_bundle_is_empty = not parsed[0]
        self._bundles = parsed[1:] if self._head_bundle_is_empty else parsed
        self._strategy = strategy
        self._options = options

    @property
    def bundles(self) -> list[dict[str, float]]:
        """The reserved resources, without an empty first bundle."""
        return [dict(bundle) for bundle in self._bundles]

    @property
    def strategy(self) -> str:
        return self._strategy

    @property
    def options(self) -> dict[str, Any]:
        return dict(self._options)

    @property
    def head_bundle_is_empty(self) -> bool:
        return self._head_bundle_is_empty

    @property
    def head_bundle(self) -> dict[str, float]:
        """The resources of the trainable itself."""
        return {} if self._head_bundle_is_empty else dict(self._bundles[0])

    @property
    def head_cpus(self) -> float:
        return self.head_bundle.get("CPU", 0.0)

    @property
    def required_resources(self) -> dict[str, float]:
        """The sum of all bundles."""
        return total(self._bundles)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, PlacementGroupFactory) else NotImplemented

    def __hash__(self) -> int:
        return hash((self._strategy, tuple(tuple(sorted(bundle.items())) for bundle in self._bundles)))

    def __repr__(self) -> str:
        bundles = [*([{}] if self._head_bundle_is_empty else []), *self._bundles]
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"PlacementGroupFactory({bundles}, strategy={self._strategy!r}{options})"

    def _key(self) -> Any:
        return self._bundles, self._strategy, self._head_bundle_is_empty, self._options


_MISSPELT = {"cpus": "cpu", "gpus": "gpu", "num_cpus": "cpu", "num_gpus": "gpu"}


def parse_bundle(argument: str, bundle: Any) -> dict[str, float]:
    """The amounts of a bundle that are not zero. "cpu" and "gpu" mean the same as in capitals."""
    if not isinstance(bundle, Mapping) or not all(isinstance(name, str) and name for name in bundle):
        raise TypeError(f'{argument}={bundle!r}): pass a dict of amounts, as in {{"CPU": 1, "GPU": 0.5}}')
    parsed: dict[str, float] = {}
    for given, amount in bundle.items():
        if given.lower() in _MISSPELT:
            raise ValueError(f"{argument}={bundle!r}): {given!r} is not a resource; use {_MISSPELT[given.lower()]!r}")
        name = given.upper() if given.lower() in ("cpu", "gpu") else given
        if name in parsed:
            raise ValueError(f"{argument}={bundle!r}): {name} appears twice")
        check_number(f"{argument}[{given!r}]", amount, least=0)
        if math.isinf(amount):
            raise ValueError(f"{argument}={bundle!r}): {given} must be finite")
        if name == "GPU" and amount > 1 and amount != int(amount):
            raise ValueError(f"{argument}={bundle!r}): ask for a fraction of one GPU, or for a whole number of GPUs")
        parsed[name] = float(amount)
    return {name: amount for name, amount in parsed.items() if amount}


def total(bundles: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            found[name] = found.get(name, 0.0) + amount
    return found


def request_of(argument: str, given: Any) -> PlacementGroupFactory:
    """A request in any form that a user may write: bundles, one dict, or a ``ScalingConfig``."""
    if isinstance(given, PlacementGroupFactory):
        return given
    if isinstance(given, ScalingConfig):
        return _of_scaling(given)
    if isinstance(given, Mapping):
        return _of_dict(argument, given)
    raise WrongTypeError(
        f"{argument}={given!r}): pass a dict of amounts, a PlacementGroupFactory, a ScalingConfig, or a function of "
        "the config that returns one"
    )


def _of_dict(argument: str, given: Mapping[str, Any]) -> PlacementGroupFactory:
    custom = given.get(_CUSTOM) or {}
    rest = {name: amount for name, amount in given.items() if name != _CUSTOM}
    both = sorted(set(custom) & set(rest)) if isinstance(custom, Mapping) else []
    if both:
        raise ValueError(f"{argument}={dict(given)!r}): {', '.join(both)} appears twice")
    bundle = {**parse_bundle(argument, rest), **parse_bundle(f"{argument}[{_CUSTOM!r}]", custom)}
    if given and not bundle:
        raise ValueError(
            f'{argument}={dict(given)!r}): it asks for nothing; ask for a fraction at least: {{"CPU": 0.1}}'
        )
    return PlacementGroupFactory([bundle or {"CPU": 1}])


def _of_scaling(scaling: ScalingConfig) -> PlacementGroupFactory:
    """A bundle for each worker. The trainer's own request is added to that of the first worker."""
    worker = scaling.worker_resources
    first = total([scaling.trainer_resources or {}, worker])
    workers = max(1, scaling.max_workers)
    return PlacementGroupFactory([{}, first, *[worker] * (workers - 1)], strategy=scaling.placement_strategy)


DEFAULT_REQUEST = PlacementGroupFactory([{"CPU": 1}])
