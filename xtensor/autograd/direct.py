"""The tape used directly: leaves, which ask for their gradients, and the way back to them.

    >>> x = xt.asarray([1.0, 2.0], requires_grad=True)
    >>> xt.sum(x**2).backward()
    >>> x.grad
    Tensor([2., 4.], dtype=float64)

The gradient methods and properties of tensors call the functions of this file.
"""

from __future__ import annotations

from typing import Any, cast

from ..base.errors import expected
from ..storage.storage import watchers, watching
from ..tensor.face import Tensor
from ..tensor.operands import as_tensor
from .back import beginnings, go_back, whole
from .rules import first_cotangent, xt
from .tape import OFF, Leaf, Step, begin, step_of, under


def require(x: Tensor, wanted: bool) -> None:
    """Make a tensor a leaf or a constant, as `x.requires_grad = wanted` does."""
    if not isinstance(wanted, bool):
        raise TypeError(expected("requires_grad", "the value", "be True or False", repr(wanted)))
    step = step_of(x)
    if wanted:
        if x.dtype.kind not in "fc":
            raise TypeError(expected("requires_grad", "x", "be floating-point", x.dtype))
        if type(step) is Leaf:
            step.asked = True
        elif step is None:
            begin(x)
    elif type(step) is Leaf:
        x._step = None
    elif step is not None:
        raise RuntimeError(expected("requires_grad", "x", "be a leaf, to become a constant (or use detach())", step))


def is_leaf(x: Tensor) -> bool:
    """Return whether a tensor is a leaf that the user asked for, not one of a transform."""
    return type(x._step) is Leaf and x._step.asked


# Why a call is not captured that reads or changes gradients that are not in its signature.
UNKNOWN = "[gradient] it comes to the gradient of a tensor by other names than `backward` and `grad`"


def _tell_of_a_gradient(leaf: Leaf) -> None:
    """Tell the capture that watches this thread that a leaf's accumulated gradient is read or changed."""
    capture = watching() if watchers else None
    if capture is not None and leaf.serial < capture.since and leaf not in capture.leaves:
        capture.refuse(UNKNOWN)


def grad_of(x: Tensor) -> Tensor | None:
    """Return the accumulated gradient of a leaf, as `x.grad` does."""
    leaf = x._step
    if type(leaf) is not Leaf:
        return None
    if watchers:
        _tell_of_a_gradient(leaf)
    return leaf.grad


def set_grad(x: Tensor, value: Tensor | None) -> None:
    """Replace the accumulated gradient of a leaf, as `x.grad = value` does."""
    leaf = x._step
    if type(leaf) is not Leaf:
        raise RuntimeError(expected("grad", "x", "be a leaf (set requires_grad first)", "another tensor"))
    _tell_of_a_gradient(leaf)
    if value is not None and (not isinstance(value, Tensor) or (value.shape, value.dtype) != (x.shape, x.dtype)):
        got = f"{value.dtype} of {value.shape}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(expected("grad", "the value", f"be None or a tensor of {x.dtype} and {x.shape}", got))
    leaf.grad = value


def backward(x: Tensor, gradient: Any = None, *, retain_graph: bool = False) -> None:
    """Add the gradient of x, or of its inner product with `gradient`, to `.grad` of every leaf that x depends on."""
    step = step_of(x)
    must = "depend on a tensor that requires a gradient"
    if step is None:
        raise RuntimeError(expected("backward", "x", must, "a constant"))
    if gradient is None:
        _scalar_seed(x)
        seed = first_cotangent(x)
    else:
        seed = as_tensor(gradient, "backward", "gradient", x)
        if seed.shape != x.shape:
            raise ValueError(expected("backward", "gradient", f"have x's shape {x.shape}", f"shape {seed.shape}"))
        seed = xt.astype(seed, x.dtype, copy=False)
    leaves = beginnings(step)
    if not leaves:
        raise RuntimeError(expected("backward", "x", must, "one that depends on none"))
    under(OFF, _back, step, seed, leaves, free=not retain_graph)


def _back(step: Step, seed: Tensor, leaves: set[Step], *, free: bool) -> None:
    found, seen = go_back([(step, seed)], leaves, free=free), {id(seed)}
    for leaf in sorted(leaves, key=lambda one: one.serial):
        if leaf in found:
            g = whole(found[leaf], leaf, seen)
        else:  # all derivatives on the way are 0
            g = xt.zeros(leaf.shape, dtype=leaf.dtype, device=leaf.device)
        _accumulate(cast(Leaf, leaf), g)


def _scalar_seed(x: Tensor) -> None:
    if x.shape != () or x.dtype.kind != "f":
        must = "be a real scalar where no gradient is given"
        raise ValueError(expected("backward", "x", must, f"shape {x.shape} of {x.dtype}"))


# How often a gradient was added to a leaf's: a row that does so must not be batched with others (calls/batching.py).
accumulated = [0]


def _accumulate(leaf: Leaf, g: Tensor) -> None:
    accumulated[0] += 1
    _tell_of_a_gradient(leaf)
    if leaf.grad is None:
        leaf.grad = g
    else:
        leaf.grad += g
