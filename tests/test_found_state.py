"""State that a captured function finds in roundabout ways: through descriptors, metaclasses, enumerations, classes that
extend lists and dicts, and attributes whose names it makes.
"""

from __future__ import annotations

import copy
import logging
import operator
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import xtensor as xt

Case = tuple[Callable[[Any], Any], Callable[[float], Any]]
COUNT = 20_000
PART = "a"  # of names


def box() -> tuple[list[float], Callable[[float], None]]:
    """Return a list of one number, and what puts another one there."""
    numbers = [2.0]
    return numbers, lambda k: operator.setitem(numbers, 0, k)


def a_method_of_an_enumeration() -> Case:
    numbers, change = box()

    class Mode(Enum):
        ONE = 1

        def apply(self, x: Any) -> Any:
            return x * numbers[0] * self.value

    return lambda x: Mode.ONE.apply(x), change


def a_method_of_a_text_in_an_enumeration() -> Case:
    numbers, change = box()

    class Mode(StrEnum):
        ONE = "one"

        def factor(self) -> float:
            return {"one": numbers[0]}[self.value]

    return lambda x: x * Mode.ONE.factor(), change


def an_attribute_of_an_enumeration() -> Case:
    class Mode(Enum):
        ONE = 1

    Mode.ONE.factor = 2.0  # type: ignore[attr-defined]
    return lambda x: x * Mode.ONE.factor, lambda k: setattr(Mode.ONE, "factor", k)  # type: ignore[attr-defined]


def a_method_of_a_named_tuple() -> Case:
    numbers, change = box()

    class Pair(NamedTuple):
        a: float

        def apply(self, x: Any) -> Any:
            return x * self.a * numbers[0]

    pair = Pair(3.0)
    return lambda x: pair.apply(x), change


def a_method_of_a_tuple() -> Case:
    numbers, change = box()

    class Vector(tuple[float, ...]):
        def apply(self, x: Any) -> Any:
            return x * self[0] * numbers[0]

    vector = Vector((3.0,))
    return lambda x: vector.apply(x), change


def a_call_of_a_list() -> Case:
    numbers, change = box()

    class Layers(list[Any]):
        def __call__(self, x: Any) -> Any:
            return self[0](x) * numbers[0]

    layers = Layers([lambda x: x + 1.0])
    return lambda x: layers(x), change


def an_attribute_of_a_dict() -> Case:
    class Parameters(dict[str, Any]):
        rate: float

        def apply(self, x: Any) -> Any:
            return x * self["w"] * self.rate

    parameters = Parameters(w=3.0)
    parameters.rate = 2.0
    return lambda x: parameters.apply(x), lambda k: setattr(parameters, "rate", k)


class Described:
    """A descriptor that holds what it gives."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return self.value


class Named:
    """A descriptor that keeps what it gives under a name of its own."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "kept_" + name

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return getattr(owner, self.name)

    def __set__(self, owner: Any, value: Any) -> None:
        setattr(owner, self.name, value)


class Bound:
    """A descriptor that binds a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __get__(self, owner: Any, kind: type | None = None) -> Any:
        return partial(self.function, owner)


def what_a_descriptor_holds() -> Case:
    descriptor = Described(2.0)
    model = type("Model", (), {"k": descriptor})()
    return lambda x: x * model.k, lambda k: setattr(descriptor, "value", k)


def what_a_descriptor_keeps_elsewhere() -> Case:
    model = type("Model", (), {"k": Named()})()
    model.k = 2.0
    return lambda x: x * model.k, lambda k: setattr(model, "k", k)


def what_a_descriptor_binds() -> Case:
    numbers, change = box()
    model = type("Model", (), {"apply": Bound(lambda self, x: x * numbers[0])})()
    return lambda x: model.apply(x), change


def what_a_metaclass_computes() -> Case:
    numbers, change = box()

    class Meta(type):
        @property
        def k(cls) -> float:
            return numbers[0]

    class Model(metaclass=Meta):
        pass

    return lambda x: x * Model.k, change


def what_a_metaclass_has() -> Case:
    class Meta(type):
        k = 2.0

    class Model(metaclass=Meta):
        pass

    return lambda x: x * Model.k, lambda k: setattr(Meta, "k", k)


def an_attribute_whose_name_is_made() -> Case:
    model = SimpleModel(k0=3.0, k1=2.0)

    def function(x: Any) -> Any:
        for n in range(2):
            x = x * getattr(model, f"k{n}")
        return x

    return function, lambda k: setattr(model, "k1", k)


def an_attribute_whose_name_is_put_together() -> Case:
    model = SimpleModel(rate_a=2.0)
    return lambda x: x * getattr(model, "rate_" + PART), lambda k: setattr(model, "rate_a", k)


def attributes_by_mapped_names() -> Case:
    model = SimpleModel(a=3.0, b=2.0)
    names = ["a", "b"]
    return lambda x: x * sum(map(partial(getattr, model), names)), lambda k: setattr(model, "b", k)


def attributes_by_another_name_of_getattr() -> Case:
    model, get = SimpleModel(rate_a=2.0), getattr
    return lambda x: x * get(model, "rate_" + PART), lambda k: setattr(model, "rate_a", k)


def a_method_whose_name_is_made() -> Case:
    numbers, change = box()

    class Visitor:
        def visit_scale(self, x: Any) -> Any:
            return x * numbers[0]

        def run(self, names: list[str], x: Any) -> Any:
            for name in names:
                x = getattr(self, "visit_" + name)(x)
            return x

    visitor = Visitor()
    return lambda x: visitor.run(["scale"], x), change


def a_method_whose_name_is_made_and_that_is_replaced() -> Case:
    class Visitor:
        def visit_a(self, x: Any) -> Any:
            return x * 2.0

    visitor = Visitor()
    return (
        lambda x: getattr(visitor, "visit_" + PART)(x),
        lambda k: setattr(Visitor, "visit_a", lambda self, x: x * k),
    )


def a_function_of_a_module_whose_name_is_made() -> Case:
    module = ModuleType("of_somebody")
    module.rate_a = 2.0  # type: ignore[attr-defined]
    return lambda x: x * getattr(module, "rate_" + PART), lambda k: setattr(module, "rate_a", k)


def the_dict_of_an_object() -> Case:
    model = SimpleModel(a=3.0, b=2.0)
    return lambda x: x * sum(model.__dict__.values()), lambda k: setattr(model, "b", k)


def the_vars_of_an_object() -> Case:
    model = SimpleModel(a=3.0, b=2.0)
    return lambda x: x * sum(vars(model).values()), lambda k: setattr(model, "b", k)


@dataclass
class State:
    """Its label is mentioned nowhere."""

    u: Any
    label: float = 2.0


def a_field_that_is_copied() -> Case:
    state = State(1.0)
    return lambda x: vars(replace(state, u=x * 2.0)), lambda k: setattr(state, "label", k)


def an_attribute_that_is_copied() -> Case:
    model = SimpleModel(hidden=2.0)
    return lambda x: sum(copy.copy(model).__dict__.values()) * x, lambda k: setattr(model, "hidden", k)


def an_attribute_that_is_compared() -> Case:
    class Key:
        name = "two"

        def __hash__(self) -> int:
            return hash(self.name)

        def __eq__(self, other: object) -> bool:
            return self.name == other

    key, table = Key(), {"two": 2.0, "other": 5.0}
    return lambda x: x * table[key], lambda k: setattr(key, "name", "two" if k == 2.0 else "other")  # type: ignore[index]


def a_field_that_is_compared() -> Case:
    one, other = State(1.0), State(1.0)
    return lambda x: x * (2.0 if one == other else 5.0), lambda k: setattr(one, "label", k)


def a_field_that_is_ordered() -> Case:
    @dataclass(order=True)
    class Level:
        height: float

    one, other = Level(2.0), Level(4.0)
    return lambda x: x * (2.0 if one < other else 5.0), lambda k: setattr(one, "height", k)


def a_field_that_is_found() -> Case:
    one, every = State(1.0), [State(1.0), State(1.0, 5.0)]
    return lambda x: x * (every.index(one) if one in every else 7.0), lambda k: setattr(one, "label", k)


def a_field_that_is_a_key() -> Case:
    @dataclass(frozen=True)
    class Key:
        number: float

    keys, table = [Key(2.0)], {Key(2.0): 2.0, Key(5.0): 5.0, Key(3.0): 3.0}
    return lambda x: x * table[keys[0]], lambda k: operator.setitem(keys, 0, Key(k))


def an_attribute_that_is_shown() -> Case:
    class Key:
        name = "two"

        def __str__(self) -> str:
            return self.name

    key, table = Key(), {"two": 2.0, "other": 5.0}
    return lambda x: x * table[str(key)], lambda k: setattr(key, "name", "two" if k == 2.0 else "other")


def an_attribute_in_a_text_with_values() -> Case:
    class Key:
        name = "two"

        def __repr__(self) -> str:
            return self.name

    key, table = Key(), {"two": 2.0, "other": 5.0}
    return lambda x: x * table[f"{key}"], lambda k: setattr(key, "name", "two" if k == 2.0 else "other")


def what_a_dict_makes_by_default() -> Case:
    numbers, change = box()
    made: dict[str, float] = defaultdict(lambda: numbers[0])
    return lambda x: x * made.default_factory(), change  # type: ignore[attr-defined]


def what_a_mapped_function_finds() -> Case:
    numbers, change = box()
    mapped = xt.vmap(lambda row: row * numbers[0])
    return lambda x: mapped(xt.reshape(x, (2, -1))), change


def what_the_gradient_of_a_partial_finds() -> Case:
    numbers, change = box()
    gradient = xt.grad(partial(lambda k, x: xt.sum(x * x * k * numbers[0]), 3.0))
    return lambda x: gradient(x), change


def what_a_universal_function_of_somebody_finds() -> Case:
    numbers, change = box()
    scaled = np.frompyfunc(lambda k: k * numbers[0], 1, 1)
    return lambda x: x * float(scaled(3.0)), change


def the_keywords_of_a_partial() -> Case:
    scaled = partial(lambda x, k: x * k, k=2.0)
    return scaled, lambda k: operator.setitem(scaled.keywords, "k", k)


def a_mapping_that_cannot_be_written() -> Case:
    numbers = {"k": 2.0}
    seen = MappingProxyType(numbers)
    return lambda x: x * seen["k"], lambda k: operator.setitem(numbers, "k", k)


def a_method_added_to_a_class() -> Case:
    class Model:
        pass

    model = Model()

    def change(k: float) -> None:
        if k == 2.0 and hasattr(Model, "hook"):
            del Model.hook
        elif k != 2.0:
            Model.hook = lambda self, x: x * k  # type: ignore[attr-defined]

    return lambda x: (model.hook(x) if hasattr(model, "hook") else x) + 1.0, change


def a_special_method_added_to_a_class() -> Case:
    class Model:
        pass

    model = Model()

    def change(k: float) -> None:
        if k == 2.0 and hasattr(Model, "__getattr__"):
            del Model.__getattr__
        elif k != 2.0:
            Model.__getattr__ = lambda self, name: k  # type: ignore[attr-defined]

    return lambda x: x * getattr(model, "missing", 2.0), change


def a_name_that_hides_a_function_of_python() -> Case:
    spread: dict[str, Any] = {}
    exec("def function(x):\n    return x * abs(-2.0)", spread)

    def change(k: float) -> None:
        spread.pop("abs", None)
        if k != 2.0:
            spread["abs"] = lambda _: k

    return spread["function"], change


def a_name_that_is_not_there_yet() -> Case:
    spread: dict[str, Any] = {}
    exec("def function(x):\n    try:\n        return x * K\n    except NameError:\n        return x + 1.0", spread)
    return spread["function"], lambda k: spread.pop("K", None) if k == 2.0 else spread.update(K=k)


def a_text_that_is_evaluated() -> Case:
    numbers, change = box()
    text = "numbers[0]"
    return lambda x: x * eval(text, {"numbers": numbers}), change


def globals_by_name() -> Case:
    spread: dict[str, Any] = {}
    exec("def function(x):\n    return x * globals()['a' + 'b']", spread)
    return spread["function"], lambda k: spread.update(ab=k)


def the_level_of_a_log() -> Case:
    log = logging.getLogger("of somebody")

    def change(k: float) -> None:
        log.setLevel(logging.INFO if k == 2.0 else logging.ERROR)

    return lambda x: x * (2.0 if log.isEnabledFor(logging.INFO) else 5.0), change


class SimpleModel:
    """An object with the attributes that it is given."""

    w0: Any
    w1: Any
    step: int

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


CASES = [value for value in list(globals().values()) if getattr(value, "__annotations__", {}) == {"return": "Case"}]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_changes_between_calls_is_seen(case: Callable[[], Case]) -> None:
    function, change = case()
    fused, x = xt.fuse(function), xt.asarray(np.linspace(1.0, 2.0, COUNT))
    with xt.options(engine="interpret"):
        for k in (2.0, 2.0, 2.0, 5.0, 5.0, 5.0, 2.0, 3.0):
            change(k)
            got, wanted = fused(x), function(x)
            if isinstance(wanted, dict):
                assert got["label"] == wanted["label"]
                got, wanted = got["u"], wanted["u"]
            np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted), err_msg=str(k))


PLAIN = {"a_text_that_is_evaluated", "globals_by_name", "what_a_universal_function_of_somebody_finds"}


@pytest.mark.parametrize("case", [one for one in CASES if one.__name__ not in PLAIN], ids=lambda case: case.__name__)
def test_what_stays_as_it_is_is_captured(case: Callable[[], Case]) -> None:
    function, change = case()
    fused, x = xt.fuse(function), xt.asarray(np.linspace(1.0, 2.0, COUNT))
    change(2.0)
    with xt.options(engine="interpret"):
        for _ in range(3):
            fused(x)
        assert fused.why(x) == ""


def read_of(path: Path) -> float:
    with open(path) as file:
        return float(file.read())


@pytest.mark.parametrize("reads", [lambda path: float(path.read_text()), read_of])
def test_what_is_read_from_a_file_is_read_anew(reads: Callable[[Path], float], tmp_path: Path) -> None:
    path = tmp_path / "k"
    fused, x = xt.fuse(lambda x: x * reads(path)), xt.ones(COUNT)
    for k in (2.0, 2.0, 2.0, 5.0):
        path.write_text(str(k))
        assert float(fused(x)[0]) == k


def test_methods_of_frozen_dataclasses_mention_no_fields() -> None:
    @dataclass(frozen=True)
    class Frozen:
        u: float
        label: float = 0.0

    fused, x = xt.fuse(lambda x, state: x * state.u), xt.ones(10 * COUNT)
    for step in range(9):
        fused(x, Frozen(2.0, float(step)))
    assert fused.why(x, Frozen(2.0, 9.0)) == ""


def test_comparing_with_constants_mentions_no_fields() -> None:
    """A counter in a dataclass makes no new kinds."""
    state = State(2.0)
    fused, x = xt.fuse(lambda x, mode: x * state.u if mode == "u" else x), xt.ones(10 * COUNT)
    for step in range(9):
        state.label = step
        fused(x, "u")
    assert fused.why(x, "u") == ""


def test_a_text_in_the_code_names_one_attribute() -> None:
    """A counter beside it makes no new kinds."""
    model = SimpleModel(k=2.0, step=0)
    fused, x = xt.fuse(lambda x: x * getattr(model, "k", 1.0)), xt.ones(10 * COUNT)
    for step in range(9):
        model.step = step
        fused(x)
    assert fused.why(x) == ""


def test_tensors_in_attributes_whose_names_are_made() -> None:
    """They are arguments, and what is bound anew is put there by later calls."""
    model = SimpleModel(w0=xt.ones(10 * COUNT), w1=xt.ones(10 * COUNT) * 2.0)

    def step(x: Any) -> None:
        for n in range(2):
            setattr(model, f"w{n}", getattr(model, f"w{n}") + x)

    fused, x = xt.fuse(step), xt.ones(10 * COUNT)
    for count in range(1, 6):
        fused(x)
        assert (float(model.w0[0]), float(model.w1[0])) == (1.0 + count, 2.0 + count)
    model.w1 = xt.zeros(10 * COUNT)
    fused(x)
    assert float(model.w1[0]) == 1.0
    assert fused.why(x) == ""


def test_every_tensor_of_an_object() -> None:
    model = SimpleModel(a=xt.ones(10 * COUNT), b=xt.ones(10 * COUNT) * 2.0)

    def step(x: Any) -> Any:
        for name in vars(model):
            vars(model)[name] = vars(model)[name] + x
        return sum(vars(model).values())

    fused, x = xt.fuse(step), xt.ones(10 * COUNT)
    for count in range(1, 6):
        assert float(fused(x)[0]) == 3.0 + 2.0 * count
    assert fused.why(x) == ""


def test_attributes_of_a_dict_are_bound_anew() -> None:
    class Parameters(dict[str, Any]):
        mean: Any

    parameters = Parameters(w=xt.ones(10 * COUNT))
    parameters.mean = xt.zeros(10 * COUNT)

    def step(x: Any) -> Any:
        parameters["w"] = parameters["w"] + x
        parameters.mean = parameters.mean + 2.0 * x
        return parameters["w"] * 1.0

    fused, x = xt.fuse(step), xt.ones(10 * COUNT)
    for count in range(1, 6):
        fused(x)
        assert (float(parameters["w"][0]), float(parameters.mean[0])) == (1.0 + count, 2.0 * count)
    assert fused.why(x) == ""


class Adding(list[Any]):
    """A list that answers what is added to it, as pandas' frozen ones do."""

    def __radd__(self, other: Any) -> Any:
        raise TypeError("nothing is added")


def test_lists_that_add_up_otherwise() -> None:
    """Lists of classes of their own are looked into by their elements, as arguments and where they are found."""
    found, x = Adding([2.0, 3.0]), xt.asarray(np.arange(4000.0))
    fused = xt.fuse(lambda x, given: x * given[0] + found[1])
    for factor in (2.0, 2.0, 5.0):
        for shift in (3.0, 4.0):
            found[1] = shift
            np.testing.assert_array_equal(fused(x, Adding([factor])).numpy(), np.arange(4000.0) * factor + shift)
