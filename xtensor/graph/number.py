"""Python numbers that later calls of a captured function compute anew: learning rates, time steps, counters.

In a traced call such a number is a Number: it acts like the number, and arithmetic on it is recorded. It is an operand
of nodes as numbers are. A comparison gives the outcome, which becomes a guard of later calls. A request for its value -
to format it, as a length or an index, for a library - makes it a constant of this kind of calls; one that has few
possible values, such as a remainder, is guarded by a comparison with its value instead.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from gc import get_referents
from math import prod
from threading import get_ident
from types import BuiltinFunctionType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

# The types of such numbers; the most steps that are recorded, values of a number that are distinguished, and objects
# behind a function that are searched.
KINDS = (int, float)
MOST_STEPS, MOST_VALUES, MOST_OBJECTS = 256, 16, 4096


class Step(NamedTuple):
    """One step of arithmetic. cells: of its operands. cell: of its result, None for a comparison, which is a guard.
    expected: the type of the result, or the outcome.
    """

    function: Callable[..., Any]
    cells: tuple[int, ...]
    cell: int | None
    expected: Any


class Arithmetic:
    """The arithmetic of a traced call on numbers, in order.

    cells: the values of numbers, the given ones first. given: these as Numbers; asked: the indices of those whose
    values were asked for. indexes: whether indices are inputs of later calls, too; indices: these, by their cells.
    """

    def __init__(self, values: Sequence[Any], *, indexes: bool = False) -> None:
        self.cells = list(values)
        self.indexes, self.indices = indexes, dict[int, Any]()
        self.steps: list[Step] = []
        self.given = [Number(self, cell) for cell in range(len(values))]
        self.asked: set[int] = set()
        self._thread: int | None = get_ident()
        self._origins = [frozenset((cell,)) for cell in range(len(values))]
        self._few: dict[int, int] = {}  # the number of values of a cell, if small; 1 once asked for

    @property
    def is_open(self) -> bool:
        """Whether the call goes on and this is its thread: in other threads Numbers act as plain numbers."""
        return self._thread == get_ident()

    def close(self) -> None:
        """End the trace."""
        self._thread = None

    def result(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Return the result of a function for operands, as a Number if that is a number."""
        value = function(*map(value_of, operands))
        if not self.is_open:
            return value
        if type(value) not in KINDS:
            self._ask_of(operands)
            return value
        cells = self._cells_of(operands)
        self.cells.append(value)
        self._origins.append(self._origin(cells))
        self._enter(Step(function, cells, len(self.cells) - 1, type(value)))
        if type(value) is int:
            self._count(function, operands)
        return Number(self, len(self.cells) - 1)

    def outcome(self, function: Callable[..., Any], *operands: Any) -> Any:
        """Return the outcome of a comparison of operands, on which all that follows depends."""
        value = function(*map(value_of, operands))
        if self.is_open:
            self._enter(Step(function, self._cells_of(operands), None, value))
        return value

    def ask(self, cell: int) -> Any:
        """Return a value that all that follows depends on."""
        value = self.cells[cell]
        if not self.is_open or self._few.get(cell) == 1:
            return value
        if cell in self._few:
            self._enter(Step(operator.eq, self._cells_of((Number(self, cell), value)), None, True))
            self._few[cell] = 1
        else:
            self.asked |= self._origins[cell]
        return value

    def _count(self, function: Callable[..., Any], operands: Sequence[Any]) -> None:
        """Note how many values the last cell may have, if these are few."""
        by = operands[-1]
        if function is operator.mod and type(by) is int:
            number = abs(by)
        elif function is operator.and_ and type(by) is int and by >= 0:
            number = 2 ** by.bit_count()
        else:
            cells = {one.cell for one in operands if type(one) is Number and one.arithmetic is self}
            number = prod([self._few.get(cell, MOST_VALUES + 1) for cell in cells])
        if number <= MOST_VALUES:
            self._few[len(self.cells) - 1] = number

    def ask_within(self, function: Callable[..., Any]) -> None:
        """Ask for the values of all Numbers that a function has bound, as it cannot get other ones later."""
        seen: set[int] = set()
        stack: list[Any] = [function]
        while stack:
            one = stack.pop()
            if type(one) is Number:
                one.asked()
            elif id(one) not in seen and not isinstance(one, _NOTHING_BOUND):
                seen.add(id(one))
                if isinstance(one, FunctionType):
                    stack += (one.__closure__, one.__defaults__, one.__kwdefaults__)
                else:
                    stack += get_referents(one)
            if len(seen) > MOST_OBJECTS:
                self.asked.update(range(len(self.given)))
                return

    def again(self) -> Again:
        """End the trace, and return the arithmetic that later calls repeat."""
        self.close()
        traced = [place for place in range(len(self.given)) if place not in self.asked]
        steps = [_of_two(one) for one in self.steps if not self._origin(one.cells) <= self.asked]
        return Again(self.cells, traced, steps)

    def varies(self, cell: int) -> bool:
        """Return whether later calls may have another value in a cell."""
        return not self._origins[cell] <= self.asked

    def _enter(self, step: Step) -> None:
        self.steps.append(step)
        if len(self.steps) > MOST_STEPS:
            self.asked.update(range(len(self.given)))

    def _ask_of(self, operands: Iterable[Any]) -> None:
        for one in operands:
            if type(one) is Number:
                one.asked()

    def _cells_of(self, operands: Iterable[Any]) -> tuple[int, ...]:
        """Return the cells of operands; constants get new ones."""
        return tuple([self._cell_of(one) for one in operands])

    def _cell_of(self, operand: Any) -> int:
        if type(operand) is Number and operand.arithmetic is self:
            return operand.cell
        self.cells.append(value_of(operand))
        self._origins.append(frozenset())
        return len(self.cells) - 1

    def _origin(self, cells: Iterable[int]) -> frozenset[int]:
        return frozenset[int]().union(*[self._origins[cell] for cell in cells])


class Again(NamedTuple):
    """The arithmetic that later calls repeat. cells: the first values; traced: the indices of those that are given
    anew; steps: each with two operands.
    """

    cells: list[Any]
    traced: list[int]
    steps: list[tuple[Callable[[Any, Any], Any], int, int, int | None, Any]]

    def of(self, numbers: Sequence[Any]) -> list[Any] | None:
        """Return the cells for other numbers; None where a comparison or a type comes out otherwise, or a step fails:
        the function itself must be called then.
        """
        cells, traced, steps = self
        found = cells.copy()
        if len(traced) == 1 == len(numbers):  # the commonest
            found[traced[0]] = numbers[0]
        else:
            for place, number in zip(traced, numbers, strict=True):
                found[place] = number
        try:
            for function, first, second, cell, expected in steps:
                value = function(found[first], found[second])
                if cell is None:
                    if value is not expected:
                        return None
                elif type(value) is expected:
                    found[cell] = value
                else:
                    return None
        except (ArithmeticError, TypeError, ValueError):
            return None
        return found


def _of_two(step: Step) -> tuple[Callable[[Any, Any], Any], int, int, int | None, Any]:
    """Return a step, which has one operand or two, as one with two."""
    function, operands, cell, expected = step
    first, *others = operands
    if not others:
        return lambda x, _: function(x), first, first, cell, expected
    (second,) = others
    return function, first, second, cell, expected


def _foreign(other: Any) -> bool:
    """Return whether an operand's own operators must be tried: those of arrays of other libraries than NumPy."""
    return hasattr(type(other), "__array_namespace__") and not isinstance(other, (np.ndarray, np.generic))


def _binary(function: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return an operator and its reflected one."""

    def operate(self: Number, other: Any) -> Any:
        if type(other) is Number or type(other) in _OPERANDS:
            return self.arithmetic.result(function, self, other)
        return NotImplemented if _foreign(other) else function(self.asked(), other)

    def reflect(self: Number, other: Any) -> Any:
        if type(other) in _OPERANDS:
            return self.arithmetic.result(function, other, self)
        return NotImplemented if _foreign(other) else function(other, self.asked())

    return operate, reflect


def _compared(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def compare(self: Number, other: Any) -> Any:
        if type(other) is Number or type(other) in _OPERANDS:
            return self.arithmetic.outcome(function, self, other)
        return NotImplemented if _foreign(other) else function(self.asked(), other)

    return compare


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def operate(self: Number) -> Any:
        return self.arithmetic.result(function, self)

    return operate


def _asking(name: str) -> Callable[..., Any]:
    """Return a method that asks for the value and calls its method of this name."""

    def method(self: Number, *given: Any) -> Any:
        return getattr(self.asked(), name)(*given)

    return method


class Number:
    """A Python number in a traced call. cell: the index of its value in the cells of an Arithmetic.

    It is no subclass of float or int, whose values C code reads unnoticed; isinstance() takes it for a number.
    """

    __slots__ = ("__weakref__", "arithmetic", "cell")

    def __init__(self, arithmetic: Arithmetic, cell: int) -> None:
        self.arithmetic, self.cell = arithmetic, cell

    __class__: Any = property(lambda self: type(value_of(self)))

    def asked(self) -> Any:
        """Return the value, on which all that follows depends."""
        return self.arithmetic.ask(self.cell)

    def conjugate(self) -> Number:
        """Return the number, which is real."""
        return self

    @property
    def real(self) -> Number:
        """The number."""
        return self

    def __getattr__(self, name: str) -> Any:
        if not hasattr(type(value_of(self)), name):
            raise AttributeError(name)
        return getattr(self.asked(), name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.asked(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **given: Any) -> Any:
        if any(map(_foreign, inputs)):
            return NotImplemented
        return getattr(ufunc, method)(*[asked(one) for one in inputs], **given)

    def __bool__(self) -> bool:
        return bool(self.arithmetic.outcome(bool, self))

    __add__, __radd__ = _binary(operator.add)
    __sub__, __rsub__ = _binary(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow)
    __neg__, __pos__, __abs__ = _unary(operator.neg), _unary(operator.pos), _unary(operator.abs)
    __lt__, __le__, __gt__ = map(_compared, (operator.lt, operator.le, operator.gt))
    __ge__, __eq__, __ne__ = map(_compared, (operator.ge, operator.eq, operator.ne))
    __float__, __int__, __index__, __complex__ = map(_asking, ("__float__", "__int__", "__index__", "__complex__"))
    __round__, __trunc__, __floor__, __ceil__ = map(_asking, ("__round__", "__trunc__", "__floor__", "__ceil__"))
    __divmod__, __rdivmod__ = _binary(divmod)
    __and__, __rand__ = _binary(operator.and_)
    __or__, __ror__ = _binary(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor)
    __lshift__, __rlshift__ = _binary(operator.lshift)
    __rshift__, __rrshift__ = _binary(operator.rshift)
    __invert__ = _unary(operator.invert)
    __hash__ = _asking("__hash__")
    __str__, __repr__, __format__ = map(_asking, ("__str__", "__repr__", "__format__"))
    __reduce_ex__ = _asking("__reduce_ex__")


_OPERANDS = frozenset((*KINDS, bool))

# Types of objects that hold no argument of a call: code, and libraries as namespaces.
_NOTHING_BOUND = (type, ModuleType, SimpleNamespace, BuiltinFunctionType, np.ufunc, np.dtype)


def value_of(one: Any) -> Any:
    """Return the value of a Number, unnoticed, anything else as it is."""
    return one.arithmetic.cells[one.cell] if type(one) is Number else one


def asked(one: Any) -> Any:
    """Return the value of a Number, on which all that follows depends, anything else as it is."""
    return one.asked() if type(one) is Number else one


def is_traced(one: Any) -> bool:
    """Return whether a value is a Number in a call that is still traced."""
    return type(one) is Number and one.arithmetic.is_open


def varies(one: Any) -> bool:
    """Return whether a value is a Number of which later calls may have another value."""
    return type(one) is Number and one.arithmetic.varies(one.cell)


def type_of(scalar: Any) -> type:
    """Return the type of a Python scalar, also of one that is traced."""
    return type(value_of(scalar))
