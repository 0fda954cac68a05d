"""Functions that show the engine: what is pending and how it will run, names of values, and the cache of kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .base.errors import expected
from .tensor.face import Tensor

if TYPE_CHECKING:
    from .calls.capture import Fused
    from .run.sketch import Sketch

__all__ = ["CacheInfo", "Explanation", "cache_info", "explain", "named"]


class Explanation(str):
    """The result of `explain`: a string that prints as text, and that notebooks show as a picture.

    In the picture, kernels are boxes with their steps inside, and values are shown between them: inputs in blue, kept
    values in green, intermediate values in grey, with a dashed border if they never reach memory.
    """

    __slots__ = ("_sketches",)

    _sketches: Sequence[Sketch]

    def __new__(cls, text: str = "", sketches: Sequence[Sketch] = ()) -> Explanation:
        made = super().__new__(cls, text)
        made._sketches = sketches
        return made

    def __repr__(self) -> str:
        return str(self)

    def to_dot(self) -> str:
        """Return the graph of the picture as text for Graphviz."""
        from .drawing import dot_of

        return dot_of(self._sketches)

    def _repr_svg_(self) -> str:
        from .drawing import svg_of

        return svg_of(self._sketches)

    def _repr_html_(self) -> str:
        from .drawing import html_of

        return html_of(self._sketches, self)


def explain(*tensors: Tensor | Fused[..., Any], ir: bool = False) -> Explanation:
    """Return how the values of tensors will be computed, without computing them, or what a fused function does.

    For pending tensors: the graph, the kernels it is cut into, the engine that will run each kernel, and why. With
    `ir=True` also the LLVM IR of generated code, which is compiled for this and kept, or the CUDA C++, which is not
    compiled. For evaluated tensors: layout and memory. For a single function made by `fuse`: each kind of arguments
    that it was called with, and either why calls of that kind are plain or the schedule that they run.
    Raises TypeError for anything else.

    >>> xt.explain(xt.exp(x) * 2.0)
    """
    from .calls.capture import Fused

    if len(tensors) == 1 and isinstance(tensors[0], Fused):
        return Explanation(tensors[0].explained(), tensors[0].sketches())
    found = [x for x in tensors if isinstance(x, Tensor)]
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(expected("explain", "tensors", "be tensors", type(x).__name__))
    from .explanation import explanation  # the engines come with it

    return Explanation(*explanation(found, ir))


_NAME = re.compile(r"[^\W\d][\w./-]*")


def named(x: Tensor, name: str, /) -> Tensor:
    """Give a tensor a name by which `explain` and XTENSOR_SHOW call its value, and return the tensor.

    There it is shown as %name; if several values have the same name, the others are %name_2 and so on. The name belongs
    to this tensor, not to views or results made from it, and stays when its values are computed. Raises TypeError for
    anything but a tensor and a string, ValueError for a name that does not begin with a letter or underscore, or that
    contains characters other than letters, digits, `_`, `.`, `/` and `-`.
    """
    if not isinstance(x, Tensor):
        raise TypeError(expected("named", "x", "be a tensor", type(x).__name__))
    if not isinstance(name, str):
        raise TypeError(expected("named", "name", "be a string", type(name).__name__))
    if not _NAME.fullmatch(name):
        raise ValueError(expected("named", "name", "be a word of letters, digits, _ . / -", repr(name)))
    from .run.describe import give_name

    give_name(x, name)
    return x


class CacheInfo(NamedTuple):
    """Contents and statistics of the cache of generated kernels since the start of the process.

    kernels: how many are in memory now.
    compiled: how many were made by LLVM or NVRTC. loaded: how many were found on disk, made by an earlier process.
    improved: how many of both replaced less optimised code, in the background.
    hits: how many requests found a kernel in memory; launches that need no lookup are not counted.
    seconds: time spent in the foreground generating, compiling, loading and linking.
    """

    kernels: int
    compiled: int
    improved: int
    loaded: int
    hits: int
    seconds: float


def cache_info() -> CacheInfo:
    """Return contents and statistics of the cache of generated kernels."""
    from .codegen.cpu import compile
    from .codegen.cuda import nvrtc as cuda_build

    counts, kernels = compile.counts, compile.cached() + cuda_build.cached()
    return CacheInfo(kernels, counts.compiled, counts.improved, counts.loaded, counts.hits, counts.seconds)
