"""The kinds of NumPy's names: written here, NumPy's own objects, left out, or, for all others, the library's.

This is the one place that says so; the table in the docs and the tests are made from it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

import numpy

from ..autograd.rules import xt
from ..plan.costs import COMPOSED_BELOW, LIBRARY_BELOW, STABLE_BELOW, TWICE_BELOW
from . import algebra, creation, folding, selecting, shaping, statistics
from .common import SPELLED
from .door import WRITES, door, summary
from .thin import AtOnce, Creating, or_natively, stably
from .ufuncs import FORMULAS, Ufunc, ufunc
from .views import ndarray, ndenumerate

NATIVE, COMPOSED, LIBRARY, OWN = "native and fused", "composed", "through the library", "NumPy's own"

# Names that are left out, and why.
LEFT_OUT = {
    "memmap": "a file is mapped by numpy.memmap, whose arrays xt.asarray takes",
    "emath": "its results are complex where a value asks for it; cast to a complex dtype instead",
    **dict.fromkeys(("nditer", "nested_iters", "flatiter", "broadcast"), "an iterator over NumPy's own memory"),
    **dict.fromkeys(("core", "f2py", "ctypeslib"), "NumPy's inner parts"),
    **dict.fromkeys(("test", "show_config", "show_runtime", "get_include", "info"), "about NumPy as it is installed"),
    **dict.fromkeys(("setbufsize", "getbufsize", "seterrcall", "geterrcall"), "settings of NumPy's own loops"),
    **dict.fromkeys(("random.get_bit_generator", "random.set_bit_generator"), "the global stream is NumPy's own"),
    **dict.fromkeys(("linalg.test", "fft.test", "random.test"), "about NumPy as it is installed"),
    "random.random_integers": "deprecated since NumPy 1.11: randint takes its place",
}

# Modules of NumPy that are the same ones here, and can be imported from.
NUMPYS_OWN = ("dtypes", "exceptions", "lib", "lib.stride_tricks", "version")

# Functions and classes of NumPy that neither take nor return arrays, or hold NumPy's own: they are the same ones here.
SAME = frozenset(
    (
        *("dtype", "errstate", "finfo", "iinfo", "ndindex", "printoptions", "issubdtype", "promote_types"),
        *("iterable", "get_printoptions", "set_printoptions", "seterr", "geterr", "broadcast_shapes", "typename"),
        *("mintypecode", "base_repr", "binary_repr", "format_float_positional", "format_float_scientific"),
        *("exceptions", "dtypes", "typing", "linalg.LinAlgError", "poly1d", "polynomial"),
        *(f"random.{name}" for name in ("BitGenerator", "MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")),
        *("random.SeedSequence", "random.bit_generator", "frompyfunc", "fromregex"),
        *("ma", "matrix", "asmatrix", "bmat", "char", "strings", "rec", "record", "recarray"),
        *("busday_count", "busday_offset", "busdaycalendar", "is_busday", "datetime_as_string", "datetime_data"),
    )
)

# NumPy's names that are other names of the same function.
ALIASES = {"amax": "max", "amin": "min", "around": "round", "concat": "concatenate", "row_stack": "vstack"}

_WRITTEN = (algebra, creation, folding, selecting, shaping, statistics)


def functions(module: ModuleType, library: ModuleType) -> dict[str, Any]:
    """Return the public functions of a file of this package, with NumPy's summaries for those without a docstring."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name[0] != "_" and str(getattr(value, "__module__", "")) == module.__name__:
            if isinstance(value, FunctionType) and not value.__doc__:
                value.__doc__ = summary(getattr(library, name, None))
            theirs = _STABLE.get(name) or getattr(library, name, None)
            most = _MOST.get(name, LIBRARY_BELOW)
            if is_thin(name, value, theirs):
                found[name] = AtOnce(value, theirs, most, is_computed=name not in _ARRAYS)
            elif isinstance(value, FunctionType) and callable(theirs) and name not in _AT_ONCE:
                found[name] = or_natively(value, theirs)
            else:
                found[name] = value
            if library is numpy and name in _CREATING:
                found[name] = Creating(value, theirs, _CREATING[name])
            if library is numpy and found[name] is not value:
                found[name].__module__ = str(__package__)  # where a pickle finds it
    return found


# Functions that keep equal elements in their order, as NumPy's may not.
_STABLE = {"sort": stably(numpy.sort), "argsort": stably(numpy.argsort)}

# The most bytes for which NumPy's functions are called that generated code does faster, or that take two passes here.
_MOST: dict[str, int] = {"nanmax": TWICE_BELOW, "nanmin": TWICE_BELOW, **dict.fromkeys(_STABLE, STABLE_BELOW)}
_COMPUTED = ("allclose", "angle", "choose", "cross", "isclose", "kron", "norm", "select", "sinc")
_PRODUCTS = ("dot", "inner", "matrix_power", "multi_dot", "tensordot", "vdot", "vecdot")
_BY_ROWS = ("nanpercentile", "nanquantile", "trim_zeros")  # NumPy goes through rows one by one
_MOST.update(dict.fromkeys((*_COMPUTED, *_PRODUCTS, *_BY_ROWS), COMPOSED_BELOW))


# Functions that make arrays, with the most elements that NumPy makes for machine code: of lengths, of one length for
# two axes, of integers alone (negative), and 0 of lists.
_CREATING = {
    "array": 0,
    "arange": -4096,
    **dict.fromkeys(("zeros", "ones", "empty", "full", "linspace"), 4096),
    **dict.fromkeys(("eye", "identity", "tri"), 64),
}

# Functions whose results are arrays in NumPy, and no scalars, where they have no axes.
_ARRAYS = frozenset(
    (
        *("cov", "cross", "empty_like", "full_like", "i0", "isin", "ones_like", "real_if_close", "roll", "select"),
        *("tensordot", "tile", "where", "zeros_like"),
    )
)

# Functions that are called too often for one more call between, or read an iterator, which nobody can read again: they
# see themselves to what no tensor holds.
_AT_ONCE = frozenset(
    (
        *("sum", "prod", "mean", "max", "min", "all", "any", "ndim", "shape", "size", "isscalar", "result_type"),
        *("can_cast", "isdtype", "common_type", "min_scalar_type", "from_dlpack", "fromiter"),
    )
)

# Functions that return views, numbers, or an argument itself, that make arrays without others, that write, and that
# tensors have as methods in machine code.
_NOT_THIN = frozenset(
    (
        *("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "asarray_chkfinite", "require"),
        *("empty", "zeros", "ones", "full", "arange", "linspace", "eye", "identity", "tri", "indices", "reshape"),
        *("ravel", "transpose", "permute_dims", "matrix_transpose", "swapaxes", "moveaxis", "rollaxis", "squeeze"),
        *("expand_dims", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "broadcast_arrays", "flip"),
        *("fliplr", "flipud", "rot90", "array_split", "split", "hsplit", "vsplit", "dsplit", "unstack", "real", "imag"),
        *("diagonal", "isfortran", "iscomplexobj", "isrealobj", "apply_along_axis", "apply_over_axes", "piecewise"),
        *("fromfunction", "mask_indices", "copy", "astype", "einsum"),
        *_AT_ONCE,
        *WRITES,
    )
)


def is_thin(name: str, ours: Any, theirs: Any) -> bool:
    """Return whether calls of one of NumPy's functions on small arrays go to NumPy directly."""
    return isinstance(ours, FunctionType) and callable(theirs) and name not in _NOT_THIN


def written() -> dict[str, Any]:
    """Return the objects that are defined here, by NumPy's names."""
    found: dict[str, Any] = {"ndarray": ndarray, "ndenumerate": ndenumerate, "ufunc": Ufunc}
    for module in _WRITTEN:
        found |= functions(module, numpy)
    found |= {name: getattr(creation, name) for name in ("r_", "c_", "s_", "index_exp", "mgrid", "ogrid")}
    found |= {alias: found[name] for alias, name in ALIASES.items()}
    return found


LIBRARIES = ("fft", "linalg", "random")
MODULES = (*LIBRARIES, "testing")


@cache
def library(name: str) -> ModuleType:
    """Return one of the modules inside this package."""
    module = import_module(f".{name}", __package__)
    found = functions(module, getattr(numpy, name))
    if name != "random":  # its functions must return generators of this library
        vars(module).update(found)
    return module


def found(path: str) -> Any:
    """Return the object for one of NumPy's names that is not defined here, such as "exp" or "linalg.lstsq".

    Raises AttributeError for names that are left out, that NumPy has removed, or that it never had.
    """
    if path in LEFT_OUT:
        raise AttributeError(f"xtensor.numpy has no {path}: {LEFT_OUT[path]}", name=path.rpartition(".")[2])
    inner, _, name = path.rpartition(".")
    theirs = getattr(getattr(numpy, inner) if inner else numpy, name)  # NumPy says what to use for a removed name
    if isinstance(theirs, numpy.ufunc):
        return ufunc(path)
    return theirs if kind(path, theirs) == OWN else door(path)


def kind(path: str, theirs: Any) -> str:
    """Return the kind of one of NumPy's names here, in the words of the table."""
    if path in SAME or not callable(theirs) or (isinstance(theirs, type) and issubclass(theirs, numpy.generic)):
        return OWN
    return LIBRARY


def group(path: str) -> str:
    """Return the column of the table that a public name of NumPy's is in; "" for a name that is left out."""
    if path in LEFT_OUT:
        return ""
    inner, _, name = path.rpartition(".")
    theirs = getattr(getattr(numpy, inner) if inner else numpy, name)
    standard = hasattr(getattr(xt, inner) if inner else xt, SPELLED.get(name, name))
    if isinstance(theirs, numpy.ufunc):
        return COMPOSED if name in FORMULAS else NATIVE if standard else LIBRARY
    if name not in _written_in(inner):
        return kind(path, theirs)
    return NATIVE if standard or inner == "random" else COMPOSED


@cache
def _written_in(path: str) -> set[str]:
    """Return the names that are written here in a module of NumPy's."""
    return {name for name in vars(library(path)) if name[0] != "_"} if path else set(written())


def groups() -> dict[str, str]:
    """Return the column of every public name of NumPy's main namespace, linalg, fft and random."""
    # Not `dir`: other packages add names to NumPy.
    paths = [name for name in numpy.__all__ if name[0] != "_" and name not in MODULES]
    for one in LIBRARIES:
        paths += [f"{one}.{name}" for name in getattr(numpy, one).__all__ if name[0] != "_"]
    return {path: group(path) for path in sorted(paths, key=str.lower)}


def attributes(inner: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of one of NumPy's modules."""

    @cache
    def look_up(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module 'xtensor.numpy' has no attribute {name!r}", name=name)
        if not inner and name in LIBRARIES:
            return library(name)
        if not inner and name in MODULES:
            return import_module(f".{name}", __package__)
        return found(f"{inner}.{name}" if inner else name)

    return look_up
