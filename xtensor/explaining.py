"""Seeing the engine: what is pending and how it will run, names for values, and what the cache of kernels has done."""

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
    """What `explain` found out; it prints as it reads, and notebooks show it as a picture.

    In the picture kernels are boxes with their steps inside; values are between them: blue ones are given, green ones
    kept, grey ones between, with a dashed border where they never reach memory.
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
        """Return the picture's graph as text for Graphviz."""
        from .drawing import dot_of

        return dot_of(self._sketches)

    def _repr_svg_(self) -> str:
        from .drawing import svg_of

        return svg_of(self._sketches)

    def _repr_html_(self) -> str:
        from .drawing import html_of

        return html_of(self._sketches, self)


def explain(*tensors: Tensor | Fused[..., Any], ir: bool = False) -> Explanation:
    """Return how the values of these tensors will be computed, without computing them, or what a fused function does.

    For pending ones: the graph, the kernels it is cut into, the engine that will run each and why. With `ir=True`
    also the LLVM IR of generated code, which is compiled for that and kept, or the CUDA C++, which is not. For
    evaluated ones: layout and memory. For a function under `fuse`, given alone: each kind of arguments that it was
    called with, and why it is called plainly or the schedule that runs.
    Raises TypeError for anything that is neither.

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
    """Give a tensor a name by which `explain` and XTENSOR_SHOW call its value; return that tensor.

    The name is %name there; of several values with one name the others are %name_2 and so on. It is the tensor's,
    not that of views or results made from it, and stays when its values are computed. Raises TypeError for anything
    but a tensor and a string, ValueError for a name that does not begin with a letter or underscore or holds other
    characters than letters, digits, `_`, `.`, `/` and `-`.
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
    """What the cache of generated kernels holds and has done since the start of the process.

    kernels: held in memory now.
    compiled: made by LLVM or NVRTC. loaded: found on disk, made by an earlier process.
    improved: of both, those that took the place of code made with less care, in the background.
    hits: asked for and found in memory; launches that skip the question are not counted.
    seconds: spent in the foreground generating, compiling, loading and linking.
    """

    kernels: int
    compiled: int
    improved: int
    loaded: int
    hits: int
    seconds: float


def cache_info() -> CacheInfo:
    """Return what the cache of generated kernels holds and has done."""
    from .codegen.cpu import compile
    from .codegen.cuda import nvrtc as cuda_build

    counts, kernels = compile.counts, compile.cached() + cuda_build.cached()
    return CacheInfo(kernels, counts.compiled, counts.improved, counts.loaded, counts.hits, counts.seconds)
