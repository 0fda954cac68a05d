"""Results without axes are values where NumPy makes scalars, and arrays where it makes arrays, whichever way they are
computed: `y += 1` makes another value, and changes an array. Nobody sees a value change through a view of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import xtensor as xt
import xtensor.numpy as np
from xtensor.tensor.scalars import is_value

# x: a vector; m: a matrix; e: an element; k: an integer element; z: an array without axes.
CALLS = """
    np.linalg.det(m); np.linalg.norm(x); np.linalg.norm(m); np.linalg.norm(m,2); np.linalg.cond(m);
    np.linalg.matrix_rank(m); np.trace(m); np.einsum('i,i',x,x); np.einsum('ii',m); np.einsum('i->',x); np.dot(x,x);
    np.vdot(x,x); np.inner(x,x); np.vecdot(x,x); np.matmul(x,x); np.tensordot(x,x,1); np.tensordot(m,m,2); x@x;
    x.dot(x); np.kron(e,e); np.sum(x); np.prod(x); np.mean(x); np.std(x); np.var(x); np.min(x); np.max(x); np.ptp(x);
    np.argmax(x); np.argmin(x); np.any(x); np.all(x); np.count_nonzero(x); np.median(x); np.average(x);
    np.average(x,weights=x); np.nansum(x); np.nanmean(x); np.nanmax(x); np.nanstd(x); np.nanargmax(x);
    np.searchsorted(x,.5); np.searchsorted(x,e); np.interp(.5,x,x); np.interp(e,x,x); np.interp(z,x,x); np.cov(x);
    np.corrcoef(x); np.cos(e); np.cos(z); np.cos(.3); e+e; e+1; e*z; z*2; -e; -z; e<1; z<1; e**2; abs(e);
    np.add(e,1); np.add(z,1); np.where(e>0,e,1.); np.where(z>0,z,1.); np.where(True,1.,2.); np.select([e>0],[e],1.);
    np.choose(1,[1.,2.]); np.clip(e,0,1); np.clip(z,0,1); np.clip(.3,0,1); np.round(e,2); np.round(z,2);
    np.around(e); np.take(x,3); np.take(x,k); np.take(e,0); x.take(3); x[3]; m[1,2]; x[...,3]; x[np.array(3)];
    e.copy(); z.copy(); np.copy(e); e[()]; z[()]; z[...]; e.squeeze(); np.squeeze(e); np.squeeze(x[:1]);
    x[:1].reshape(()); e.reshape(()); np.reshape(e,()); e.T; np.transpose(e); e.transpose(); np.flip(e);
    np.moveaxis(e,(),()); np.broadcast_to(e,()); np.asarray(e); np.array(e); np.asarray(.3); np.ascontiguousarray(e);
    np.real(e); np.imag(e); np.real(z); e.real; e.imag; z.real; z.imag; np.conj(e); e.conj(); np.angle(e);
    np.angle(z); np.i0(e); np.i0(z); np.sinc(e); np.sinc(z); np.sinc(.3); np.heaviside(e,1); np.nan_to_num(e);
    np.nan_to_num(z); np.isclose(e,e); np.isclose(z,1.); np.isfinite(e); np.isreal(e); np.iscomplex(e); np.fix(e);
    np.fix(z); np.isin(e,x); np.isin(.5,x); np.polyval([1.,2.],e); np.polyval([1.,2.],.3); np.polyval([1.,2.],z);
    np.add.reduce(x); np.multiply.reduce(x); np.maximum.reduce(x); np.logaddexp.reduce(x); np.ones(()); np.zeros(());
    np.full((),1.); np.ones_like(e); np.zeros_like(e); np.empty_like(e); np.full_like(e,1); e.astype(np.float32);
    z.astype(np.float32); np.float64(.3); np.float32(e); np.floor_divide(e,2); divmod(e,2); np.modf(e); np.frexp(e);
    np.divmod(e,2); e.round(2); z.round(2); e.clip(0,1); e.sum(); z.sum(); np.sum(e); np.sum(z); np.sum(x,axis=0);
    np.sum(m,axis=(0,1)); x.sum(); x.max(); x.argmax(); x.mean(); x.std(); np.linalg.norm(x,axis=0);
    np.sqrt(np.sum(x**2)); np.exp(-np.dot(x,x)/2); np.unravel_index(3,(3,3)); np.min(m,axis=None);
    np.vectorize(lambda q:q*2)(.3); np.vectorize(lambda q:q*2)(e); np.piecewise(e,[e>0],[1.]);
    np.asarray(x[2:3]).squeeze(); np.linalg.multi_dot([x[:m.shape[0]],m,x[:m.shape[0]]]); np.logical_and(e>0,True);
    np.bitwise_and(k,1); k&1; k//2; k%2; ~k; np.minimum(e,.1); np.hypot(e,e); np.arctan2(e,z); np.power(e,2);
    np.square(e); np.sign(e); np.nextafter(e,1); np.spacing(e); np.ldexp(e,2); next(iter(x)); np.tril(m).sum();
    np.var(m); np.linalg.trace(m); np.linalg.vector_norm(x); np.linalg.matrix_norm(m); np.linalg.vecdot(x,x);
    np.max(x,initial=3); np.sum(x,where=x>0); np.mean(x,where=x>0); np.real_if_close(e); np.real_if_close(z);
    np.flip(z); np.roll(z,0); np.tile(e,()); np.tile(z,()); np.astype(e,int); np.astype(z,int); e.byteswap();
    z.byteswap(); np.unstack(x[:3])
"""
NAMES = [one.strip() for one in CALLS.replace("\n", " ").split(";")]

# Functions without a derivative.
CONSTANT = ("np.float32(e)", "np.vectorize(lambda q:q*2)(e)", "e.byteswap()", "z.byteswap()")

Call = Callable[..., Any]


def call_of(name: str) -> Call:
    return eval(f"lambda np, x, e, m, k, z: {name}")  # type: ignore[no-any-return]


def arguments(np: Any, size: int) -> tuple[Any, ...]:
    rng = numpy.random.default_rng(size)
    side = min(int(size**0.5), 100)
    x, m = rng.random(size), rng.random((side, side)) + side * numpy.eye(side)
    return np.asarray(x), np.asarray(x)[3], np.asarray(m), np.asarray([1, 2])[1], np.asarray(0.25)


def kind(result: Any) -> Any:
    """Return "value" or "array" for a result without axes, each of a tuple, and the type of anything else."""
    if isinstance(result, (tuple, list)):
        return [kind(one) for one in result]
    if type(result) is xt.Tensor:
        return "value" if not result.ndim and is_value(result) else "array"
    if isinstance(result, numpy.generic):
        return "value"
    return "array" if isinstance(result, numpy.ndarray) else type(result)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [9, 300, 100_000])
@pytest.mark.parametrize("name", NAMES)
def test_every_way_gives_the_kind_of_numpy(name: str, size: int) -> None:
    call = call_of(name)
    wanted, given = kind(call(numpy, *arguments(numpy, size))), arguments(np, size)
    assert kind(call(np, *given)) == wanted
    x, e, m, k, z = given
    assert kind(call(np, x * 1.5 + x, e, m * 1.5 + 1.0, k, z)) == wanted
    fused = xt.fuse(lambda *given: call(np, *given))
    assert [kind(fused(*given)) for _ in range(4)] == [wanted] * 4


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in CONSTANT])
def test_a_gradient_changes_no_kind(name: str) -> None:
    call, found = call_of(name), []

    def loss(x: Any, e: Any, m: Any, z: Any) -> Any:
        found.append(kind(call(np, x, e, m, np.asarray([1, 2])[1], z)))
        return x[0]

    x, e, m, _, z = arguments(np, 9)
    xt.grad(loss, argnums=(0, 1, 2, 3))(x, e, m, z)
    assert found == [kind(call(numpy, *arguments(numpy, 9)))]


VIEWS: dict[str, Call] = {
    "atleast_1d": lambda np, e: np.atleast_1d(e),
    "atleast_2d": lambda np, e: np.atleast_2d(e),
    "atleast_3d": lambda np, e: np.atleast_3d(e),
    "expand_dims": lambda np, e: np.expand_dims(e, 0),
    "None": lambda np, e: e[None],
    "Ellipsis": lambda np, e: e[...],
    "reshape": lambda np, e: e.reshape(1),
    "reshape to none": lambda np, e: np.reshape(e, ())[...],
    "ravel": lambda np, e: np.ravel(e),
    "flatten": lambda np, e: e.flatten(),
    "two steps": lambda np, e: np.swapaxes(np.atleast_2d(e), 0, 1),
    "squeeze": lambda np, e: np.squeeze(e)[...],
    "flip": lambda np, e: np.flip(e)[...],
    "asarray": lambda np, e: np.asarray(e),
}
ELEMENTS: dict[str, Call] = {
    "element": lambda np, x: x[0],
    "sum": lambda np, x: x.sum(),
    "product": lambda np, x: np.dot(x, x),
    "operator": lambda np, x: x[0] + x[1],
}


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_value_is_not_written_through_a_view(view: str, element: str) -> None:
    def after(np: Any, x: Any) -> Any:
        e = ELEMENTS[element](np, x)
        seen = VIEWS[view](np, e)
        seen[...] = 2.0 * seen
        return e * seen.sum()

    right, x = after(numpy, numpy.asarray([1.0, 2.0, 3.0])), np.asarray([1.0, 2.0, 3.0])
    assert float(after(np, x)) == right
    fused = xt.fuse(lambda x: after(np, x))
    assert [float(fused(x)) for _ in range(4)] == [right] * 4
    value, _ = xt.value_and_grad(lambda x: after(np, x))(x)
    assert float(value) == right


@pytest.mark.parametrize("number", [0.5, numpy.float64(0.5), np.asarray([0.5])[0]])
def test_a_gradient_of_a_number_follows_what_numbers_do(number: Any) -> None:
    def changed(x: Any) -> Any:
        y = x
        y += 1.0
        return y * x

    assert float(changed(number)) == 0.75
    assert float(xt.grad(changed)(number)) == 2.0  # of (x + 1) x, and not of (x + 1)^2


def test_a_gradient_of_an_array_follows_what_arrays_do() -> None:
    def changed(x: Any) -> Any:
        y = x.copy()
        seen = y[...]
        seen += 1.0
        return y * y

    assert float(xt.grad(changed)(np.asarray(0.5))) == 3.0


def test_a_detached_value_is_one() -> None:
    x = np.asarray([1.0, 2.0])
    assert is_value(x[0].detach()) and not is_value(np.asarray(1.0).detach())
