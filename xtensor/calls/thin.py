"""The fast path in machine code: tensors get it for operators and indexing after many calls, and fused functions for
the dispatch of captured calls (dispatch.py).

Until then, and where there is no compiler, the methods are in Python. Machine code calls these for operands that are
not thin. It is made for the running Python: the offsets of pointers in objects are looked up in such objects, and if
anything is not as expected, or there is no global interpreter lock, the methods in Python stay.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..base.dtypes import ALL, canonical
from ..base.interpreter import c_function, has_known_objects
from ..base.locks import fork_waiting_lock
from ..base.options import converting, in_force, settings, thin_closed
from ..base.profiling import observers
from ..devices.cpu import DOUBLES, NUMBERS, SINGLES, quiet
from ..plan.costs import COMPOSED_BELOW, ELIDED, THIN_CALLS, cheap_below, costly_below
from ..storage.blob import TBlob
from ..storage.storage import Storage, watchers
from ..tensor.face import Tensor
from ..tensor.methods import Methods
from .library import LONG_WAY, finished
from .record import can_generate


class Door(NamedTuple):
    """A method in Python that machine code may replace, and call where it cannot answer itself.

    home: the class that has it. kind: the name of such methods in codegen/cpu. function: one of NumPy, or the name of a
    C function. items: computes the same for NumPy scalars, None if nothing does. below: a list of one number, the bytes
    up to which arrays are small.
    """

    home: type
    name: str
    call: Callable[..., Any]
    kind: str
    function: Any = None
    items: Any = None
    below: list[int] = costly_below


class Dispatched:
    """A callable that is called in Python until machine code knows kinds of its calls. dispatched: their words
    (dispatch.py), or None.
    """

    __slots__ = ("dispatched",)

    dispatched: Any

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._answer(*args, **kwargs)

    if TYPE_CHECKING:

        def _answer(self, /, *args: Any, **kwargs: Any) -> Any:
            """Answer a call in Python, as each class does in its own way."""


class Called:
    """One of NumPy's functions over tensors, which is called in Python until machine code calls the library's function
    for small arrays.
    """

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._answer(*args, **kwargs)

    if TYPE_CHECKING:

        def _answer(self, /, *args: Any, **kwargs: Any) -> Any:
            """Answer a call in Python, as each class does in its own way."""


# For what is called at once: NumPy's function, the most arguments by position, whether it is a universal function,
# which takes no name but "out" here (None for one that makes arrays of numbers and lists), and the most elements of
# what it makes of lengths (negative where these must be integers); 0 for other functions.
called: dict[Called, tuple[Any, int, bool | None, int]] = {}

# Parameters by which NumPy's functions write an argument.
WRITTEN_NAMES = frozenset(("out", "overwrite_input", "copy"))

_doors: list[Door] = []
# References to operands that methods hold in addition to their doors: one while calls are counted.
held_beside = [0]
_calls = count(1)
_exchanging = fork_waiting_lock()


def add_door(door: Door) -> None:
    """Give a class a method that counts calls, until it is exchanged for machine code, or for the plain method."""
    _doors.append(door)
    call, held_beside[0] = door.call, 1

    @wraps(call)
    def counted(*operands: Any, **given: Any) -> Any:
        if next(_calls) % THIN_CALLS == 0 and settings().engine in ("auto", "llvm"):
            exchange()  # repeated later if it was interrupted
        return call(*operands, **given)

    setattr(door.home, door.name, counted)


def exchange() -> bool:
    """Give tensors their methods in machine code, or the plain ones where there is none; return whether there is."""
    with _exchanging:
        if not _methods:
            _methods.extend(_compiled())
        _install(_methods or [door.call for door in _doors])
        return bool(_methods)


def is_exchanged() -> bool:
    """Return whether the methods were compiled to machine code."""
    return bool(_methods)


@contextmanager
def in_python() -> Iterator[None]:
    """Use the methods in Python within a block; for tests, and for following a call through the package."""
    with _exchanging:
        before, held = [vars(door.home)[door.name] for door in _doors], held_beside[0]
        _install([door.call for door in _doors])
    try:
        yield
    finally:
        _install(before, held)


def _install(methods: list[Any], held: int = 0) -> None:
    held_beside[0] = held
    for door, method in zip(_doors, methods, strict=True):
        setattr(door.home, door.name, method)


# ---- from doors to methods

# Objects that machine code points to, the code, and the linker of the code: kept for ever, by one more reference, as
# tensors may be used until the process has ended, after modules have been cleared.
_kept: list[Any] = []
_methods: list[Any] = []


def _compiled() -> list[Any]:
    """Return the methods in machine code, in the order of doors; an empty list where they cannot be made."""
    if not (has_known_objects() and ctypes.sizeof(ctypes.c_void_p) == _WORD and can_generate()):
        return []
    from ..codegen.cpu.compile import handmade, host, kept_for_ever
    from ..codegen.cpu.methods import source

    try:
        at = _offsets()
        if host() is None:
            return []
        words = _table()
        code = handmade(source([door.kind for door in _doors], at))
    except (LookupError, ValueError, AttributeError, RuntimeError, ImportError, MemoryError):
        return []
    run = (ctypes.c_uint64 * (len(words) + len(_doors)))(*words)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address)(ctypes.addressof(run))
    _kept.append(kept_for_ever(code))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept))
    return [_method(door, address) for door, address in zip(_doors, run[len(words) :], strict=True)]


class _Definition(ctypes.Structure):
    """PyMethodDef of Python's C API."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# METH_NOARGS, METH_O and METH_FASTCALL of that API, by the number of parameters; with METH_KEYWORDS, for other methods.
_FLAGS = {1: 4, 2: 8, 3: 128}
_NAMED = 128 | 2


def _method(door: Door, address: int) -> Any:
    """Return machine code as a method for a Python type, with the signature and docstring of its door."""
    from ..codegen.cpu.array_methods import GIVEN_MORE

    given = [one.replace(annotation=one.empty) for one in inspect.signature(door.call).parameters.values()]
    named = door.kind in GIVEN_MORE
    shown = str(inspect.Signature(given))[1:-1] if named else ", ".join([*[one.name for one in given], "/"])
    doc = f"{door.name}(${shown})\n--\n\n{door.call.__doc__ or ''}"
    definition = _Definition(door.name.encode(), address, _NAMED if named else _FLAGS[len(given)], doc.encode())
    make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
        ("PyDescr_NewMethod", ctypes.pythonapi)
    )
    _kept.append(definition)
    return make(door.home, ctypes.addressof(definition))


def _table() -> list[int]:
    """Return the words of the table: addresses of functions and objects, and the rows of doors."""
    from ..codegen.cpu.faces import FUNCTIONS, OBJECTS

    objects = _objects()
    words = [c_function(name) for name in FUNCTIONS] + [id(objects[name]) for name in OBJECTS]
    for door in _doors:
        function = c_function(door.function) if isinstance(door.function, str) else _word(door.function)
        words += [function, id(door.call), _word(door.items), _most(door)]
    _kept.append((objects, list(_doors)))
    return words


def _most(door: Door) -> int:
    """Return the bytes up to which machine code calls the library: where the result may take the memory of an operand,
    that is decided in Python.
    """
    is_operator = door.kind in ("binary", "power", "reflected") and door.below is cheap_below
    return min(door.below[0], ELIDED - 1) if is_operator else door.below[0]


def _word(one: Any) -> int:
    return 0 if one is None else id(one)


def _objects() -> dict[str, Any]:
    """Return the objects that the methods' machine code needs, by name."""
    types = {
        one.__name__: one
        for one in (Tensor, np.ndarray, float, int, bool, slice, tuple, list, str, complex, type, type(None), type(...))
    }
    singles = {"None": None, "True": True, "False": False, "Ellipsis": ..., "zero": 0, "one": 1, "two": 2}
    state = {"closed": thin_closed, "converting": converting, "watchers": watchers, "context": quiet}
    state |= {"refused": LONG_WAY, "__call__": "__call__", "observers": observers, "in_force": in_force}
    others = {
        "may_share": np.may_share_memory,
        "square": np.square,
        "owner": "owner",
        "axis": "axis",
        "out": "out",
        "array": np.array,
        "scalar_types": frozenset(NUMBERS),
        "written_names": WRITTEN_NAMES,
    }
    numbers = {"double": np.dtype(np.float64), "single": np.dtype(np.float32), "doubles": DOUBLES, "singles": SINGLES}
    names = {"plus_zero": "0.0", "minus_zero": "-0.0", "casting": ("casting",), "same_kind": "same_kind"}
    return types | singles | state | numbers | names | others


# ---- where things lie in objects

_WORD = 8


def _offsets() -> Any:
    """Return the offsets of fields in objects for machine code; raises LookupError where they are not as expected."""
    from ..codegen.cpu.faces import Offsets

    slots = {name: _slot(Tensor, f"_{name}") for name in ("content", "owner", "blob", "step", "is_value")}
    slots |= {name: _slot(Storage, name) for name in ("guard", "version")}
    slots |= {"blob_owner": _slot(TBlob, "_owner"), "saver": _slot(TBlob, "saver")}
    slots |= {"dispatched": _slot(Dispatched, "dispatched")}
    itemsize, kind = _in_dtypes()
    own = FunctionType.__dictoffset__ // _WORD
    places = {"memory": 2, "axes": 3, "lengths": 4, "strides": 5, "dtype": 7, "flags": 8, "function_dict": own}
    found = Offsets(type=1, itemsize=itemsize, kind=kind, **places, **slots)
    _check_arrays(found)
    return found


def _words(one: Any, nbytes: int) -> list[int]:
    """Return the words of an object."""
    return list((ctypes.c_uint64 * (nbytes // _WORD)).from_address(id(one)))


def _slot(home: Any, name: str) -> int:
    """Return the index of the word that a slot takes in objects of a class."""
    one, mark = home.__new__(home), object()
    setattr(one, name, mark)
    return _words(one, home.__basicsize__).index(id(mark))


def _in_dtypes() -> tuple[int, int]:
    """Return the index of the word of a dtype's item size, and the byte offset of its kind."""
    size = type(np.dtype(np.void)).__basicsize__
    kinds = [
        [place for place, word in enumerate(_words(np.dtype(f"V{nbytes}"), size)) if word == nbytes]
        for nbytes in (37, 53, 1009)
    ]
    both = set[int].intersection(*map(set, kinds))
    byte = 24  # behind the object header, and the type of elements
    for dtype in map(np.dtype, ("f", "d", "F", "D", "l", "B", "?", ">f8", ">i4")):
        letters = (ctypes.c_char * 3).from_address(id(dtype) + byte).raw  # the kind, a code and the byte order
        if letters != f"{dtype.kind}{dtype.char}{dtype.byteorder}".encode():
            raise LookupError("dtypes are laid out in another way")
    if len(both) != 1:
        raise LookupError("dtypes are laid out in another way")
    return both.pop(), byte


def _check_arrays(at: Any) -> None:
    """Raise LookupError where an array is not laid out as NumPy's binary interface says."""
    for shape in ((3, 5, 7), (11,)):
        one = np.empty(shape, np.float32)
        words = _words(one, np.ndarray.__basicsize__)
        if (
            words[at.type] != id(np.ndarray)
            or words[at.dtype] != id(one.dtype)
            or words[at.axes] & 0xFFFFFFFF != one.ndim
            or words[at.memory] != one.ctypes.data
            or words[at.flags] & 0xFFFFFFFF != one.flags.num
            or at.function_dict <= 0
        ):
            raise LookupError("arrays are laid out in another way")
        for word, expected in ((at.lengths, one.shape), (at.strides, one.strides)):
            if tuple((ctypes.c_int64 * one.ndim).from_address(words[word])) != expected:
                raise LookupError("arrays are laid out in another way")


# Dtypes, by all objects that stand for them.
_SPELLED = [word for one in ALL.values() for word in (one, one.type, one.name, one.str, one.str[1:])]
_DTYPES = {one: canonical(one) for one in (*_SPELLED, *("int", "float", "complex"), *(bool, int, float, complex))}

# The names of the operators that NumPy's universal functions call with a number before a tensor, for those functions
# that were called so before (numpy/protocols.py).
reflected: dict[Any, str] = {}

add_door(Door(Methods, "__array_ufunc__", vars(Methods)["__array_ufunc__"], "universal", None, reflected))
add_door(Door(Dispatched, "__call__", Dispatched.__call__, "dispatch"))
add_door(Door(Called, "__call__", Called.__call__, "called", finished, called, [COMPOSED_BELOW]))
add_door(Door(Methods, "astype", Methods.astype, "cast", np.ndarray.astype, _DTYPES))
for _home, _name, _kind, _function in (
    (Methods, "copy", "fresh", np.ndarray.copy),
    (Methods, "flatten", "fresh", np.ndarray.flatten),
    (Methods, "ravel", "seen", np.ndarray.ravel),
    (Methods, "transpose", "seen", np.ndarray.transpose),
    (Methods, "reshape", "reshape", np.ndarray.reshape),
    (Tensor, "__getitem__", "getitem", None),
    (Tensor, "__len__", "length", None),
    (Tensor, "__bool__", "truth", None),
    (Tensor, "__float__", "number", "PyNumber_Float"),
    (Tensor, "__int__", "number", "PyNumber_Long"),
):
    add_door(Door(_home, _name, vars(_home)[_name], _kind, _function))
add_door(Door(Tensor, "__setitem__", vars(Tensor)["__setitem__"], "setitem", below=cheap_below))
