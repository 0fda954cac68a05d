"""Nested dicts, lists, tuples and dataclasses of tensors: taken apart into leaves, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

Rebuild = Callable[[Iterator[Any]], Any]


def flatten(tree: Any) -> tuple[list[Any], Rebuild]:
    """Return the leaves of a tree, and the function that builds one like it from an iterator of other leaves.

    Dicts are walked in their own order, dataclasses by their fields, None has no leaf. Everything else is a leaf.
    """
    if tree is None:
        return [], lambda leaves: None
    if isinstance(tree, dict):
        return _joined(list(tree.values()), lambda parts: type(tree)(zip(tree, parts, strict=True)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _joined(tree, lambda parts: type(tree)(*parts))
    if isinstance(tree, (list, tuple)):
        return _joined(tree, type(tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        names = [one.name for one in fields(tree)]
        values = [getattr(tree, name) for name in names]
        return _joined(values, lambda parts: replace(tree, **dict(zip(names, parts, strict=True))))
    return [tree], next


def _joined(parts: Sequence[Any], build: Callable[[list[Any]], Any]) -> tuple[list[Any], Rebuild]:
    flat = [flatten(part) for part in parts]
    leaves = [leaf for found, _ in flat for leaf in found]
    return leaves, lambda given: build([rebuild(given) for _, rebuild in flat])


def rebuilt(rebuild: Rebuild, leaves: Sequence[Any]) -> Any:
    """Return the tree of these leaves."""
    return rebuild(iter(leaves))
