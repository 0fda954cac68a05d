"""The values that a function can find by names, and which values are constants.

These values are looked up again at every call of a captured function (signature.py). The names are those mentioned in
its code, in that of functions it finds, and in that of methods it can call.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cached_property, lru_cache, partial, partialmethod, singledispatchmethod
from itertools import accumulate
from operator import is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, cast

import numpy as np

from ..devices import Device
from .arrays import Copies
from .codes import BY_NAME, globals_of, handles_errors, imports_from, logs_of, makes_names, names_of
from .libraries import (
    NONDETERMINISTIC,
    asked_outside,
    is_library,
    is_of_deterministic,
    is_of_paths,
    module_of,
    varying_in,
)

# The most objects, and the most functions, that are looked into.
MOST_OBJECTS = 512

# Names by which code reaches all attributes of an object, and modules that copy all of them.
_ALL = frozenset(("__dict__", "__getattribute__", "dir", "vars"))
_COPYING = frozenset(("_pickle", "cloudpickle", "copy", "copyreg", "dataclasses", "pickle"))

# Built-in names whose values never change, besides functions and classes; any others were added by somebody.
_BUILTIN_CONSTANTS = frozenset(
    ("Ellipsis", "NotImplemented", "copyright", "credits", "exit", "help", "license", "quit")
)
_BUILTIN_KINDS = (BuiltinFunctionType, type)

# Types of constants that are indistinguishable where they are equal, or that are compared by identity.
_PLAIN = frozenset((int, bool, str, bytes, type(None), type(Ellipsis), FunctionType, BuiltinFunctionType, ModuleType))
_IMMUTABLE = (np.dtype, np.ufunc, type, Enum, Device, CodeType)

# The type of functions that cache their results, whose memory others may hold, too.
_CACHED = type(lru_cache(None)(len))


def constant_of(x: Any) -> tuple[Any, ...] | None:
    """Return a key that distinguishes a constant from all others, its type first; None for a value that may change."""
    kind = type(x)
    if kind in _PLAIN:
        return kind, x
    if kind is float:
        return kind, x.hex()  # -0.0 is not 0.0, and NaN is NaN
    if kind is complex:
        return kind, x.real.hex(), x.imag.hex()
    if kind is tuple:
        parts = [constant_of(part) for part in x]
        return None if None in parts else (kind, *parts)
    if kind is slice:
        return constant_of((slice, x.start, x.stop, x.step))
    if isinstance(x, np.generic):
        return kind, x.tobytes()
    if kind is np.ufunc and x.__name__.endswith(" (vectorized)"):  # made from a function that is out of reach
        return None
    return (kind, x) if isinstance(x, _IMMUTABLE) else None


@lru_cache(maxsize=1024)
def _has_only_constants(kind: Any) -> bool:
    """Return whether an enumeration has no functions of its own, and all its members are plain constants."""
    values = [value for base in kind.__mro__ if not stays(base) for value in vars(base).values()]
    functions = [one for value in values for one in behind(value) if not is_library(str(one.__module__))]
    return not functions and all(len(vars(one)) <= 4 and constant_of(one.value) is not None for one in kind)


def is_plain(constant: Any) -> bool:
    """Return whether nothing inside a constant can change."""
    kind = type(constant)
    if kind is ModuleType:
        return is_library(constant.__name__)
    if kind is FunctionType:
        inner = wrapped(constant)  # such as the function of a gradient
        known = inner is None or (type(inner) is FunctionType and is_plain(inner))
        return known and is_library(str(constant.__module__))
    if kind is BuiltinFunctionType:
        return constant.__self__ is None or isinstance(constant.__self__, (ModuleType, type))
    if kind is tuple:
        return all(map(is_plain, constant))
    if isinstance(constant, Enum):
        return _has_only_constants(cast(Any, kind))
    return stays(constant) if isinstance(constant, type) else True


def _is_public(function: Any) -> bool:
    """Return whether a function is an attribute of a library's module, so that all that it finds is constant."""
    if type(function) is not FunctionType or not is_plain(function):
        return False
    return vars(sys.modules.get(function.__module__, object)).get(function.__qualname__) is function


def wrapped(x: Any) -> Any:
    """Return the function that an object wraps, by `__wrapped__` as in functools; None if it wraps none."""
    return getattr(x, "__dict__", {}).get("__wrapped__")


class Reach:
    """The values that a function can find by names, as far as known: it grows with the objects and functions that calls
    meet.

    names: all that its code mentions, and that of functions that it finds and of methods that it can call. places:
    where values are found: a dict and a key, or a cell and its name, with the last constant found there, its key
    (constant_of), and for a function its form. grown: counts additions; version: counts functions whose form changed.
    varying: a function it can call that returns something else each time. handles: whether it handles errors. every:
    whether it may look up any attribute. spreads: dicts to which names can be added, with their lengths, and functions
    that take such names in. copies: of NumPy arrays that it finds.
    """

    def __init__(self, function: Any) -> None:
        self.names: set[str] = set()
        self.places: list[list[Any]] = []
        self._functions: dict[int, Any] = {}  # with their forms; held, so that no other one gets its id
        self._classes: dict[type, tuple[type, ...]] = {}
        self._methods: set[tuple[type, str]] = set()
        self.grown = self.version = 0
        self.varying = ""
        self.every = self.handles = False
        self._deterministic, self._noted = True, dict[int, Any]()
        self._outside, self._has_paths = set[str](), False
        self._codes, self._logs, self._otherwise = list[CodeType](), set[str](), set[str]()
        self._mentioned, self._is_naming = list[set[str]](), False
        self.copies = Copies()
        self.spreads: list[tuple[Mapping[str, Any], int, Callable[[], None]]] = []
        if not isinstance(function, (MethodType, partial)) and (not wrapped(function) or not stays(type(function))):
            self._found_in({"self": function})  # else only the function that it wraps, which is taken in, is called
        self.take(function)

    def take(self, function: Any) -> bool:
        """Take in the names and places of a function; return False where there are too many functions."""
        taken = self._take(function)
        if not self._is_naming:  # names bring in more functions: one after the other, however many call each other
            self._is_naming = True
            try:
                while self._mentioned:
                    self._name(self._mentioned.pop())
            finally:
                self._is_naming = False
        return taken

    def _take(self, function: Any) -> bool:
        if _is_public(function):
            return True
        known, form = self._functions.get(id(function)), form_of(function)
        if known is not None:
            if all(map(is_, known[1], form)):
                return True
            self.version += 1
        elif len(self._functions) >= MOST_OBJECTS:
            return False
        self._functions[id(function)] = function, form
        self.grown += 1
        if isinstance(function, partial):
            self._found_in({"": function.func} | dict(enumerate(function.args)))
            self._found_in(function.keywords)
            return self._take(function.func)
        if isinstance(function, MethodType):
            self._found_in({"self": function.__self__})
            return self._take(function.__func__)
        inner = wrapped(function)
        self.note(function)
        if inner is not None and not isinstance(function, FunctionType):  # else it calls that by a name of its own
            return self._take(inner)
        if isinstance(getattr(function, "__code__", None), CodeType):
            self._take_code(function)
        return True

    def _take_code(self, function: Any) -> None:
        """Take in the names of a function's code, and the places where it finds values by them."""
        mentioned, spread = set(names_of(function.__code__)), function.__globals__
        names = globals_of(function.__code__)
        modules = mentioned - (names & spread.keys())  # which a function may import
        if imports_from(function.__code__):
            packages = [*accumulate(str(spread.get("__package__") or "").split("."), "{}.{}".format)]
            modules |= {*packages, *(f"{one}.{name}" for one in packages for name in mentioned)}
        for found, looked_up in ((spread, names), (sys.modules, modules)):
            self._found_in(found, [one for one in sorted(looked_up & found.keys()) if not stays(found[one])])
        hidden = (names - spread.keys()) & vars(builtins).keys()  # a global of that name may be added
        self._found_in(spread, sorted(hidden))
        added = sorted(hidden - _BUILTIN_CONSTANTS)
        self._found_in(vars(builtins), [one for one in added if not isinstance(vars(builtins)[one], _BUILTIN_KINDS)])
        self.spreads.append((spread, len(spread), partial(self._find, spread, names - spread.keys() - hidden)))
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.places += [[cell, name, None, None, None] for name, cell in cells]
        defaults = enumerate(function.__defaults__ or ())
        self._found_in({n: value for n, value in defaults if constant_of(value) is None or not is_plain(value)})
        self._found_in(function.__kwdefaults__ or {})
        if type(vars(function).get("registry")) is MappingProxyType:  # of functools.singledispatch
            self._found_in(vars(function), ["registry"])
        self._look_for_varying(function)
        self._codes.append(function.__code__)
        self.handles = self.handles or handles_errors(function.__code__)
        compares = _is_made(function) and function.__name__ in _COMPARING  # made ones mention the class itself
        self._mentioned.append({*names_of(function.__code__)} - ({"__class__"} if compares else set()))

    def is_log(self, name: Any, value: Any) -> bool:
        """Return whether a value of this name is a list that is only appended to: its contents make no difference.

        Code is looked at when the first list is found, as that takes as long as running some.
        """
        if type(value) is not list or self.every:
            return False
        while self._codes:
            logs, otherwise = logs_of(self._codes.pop())
            self._logs |= logs
            self._otherwise |= otherwise
        return name in self._logs and name not in self._otherwise

    def grew(self) -> None:
        """Take in names that were added to dicts where they can be found."""
        for place, (spread, count, take) in enumerate(self.spreads):
            if len(spread) != count:
                self.spreads[place] = spread, len(spread), take
                take()

    def _find(self, spread: Mapping[str, Any], names: set[str]) -> None:
        """Take in those of some names that can be found now."""
        new = sorted(names & spread.keys())
        names.difference_update(new)
        self._found_in(spread, new)
        self.grown += bool(new)

    def _look_for_varying(self, function: Any) -> None:
        """Note whether a function can call functions that return something else each time, or may look up any
        attribute.
        """
        names, code = names_of(function.__code__), function.__code__
        own = {name: function.__globals__.get(name) for name in globals_of(code)}
        own |= dict(zip(code.co_freevars, map(_content_of, function.__closure__ or ()), strict=True))
        own |= {name: sys.modules.get(name) for name, value in own.items() if value is None}  # perhaps imported inside
        any_name = any(map(_finds_any, own.values()))
        if not self.every and (any_name or not _ALL.isdisjoint(names) or makes_names(code)):
            self.every = True
            self._name(set(), anew=True)
        for value in own.values():
            self.note(value)
        self.varying = self.varying or varying_in(function, own)
        self._outside |= asked_outside(function)

    @property
    def is_deterministic(self) -> bool:
        """Whether the contents of NumPy arrays made in it depend only on the values found: it has no functions that
        cache their results, and none of libraries that may return something else each time.
        """
        return self._deterministic and NONDETERMINISTIC.isdisjoint(self.names)

    def what_varies(self) -> str:
        """Return the name of something it can use that gives something else each time, "" if there is none."""
        return self.varying or (min(self._outside, default="") if self._has_paths else "")

    def note(self, value: Any) -> None:
        """Note a module, or a value that may belong to one."""
        if id(value) not in self._noted:
            self._has_paths = self._has_paths or is_of_paths(value)
            if isinstance(value, (ModuleType, FunctionType, BuiltinFunctionType, type)):
                self._noted[id(value)] = value  # held, so that no other one gets its id
            known = type(value) is not _CACHED and getattr(value, "__name__", "") not in NONDETERMINISTIC
            self._deterministic &= known and is_of_deterministic(value)

    def _name(self, names: set[str], *, anew: bool = False) -> None:
        """Take in names, and the methods of known classes with these names."""
        names |= set() if _SHOWING.isdisjoint(names) else {f"__{name}__" for name in _SHOWING}
        names |= _COMPARING if "==" in names else set()
        new = names - self.names
        self.names |= names
        for kind in list(self._classes) if new or anew else ():
            self._take_methods(kind, new)

    def own_of(self, own: Mapping[str, Any], *, in_order: bool = False) -> list[tuple[str, Any]]:
        """Return those of some attributes that the function can look up. in_order: in their order, even if many."""
        names, few = own if self.every else self.names, in_order or len(own) < 32
        found = list(own.items()) if few else [(name, own[name]) for name in own.keys() & names]
        return [(name, value) for name, value in found if name in names]

    def mentioned(self, own: Collection[str]) -> Collection[str]:
        """Return those of some names that the function can look up, sorted unless it may look up any."""
        return list(own) if self.every else sorted(self.names.intersection(own))

    def _found_in(self, values: Mapping[Any, Any], keys: Iterable[Any] | None = None) -> None:
        self.places += [[values, key, None, None, None] for key in (values if keys is None else keys)]

    def meet(self, kind: type, *, makes: bool = False) -> None:
        """Take in the methods of a class that can be called: by the names that are mentioned, and by operators.

        makes: whether objects of it can be made.
        """
        if self._classes.get(kind) is not kind.__mro__:
            self._has_paths = self._has_paths or is_of_paths(kind)
            self._classes[kind] = kind.__mro__
            self.grown += 1
            self._take_all_methods(kind)
            for base in kind.__mro__:
                if not stays(base):
                    every = vars(base)
                    self.spreads.append((every, len(every), partial(self._take_all_methods, kind)))
        if makes:
            self._take_methods(kind, {"__new__", "__init__", "__post_init__"})

    def _take_all_methods(self, kind: type) -> None:
        self._take_methods(kind, self.names | _operators(kind))

    def _methods_among(self, every: Mapping[str, Any], names: set[str]) -> list[str]:
        found = [name for name in every if name[:2] != "__"] if self.every else ()
        return sorted({*found, *(names & every.keys())})

    def _take_methods(self, kind: type, names: set[str]) -> None:
        """Take in methods of a class, and the places before them in its MRO where others could hide them."""
        own = [base for base in kind.__mro__ if base is not object and not stays(base)]
        for at, base in enumerate(own):
            every = vars(base)
            for name in self._methods_among(every, names):
                known = (base, name) in self._methods
                functions = [] if known else [one for one in behind(every[name]) if not _is_of_library(one)]
                if functions or (not known and _describes(every[name])):
                    places = [one for one in own[: at + 1] if (one, name) not in self._methods]
                    self._methods.update([(one, name) for one in places])
                    for one in places:
                        self._found_in(vars(one), [name])
                for function in functions:
                    self.take(function)


# Stands for a value that was not found.
NOTHING = object()


def value_in(where: Any, name: Any) -> Any:
    """Return the value in a cell, or by a name in a dict; NOTHING if there is none."""
    try:
        return where.cell_contents if type(where) is CellType else where.get(name, NOTHING)
    except ValueError:  # an empty cell
        return NOTHING


def _content_of(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None


def form_of(function: Any) -> tuple[Any, ...]:
    """Return the parts of a function that others can replace, as reloading does."""
    if type(function) is not FunctionType:
        return ()
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _finds_any(value: Any) -> bool:
    """Return whether a value is a built-in that looks up attributes by name, or a module, or a function of one, that
    copies all attributes of objects.
    """
    by_name = type(value) is BuiltinFunctionType and value.__name__ in BY_NAME
    return by_name or (module_of(value) in _COPYING and not isinstance(value, type))


def _operators(kind: type) -> set[str]:
    """Return the special methods of a class, which are called without being named."""
    every = {name: value for base in kind.__mro__[::-1] for name, value in vars(base).items() if name[:2] == "__"}
    return {name for name, value in every.items() if name not in _NEVER and not (name in _MADE and _is_made(value))}


def _is_made(method: Any) -> bool:
    """Return whether a method was compiled from a string, as those of dataclasses are, which mention every field."""
    return type(method) is FunctionType and method.__code__.co_filename == "<string>"


def _is_of_library(function: Any) -> bool:
    return type(function) is FunctionType and is_plain(function)


# Functions that call special methods of the same names; comparisons; methods that dataclasses make; and special methods
# that computing with an existing object does not call.
_SHOWING = frozenset(("str", "repr", "format"))
_COMPARING = frozenset(f"__{name}__" for name in ("eq", "ne", "lt", "le", "gt", "ge", "hash"))
_MADE = _COMPARING | {"__setattr__", "__delattr__"}
_NEVER = frozenset(
    f"__{name}__"
    for name in (
        *("init", "new", "del", "reduce", "reduce_ex", "getstate", "setstate", "dir", "sizeof", "init_subclass"),
        *("set_name", "subclasshook", "post_init", *_SHOWING),
    )
)


class LateReach:
    """The Reach of a function, made when first asked for: by then everything that the function mentions exists."""

    def __init__(self, function: Any) -> None:
        self._function, self._reach = function, cast("Reach | None", None)

    def reach(self) -> Reach:
        if self._reach is None:
            self._reach = Reach(self._function)
        return self._reach


def behind(attribute: Any) -> list[Any]:
    """Return the functions behind an attribute of a class, such as a method or a property."""
    if isinstance(attribute, property):
        return [one for one in (attribute.fget, attribute.fset) if one is not None]
    if isinstance(attribute, (staticmethod, classmethod)):
        return [attribute.__func__]
    if isinstance(attribute, (cached_property, partialmethod)):
        return [attribute.func]
    if isinstance(attribute, singledispatchmethod):
        return [attribute.dispatcher]
    return [attribute] if isinstance(attribute, FunctionType) or wrapped(attribute) is not None else []


def _describes(attribute: Any) -> bool:
    """Return whether an attribute of a class is a user-defined descriptor."""
    return hasattr(type(attribute), "__get__") and not stays(type(attribute)) and not isinstance(attribute, type)


def stays(value: Any) -> bool:
    """Return whether a value is a module or class of a library, which never changes."""
    if isinstance(value, ModuleType):
        return is_library(value.__name__)
    return isinstance(value, type) and is_library(str(value.__module__))


@lru_cache(maxsize=1024)
def is_open(kind: Any) -> bool:
    """Return whether attributes are the whole state of a class's objects: no base class is written in C."""
    if issubclass(kind, SimpleNamespace):
        return True
    for base in kind.__mro__[:-1]:
        own = vars(base)
        if type(own.get("__new__")) is BuiltinFunctionType or MethodDescriptorType in map(type, own.values()):
            return False
    return True


@lru_cache(maxsize=1024)
def slots_of(kind: Any) -> tuple[str, ...]:
    """Return the names of attributes that objects of a class have in slots."""
    found = [(base, vars(base).get("__slots__", ())) for base in kind.__mro__]
    every = [(base, name) for base, names in found for name in ((names,) if isinstance(names, str) else names)]
    return tuple([_mangled(base, name) for base, name in every])


def _mangled(kind: type, name: str) -> str:
    """Return the name that Python gives to a private attribute of a class; other names as they are."""
    is_private = name.startswith("__") and not name.endswith("__") and kind.__name__.strip("_")
    return f"_{kind.__name__.lstrip('_')}{name}" if is_private else name


def dict_of(x: Any) -> dict[str, Any]:
    """Return the attributes in an object's own dict, if it has one."""
    return cast("dict[str, Any]", x.__dict__) if type(x).__dictoffset__ else {}


def is_code(attribute: Any) -> bool:
    """Return whether an attribute of a class is code, or a descriptor."""
    is_object = not isinstance(attribute, type) and not stays(type(attribute))
    return hasattr(attribute, "__get__") or (callable(attribute) and not is_object)
