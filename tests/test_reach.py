"""What a captured function finds by its names is looked up again at every call, wherever it is: never a stale value."""

from __future__ import annotations

import builtins
import copy  # noqa: F401 - has the name of a method
import os
import pickle
import random
import sys
import time  # noqa: F401 - has the name of a method
from array import array
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import (
    cached_property,
    lru_cache,
    partial,
    partialmethod,
    singledispatch,
    singledispatchmethod,
    update_wrapper,
    wraps,
)
from importlib import import_module
from itertools import count
from operator import attrgetter
from pathlib import Path
from random import gauss
from time import perf_counter
from types import ModuleType, SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

import xtensor as xt


class Slots:
    __slots__ = ("k",)

    def __init__(self) -> None:
        self.k = 2.0


class Model:
    shared = 2.0

    def __init__(self) -> None:
        self.k = 2.0

    def apply(self, x: Any) -> Any:
        return x * self.k

    def __call__(self, x: Any) -> Any:
        return self.apply(x)

    def __getitem__(self, key: str) -> float:
        return self.k

    def hidden(self, x: Any) -> Any:
        return x * 2.0

    @singledispatchmethod
    def dispatched(self, how: object, x: Any) -> Any:
        return x * 2.0

    @dispatched.register
    def _(self, how: int, x: Any) -> Any:
        return x * LIST[0]

    def times(self, more: float, x: Any) -> Any:
        return x * LIST[0] * more

    doubled = partialmethod(times, 2.0)

    @property
    def double(self) -> float:
        return self.k * 1

    @classmethod
    def of_class(cls, x: Any) -> Any:
        return x * cls.shared

    @staticmethod
    def of_nobody(x: Any) -> Any:
        return x * WHERE.k


class Heir(Model):
    def apply(self, x: Any) -> Any:
        return super().apply(x)


class Owner:
    def __init__(self) -> None:
        self.inner = [Model()]
        self.inner[0].owner = self  # type: ignore[attr-defined]

    def run(self, x: Any) -> Any:
        return self.inner[0].apply(x)


@dataclass
class Config:
    k: float = 2.0
    step: int = 0


class Cached:
    @cached_property
    def k(self) -> float:
        return 2.0


class Replaced:
    """A class whose methods others replace."""

    size: Any
    scaled: Any
    shrunk: Any


def with_constant(x: Any, k: float = 2.0) -> Any:
    return x * k


def with_keyword(x: Any, *, k: float = 2.0) -> Any:
    return x * k


def with_filled_keyword(x: Any, *, k: float = 2.0) -> Any:
    return x * k


@singledispatch
def dispatched(how: object, x: Any) -> Any:
    return x * 2.0


@dispatched.register
def _(how: int, x: Any) -> Any:
    return x * WHERE.k


@singledispatch
def registered(how: object, x: Any) -> Any:
    return x * 2.0


def reloaded(x: Any) -> Any:
    return x * 2.0


def decorated(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A decorator that finds more than the function does."""

    @wraps(function)
    def call(x: Any) -> Any:
        return function(x) * WHERE.k

    return call


class Decorator:
    """One that is an object."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        update_wrapper(self, function)
        self.function, self.k = function, 2.0

    def __call__(self, x: Any) -> Any:
        return self.function(x) * self.k


PLAIN, OBJECT = decorated(lambda x: x + 1.0), Decorator(lambda x: x + 1.0)


Pair = namedtuple("Pair", "a b")
WHERE = SimpleNamespace(k=2.0)
MODULE = ModuleType("somebodys")
exec("k = 2.0\ndef helper(x):\n    return x * k", MODULE.__dict__)
sys.modules["somebodys"] = MODULE
SLOTS, MODEL, HEIR, OWNER, CONFIG, CACHED = Slots(), Model(), Heir(), Owner(), Config(), Cached()
REPLACED = Replaced()
DEQUE, ARRAY, BYTES = deque([2.0]), array("d", [2.0]), bytearray(b"\2")
LIST, DICT, ORDERED, SET = [2.0], {"k": 2.0}, OrderedDict(k=2.0), {2.0}
SMALL, LARGE, LISTED = np.array([2.0]), np.full(1000, 2.0), [np.array([2.0])]
PAIR = Pair(np.array([2.0]), 1)
GET = DICT.get
GENERATOR, NUMBERS, DRAWN = np.random.default_rng(0), count(1), xt.random.default_rng(3)
MIXED = iter([2.0])
FUNCTION: Any = xt.abs
LEVEL = 2.0
RULE: Any = {"f": lambda x: x * WHERE.k}


def with_default(x: Any, box: list[float] = [2.0]) -> Any:  # noqa: B006
    return x * box[0]


def with_attribute(x: Any) -> Any:
    return x * with_attribute.k  # type: ignore[attr-defined]


with_attribute.k = 2.0  # type: ignore[attr-defined]


def scaled_by(box: list[float]) -> Callable[[Any], Any]:
    return lambda x: x * box[0]


ONE, OTHER = [1.0], [2.0]
BY_ONE, BY_OTHER = scaled_by(ONE), scaled_by(OTHER)


def imports_inside(x: Any) -> Any:
    import somebodys  # type: ignore[import-not-found]

    return somebodys.helper(x)


@lru_cache
def remembered(name: str) -> Any:
    return lambda x: x * WHERE.k


def in_a_pattern(x: Any) -> Any:
    match WHERE:
        case SimpleNamespace(k=k):
            return x * k


def in_a_nested_pattern(x: Any) -> Any:
    match (HOLDER, 1):
        case (SimpleNamespace(where=SimpleNamespace(k=k)), *_):
            return x * k


def imports_the_environment(x: Any) -> Any:
    import os as system

    return x * float(system.environ["XTENSOR_TEST_K"])


def made_by_module(name: str) -> float:
    if name == "made":
        return LEVEL
    raise KeyError(name)  # which whoever looks into modules must not come to


HOLDER = SimpleNamespace(where=WHERE)
MAKING = ModuleType("making")
vars(MAKING)["__getattr__"] = made_by_module
HERE = Path(__file__)
OBJECTS = [object() for _ in range(2)]


def set_all(k: float) -> None:
    """Give everything that the functions below find a value."""
    global FUNCTION, PAIR, LEVEL
    LEVEL = k
    for one in (SLOTS, MODEL, HEIR, OWNER.inner[0], CONFIG, WHERE, MODULE, with_attribute, Model, CACHED):
        setattr(one, "k", k)  # noqa: B010
    Model.shared = k
    for box in (DEQUE, ARRAY, LIST, SMALL, LARGE, LISTED[0], OTHER, PAIR.a, with_default.__defaults__[0]):  # type: ignore[index]
        box[0] = k
    Replaced.size = property(lambda self, k=k: k)
    Replaced.scaled = lambda self, x, k=k: x * k
    Replaced.shrunk = staticmethod(lambda x, k=k: x / k)
    if "hidden" in vars(Heir):
        del Heir.hidden
    if k != 2.0:
        Heir.hidden = lambda self, x, k=k: x * k  # type: ignore[method-assign]
    OBJECT.k = k
    with_constant.__defaults__ = (k,)
    with_keyword.__kwdefaults__ = {"k": k}
    with_filled_keyword.__kwdefaults__["k"] = k  # type: ignore[index]
    registered.register(int, lambda how, x, k=k: x * k)
    reloaded.__code__ = eval(f"lambda x: x * {k}").__code__
    os.environ["XTENSOR_TEST_K"] = str(k)
    builtins.XTENSOR_TEST_K = k  # type: ignore[attr-defined]
    BYTES[0] = int(k)
    DICT["k"] = ORDERED["k"] = k
    SET.clear()
    SET.add(k)
    FUNCTION = xt.abs if k == 2.0 else xt.negative


CASES: dict[str, Callable[[Any], Any]] = {
    "an object with slots": lambda x: x * SLOTS.k,
    "an attribute that a method reads": lambda x: MODEL.apply(x),
    "an attribute that a property reads": lambda x: x * MODEL.double,
    "an object that is called": lambda x: MODEL(x),
    "an object with elements": lambda x: x * MODEL["any"],
    "an attribute named in a text": lambda x: x * getattr(MODEL, "k"),  # noqa: B009
    "a class's attribute": lambda x: x * Model.shared,
    "a class method": lambda x: MODEL.of_class(x),
    "a static method": lambda x: Model.of_nobody(x),
    "a method of the class before": lambda x: HEIR.apply(x),
    "an object in an object": lambda x: OWNER.run(x),
    "a bound method": MODEL.apply,
    "a bound method of an owner": OWNER.run,
    "an object itself": MODEL,
    "a partial of a method": partial(Model.apply, MODEL),
    "a partial of an object": partial(MODEL),
    "a dataclass": lambda x: x * CONFIG.k,
    "a cached property": lambda x: x * CACHED.k,
    "a list": lambda x: x * LIST[0],
    "a dict": lambda x: x * DICT["k"],
    "an ordered dict": lambda x: x * ORDERED["k"],
    "a set": lambda x: x * max(SET),
    "a bound function of C": lambda x: x * GET("k"),
    "a deque": lambda x: x * DEQUE[0],
    "an array of the standard library": lambda x: x * ARRAY[0],
    "bytes": lambda x: x * BYTES[0],
    "an item of a NumPy array": lambda x: x * SMALL[0],
    "a sum of a NumPy array": lambda x: x * float(SMALL.sum()),
    "an item of a large NumPy array": lambda x: x * LARGE[0],
    "an item of a NumPy array in a list": lambda x: x * LISTED[0][0],
    "a NumPy array in a named tuple": lambda x: x * PAIR.a[0],
    "a small NumPy array": lambda x: x * SMALL,
    "a global": lambda x: x * LEVEL,
    "a global of a class inside": lambda x: x * type("", (), {"k": LEVEL}).k,  # type: ignore[attr-defined]
    "a global by its module": lambda x: x * sys.modules[__name__].LEVEL,  # type: ignore[attr-defined]
    "a global by another function": lambda x: x * with_default.__globals__["LEVEL"],  # type: ignore[attr-defined]
    "a large NumPy array": lambda x: x[:1000] * LARGE,
    "a default that changes": lambda x: with_default(x),
    "a function's attribute": lambda x: with_attribute(x),
    "two functions of one code": lambda x: BY_ONE(x) + BY_OTHER(x),
    "a function in a dict": lambda x: RULE["f"](x),
    "a function that is remembered": lambda x: remembered("a")(x),
    "a module": lambda x: x * MODULE.k,
    "a function of a module": lambda x: MODULE.helper(x),
    "a module imported inside": imports_inside,
    "a library's function": lambda x: FUNCTION(x),
    "a fused function": xt.fuse(lambda x: x * WHERE.k),
    "a function defined later": lambda x: defined_later(x),
    "a method that is replaced": lambda x: REPLACED.scaled(x),
    "a static method that is replaced": lambda x: Replaced.shrunk(x),
    "a property that is replaced": lambda x: x * REPLACED.size,
    "a constant default that is replaced": lambda x: with_constant(x),
    "a method that another hides": lambda x: HEIR.hidden(x),
    "a keyword's default that is replaced": lambda x: with_keyword(x),
    "a keyword's default that changes": lambda x: with_filled_keyword(x),
    "its own keyword's default that changes": with_filled_keyword,
    "an implementation by type": lambda x: dispatched(1, x),
    "an implementation that is registered": lambda x: registered(1, x),
    "a method by type": lambda x: MODEL.dispatched(1, x),
    "a partial method": lambda x: MODEL.doubled(x),
    "what a decorator finds": lambda x: PLAIN(x),
    "what its own decorator finds": PLAIN,
    "a decorator's attribute": lambda x: OBJECT(x),
    "its own decorator's attribute": OBJECT,
    "code that is replaced": lambda x: reloaded(x),
    "its own code that is replaced": reloaded,
    "an attribute in a pattern": in_a_pattern,
    "an attribute in a pattern in another": in_a_nested_pattern,
    "an attribute by a name with dots": lambda x: x * attrgetter("where.k")(HOLDER),
    "an attribute in a format": lambda x: x * float(f"{HOLDER.where.k:.1f}"),
    "a pickle": lambda x: x * pickle.loads(pickle.dumps(HOLDER)).where.k,
    "an attribute that a module makes": lambda x: x * MAKING.made,
    "a name that is put among Python's own": lambda x: x * XTENSOR_TEST_K,  # type: ignore[name-defined]  # noqa: F821
    "the environment": lambda x: x * float(os.environ["XTENSOR_TEST_K"]),
    "the environment by a module imported inside": imports_the_environment,
    "a file": lambda x: x * (2.0 + HERE.with_suffix(".none" if LEVEL == 2.0 else ".py").exists()),
    "the hash of an object": lambda x: x * (hash(OBJECTS[LEVEL == 2.0]) % 97),
}


@pytest.mark.parametrize("case", CASES)
def test_what_changes_between_calls_is_seen(case: str) -> None:
    function = CASES[case]
    fused = xt.fuse(function)
    x = xt.asarray(np.linspace(1.0, 2.0, 100_000))
    for k in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 2.0, 3.0):
        set_all(k)
        np.testing.assert_array_equal(np.asarray(fused(x)), np.asarray(function(x)), err_msg=str(k))
    set_all(2.0)


VARYING = ("an array of the standard library", "bytes", "a file", "an attribute that a module makes")
ASKED = ("the environment", "the environment by a module imported inside", "the hash of an object")
STILL = [case for case in CASES if case not in (*VARYING, *ASKED)]


@pytest.mark.parametrize("case", [case for case in STILL if "large" not in case and "remembered" not in case])
def test_what_stays_as_it_is_is_captured(case: str) -> None:
    set_all(2.0)
    fused, x = xt.fuse(CASES[case]), xt.asarray(np.linspace(1.0, 2.0, 100_000))
    for _ in range(3):
        fused(x)
    assert fused.why(x) == ""


def test_what_is_no_part_of_the_computation_makes_no_new_kinds() -> None:
    """A counter that the function does not mention may change at every call."""
    fused, x = xt.fuse(lambda x, config: x * config.k), xt.asarray(np.ones(100_000))
    for step in range(20):
        CONFIG.step = step
        fused(x, CONFIG)
    assert fused.why(x, CONFIG) == ""
    assert len(fused._known) == 1


def test_a_global_with_the_name_of_an_attribute_is_another() -> None:
    global LEVEL
    fused, x = xt.fuse(lambda x, holder: x * holder.LEVEL), xt.asarray(np.ones(100_000))
    holder = SimpleNamespace(LEVEL=3.0)
    for step in range(5):
        LEVEL = float(step)
        fused(x, holder)
    assert len(fused._known) == 1
    LEVEL = 2.0


def test_a_method_with_the_name_of_a_module_is_not_that_module() -> None:
    fused, x = xt.fuse(lambda x: x.copy().time() if x is None else x.copy() * 2.0), xt.asarray(np.ones(100_000))
    for _ in range(3):
        fused(x)
    assert fused.why(x) == ""


def test_a_global_that_is_only_put_there() -> None:
    def put(x: Any) -> None:
        global LEVEL
        LEVEL = xt.sum(x)

    global LEVEL
    fused = xt.fuse(put)
    for k in range(5):
        fused(xt.asarray(np.full(100_000, float(k))))
        assert float(LEVEL) == 100_000 * k
    LEVEL = 2.0


def test_a_numpy_array_that_the_function_writes_to_makes_calls_plain() -> None:
    seen, x = np.zeros(3), xt.asarray(np.arange(3.0))

    def function(x: Any) -> Any:
        y = xt.asarray(seen, copy=False)
        y += x
        return x + 1.0

    fused = xt.fuse(function)
    for n in range(1, 5):
        fused(x)
        np.testing.assert_array_equal(seen, n * np.arange(3.0))


def test_an_object_that_has_every_attribute() -> None:
    class Anything:
        def __getattr__(self, name: str) -> Any:
            return Anything() if name != "k" else WHERE.k

    thing, x = Anything(), xt.asarray(np.ones(100_000))
    fused = xt.fuse(lambda x: x * thing.any.k)
    for k in (2.0, 2.0, 2.0, 5.0, 5.0):
        WHERE.k = k
        assert float(fused(x)[0]) == k
    WHERE.k = 2.0


def test_many_functions_as_arguments() -> None:
    fused, x = xt.fuse(lambda f, x: f(x)), xt.asarray(np.ones(1000))
    for n in range(700):
        assert float(fused(lambda x, n=n: x * n, x)[0]) == n


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * random.random(),
        lambda x: x * gauss(0.0, 1.0),
        lambda x: x * np.random.rand(),
        lambda x: x * perf_counter(),
        lambda x: x * datetime.now().timestamp(),
        lambda x: x * float(uuid4().int),
        lambda x: x * GENERATOR.normal(),
        lambda x: x * next(NUMBERS),
    ],
    ids=["random", "gauss", "numpy.random", "time", "datetime", "uuid", "numpy's generator", "iterator"],
)
def test_what_returns_something_else_each_time_is_asked_each_time(function: Callable[[Any], Any]) -> None:
    fused, x = xt.fuse(function), xt.asarray(np.ones(100_000))
    assert len({float(fused(x)[0]) for _ in range(5)}) == 5
    assert fused.why(x).startswith("[changing]")


def test_objects_are_told_apart() -> None:
    """State that is kept for each object, by its number."""

    def step(p: Any) -> Any:
        state[id(p)] = state.get(id(p), 0.0) + p.w
        return state[id(p)]

    for function in (step, xt.fuse(step)):
        state: dict[int, Any] = {}
        objects = [SimpleNamespace(w=xt.full(100_000, w)) for w in (1.0, 2.0)]
        assert [float(function(objects[n % 2])[0]) for n in range(6)] == [1.0, 2.0, 2.0, 4.0, 3.0, 6.0]


def test_an_object_with_a_hash_of_its_own_is_a_key() -> None:
    """Which asks for the hashes of its parts."""

    class Key:
        def __hash__(self) -> int:
            return hash(("key", 1))

    one = Key()
    fused, x, table = xt.fuse(lambda x: x * table[one]), xt.ones(100_000), {one: 2.0}
    for factor in (2.0, 2.0, 2.0, 3.0, 3.0):
        table[one] = factor
        assert float(fused(x)[0]) == factor
    assert fused.why(x) == ""


def test_a_generator_of_ours_draws_in_order() -> None:
    """It is the one thing that draws in captured functions."""
    fused, other = xt.fuse(lambda x: x * DRAWN.random((100_000,))), xt.random.default_rng(3)
    x = xt.asarray(np.ones(100_000))
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(fused(x)), np.asarray(other.random((100_000,))))
    assert fused.why(x) == ""


def defined_later(x: Any) -> Any:
    return x * WHERE.k


def test_a_refusal_tells_the_name_of_what_may_change() -> None:
    inner, x = [bytearray(1)], xt.ones(10)
    assert "by the name inner is of type bytearray" in xt.fuse(lambda x: x * len(inner)).why(x)
    assert "by the name MIXED is of type list_iterator" in xt.fuse(lambda x: x * next(MIXED)).why(x)


PACKAGE = {
    "": "K = 2.0\ndef own(x):\n    from . import K\n    return x * K\n",
    "a": "K = 2.0\ndef own(x):\n    from .a import K\n    return x * K\n",
    "b": "def other(x):\n    from .a import K\n    return x * K\n"
    "def package(x):\n    from . import K\n    return x * K\n",
}


@pytest.mark.parametrize("function", ["own", "a.own", "b.other", "b.package"])
def test_what_is_imported_from_where_a_module_is(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "somewhere"
    place.mkdir()
    for name, text in PACKAGE.items():
        (place / f"{name or '__init__'}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    modules = [import_module(f"somewhere{name}") for name in ("", ".a", ".b")]
    module, _, name = f"somewhere.{function}".rpartition(".")
    fused, x = xt.fuse(getattr(import_module(module), name)), xt.ones(100_000)
    try:
        for k in (2.0, 2.0, 2.0, 3.0, 3.0):
            for one in modules[:2]:
                setattr(one, "K", k)  # noqa: B010
            assert float(fused(x)[0]) == k
    finally:
        for name in ("", ".a", ".b"):
            del sys.modules[f"somewhere{name}"]


def imports_random(x: Any) -> Any:
    from numpy import random

    return x * random.rand()


def imports_random_whole(x: Any) -> Any:
    import numpy.random as drawing

    return x * drawing.rand()


def finds_by_text(x: Any) -> Any:
    return x * EVALUATE("LEVEL")


EVALUATE = eval


@pytest.mark.parametrize("function", [imports_random, imports_random_whole, finds_by_text])
def test_functions_that_find_more_by_another_name(function: Callable[[Any], Any]) -> None:
    assert xt.fuse(function).why(xt.ones(3)).startswith("[changing] it can use")


@dataclass
class Sized:
    n: float = 2.0


@dataclass(frozen=True)
class Frozen:
    n: Any


SIZED, STATS = Sized(), SimpleNamespace(stat=2.0, exists=3.0, locked=1.0)


def exists(value: Any) -> bool:
    return value is not None


def with_a_text(x: Any) -> Any:
    if x.ndim > 3:
        raise ValueError(f"got {x.shape} for {SIZED}")
    return x * SIZED.n


class Registry:
    def stat(self) -> float:
        return 2.0

    def exists(self, name: str) -> bool:
        return name == "w"


REGISTRY = Registry()


@pytest.mark.parametrize(
    "function",
    [
        with_a_text,
        lambda x: Frozen(x * 2),
        lambda x: x * 2 if exists(x) else x,
        lambda x: x * STATS.stat * STATS.exists * STATS.locked,
        lambda x: x * REGISTRY.stat() if REGISTRY.exists("w") else x,
        lambda x: x * len(os.path.join("a", "b")) * len(HERE.name),
    ],
    ids=["dataclass in a text", "frozen dataclass", "function", "attributes", "methods", "names of paths"],
)
def test_words_of_what_asks_outside_are_no_question(function: Callable[[Any], Any]) -> None:
    fused, x = xt.fuse(function), xt.ones(100_000)
    for _ in range(40):  # a path notes what it was asked for at first
        fused(x)
    assert fused.why(x) == ""


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * HERE.exists(),
        lambda x: x * len([*HERE.parent.glob("*.none")]),
        lambda x, path=HERE: x * path.is_file(),
        lambda x: x * os.path.exists(HERE),
        lambda x: x * len(os.path.abspath("a")),
        lambda x: x * len(str(Path.cwd())),
    ],
)
def test_paths_are_asked_at_each_call(function: Callable[[Any], Any]) -> None:
    fused, x = xt.fuse(function), xt.ones(100_000)
    for _ in range(3):
        fused(x)
    assert fused.why(x).startswith("[changing]")


def test_chains_of_many_functions() -> None:
    """However long the way from one function to the next by the methods of a class: Python's own stack is short."""
    methods = {f"step{n}": _stepping(n) for n in range(400)}
    held = type("Chain", (), {**methods, "factor": 2.0})()
    fused = xt.fuse(lambda x: x * held.step0())
    for factor in (2.0, 2.0, 3.0):
        held.factor = factor
        np.testing.assert_array_equal(fused(xt.ones(3)).numpy(), np.full(3, factor))


def _stepping(n: int) -> Any:
    """Return a method that calls the next one of 400."""
    made: dict[str, Any] = {}
    exec(f"def step{n}(self): return self.step{n + 1}()" if n < 399 else "def step399(self): return self.factor", made)
    return made[f"step{n}"]
