"""Checks of the workers' requests to nodes: amounts of resources, and labels.

A cluster reports a bad name or label late, or never: it waits for a node that has it.
"""

from __future__ import annotations

import math
import re
from typing import Any

from holdfast.train.checks import check_number

_KNOWN = ("CPU", "GPU", "TPU")
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = re.compile(rf"!?(?:{_LABEL}|(?:in)?\({_LABEL}(?:, ?{_LABEL})*\))|")
_KEY = re.compile(rf"(?:(?:[A-Za-z0-9.](?:[A-Za-z0-9_.-]{{0,251}}[A-Za-z0-9.])?)?/)?{_LABEL}")


def check_resources(argument: str, resources: Any) -> None:
    if resources is None:
        return
    if not isinstance(resources, dict) or not all(isinstance(name, str) for name in resources):
        raise TypeError(f'{argument}={resources!r}): pass a dict of amounts, as in {{"CPU": 2}}')
    for name, amount in resources.items():
        check_number(f"{argument}[{name!r}]", amount, least=0)
        if math.isinf(amount):
            raise ValueError(f"{argument}[{name!r}]={amount!r}): no node has that; pass a number")
        meant = name.upper().removeprefix("NUM_").removesuffix("S")
        if meant in _KNOWN and name != meant:
            raise ValueError(f"{argument}={resources!r}): unknown resource {name!r}; did you mean {meant!r}?")


def check_labels(argument: str, selector: Any) -> None:
    """One selector, or a list of them. The rules are those of Kubernetes and of Ray."""
    selectors = selector if isinstance(selector, list) else [selector]
    for one in [] if selector is None else selectors:
        texts = [*one.keys(), *one.values()] if isinstance(one, dict) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(
                f'{argument}={selector!r}): pass a dict of labels, as in {{"zone": "a"}}, or a list of them, one for '
                "each worker"
            )
        for key, value in one.items():
            if not _KEY.fullmatch(key):
                raise ValueError(f"{argument}={selector!r}): {key!r} is not a valid label key; {_RULE}")
            if not _VALUE.fullmatch(value):
                raise ValueError(
                    f"{argument}={selector!r}): {value!r} is not a valid label value; {_RULE}; "
                    "before it may be a !, and several are written in(a, b)"
                )


_RULE = "it has up to 63 letters, digits, -, _ or ., and a letter or a digit at both ends"
