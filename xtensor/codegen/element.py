"""Elements, in which the formulas of a table's rows are written, with Python's operators and the scalar primitives.

A formula such as `lambda a, b: maximum(a, b) + log1p(exp(-absolute(a - b)))` runs on any machine: a machine is a
function from a primitive's name to something that computes it. NumPy's arrays are one machine, generated code
is another; a row never names one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Machine = Callable[[str], Callable[..., Any]]


class Element:
    """A value of some machine inside a formula."""

    __slots__ = ("machine", "value")

    def __init__(self, machine: Machine, value: Any) -> None:
        self.machine = machine
        self.value = value

    def __add__(self, other: Any) -> Element:
        return primitive("add", self, other)

    def __radd__(self, other: Any) -> Element:
        return primitive("add", other, self)

    def __sub__(self, other: Any) -> Element:
        return primitive("subtract", self, other)

    def __rsub__(self, other: Any) -> Element:
        return primitive("subtract", other, self)

    def __mul__(self, other: Any) -> Element:
        return primitive("multiply", self, other)

    def __rmul__(self, other: Any) -> Element:
        return primitive("multiply", other, self)

    def __truediv__(self, other: Any) -> Element:
        return primitive("divide", self, other)

    def __rtruediv__(self, other: Any) -> Element:
        return primitive("divide", other, self)

    def __pow__(self, other: Any) -> Element:
        return primitive("pow", self, other)

    def __neg__(self) -> Element:
        return primitive("negative", self)

    def __abs__(self) -> Element:
        return primitive("abs", self)

    def __eq__(self, other: object) -> Element:  # type: ignore[override]
        return primitive("equal", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: Any) -> Element:
        return primitive("less", self, other)

    def __le__(self, other: Any) -> Element:
        return primitive("less_equal", self, other)

    def __gt__(self, other: Any) -> Element:
        return primitive("greater", self, other)

    def __ge__(self, other: Any) -> Element:
        return primitive("greater_equal", self, other)

    def __and__(self, other: Any) -> Element:
        return primitive("bitwise_and", self, other)

    def __or__(self, other: Any) -> Element:
        return primitive("bitwise_or", self, other)

    def __invert__(self) -> Element:
        return primitive("bitwise_invert", self)


def primitive(name: str, *operands: Any) -> Element:
    """Apply a primitive to elements and Python numbers; at least one operand is an element."""
    machine = next(operand.machine for operand in operands if isinstance(operand, Element))
    values = [operand.value if isinstance(operand, Element) else operand for operand in operands]
    return Element(machine, machine(name)(*values))


def evaluate(formula: Callable[..., Any], machine: Machine, *values: Any) -> Any:
    """Return the formula's value on one machine, given the machine's own values."""
    return formula(*(Element(machine, value) for value in values)).value


class _Place(NamedTuple):
    """A placeholder for a value of a formula that is traced; numbers are of operands, then of steps in order."""

    number: int


def traced(formula: Callable[..., Any], operands: int, machine: Machine) -> Callable[..., Any]:
    """Return a function that computes a formula of so many operands on one machine: it calls the same primitives, which
    are looked up once, and drops each value after its last use.
    """
    steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def taking_down(name: str) -> Callable[..., Any]:
        def take_down(*values: Any) -> _Place:
            steps.append((machine(name), values))
            return _Place(operands + len(steps) - 1)

        return take_down

    result = evaluate(formula, taking_down, *map(_Place, range(operands)))
    constants = [one for one in (*[one for _, taken in steps for one in taken], result) if type(one) is not _Place]
    order = iter(range(operands + len(steps), operands + len(steps) + len(constants)))

    def place_of(value: Any) -> int:
        return value.number if type(value) is _Place else next(order)

    script = [(function, [place_of(one) for one in taken]) for function, taken in steps]
    end = place_of(result)
    last = {number: at for at, (_, taken) in enumerate(script) for number in taken if number != end}
    over = [[number for number, at in last.items() if at == own] for own in range(len(script))]
    room = [None] * len(script)
    whole = [(at, *step, drops) for at, (step, drops) in enumerate(zip(script, over, strict=True), operands)]

    def run(*values: Any) -> Any:
        known: list[Any] = [*values, *room, *constants]
        for at, function, taken, drops in whole:
            known[at] = function(*[known[number] for number in taken])
            for number in drops:
                known[number] = None
        return known[end]

    return run


def absolute(x: Any) -> Element:
    """The absolute value; rows cannot call abs(), which is the name of a row itself."""
    return primitive("abs", x)


def exp(x: Any) -> Element:
    """e to the power of x."""
    return primitive("exp", x)


def log1p(x: Any) -> Element:
    """log(1 + x), accurate near 0."""
    return primitive("log1p", x)


def tanh(x: Any) -> Element:
    """The hyperbolic tangent."""
    return primitive("tanh", x)


def sqrt(x: Any) -> Element:
    """The square root."""
    return primitive("sqrt", x)


def maximum(a: Any, b: Any) -> Element:
    """The larger one; NaN if either is."""
    return primitive("maximum", a, b)


def minimum(a: Any, b: Any) -> Element:
    """The smaller one; NaN if either is."""
    return primitive("minimum", a, b)


def where(condition: Any, a: Any, b: Any) -> Element:
    """Choose a where the condition holds, else b."""
    return primitive("where", condition, a, b)
