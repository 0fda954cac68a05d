"""Numbers that differ from call to call: captured functions are told them, and give what plain ones do."""

from __future__ import annotations

import copy
import json
import math
import operator
import pickle
import sys
import threading
from collections import defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from test_fuse import Counted

import xtensor as xt
import xtensor.numpy as names
from xtensor.base.options import Settings
from xtensor.calls.op import REGISTRY
from xtensor.codegen.cpu.compile import host
from xtensor.graph.number import MOST_STEPS, Arithmetic, Number
from xtensor.storage.storage import watchers

N = 50_000
needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")
FLOATS = [0.5, 0.1, 2.0, -0.0, 0.0, 0.3, math.inf, 7.5, math.nan, -1.25, 1e30, 0.25]


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with the default settings, whatever the environment asks of the other tests; leave nobody watching."""
    import xtensor.base.options as options

    options.settings()
    monkeypatch.setattr(options, "_from_environment", [Settings(cache_dir="")])
    yield
    assert not watchers


@pytest.fixture(params=["interpret", pytest.param("llvm", marks=needs_llvm)])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test on each engine that has kernels."""
    with xt.options(engine=request.param, cache_dir=""):
        yield request.param


def array(dtype: str = "float64", n: int = N) -> xt.Tensor:
    """Return some numbers, the same at each call, in memory of their own."""
    return xt.asarray(
        ((np.arange(n) * 7919 % 1013 + 1) / 1013 * (100 if dtype[0] == "i" else 1)).astype(dtype), copy=True
    )


def same(found: Any, expected: Any) -> None:
    """Assert that two results agree, down to the types of numbers."""
    if isinstance(expected, xt.Tensor):
        assert found.dtype == expected.dtype
        tight = 1e-6 if expected.dtype in (xt.float32, xt.complex64) else 1e-14
        reach = np.max(np.abs(expected.numpy()), initial=0.0, where=np.isfinite(expected.numpy()))
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=tight, atol=tight * reach)
    elif isinstance(expected, (list, tuple)):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()))
    else:
        assert type(found) is type(expected)
        assert repr(found) == repr(expected)


def check(function: Callable[..., Any], every: list[tuple[Any, ...]], calls: int | None, dtype: str = "float64") -> Any:
    """Assert that a fused function does for numbers what it does plainly, and how often it was called itself."""
    counted = function if calls is None else Counted(function)
    fused = xt.fuse(counted)
    for numbers in every:
        plain, own = [array(dtype), array(dtype)[::-1]], [array(dtype), array(dtype)[::-1]]
        same(fused(*own, *numbers), function(*plain, *numbers))
        same(own, plain)
    assert calls is None or cast(Counted, counted).calls == calls
    return fused


def scaled(x: Any, y: Any, a: Any) -> Any:
    return a * x + y / (1.0 - 0.5 * a)


def descend(x: Any, g: Any, rate: Any) -> Any:
    x -= rate * g
    x *= 1 - rate**2
    return rate, {"twice": rate * 2, "first": x[0]}


def chosen(x: Any, y: Any, a: Any) -> Any:
    x = xt.where(x > a, a, y)
    x[3:5] = a
    x[xt.asarray([1, 2])] = a
    x[x > 0.5] *= a
    return xt.clip(x, -a, a), xt.sum(x, dtype=xt.float64) * a


def slope(x: Any, y: Any, a: Any) -> Any:
    return xt.grad(lambda v: xt.sum(a * v**2 + xt.sin(v * a)) / (a + 1e-3))(x)


def repeated(x: Any, y: Any, a: Any) -> Any:
    for _ in range(4):
        x = x + a * y
        a = a * 0.5
    return x


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("function", "calls"), [(scaled, 2), (descend, 2), (chosen, 2), (slope, 4), (repeated, 2)])
def test_arguments(function: Callable[..., Any], calls: int, dtype: str, engine: str) -> None:
    """It is called with the first number, and with the second one to be traced; all others are told to it. (A rule of a
    derivative asks whether a factor is 0 or 1.)
    """
    numbers = [a for a in FLOATS if function is not chosen or (a == a and a >= 0)]
    check(function, [(a,) for a in numbers], calls, dtype)


def test_one_of_several_numbers(engine: str) -> None:
    """A second one that begins to differ is traced as well."""
    every = [(0.5, k) for k in range(4)] + [(0.25 * k, k) for k in range(2, 8)]
    check(lambda x, y, a, k: x * a + y * k, every, 3)


def alone(x: Any, y: Any, a: Any) -> Any:
    wave = xt.cos(a) + names.sqrt(xt.abs(1 - 0.9 * a))
    return x * wave + names.maximum(y, names.exp(-a)), xt.floor(a), names.sin(2 * a)


@pytest.mark.parametrize("numbers", [FLOATS, list(range(1, 12))])
def test_functions_of_a_number_alone(numbers: list[Any], engine: str) -> None:
    """Of this namespace they are computed anew, as what is made of tensors is."""
    check(alone, [(a,) for a in numbers], 2)


def test_keyword_arguments(engine: str) -> None:
    """By their names, as others."""
    counted = Counted(lambda x, *, rate, power=2.0: x * rate + power)
    fused = xt.fuse(counted)
    for step in range(5):
        same(fused(array(), rate=0.1 * step), array() * (0.1 * step) + 2.0)
    assert counted.calls == 2


def test_integers_fit(engine: str) -> None:
    """One that does not fit the dtype beside it raises what the plain call raises, and does no harm."""
    fused = check(lambda x, y, k: x * k + y, [(k,) for k in (1, 2, 300, -7, 0)], 2, "int32")
    with pytest.raises(OverflowError):
        fused(array("int32"), array("int32"), 1 << 40)
    same(fused(array("int32"), array("int32"), 5), array("int32") * 5 + array("int32"))


def test_types_make_kinds(engine: str) -> None:
    """2 and 2.0 and True are three, as dtypes follow from them."""
    every = [(1,), (2,), (3,), (2.0,), (2.5,), (3.5,), (True,), (False,), (1j,), (2j,)]
    check(lambda x, y, a: x + a, every, None, "int32")


# ---- comparisons, and values that are asked for


def branched(x: Any, y: Any, a: Any) -> Any:
    if a > 1 and a != 5:
        return x * a, "above"
    rest = min(max(a, 0.25), 0.75)
    return (y - rest if rest else y), abs(rest) // 0.1, -a % 3


def test_comparisons_lead_to_kinds(engine: str) -> None:
    """Each way that comparisons lead is traced once."""
    check(branched, [(a,) for a in (2.0, 3.0, 7.0, 0.5, 0.6, 5.0, 5.5, 0.1, 0.2, 0.9, 0.8, 4.0, 0.55)], 6)


def test_steps_that_fail_are_the_functions() -> None:
    """What raises an error of Python's is called itself."""

    def function(x: Any, y: Any, a: Any) -> Any:
        try:
            return x / (1 // (a - 3)) if a != 2 else x * a
        except ZeroDivisionError:
            return y

    check(function, [(a,) for a in (5.5, 3.75, 3.5, 3.0, 3.25, 3.0, 2.0, 3.125)], None)


ASKS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "str": lambda a: len(str(a)),
    "format": lambda a: len(f"{a:.3f}"),
    "round": lambda a: round(a, 1),
    "floor": math.floor,
    "sin": lambda a: math.sin(a),
    "hash": lambda a: {a: 3.0}[a],
    "divmod": lambda a: divmod(a, 0.3)[1],
    "method": lambda a: a.as_integer_ratio()[0] % 7,
    "real": lambda a: a.real,
    "complex": lambda a: abs(a * 1j),
    "decimal": lambda a: float(Decimal(repr(a))),
    "fraction": lambda a: float(Fraction(a) / 3),
    "copy": lambda a: copy.deepcopy([a])[0],
    "pickle": lambda a: pickle.loads(pickle.dumps(a)),
    "numpy": lambda a: float(np.sqrt(a)),
    "array": lambda a: float(np.asarray([a, 1.0]).sum()),
    "generic": lambda a: float(np.float32(2.0) * a),
    "many": lambda a: [a := a * 0.999 for _ in range(MOST_STEPS + 1)][-1],
    "json": lambda a: len(json.dumps({"a": a})),
    "type": lambda a: 1.0 if type(a) is float else 2.0,
    "memory": lambda a: float(np.full(3, a).sum()),
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=ASKS)
def test_values_that_are_asked_for(ask: Callable[[Any], Any]) -> None:
    """The number is a constant then, of each kind, and other numbers are told all the same; C code that takes floats
    alone is handed one, and what was written before is written once.
    """

    def function(x: Any, y: Any, a: Any, b: Any) -> Any:
        x += b
        return x * ask(a) + y * b

    fused = check(function, [(0.5, 1.0), (0.25, 2.0), (0.75, 3.0), (0.5, 4.0), (0.5, 5.0), (0.75, 6.0)], None)
    assert fused.why(array(), array(), 0.5, 7.5) in (
        "",
        "[new] no call with such arguments has been captured, or it was forgotten",
    )


def test_places_lengths_and_axes(engine: str) -> None:
    """Numbers that say where and how many are constants."""
    check(lambda x, y, k: x[k:] * 2.0, [(k,) for k in range(1, 6)], 5)
    check(lambda x, y, k: xt.zeros(k + 70_000) + k, [(k,) for k in range(5)], 5)
    check(lambda x, y, k: xt.sum(xt.reshape(x, (50, 10, 100)), axis=k), [(k,) for k in (0, 1, 2, 0)], 3)


def test_powers_are_code_of_their_own(engine: str) -> None:
    """A square is a product, whatever the exponent was before."""
    check(lambda x, y, k: x**k, [(k,) for k in (2, 3, 2, 0.5, 1, 2.0, -1)], None)


BINARY = [name for name, op in REGISTRY.items() if len(op.parameters) == 2 and hasattr(xt, name)]

attend = xt.nn.scaled_dot_product_attention
LIBRARY: dict[str, Callable[..., Any]] = {
    "product": lambda x, y, a: (xt.reshape(x, (200, 250)) @ xt.reshape(y, (250, 200))) * a,
    "sort": lambda x, y, a: xt.sort(x * a) + a,
    "fft": lambda x, y, a: xt.abs(xt.fft.rfft(x * a)),
    "leaky": lambda x, y, a: xt.nn.leaky_relu(x - 0.5, a),
    "quantile": lambda x, y, a: xt.quantile(x, a * 0.1) * x,
    "full": lambda x, y, a: xt.full(x.shape, a) * x,
    "linspace": lambda x, y, a: xt.linspace(0, a, N) * x,
    "interp": lambda x, y, a: xt.numpy.interp(x, [0.0, 0.5, 1.0], [0.0, a, 1.0]) + a,
    "multiply": lambda x, y, a: np.multiply(a, x) + np.add(x, a),
    "where": lambda x, y, a: np.where(x > 0.5, a, x),
    "var": lambda x, y, a: xt.var(x, correction=a) * x,
    "norm": lambda x, y, a: xt.linalg.vector_norm(x, ord=1 + a) * x,
    "pad": lambda x, y, a: xt.numpy.pad(x, 3, constant_values=a) * 2.0,
    "put": lambda x, y, a: (np.putmask(x, x > 0.5, a), x)[1],
    "isclose": lambda x, y, a: xt.numpy.isclose(x, y, atol=a * 0.1),
    "asarray": lambda x, y, a: xt.asarray([a, 2 * a])[0] * x,
    "map": lambda x, y, a: xt.vmap(lambda row: xt.sum(row) * a)(xt.reshape(x, (100, 500))),
    "fused": xt.fuse(lambda x, y, a: x * a + y),
    "attention": lambda x, y, a: attend(*[xt.reshape(x[:6400], (1, 2, 50, 64))] * 3, scale=a),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_library_functions(name: str) -> None:
    """A function that cannot be told another number has one number for each kind."""
    check(LIBRARY[name], [(a,) for a in (0.5, 0.25, 0.75, 0.5, 0.3, 0.9)], None)


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32", "complex128"])
@pytest.mark.parametrize(
    "name", [name for name, op in REGISTRY.items() if len(op.parameters) == 2 and hasattr(xt, name)]
)
def test_every_function_of_two_operands(name: str, dtype: str, engine: str) -> None:
    """A number on either side, floats and integers, or the same error."""
    function = getattr(xt, name)
    for numbers in ((0.5, 0.25, 3.0, 0.75), (1, 2, 3, 5)):
        for call in (lambda x, y, a: function(x, a), lambda x, y, a: function(a, x)):
            with np.errstate(all="ignore"):
                try:
                    call(array(dtype), None, numbers[0])
                except (TypeError, OverflowError) as error:
                    with pytest.raises(type(error)):
                        xt.fuse(call)(array(dtype), None, numbers[0])
                    continue
                check(call, [(a,) for a in numbers], None, dtype)


# ---- numbers that are kept between calls


class Adam:
    """An optimiser as people write it: a counter and a rate among its attributes."""

    def __init__(self) -> None:
        self.m, self.v = xt.zeros(N), xt.zeros(N)
        self.t, self.rate, self.counts = 0, 0.1, {"steps": 0, "rare": 0}
        self.last = deque([0, 0])

    def step(self, x: Any, g: Any) -> Any:
        self.t += 1
        self.rate *= 0.99
        self.m = 0.9 * self.m + 0.1 * g
        self.v = 0.99 * self.v + 0.01 * g * g
        self.counts["steps"] += 1
        self.last[1] = self.t
        root = xt.sqrt(self.v / (1 - 0.99**self.t)) + 1e-8
        x -= self.rate * self.m / (1 - 0.9**self.t) / root
        if self.t % 4 == 0:
            self.counts["rare"] += 1
            x *= 0.999
        return self.t, self.rate


def test_attributes_and_elements(engine: str) -> None:
    """Counters and rates that a method keeps are told to it, and left as it leaves them, of their types."""
    plain, own = Adam(), Adam()
    x, y = array(), array()
    step = Counted(own.step)
    fused = xt.fuse(step)
    for _ in range(20):
        same(fused(y, y * 0.5), plain.step(x, x * 0.5))
        same(y, x)
        same([own.t, own.rate, own.counts, list(own.last)], [plain.t, plain.rate, plain.counts, list(plain.last)])
    assert step.calls == 5  # the first two, each fourth, and these again when what it alone counts has changed
    own.rate, plain.rate = 0.5, 0.5  # from outside
    same(fused(y, y * 0.5), plain.step(x, x * 0.5))
    same(y, x)
    assert step.calls == 5


class State(NamedTuple):
    """An optimiser's state, as optax has it."""

    m: Any
    count: int


@pytest.mark.parametrize("kind", [tuple, State._make])
def test_state_in_tuples(kind: Callable[[Any], Any], engine: str) -> None:
    """A counter in a tuple, named or not, is told as one in a list is."""

    def step(x: Any, rates: Any, state: Any) -> Any:
        (m, count), (rate, (decay, _)) = state, rates
        m = decay * m + x * 0.1
        return x - rate * m / (1 - decay ** (count + 1)), kind([m, count + 1])

    plain = own = array(), kind([array() * 0, 0])
    counted = Counted(step)
    fused = xt.fuse(counted)
    for call in range(12):
        rates = 0.1 / (1 + call), (0.9, xt.ones(3))
        own, plain = fused(own[0], rates, own[1]), step(plain[0], rates, plain[1])
        assert type(own[1]) is type(plain[1])
        same([own[0], *own[1]], [plain[0], *plain[1]])
    assert counted.calls == 2


class Noted(namedtuple("Noted", "a b")):
    """A named tuple that may have more."""

    note = 0.0


class Shifted(namedtuple("Shifted", "a b")):
    """One that is made in a way of its own."""

    @classmethod
    def _make(cls, parts: Any) -> Any:
        a, b = parts
        return super()._make([a + 100, b])


class Scaled(namedtuple("Scaled", "a b")):
    scale = 1.0

    def __new__(cls, a: Any, b: Any, scale: float = 1.0) -> Any:
        made = super().__new__(cls, a, b)
        made.scale = scale
        return made


def test_tuples_that_are_more_than_their_elements(engine: str) -> None:
    """They are handed over as they are."""

    def noted(number: int) -> Noted:
        one = Noted(number + 0.5, number)
        one.note = 7.0 + number
        return one

    cases: list[tuple[Callable[..., Any], Callable[[int], Any]]] = [
        (lambda x, t: x * t.a + t.note, noted),
        (lambda x, t: x * t.a + t.b, lambda number: Shifted(number + 0.5, number)),
        (lambda x, t: x * t.a * t.scale, lambda number: Scaled(number + 0.5, number, 3.0 + number)),
        (lambda x, t: x * t.a + t.note, lambda number: Noted(number + 0.5, number)),
    ]
    for function, make in cases:
        fused = xt.fuse(function)
        for number in range(5):
            same(fused(array(), make(number)), function(array(), make(number)))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_tuple_that_is_found_twice(order: tuple[int, int], engine: str) -> None:
    """Its numbers are the same ones wherever it is: among the arguments, in a list, in a closure."""
    held = [xt.ones(1), 0]

    def step(one: Any, other: Any) -> Any:
        pair, listed = (one, other)[order[0]], (one, other)[order[1]]
        return pair[0] * pair[1] + listed[0][1] * 10 + held[1] * 100

    fused, twice = xt.fuse(step), xt.fuse(lambda one, other: one[0] * one[1] + other[1] * 10)
    for call in range(6):
        pair = array(), call
        held[:] = pair
        given: Any = (pair, [pair])
        same(fused(given[order[0]], given[order[1]]), pair[0] * call + call * 110)
        same(twice(pair, pair), pair[0] * call + call * 10)


def test_state_in_dicts_lists_and_dataclasses(engine: str) -> None:
    """Nested as they like; what is returned is the dict itself."""

    @dataclass
    class Clock:
        t: float
        ticks: int = 0

    def step(state: dict[str, Any], clock: Clock, count: list[int], dt: float) -> Any:
        clock.t += dt
        clock.ticks += 1
        count[0] += 2
        state["inner"]["t"] = clock.t
        state["u"] = state["u"] + dt * clock.t - count[0]
        return state

    def begin() -> tuple[dict[str, Any], Clock, list[int]]:
        return {"u": array(), "inner": {"t": 0.0}}, Clock(0.0), [0]

    plain, own = begin(), begin()
    counted = Counted(step)
    fused = xt.fuse(counted)
    for call in range(12):
        dt = 0.1 if call < 6 else 0.05
        assert fused(*own, dt) is own[0]
        step(*plain, dt)
        same([own[0], own[1].t, own[1].ticks, own[2]], [plain[0], plain[1].t, plain[1].ticks, plain[2]])
    assert counted.calls == 3


TICKS = 0


def test_globals_are_put_back_where_tracing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot do with a Number is called again, as if it had not been."""
    monkeypatch.setitem(globals(), "TICKS", 0)
    seen = []

    def step(x: Any, rate: float) -> Any:
        global TICKS
        TICKS += 1
        seen.append(json.dumps(rate))
        return x * rate + TICKS

    fused = xt.fuse(step)
    for call in range(6):
        same(fused(array(), 0.5 + call), array() * (0.5 + call) + (call + 1))
        assert call + 1 == TICKS
    assert seen == [str(0.5 + call) for call in range(6)]


def test_numbers_in_sets_and_keys_of_dicts() -> None:
    """What a function keeps there are numbers, whether or not it is told them."""
    seen: set[Any] = set()
    table: dict[Any, Any] = {}

    def step(x: Any, rate: float) -> Any:
        if rate > 1:
            seen.add(rate)
            table[rate] = 1
        return x * rate

    fused = xt.fuse(step)
    for rate in (0.5, 0.7, 2.0, 3.0, 0.9, 4.0):
        same(fused(array(), rate), array() * rate)
    assert seen == {2.0, 3.0, 4.0} == set(table)
    assert {type(one) for one in (*seen, *table)} == {float}


def test_threads_that_trace_calls_of_one_object() -> None:
    """One has its stand-ins there at a time; whatever others saw meanwhile is not remembered."""

    class State:
        rate = 0.5

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            state, found = State(), list[float]()
            state.rate = 0.5
            fused = xt.fuse(lambda x, state=state: x * state.rate + 1)
            x = array()
            fused(x)
            state.rate = 0.7
            start = threading.Barrier(4)

            def call(start: Any = start, found: Any = found, fused: Any = fused, x: Any = x) -> None:
                start.wait()
                found.append(float(fused(x)[0]) / float(x[0] * 0.7 + 1))

            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            np.testing.assert_allclose(found, [1.0] * 4, rtol=1e-14)
            for rate in (0.7, 0.9, 2.0, 0.9):
                state.rate = rate
                same(fused(x), x * rate + 1)
                assert type(state.rate) is float
                assert state.rate == rate
    finally:
        sys.setswitchinterval(before)


def test_what_fails_for_being_traced_is_undone() -> None:
    """Tensors, counters and lists hold what one call leaves, and no Number stays anywhere."""

    def step(x: Any, state: dict[str, Any], rate: float) -> Any:
        state["calls"] += 1
        state["seen"].append(rate)
        x += rate
        state["text"] = json.dumps({"rate": rate, "calls": state["calls"]})
        return x

    fused = xt.fuse(step)
    x, y = array(), array()
    plain: dict[str, Any] = {"calls": 0, "seen": [], "text": ""}
    own: dict[str, Any] = {"calls": 0, "seen": [], "text": ""}
    for call in range(6):
        same(fused(y, own, 0.5 + call), step(x, plain, 0.5 + call))
        same([own, y], [plain, x])


def test_errors_are_the_functions_own(engine: str) -> None:
    """Raised once, with what whole statements wrote; later calls go on."""

    def step(x: Any, a: float) -> Any:
        x += a
        if a > 2:
            raise ValueError(f"{a} is too much")
        return x * a

    fused = xt.fuse(step)
    x, y = array(), array()
    for a in (0.5, 1.0, 2.5, 1.5, 3.0, 0.25):
        try:
            expected = step(x, a)
        except ValueError as error:
            with pytest.raises(ValueError, match=str(error)):
                fused(y, a)
        else:
            same(fused(y, a), expected)
        same(y, x)


def test_threads() -> None:
    """Many at once, each with numbers of its own."""
    fused = xt.fuse(lambda x, a: x * a + a)
    found: list[bool] = []

    def work(seed: int) -> None:
        x = array()
        for a in np.random.default_rng(seed).random(50).tolist():
            found.append(bool(np.array_equal(fused(x, a).numpy(), x.numpy() * a + a)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 300
    assert all(found)


# ---- the stand-in itself


@np.errstate(all="ignore")
def test_numbers_do_what_numbers_do() -> None:
    """Operators on either side, with the value's own results and types."""
    binary = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
    binary += [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne, divmod, min, max]
    for value in (2.5, -3, 7, 0.0):
        for other in (2, 0.5, -1.5, True, 3j, np.float32(2), np.int64(3), Fraction(1, 3)):
            for function in binary:
                for place in (0, 1):
                    (number,) = Arithmetic([value]).given
                    given = [(value, other), (number, other)] if place == 0 else [(other, value), (other, number)]
                    try:
                        expected = function(*given[0])
                    except (TypeError, ValueError, ZeroDivisionError) as error:
                        with pytest.raises(type(error)):
                            function(*given[1])
                        continue
                    found = function(*given[1])
                    if type(found) is Number:
                        found = found.asked()
                    assert type(found) is type(expected)
                    assert repr(found) == repr(expected)


def test_a_number_is_taken_for_one() -> None:
    """By `isinstance`, by `match`, by NumPy; it hides nothing that the value has."""
    number, whole = Arithmetic([2.5, 3]).given
    assert isinstance(number, float)
    assert isinstance(whole, int)
    match number:
        case float():
            pass
        case _:
            pytest.fail("no float")
    assert np.asarray(number).dtype == np.float64
    assert (np.ones(2, np.float32) * number).dtype == np.float32
    assert [0, 1, 2, 3][whole] == 3
    assert not hasattr(number, "shape")
    assert whole.bit_length() == 2


def test_numbers_that_are_asked_for_and_returned() -> None:
    """A number whose value is asked for is a constant of its kind, also where it is returned or kept."""

    def step(x: Any, k: Any, state: Any) -> Any:
        state["k"] = k + 1
        return x * math.exp(-k), k, {"twice": k * 2}

    fused = xt.fuse(step)
    for k in (0.5, 1.5, 0.5, 2.5, 1.5, 1.5, 0.5):
        state: dict[str, Any] = {"k": 0.0}
        result, same, more = fused(xt.ones(200_000), k, state)
        assert (same, more, state) == (k, {"twice": 2 * k}, {"k": k + 1})
        assert float(result[0]) == pytest.approx(math.exp(-k))


KEYED: dict[str, Callable[[Any, int], Any]] = {
    "a key": lambda x, t: {t: x * t},
    "a sum of one": lambda x, t: [{t // 2: x * t, -t: 1}],
    "a tuple": lambda x, t: {"inner": {(t, 1): x * t, frozenset([t]): t}},
    "a factory's dict": lambda x, t: defaultdict(list, {float(t): x * t}),
    "no keys": lambda x, t: (x * t, {"t": t}),
}


@pytest.mark.parametrize("case", KEYED)
def test_numbers_that_are_keys_of_results(case: str) -> None:
    """They are plain numbers, as the values are."""

    def kinds(tree: Any) -> Any:
        if isinstance(tree, dict):
            return type(tree), [(kinds(key), kinds(value)) for key, value in tree.items()]
        return (type(tree), [*map(kinds, tree)]) if isinstance(tree, (list, tuple, frozenset)) else type(tree)

    function, x = KEYED[case], xt.ones(100_000)
    fused = xt.fuse(function)
    for t in (1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 8, 9, 2):
        found, wanted = fused(x, t), function(x, t)
        assert kinds(found) == kinds(wanted)
        assert str(found) == str(wanted)


def test_numbers_that_are_keys_of_what_is_given() -> None:
    """Of a dict that is there before the call."""

    @xt.fuse
    def put(x: Any, state: dict[Any, Any], n: int) -> Any:
        state[n] = x * n
        return x + n

    x = xt.ones(100_000)
    for n in (1, 2, 3, 4, 2, 5, 6):
        state: dict[Any, Any] = {}
        put(x, state, n)
        assert [*map(type, state)] == [int]
        assert float(state[n][0]) == n
