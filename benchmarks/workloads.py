"""The expressions that are timed.

A formula is written once, over a namespace `xp` and its arrays, in names that NumPy, PyTorch, JAX and xtensor share;
numexpr takes a string. Libraries' ready-made functions for some of them (torch.softmax, say) are not used: what is
compared is what expressions cost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from .seawater import enthalpy_slope, waters

Array = np.ndarray[Any, Any]
Maker = Callable[[np.random.Generator, int, str], list[Array]]

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
DTYPES = (*FLOATS, *INTEGERS, "mixed")


class Numexpr(NamedTuple):
    """A formula as numexpr takes it: its text, and what its names stand for (by default, the formula's operands)."""

    text: str
    names: Callable[..., dict[str, Any]] | None = None


@dataclass(frozen=True)
class Workload:
    """One expression.

    name: what it is called in tables and on the command line.
    formula: a function of xp and the operands.
    numexpr: the same for numexpr, or the reason why there is none.
    inputs: makes the operands from a generator, a number of elements and a dtype.
    memory_bound: whether a fused kernel would spend its time waiting for memory, once the data is out of the cache.
    dtypes: those it is timed in.
    """

    name: str
    formula: Callable[..., Any]
    numexpr: Numexpr | str
    inputs: Maker
    memory_bound: bool = False
    dtypes: tuple[str, ...] = FLOATS

    def moved(self, operands: list[Array], result: Array) -> int:
        """Return bytes in + bytes out: what must be read and written at least, each array once."""
        return sum(operand.nbytes for operand in operands) + result.nbytes


# ---- operands


def uniform(low: float, high: float, count: int = 1) -> Maker:
    """Return a maker of vectors of uniform numbers."""
    return lambda rng, n, dtype: [rng.uniform(low, high, n).astype(dtype) for _ in range(count)]


def grid(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return an array of uniform numbers between -2 and 2."""
    return rng.uniform(-2.0, 2.0, shape).astype(dtype)


def rows(n: int) -> tuple[int, int]:
    """Return the shape of a matrix of n elements: rows of 1000, of fewer where that leaves less than ten."""
    columns = 1000 if n >= 10_000 else isqrt(n)
    return n // columns, columns


def matrix(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make one matrix."""
    return [grid(rng, rows(n), dtype)]


def matrix_and_scales(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make a matrix, and two vectors as long as its rows."""
    shape = rows(n)
    return [grid(rng, shape, dtype), grid(rng, shape[1:], dtype), grid(rng, shape[1:], dtype)]


def field(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make a square of n points with a border of one point around it."""
    side = isqrt(n) + 2
    return [grid(rng, (side, side), dtype)]


def squares(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make two square matrices."""
    side = isqrt(n)
    return [grid(rng, (side, side), dtype), grid(rng, (side, side), dtype)]


def options_on_stocks(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make stock prices, strikes and years."""
    ranges = ((10.0, 100.0), (10.0, 100.0), (0.1, 5.0))
    return [rng.uniform(low, high, n).astype(dtype) for low, high in ranges]


def integers(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make integers that are not negative."""
    return [rng.integers(0, 1 << 20, n).astype(dtype)]


def float_integer_double(rng: np.random.Generator, n: int, dtype: str) -> list[Array]:
    """Make a float32, an int32 and a float64 vector; dtype is the word for that."""
    return [grid(rng, (n,), "float32"), rng.integers(-1000, 1000, n).astype("int32"), grid(rng, (n,), "float64")]


# ---- formulas


def axpy(xp: Any, x: Any, y: Any) -> Any:
    return 2.5 * x + y


def polynomial(xp: Any, x: Any) -> Any:
    return ((((0.3 * x - 1.2) * x + 0.7) * x + 2.1) * x - 0.4) * x + 1.5


def gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def sigmoid(xp: Any, x: Any) -> Any:
    return 1.0 / (1.0 + xp.exp(-x))


def leaky_relu(xp: Any, x: Any) -> Any:
    return xp.where(x > 0.0, x, 0.01 * x)


def trigonometric(xp: Any, x: Any, y: Any) -> Any:
    return xp.sin(x) * xp.cos(y) + xp.sin(2.0 * x)


def squared_distance(xp: Any, x: Any, y: Any) -> Any:
    return xp.sum((x - y) ** 2)


def normal_density(xp: Any, x: Any) -> Any:
    return xp.mean(xp.exp(-0.5 * ((x - 0.3) / 1.7) ** 2) / (1.7 * 2.5066282746310002))


def normal_cdf(xp: Any, d: Any) -> Any:
    """Return Abramowitz and Stegun's polynomial 26.2.17: erf is not in the standard."""
    t = 1.0 / (1.0 + 0.2316419 * xp.abs(d))
    inner = 0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    tail = 0.3989422804014327 * xp.exp(-0.5 * d * d) * (t * inner)
    return xp.where(d > 0.0, 1.0 - tail, tail)


def black_scholes(xp: Any, s: Any, k: Any, t: Any) -> Any:
    """Return the price of a call at an interest of 2 % and a volatility of 30 %."""
    spread = 0.3 * xp.sqrt(t)
    d1 = (xp.log(s / k) + 0.065 * t) / spread
    return s * normal_cdf(xp, d1) - k * xp.exp(-0.02 * t) * normal_cdf(xp, d1 - spread)


def softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=1, keepdims=True))
    return e / xp.sum(e, axis=1, keepdims=True)


def layer_norm(xp: Any, x: Any, scale: Any, shift: Any) -> Any:
    c = x - xp.mean(x, axis=1, keepdims=True)
    return c / xp.sqrt(xp.mean(c * c, axis=1, keepdims=True) + 1e-5) * scale + shift


def centring(xp: Any, x: Any) -> Any:
    return x - xp.mean(x, axis=0)


def heat(xp: Any, u: Any) -> Any:
    centre = u[1:-1, 1:-1]
    return centre + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * centre)


def transposed(xp: Any, x: Any, y: Any) -> Any:
    return x + 2.0 * y.T


def mixed(xp: Any, x: Any, i: Any, z: Any) -> Any:
    """Multiply float32 by int32 as float32, then add float64; the cast is written because promotion rules differ."""
    return x * xp.astype(i, xp.float32) + z


def integer_mask(xp: Any, i: Any) -> Any:
    return ((i & 255) * 3 + (i >> 2)) % 7 == 0


def count_where(xp: Any, x: Any, y: Any) -> Any:
    return xp.count_nonzero((x > 0.25) & (y < 0.5) | (x == y))


def ten_cheap(xp: Any, x: Any, y: Any) -> Any:
    a = x + y
    b = (a * x - y) * 0.5 + x
    return ((b * b - a) * 0.25 + 1.0) * y


def ten_costly(xp: Any, x: Any, y: Any) -> Any:
    a = x * y
    b = xp.tanh(a) + x
    c = y / (xp.exp(-b) + 1.0)
    return xp.where(c > 0.5, c, a) * 2.0


# ---- the same where numexpr needs more than the formula's own text

NO_ROWS = "numexpr has reductions only as the last step"


def _cdf(d: str) -> str:
    t = f"(1.0/(1.0 + 0.2316419*abs({d})))"
    inner = f"(0.319381530 + {t}*(-0.356563782 + {t}*(1.781477937 + {t}*(-1.821255978 + {t}*1.330274429))))"
    tail = f"(0.3989422804014327*exp(-0.5*{d}*{d})*({t}*{inner}))"
    return f"where({d} > 0.0, 1.0 - {tail}, {tail})"


def _black_scholes() -> str:
    spread = "(0.3*sqrt(t))"
    d1 = f"((log(s/k) + 0.065*t)/{spread})"
    return f"s*{_cdf(d1)} - k*exp(-0.02*t)*{_cdf(f'({d1} - {spread})')}"


def _density_names(x: Array) -> dict[str, Any]:
    return {"x": x, "n": x.dtype.type(x.size)}


def _heat_names(u: Array) -> dict[str, Any]:
    shifted = {"d": u[2:, 1:-1], "a": u[:-2, 1:-1], "r": u[1:-1, 2:], "l": u[1:-1, :-2]}
    return {"c": u[1:-1, 1:-1], **shifted}


def _transposed_names(x: Array, y: Array) -> dict[str, Any]:
    return {"x": x, "y": y.T}


WORKLOADS = (
    Workload("axpy", axpy, Numexpr("2.5*x + y"), uniform(-2.0, 2.0, 2), memory_bound=True),
    Workload(
        "polynomial",
        polynomial,
        Numexpr("((((0.3*x - 1.2)*x + 0.7)*x + 2.1)*x - 0.4)*x + 1.5"),
        uniform(-2.0, 2.0),
        memory_bound=True,
    ),
    Workload("gelu", gelu, Numexpr("0.5*x*(1.0 + tanh(0.7978845608*(x + 0.044715*x*x*x)))"), uniform(-5.0, 5.0)),
    Workload("sigmoid", sigmoid, Numexpr("1.0/(1.0 + exp(-x))"), uniform(-8.0, 8.0)),
    Workload("leaky-relu", leaky_relu, Numexpr("where(x > 0.0, x, 0.01*x)"), uniform(-2.0, 2.0), memory_bound=True),
    Workload("trigonometric", trigonometric, Numexpr("sin(x)*cos(y) + sin(2.0*x)"), uniform(-6.0, 6.0, 2)),
    Workload(
        "squared-distance", squared_distance, Numexpr("sum((x - y)**2)"), uniform(-2.0, 2.0, 2), memory_bound=True
    ),
    Workload(
        "normal-density",
        normal_density,
        Numexpr("sum(exp(-0.5*((x - 0.3)/1.7)**2)/(1.7*2.5066282746310002*n))", _density_names),
        uniform(-5.0, 5.0),
    ),
    Workload("black-scholes", black_scholes, Numexpr(_black_scholes()), options_on_stocks),
    Workload("softmax", softmax, NO_ROWS, matrix),
    Workload("layer-norm", layer_norm, NO_ROWS, matrix_and_scales, memory_bound=True),
    Workload("centring", centring, NO_ROWS, matrix, memory_bound=True),
    Workload("heat", heat, Numexpr("c + 0.1*(d + a + r + l - 4.0*c)", _heat_names), field, memory_bound=True),
    Workload("transposed", transposed, Numexpr("x + 2.0*y", _transposed_names), squares, memory_bound=True),
    Workload("mixed", mixed, Numexpr("x*i + z"), float_integer_double, memory_bound=True, dtypes=("mixed",)),
    Workload("integer-mask", integer_mask, Numexpr("((i & 255)*3 + (i >> 2)) % 7 == 0"), integers, dtypes=INTEGERS),
    Workload(
        "count-where",
        count_where,
        Numexpr("sum(where((x > 0.25) & (y < 0.5) | (x == y), 1, 0))"),
        uniform(-2.0, 2.0, 2),
        memory_bound=True,
    ),
    Workload(
        "ten-cheap",
        ten_cheap,
        Numexpr("(((((x + y)*x - y)*0.5 + x)*(((x + y)*x - y)*0.5 + x) - (x + y))*0.25 + 1.0)*y"),
        uniform(-2.0, 2.0, 2),
        memory_bound=True,
    ),
    Workload(
        "ten-costly",
        ten_costly,
        Numexpr("where(y/(exp(-(tanh(x*y) + x)) + 1.0) > 0.5, y/(exp(-(tanh(x*y) + x)) + 1.0), x*y)*2.0"),
        uniform(-2.0, 2.0, 2),
    ),
    Workload(
        "seawater",
        enthalpy_slope,
        "the expression, of 300 steps, has no text of its own",
        waters,
        dtypes=("float64",),
    ),
)
