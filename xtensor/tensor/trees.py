"""Nested dicts, lists, tuples and dataclasses of tensors: taken apart into leaves, and put together again."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from copy import copy
from typing import Any

from .face import Tensor

Rebuild = Callable[[Iterator[Any]], Any]


def flatten(tree: Any, whole: Container[int] = ()) -> tuple[list[Any], Rebuild]:
    """Return the leaves of a tree, and a function that builds a tree like it from an iterator of other leaves.

    Dicts are walked in their own order, dataclasses by their fields, None has no leaf. Everything else is a leaf, and
    so are objects whose ids are in `whole`.
    """
    if type(tree) is Tensor or id(tree) in whole:  # the commonest tree
        return [tree], next
    if tree is None:
        return [], lambda leaves: None
    _, parts, build = _opened(tree)
    if build is None:
        return [tree], next
    flat = [flatten(part, whole) for part in parts]
    leaves = [leaf for found, _ in flat for leaf in found]
    rebuilds = [rebuild for _, rebuild in flat]
    return leaves, lambda given: build([rebuild(given) for rebuild in rebuilds])


def above_leaves(tree: Any, whole: Container[int] = ()) -> Iterator[Any]:
    """Yield the dicts, lists, tuples and dataclasses of a tree, except for those whose ids are in `whole`."""
    if tree is None or type(tree) is Tensor or id(tree) in whole:
        return
    _, parts, build = _opened(tree)
    if build is not None:
        yield tree
        for part in parts:
            yield from above_leaves(part, whole)


def rebuilt(rebuild: Rebuild, leaves: Sequence[Any]) -> Any:
    """Return the tree with these leaves."""
    return rebuild(iter(leaves))


def spread(prefix: Any, tree: Any) -> list[Any]:
    """Return for each leaf of a tree, in the order of flatten, its value in the tree `prefix`, which may end above the
    leaves. Raises ValueError where the structures differ.
    """
    if not isinstance(prefix, (dict, list, tuple)):
        return [prefix] * len(flatten(tree)[0])
    _, parts, build = _opened(tree)
    same = {*prefix} == {*tree} if isinstance(prefix, dict) and isinstance(tree, dict) else len(prefix) == len(parts)
    if build is None or not same or isinstance(prefix, dict) != isinstance(tree, dict):
        raise ValueError(f"a tree like {prefix!r}")
    values = [prefix[key] for key in tree] if isinstance(prefix, dict) else prefix
    return [value for one, part in zip(values, parts, strict=True) for value in spread(one, part)]


def paths(tree: Any, root: str) -> list[str]:
    """Return Python expressions for the leaves of a tree named `root`, in the order of flatten, as "x[0].weight"."""
    if tree is None:
        return []
    labels, parts, build = _opened(tree)
    if build is None:
        return [root]
    return [path for label, part in zip(labels, parts, strict=True) for path in paths(part, root + label)]


def _opened(tree: Any) -> tuple[Iterator[str], Sequence[Any], Callable[[list[Any]], Any] | None]:
    """Return the labels of a tree's parts, the parts, and what builds a tree of other parts, None for a leaf."""
    if isinstance(tree, dict):
        return (f"[{key!r}]" for key in tree), list(tree.values()), lambda parts: _dict_like(tree, parts)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        named: Any = tree
        return (f".{name}" for name in named._fields), tree, lambda parts: type(tree)(*parts)
    if isinstance(tree, (list, tuple)):
        return (f"[{place}]" for place in range(len(tree))), tree, type(tree)
    if hasattr(type(tree), "__dataclass_fields__"):
        from dataclasses import fields, replace  # not at import, to keep that fast

        names = [one.name for one in fields(tree)]
        labels, values = (f".{name}" for name in names), [getattr(tree, name) for name in names]
        return labels, values, lambda parts: replace(tree, **dict(zip(names, parts, strict=True)))
    return iter(()), (), None


def _dict_like(tree: dict[Any, Any], values: list[Any]) -> dict[Any, Any]:
    """Return a dict of the same kind and keys: a defaultdict keeps its factory."""
    other = copy(tree)
    other.update(zip(tree, values, strict=True))
    return other
