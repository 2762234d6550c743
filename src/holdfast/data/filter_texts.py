"""``filter(expr="price > 10 and kind in ['a', 'b']")``: a text as an expression of pyarrow. None of it runs as code."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import pyarrow.compute as pc

_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left.isin(right),
    ast.NotIn: lambda left, right: ~left.isin(right),
}
_COMPUTED: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_CALLED = {"is_null": pc.is_null, "is_valid": pc.is_valid, "is_nan": pc.is_nan}


def expression_of(text: str) -> Any:
    try:
        return _expression(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, _UnknownError) as error:
        raise ValueError(
            f"filter(expr={text!r}): {error}. Compare columns with values, as in \"x > 1 and kind in ['a', 'b']\", or "
            "pass a function that gets a row, as in filter(lambda row: row['x'] > 1)"
        ) from None


class _UnknownError(Exception):
    pass


def _expression(node: ast.expr) -> Any:
    match node:
        case ast.BoolOp():
            join = operator.and_ if isinstance(node.op, ast.And) else operator.or_
            return reduce(join, map(_expression, node.values))
        case ast.UnaryOp(op=ast.Not()):
            return ~_expression(node.operand)
        case ast.Compare():
            return _comparison(node)
        case ast.BinOp() if type(node.op) in _COMPUTED:
            return _COMPUTED[type(node.op)](_expression(node.left), _expression(node.right))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _CALLED:
            return _CALLED[name](_expression(argument))
        case ast.Name():
            return pc.field(node.id)
        case ast.Attribute():  # a column with a dot in its name
            return pc.field(ast.unparse(node))
    return pc.scalar(_value(node))


def _comparison(node: ast.Compare) -> Any:
    sides = [node.left, *node.comparators]
    found = []
    for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
        if isinstance(op, (ast.In, ast.NotIn)):
            found.append(_COMPARED[type(op)](_expression(left), _value(right)))
        elif type(op) in _COMPARED:
            found.append(_COMPARED[type(op)](_expression(left), _expression(right)))
        else:
            raise _UnknownError(f"{ast.unparse(node)!r} is not supported")
    return reduce(operator.and_, found)


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        raise _UnknownError(f"{ast.unparse(node)!r} is not supported") from None
