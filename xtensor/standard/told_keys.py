"""Keys with Python numbers that are arguments of a captured function: the views that they select are copied, and copied
back, at places that each later call computes (run/places.py).
"""

from __future__ import annotations

from typing import Any

from ..autograd.rules import xt
from ..devices.cpu import CPU
from ..graph.number import Number, is_traced, value_of
from ..run.places import Window
from ..storage.storage import watching
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor


def told_key(x: Tensor, key: Any) -> Any:
    """Return a key with 0-d tensors in place of numbers that differ from call to call, and windows in place of slices
    between such numbers; the key itself if no such number becomes an index.
    """
    arithmetic = getattr(watching(), "arithmetic", None)
    items = key if type(key) is tuple else (key,)
    if arithmetic is None or not arithmetic.indexes or x.device.backend is not CPU or not any(map(_is_told, items)):
        return key
    lengths = iter(_lengths(x.shape, items))
    return tuple([_told(one, None if one is None else next(lengths)) for one in items])


def _is_told(item: Any) -> bool:
    if type(item) is slice:
        return _is_told(item.start) or _is_told(item.stop)
    return type(item) is Number and is_traced(item) and type(value_of(item)) is int


def _lengths(shape: tuple[int, ...], items: tuple[Any, ...]) -> list[int | None]:
    """Return for each item but None the length of the axis it selects from; None for an Ellipsis and beyond axes."""
    taken = [one for one in items if one is not None]
    at = next((place for place, one in enumerate(taken) if one is Ellipsis), len(taken))
    rest = len(taken) - at - 1
    ends: list[int | None] = [*shape[len(shape) - rest :]] if rest > 0 else []
    before: list[int | None] = [*shape[:at]]
    return [*before, *[None] * (at < len(taken)), *ends, *[None] * len(taken)]


def _told(item: Any, length: int | None) -> Any:
    if length is None or not _is_told(item):
        return item
    return _index(item) if type(item) is Number else _window(item, length)


def _window(item: slice, length: int) -> Any:
    """Return a slice between numbers as a window; the slice itself if its length is not constant."""
    start, stop = item.start, item.stop
    if item.step not in (None, 1) or type(start) is not Number or type(stop) is not Number:
        return item
    count = stop - start
    if not (start >= 0 and stop <= length and count == value_of(count) > 0):  # later calls check this again
        return item
    return Window(_index(start), value_of(count))


def _index(number: Number) -> Tensor:
    """Return a number as a tensor, the same one each time."""
    indices = number.arithmetic.indices
    if number.cell not in indices:
        indices[number.cell] = xt.add(as_tensor(0, "index"), number)
    found: Tensor = indices[number.cell]
    return found
