"""Containers and objects in the dispatch of captured functions: what they hold is compared, and others may come."""

from __future__ import annotations

import gc
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from test_dispatch import answered, at_once, by_machine_code, by_python, known, vector

import xtensor as xt
from xtensor.codegen.cpu.compile import host

__all__ = ["at_once"]  # which is used by each test

pytestmark = pytest.mark.skipif(host() is None, reason="there is no compiler, and machine code answers no calls")


def same(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-14)


def parameters(seed: int) -> dict[str, Any]:
    return {"w": vector(seed), "layers": [(vector(seed + 1), vector(seed + 2)), (vector(seed + 3), 2.0)]}


def evaluated(p: dict[str, Any], x: xt.Tensor) -> xt.Tensor:
    return p["w"] * x + sum(a * x + b for a, b in p["layers"])


# ---- arguments


def test_parameters_in_dicts_lists_and_tuples() -> None:
    """Others each time, with other elements or the same ones."""
    fused = known(evaluated, parameters(0), vector())
    for seed in range(5):
        p, x = parameters(seed), vector(seed)
        same(by_machine_code(fused, p, x), evaluated(p, x))
        same(by_machine_code(fused, {**p}, x), evaluated(p, x))


@pytest.mark.parametrize(
    "other",
    [
        lambda p: p | {"w": vector(n=1)},
        lambda p: p | {"w": xt.astype(p["w"], xt.float32)},
        lambda p: p | {"w": 3.0},
        lambda p: p | {"layers": [*p["layers"], (vector(8), 1.0)]},
        lambda p: p | {"layers": p["layers"][:1]},
        lambda p: p | {"layers": [p["layers"][0], (p["layers"][1][0], 7.0)]},
        lambda p: p | {"layers": [p["layers"][0], (p["layers"][1][0], 2)]},
        lambda p: p | {"layers": [list(p["layers"][0]), p["layers"][1]]},
        lambda p: p | {"layers": tuple(p["layers"])},
        lambda p: p | {"more": vector()},
        lambda p: {"layers": p["layers"], "w": p["w"]},
        lambda p: defaultdict(int, p),
        lambda p: {"w": p["w"], "layers": [p["layers"][0]] * 2},
        lambda p: {"w": p["w"], "layers": [p["layers"][1]] * 2},
        lambda p: p | {"w": p["layers"][0][0]},
    ],
)
def test_other_parts_are_other_kinds(other: Callable[[Any], Any]) -> None:
    fused, x = known(evaluated, parameters(0), vector()), vector(5)
    p = other(parameters(3))
    same(by_python(fused, p, x), evaluated(p, x))
    p = parameters(4)
    same(by_machine_code(fused, p, x), evaluated(p, x))


def test_parts_that_are_missing_raise() -> None:
    fused, x = known(evaluated, parameters(0), vector()), vector()
    for p, error in (({}, KeyError), ({"w": x, "layers": 3}, TypeError), ({"w": None, "layers": []}, TypeError)):
        with pytest.raises(error):
            fused(p, x)


def test_a_step_of_parameters() -> None:
    def step(p: dict[str, Any], g: dict[str, Any], rate: float) -> dict[str, Any]:
        return {name: p[name] - rate * g[name] for name in p}

    p, g = {"w": vector(), "b": vector(n=3)}, {"w": vector(2), "b": vector(3, n=3)}
    fused = known(step, p, g, 0.1)
    for _ in range(20):
        expected = step(p, g, 0.1)
        p = by_machine_code(fused, p, g, 0.1)
        assert list(p) == ["w", "b"]
        same(p["w"], expected["w"])
        same(p["b"], expected["b"])


class State(NamedTuple):
    u: Any
    v: Any
    t: float


def test_numbers_in_named_tuples_are_told() -> None:
    def step(s: State, dt: float) -> State:
        return State(s.u + s.v * dt, s.v - s.u * dt * s.t, s.t + dt)

    fused, s = xt.fuse(step), State(vector(), vector(1), 0.0)
    for _ in range(6):
        s = fused(s, 0.5)
    for _ in range(6):
        expected = step(s, 0.5)
        s = by_machine_code(fused, s, 0.5)
        assert type(s) is State
        assert s.t == expected.t
        same(s.v, expected.v)
    by_python(fused, State(vector(), vector(1), 3), 0.5)


def test_numbers_in_lists_and_dicts_are_told() -> None:
    def f(x: xt.Tensor, state: dict[str, Any], pair: Any) -> Any:
        return x * state["t"] + pair[1] - state["more"][0], state["t"] * 2

    fused = xt.fuse(f)
    for call in range(12):
        x, state, pair = vector(call), {"t": call * 0.5, "more": [call, "name"]}, (vector(), call)
        expected = f(x, state, pair)
        found = (by_machine_code if call > 5 else lambda function, *args: function(*args))(fused, x, state, pair)
        same(found[0], expected[0])
        assert found[1] == expected[1]


def test_a_list_that_comes_twice() -> None:
    """One list in two places, and two lists: what is appended to one is in both."""

    def f(a: list[Any], b: list[Any], x: xt.Tensor) -> xt.Tensor:
        a.append(x)
        total = x * 2 + len(b)
        a.pop()
        return total

    fused, x = known(f, [], [], vector()), vector()
    one: list[Any] = []
    same(by_python(fused, one, one, x), x.numpy() * 2 + 1)
    same(by_machine_code(fused, [], [], x), x.numpy() * 2)


def test_a_list_that_is_found_and_given() -> None:
    held = [2.0]

    def f(a: list[Any], x: xt.Tensor) -> xt.Tensor:
        a.append(3.0)
        total = x * 2 + len(held)
        a.pop()
        return total

    fused, x = known(f, [2.0], vector()), vector()
    same(by_python(fused, held, x), x.numpy() * 2 + 2)
    same(by_machine_code(fused, [2.0], x), x.numpy() * 2 + 1)


def test_functions_among_the_arguments() -> None:
    rate = 2.0

    def slope(t: float, y: xt.Tensor) -> xt.Tensor:
        return -rate * y * t

    def other(t: float, y: xt.Tensor) -> xt.Tensor:
        return y + t

    def euler(f: Callable[..., Any], y: xt.Tensor, t: float, h: float) -> xt.Tensor:
        return y + h * f(t, y)

    fused = xt.fuse(euler)
    for call in range(6):
        fused(slope, vector(), call * 0.5, 0.25)
    same(by_machine_code(fused, slope, vector(3), 7.0, 0.25), euler(slope, vector(3), 7.0, 0.25))
    same(by_python(fused, other, vector(3), 7.0, 0.25), euler(other, vector(3), 7.0, 0.25))
    rate = 3.0
    same(by_python(fused, slope, vector(3), 7.0, 0.25), euler(slope, vector(3), 7.0, 0.25))
    slope.__code__ = other.__code__.replace(co_freevars=("rate",))
    same(fused(slope, vector(3), 7.0, 0.25), euler(other, vector(3), 7.0, 0.25))


# ---- objects


class Base:
    scale = 2.0

    def rate(self) -> float:
        return 1.0


class Solver(Base):
    def __init__(self, seed: int = 0) -> None:
        self.u, self.k, self.t, self.dt, self.steps = vector(seed), [vector(1), vector(2)], 0.0, 0.1, 0
        self.unused = "text"

    def plain(self) -> Any:
        self.u = self.u + self.dt * (self.k[0] - self.u) * self.k[1] * self.scale * self.rate()
        self.t += self.dt
        self.steps += 1
        return self.u


def step_of() -> tuple[Any, type]:
    """Return a fused method, and the class that has it."""
    fused = xt.fuse(Solver.plain)

    class Fast(Solver):
        step = fused

    return fused, Fast


def test_methods_bind_attributes_anew() -> None:
    fused, fast = step_of()
    one, other = fast(), Solver()
    for _ in range(6):
        one.step()
        other.plain()
    for _ in range(10):
        found = by_machine_code(fused, one)
        same(found, other.plain())
        assert found is one.u
        assert (one.t, one.steps) == (other.t, other.steps)


@pytest.mark.parametrize(
    "change",
    [
        lambda one, kind: setattr(one, "dt", 0.5),
        lambda one, kind: setattr(one, "k", [vector(7), vector(8)]),
        lambda one, kind: one.k.reverse(),
        lambda one, kind: setattr(one, "scale", 5.0),
        lambda one, kind: setattr(one, "rate", lambda: 3.0),
        lambda one, kind: (delattr(one, "unused"), setattr(one, "scale", 5.0)),
        lambda one, kind: setattr(one, "__dict__", {**vars(one), "dt": 0.25}),
        lambda one, kind: setattr(kind, "scale", 7.0),
        lambda one, kind: setattr(kind, "rate", lambda self: 9.0),
        lambda one, kind: setattr(one, "__class__", type("Other", (kind,), {"scale": 11.0})),
        lambda one, kind: setattr(one, "u", xt.astype(one.u, xt.float32)),
        lambda one, kind: setattr(one, "u", one.k[0]),
    ],
)
def test_objects_that_change(change: Callable[[Any, type], Any]) -> None:
    fused, fast = step_of()
    one = fast()
    for _ in range(6):
        fused(one)
    assert answered(fused)
    change(one, fast)
    other = Solver()
    other.__dict__ = {**vars(one)}
    other.__class__ = one.__class__
    for _ in range(4):
        np.testing.assert_allclose(np.asarray(fused(one)), np.asarray(other.plain()), rtol=1e-6)
        assert one.t == other.t
        assert one.steps == other.steps


def test_base_classes_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, fast = step_of()
    one, other = fast(), Solver()
    for _ in range(6):
        same(fused(one), other.plain())
    monkeypatch.setattr(Base, "scale", 4.0)
    for _ in range(4):
        same(fused(one), other.plain())
    monkeypatch.setattr(Base, "rate", lambda self: 6.0)
    for _ in range(4):
        same(fused(one), other.plain())


def test_several_objects_take_turns() -> None:
    fused, fast = step_of()
    ours, theirs = [fast(seed) for seed in range(3)], [Solver(seed) for seed in range(3)]
    for _ in range(8):
        for one, other in zip(ours, theirs, strict=True):
            same(fused(one), other.plain())
    for one, other in zip(ours, theirs, strict=True):
        same(by_machine_code(fused, one), other.plain())


def test_objects_are_let_go() -> None:
    """A function that is fused lives longer than an object of its class, and what that holds."""
    fused, fast = step_of()
    for seed in range(3):
        one = fast(seed)
        for _ in range(8):
            fused(one)
        assert answered(fused)
        gone, list_gone = weakref.ref(one), weakref.ref(one.k[1])
        del one
        gc.collect()
        assert gone() is None
        assert list_gone() is None


def test_an_object_in_the_place_of_another() -> None:
    """Python gives the memory of one that is gone to the next."""
    fused, fast = step_of()
    for seed in range(200):
        one, other = fast(seed), Solver(seed)
        if seed % 3 == 1:
            one.scale = other.scale = 3.0  # type: ignore[attr-defined]
        for _ in range(3):
            same(fused(one), other.plain())
        del one


@dataclass(frozen=True)
class Frozen:
    u: Any
    t: float
    name: str = "some"

    def scaled(self) -> Any:
        return self.u * 2.0


@dataclass(frozen=True, slots=True)
class Slotted(Frozen):
    v: Any = None


@pytest.mark.parametrize("kind", [Frozen, Slotted])
def test_states_that_are_made_anew(kind: Any) -> None:
    """Dataclasses whose objects come one after the other."""

    def step(s: Any, dt: float) -> Any:
        return replace(s, u=s.scaled() * 0.5 + dt * (s.u * s.t), t=s.t + dt)

    fused, s = xt.fuse(step), kind(vector(), 0.0)
    for call in range(16):
        expected = step(s, 0.5)
        if call < 6 or kind is Slotted:
            s = fused(s, 0.5)
        else:
            s = by_machine_code(fused, s, 0.5)
        assert type(s) is kind
        assert (s.t, s.name) == (expected.t, "some")
        same(s.u, expected.u)
    for other in (replace(s, name="other"), replace(s, t=1), replace(s, u=vector(n=3)), Frozen(s.u, 1.0, "text")):
        expected = step(other, 0.5)
        found = by_python(fused, other, 0.5)
        same(found.u, expected.u)
        assert (found.t, found.name) == (expected.t, expected.name)


def test_objects_take_turns_without_being_told_apart() -> None:
    class Layer:
        def __init__(self, seed: int) -> None:
            self.w, self.b, self.hidden = vector(seed), vector(seed + 1), seed

        @xt.fuse
        def forward(self, x: xt.Tensor) -> Any:
            return x * self.w + self.b

    layers, forward = [Layer(seed) for seed in range(8)], vars(Layer)["forward"]
    for layer in [*layers, layers[0]]:  # whose weights become thin in a call that Python answers
        layer.forward(vector())
    for layer in layers:
        same(by_machine_code(forward, layer, vector(3)), vector(3).numpy() * layer.w.numpy() + layer.b.numpy())
    layers[0].more = 1  # type: ignore[attr-defined]
    same(by_python(forward, layers[0], vector(3)), vector(3).numpy() * layers[0].w.numpy() + layers[0].b.numpy())
    layers[1].forward = 3  # type: ignore[method-assign,assignment]
    same(by_python(forward, layers[1], vector(3)), vector(3).numpy() * layers[1].w.numpy() + layers[1].b.numpy())


def test_objects_that_know_each_other() -> None:
    class Node:
        def __init__(self, seed: int, parent: Any = None) -> None:
            self.w, self.parent, self.children = vector(seed), parent, []

    root = Node(0)
    root.children += [Node(1, root), Node(2, root)]

    def total(node: Any) -> Any:
        return node.w + sum(child.w * child.parent.w for child in node.children)

    fused = known(total, root)
    same(by_machine_code(fused, root), total(root))
    root.children[0].w = vector(9)
    same(by_machine_code(fused, root), total(root))
    root.children[0].parent = Node(5)
    same(fused(root), total(root))


def test_properties_and_static_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w, self.c = vector(1), 2.0

        @property
        def doubled(self) -> Any:
            return self.w * self.c

        @staticmethod
        def shifted(x: xt.Tensor) -> Any:
            return x + 1

        @xt.fuse
        def step(self, x: xt.Tensor) -> Any:
            return self.shifted(x) * self.doubled

    model, step = Model(), vars(Model)["step"]
    for _ in range(4):
        model.step(vector())
    same(by_machine_code(step, model, vector(3)), (vector(3).numpy() + 1) * vector(1).numpy() * 2)
    model.c = 3.0
    same(by_python(step, model, vector(3)), (vector(3).numpy() + 1) * vector(1).numpy() * 3)
    Model.shifted = staticmethod(lambda x: x - 1)  # type: ignore[method-assign]
    same(step(model, vector(3)), (vector(3).numpy() - 1) * vector(1).numpy() * 3)


@dataclass
class Settings:
    rate: float
    scale: float = 1.0


def test_objects_in_objects_and_globals() -> None:
    settings, held = Settings(2.0), {"settings": Settings(3.0)}

    def f(x: xt.Tensor) -> xt.Tensor:
        return x * settings.rate + held["settings"].rate * settings.scale

    fused, x = known(f, vector()), vector(4)
    same(by_machine_code(fused, x), f(x))
    for change in (
        lambda: setattr(settings, "rate", 5.0),
        lambda: setattr(held["settings"], "rate", 7.0),
        lambda: held.update(settings=Settings(11.0)),
        lambda: setattr(settings, "scale", 13.0),
    ):
        change()
        for _ in range(3):
            same(fused(x), f(x))


# ---- what is put elsewhere


def test_dicts_that_are_written() -> None:
    def step(state: dict[str, Any], g: xt.Tensor) -> None:
        state["m"] = state["m"] * 0.5 + g
        state["n"] += 1
        state["seen"].append(state["n"])
        del state["seen"][0]

    fused, ours, theirs = xt.fuse(step), {"m": vector(), "n": 0, "seen": [0]}, {"m": vector(), "n": 0, "seen": [0]}
    for call in range(12):
        fused(ours, vector(call))
        step(theirs, vector(call))
        same(ours["m"], theirs["m"])
        assert (ours["n"], ours["seen"]) == (theirs["n"], theirs["seen"])
    fresh = {"m": vector(1), "n": 5, "seen": [1]}
    fused(fresh, vector())
    assert fresh["n"] == 6
    same(ours["m"], theirs["m"])


def test_globals_that_are_written() -> None:
    spread: dict[str, Any] = {"xt": xt, "count": 0, "m": vector()}
    exec("def f(x):\n    global count, m\n    m = m * 0.5 + x\n    count += 1\n    return m + count", spread)
    fused, m = xt.fuse(spread["f"]), vector().numpy()
    for call in range(12):
        x = vector(call)
        m = m * 0.5 + x.numpy()
        same(fused(x), m + call + 1)
        assert spread["count"] == call + 1


def test_a_dict_that_is_given_and_returned() -> None:
    def f(state: dict[str, Any]) -> Any:
        state["m"] = state["m"] * 2
        return state, state["m"]

    fused, state = xt.fuse(f), {"m": vector()}
    for call in range(1, 10):
        found, m = fused(state)
        assert found is state
        assert m is state["m"]
        same(m, vector().numpy() * 2.0**call)
    assert answered(fused)


def test_partials_and_bound_methods() -> None:
    """Which are made anew each time."""

    class Model:
        def __init__(self, seed: int) -> None:
            self.w, self.c = vector(seed), 2.0

        def slope(self, x: xt.Tensor) -> Any:
            return x * self.w + self.c

    def scaled(c: Any, x: xt.Tensor, *, more: float = 0.0) -> Any:
        return x * c + more

    fused = xt.fuse(lambda f, x: f(x) * 2)
    one, other = Model(1), Model(2)
    for _ in range(5):
        fused(one.slope, vector())
    same(by_machine_code(fused, one.slope, vector(3)), one.slope(vector(3)) * 2)
    other.w.thin()
    same(by_machine_code(fused, other.slope, vector(3)), other.slope(vector(3)) * 2)
    other.c = 3.0
    same(by_python(fused, other.slope, vector(3)), other.slope(vector(3)) * 2)
    for w in (vector(5), vector(6), vector(7), 2.0, 2.0, 2.0, 3.0):
        for call in range(5):
            f = partial(scaled, w, more=call * 0.5)
            same(fused(f, vector()), f(vector()) * 2)
    before = answered(fused)
    same(fused(partial(scaled, vector(9), more=7.5), vector()), scaled(vector(9), vector(), more=7.5) * 2)
    assert answered(fused) == before + 1


# ---- what is not there, in which order


def test_objects_in_lists_that_are_gone() -> None:
    """Nobody asks what was in the place of one that is gone."""

    class Node:
        def __init__(self, *kids: Any) -> None:
            self.w, self.kids = vector(len(kids)), list(kids)

        def __call__(self, x: xt.Tensor) -> Any:
            y = x * self.w
            for kid in self.kids:
                y = y + kid(x)
            return y

    def changed(tree: Any, how: int) -> None:
        if how == 0:
            tree.kids = []
        elif how == 1:
            tree.kids.clear()
        elif how == 2:
            tree.kids[0] = Node()
        else:
            tree.kids = [Node(Node(), Node()), Node()]

    for how in range(4):
        tree, x = Node(Node(Node())), vector(3)
        fused = xt.fuse(tree.__call__)
        for _ in range(5):
            fused(x)
        changed(tree, how)
        gc.collect()
        held = [bytearray(64) for _ in range(100)]
        same(fused(x), tree(x))
        assert held


def test_nothing_is_not_none() -> None:
    """Of a global, a closure's variable, an attribute of an object and of a class, a key of a dict."""
    x = vector()

    def raises(fused: Any, error: type[Exception], change: Callable[[], Any], *args: Any) -> None:
        for _ in range(5):
            fused(*args)
        assert answered(fused)
        change()
        for _ in range(3):
            with pytest.raises(error):
                fused(*args)

    spread: dict[str, Any] = {"xt": xt, "G": None}
    exec("def g(x):\n    return x * 2 if G is None else x", spread)
    raises(xt.fuse(spread["g"]), NameError, lambda: (spread.pop("G"), spread.update(H=1)), x)

    empty = None

    def h(x: xt.Tensor) -> Any:
        return x * 2 if empty is None else x

    def let_go() -> None:
        nonlocal empty
        del empty

    raises(xt.fuse(h), NameError, let_go, x)

    class Layer:
        k = None

        def __init__(self) -> None:
            self.w, self.b = vector(), None

    layer = Layer()
    attribute = xt.fuse(lambda one, x: x * one.w if one.b is None else x + one.b)
    raises(attribute, AttributeError, lambda: (delattr(layer, "b"), setattr(layer, "other", 1)), layer, x)
    shared = xt.fuse(lambda one, x: x * one.w if one.k is None else x)
    raises(shared, AttributeError, lambda: (delattr(Layer, "k"), setattr(Layer, "j", 1)), Layer(), x)

    def total(d: dict[str, Any]) -> Any:
        t = sum(d[k] for k in ("a", "b", "c") if d.get(k) is not None)
        d["sum"] = t
        return t

    fused, d = xt.fuse(total), {"a": vector(), "b": None, "sum": vector()}
    for _ in range(6):
        fused(d)
    del d["b"]
    d["c"] = 7.0
    same(fused(d), vector().numpy() + 7)


def test_the_order_of_keys_and_attributes() -> None:
    def f(state: dict[str, Any], x: xt.Tensor) -> Any:
        for k in state:
            x = x * 2 if k == "scale" else x + state[k]
        state["n"] = x
        return x

    def ops(x: xt.Tensor, names: Any) -> Any:
        for k, v in list(names.items()):
            if k == "scale":
                x = x * 2
            if k == "shift":
                x = x + v
        return x

    found = []
    for function in (xt.fuse(f), f):
        x, d = vector(), {"scale": 1.0, "shift": 3.0, "n": vector() * 0}
        for _ in range(6):
            function(d, x)
        d["scale"] = d.pop("scale")
        function(d, x)
        d["n"] = d.pop("n") * 0
        found.append(function(d, x))
    same(*found)

    class Class:
        scale, shift = 1.0, 3.0

    module = ModuleType("usermod")
    module.scale, module.shift = 1.0, 3.0  # type: ignore[attr-defined]
    holders: list[Any] = [SimpleNamespace(scale=1.0, shift=3.0), Class, module]
    for one in holders:
        fused, x = xt.fuse(partial(lambda one, x: ops(x, vars(one)), one)), vector()
        for _ in range(6):
            fused(x)
        del one.scale
        one.scale = 1.0
        same(fused(x), ops(x, vars(one)))


def test_what_is_put_into_an_object_is_put_there_alone() -> None:
    """Another object, whose attributes are the same, is another one to put something into."""
    fused, fast = step_of()
    one = fast()
    for _ in range(6):
        fused(one)
    assert answered(fused)
    other, plain = fast(), Solver()
    other.__dict__, plain.__dict__ = {**vars(one)}, {**vars(one)}
    before = one.u
    same(fused(other), plain.plain())
    assert one.u is before
    assert other.u is not before


def test_objects_of_many_attributes() -> None:
    """Numbers that are told, and constants, in the order in which they stand."""
    names = [f"n{n}" for n in range(40)]

    class Many:
        def __init__(self) -> None:
            vars(self).update(dict.fromkeys(names, 1), w=vector())

    product = " + ".join([f"c.{name} * {n}" for n, name in enumerate(names, 1)])
    fused, x, one = xt.fuse(eval(f"lambda c, x: x * ({product}) * c.w")), vector(), Many()
    for number in (0, 1, 2, 3, 4, 5, 1, 1, 1, 1, 1, 1):
        one.n7 = number  # type: ignore[attr-defined]
        fused(one, x)
    for n, name in enumerate(names, 1):
        one = Many()
        setattr(one, name, 5)
        same(fused(one, x), x.numpy() * (820 + 4 * n) * one.w.numpy())  # type: ignore[attr-defined]


def test_other_base_classes() -> None:
    class A:
        scale = 2.0

        def rate(self) -> float:
            return 2.0

    class B:
        scale = 3.0

        def rate(self) -> float:
            return 5.0

    class C(A):
        def __init__(self) -> None:
            self.w = vector()

    one, x = C(), vector()
    fused = known(lambda c, x: c.w * x * c.scale * c.rate(), one, x)
    C.__bases__ = (B,)
    same(fused(one, x), one.w.numpy() * x.numpy() * 15.0)


def test_what_is_taken_away() -> None:
    """Nothing is returned, as only something is removed."""

    def f(d: dict[str, Any], x: xt.Tensor) -> None:
        x += 1
        d.pop("a", None)

    fused, x = xt.fuse(f), vector()
    for _ in range(8):
        d = {"a": 1}
        assert fused(d, x) is None
        assert d == {}
    same(x, vector().numpy() + 8)


def test_attributes_of_odd_kinds() -> None:
    """Private slots, classes of Python's, objects that are called, slots beside `__getattr__`."""

    class Private:
        __slots__ = ("__a", "w")

        def __init__(self, a: float) -> None:
            self.__a, self.w = a, vector()

        def step(self, x: xt.Tensor) -> Any:
            return x * self.__a * self.w

        def put(self, a: float) -> None:
            self.__a = a

    class Act:
        def __init__(self, k: float) -> None:
            self.k = k

        def __call__(self, x: xt.Tensor) -> Any:
            return x * self.k

    class Acting:
        act, kind = Act(2.0), int

    class Open:
        __slots__ = ("w",)

        def __getattr__(self, name: str) -> Any:
            return [1.0]

    x, private, acting, opened = vector(), Private(2.0), Acting(), Open()
    step, act = known(Private.step, private, x), known(lambda c, x: c.act(x), acting, x)
    private.put(7.0)
    same(step(private, x), x.numpy() * 7 * private.w.numpy())
    Acting.act.k = 3.0
    for _ in range(4):
        same(act(acting, x), x.numpy() * 3)
    Acting.act = Act(5.0)
    same(act(acting, x), x.numpy() * 5)
    own = SimpleNamespace(kind=int)
    cast = known(lambda c, x: x * c.kind(2.7), own, x)
    own.kind = float
    same(cast(own, x), x.numpy() * 2.7)
    opened.w = vector()
    fused = xt.fuse(lambda c, x: x * c.w)
    for _ in range(5):
        same(fused(opened, x), x.numpy() * vector().numpy())
