"""The Op record, and apply() and reduce(), where every call of a function is checked, and computed or recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cached_property, partial
from math import prod
from numbers import Real
from typing import Any, cast
from weakref import ref

import numpy as np

from ..autograd.rules import Rule
from ..autograd.tape import (
    OFF,
    SEQUENCES,
    active,
    is_keeping,
    keep,
    recording,
    remember,
    remember_elementwise,
    stacked_operand,
    steps_of,
)
from ..base.caches import make_room
from ..base.dtypes import Category, DType, canonical, check_real, is_generated, promote
from ..base.errors import REFUSED, expected, mismatch, prefixed
from ..base.layout import Shape, as_axes, as_axis
from ..base.options import settings, step_by_step, thin_closed
from ..base.profiling import noting, observers
from ..codegen import element as elements
from ..devices import Backend, Device
from ..devices.cpu import CPU, FAST, SLOW, quickly, spreads
from ..graph.node import Macro, Node, Part, node_of, result_dtypes
from ..graph.number import asked, is_traced, type_of
from ..plan.costs import (
    CHEAP_LAUNCH_PAYS,
    CONTRACTION_WAITS,
    DIRECT_BELOW,
    ELIDED,
    FAST_LAUNCH_PAYS,
    LAUNCH_PAYS,
    LAUNCHED_BELOW,
    SEARCHED_AT_ONCE,
    SEARCHED_BELOW,
    cheap_below,
    is_cheap,
    limit_of,
)
from ..run.executor import at_once
from ..storage.blob import TBlob
from ..storage.storage import Native, watchers, watching
from ..tensor.face import CPU_DEVICE, Scalar, Tensor, settled, small, wrap
from ..tensor.operands import SCALARS, as_operand, as_tensor, broadcast, common_device
from ..tensor.scalars import marked, valued
from .composed import REMEMBERED
from .compositions import macro_of
from .elsewhere import Known, call_first, call_known, reduce_first, reduce_known
from .library import captured_call, native_of, reduce_small
from .masked import apply_selected, reduce_selected
from .record import (
    EXACT,
    can_generate,
    enter,
    exposed_memory,
    follows_at_once,
    is_node,
    latest_at_once,
    native_up_to,
    others_write,
    pays_at_once,
    pays_to_wait,
    read_later,
    record_part,
    recorded_before,
    worth_recording,
)
from .temporaries import Held, memory_of_operand, note_made, operators_frame, references

# Every op by its name; tests, docs and the engines are driven by these.
REGISTRY: dict[str, Op] = {}


class Op:
    """One function of the namespace, as its decorator declares it (rows.py).

    kind: "elementwise" or "reduction".
    accepts: the category of dtypes it takes.
    element: its formula for one element; None if it is a primitive of the backends.
    of_nothing: for a reduction, its value over no elements; None where that is an error.
    domain: the interval its test samples are drawn from.
    one_axis: whether a reduction takes a single axis or all, as argmax does.
    fails_on_values: whether, given operand dtypes, an error may depend on the values; such a call is not recorded.
    composed: for a reduction, a function of (x, params) that composes it of others, which are recorded instead.
    rule: its derivative rule; an empty one where there is none.
    slow: the characters of the dtypes for which the library's function is slow.
    below: a list of one number: the bytes up to which calling the library's function is cheaper than recording.
    reduced: for reductions recorded before, by what decides on their steps and by parameters: the checked parameters,
        with shape and dtype, or for a composed one the macro of its steps, None if there is none.
    known_there, ready: caches for small calls on other devices than the CPU (see elsewhere.py).
    """

    def __init__(
        self,
        stub: Callable[..., Any],
        kind: str,
        accepts: Category,
        *,
        element: Callable[..., Any] | None = None,
        of_nothing: Scalar | None = None,
        domain: tuple[float, float] = (-2.0, 2.0),
        one_axis: bool = False,
        fails_on_values: Callable[..., bool] | None = None,
        composed: Callable[..., Tensor | None] | None = None,
    ) -> None:
        self.name = stub.__name__
        self.chapter = stub.__module__.rpartition(".")[2]
        self.stub = stub
        self.kind = kind
        self.accepts = accepts
        self.element = element
        self.of_nothing = of_nothing
        self.domain = domain
        self.one_axis = one_axis
        self.fails_on_values = fails_on_values or (lambda *kinds: False)
        self.composed = composed
        self.rule = Rule(self.name, {})
        self.slow = SLOW.get(self.name, "")
        self.below = limit_of(self.name)
        self.launched = CHEAP_LAUNCH_PAYS if is_cheap(self.name) else LAUNCH_PAYS
        self.reduced: dict[tuple[Any, ...], tuple[dict[str, Any], tuple[Shape, DType] | Macro | None]] = {}
        self.known_there: dict[tuple[Any, ...], Known] = {}
        self.ready: dict[tuple[Any, ...], Any] = {}
        self._dtypes: dict[Any, DType] = {}
        self._formulas: dict[Backend, Callable[..., Any]] = {}
        REGISTRY[self.name] = self

    def __repr__(self) -> str:
        return f"Op({self.name})"

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """The values of keyword parameters that are not given."""
        return dict(cast(Any, self.stub).__kwdefaults__ or {})

    @cached_property
    def slots(self) -> tuple[tuple[str, None], ...]:
        """The slots of the operands on the tape."""
        return tuple((name, None) for name in self.parameters)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of the positional parameters: x, or x1 and x2, ..."""
        code = cast(Any, self.stub).__code__  # `inspect.signature` would take a tenth of the import
        return tuple(code.co_varnames[: code.co_argcount])

    def most(self, device: Device) -> int:
        """Return the bytes up to which a call on a device is not recorded now."""
        if thin_closed[0]:
            return DIRECT_BELOW
        return self.below[0] if device is CPU_DEVICE or self.composed is not None else LAUNCHED_BELOW

    def kernel(self, backend: Backend) -> Callable[..., Any]:
        """Return the function that computes this op on native arrays: the library's own, else the formula."""
        own = backend.kernel(self.name)
        if own is not None:
            return own
        if self.element is None:  # a primitive: only a backend can compute it
            raise NotImplementedError(f"{self.name}: {backend!r} has no function of this name and no formula")
        if backend not in self._formulas:
            self._formulas[backend] = self._formula(backend, self.element)
        return self._formulas[backend]

    @cached_property
    def cpu_kernel(self) -> Callable[..., Any]:
        """The function that computes this op on NumPy's arrays."""
        return self.kernel(CPU)

    def _formula(self, backend: Backend, formula: Callable[..., Any]) -> Callable[..., Any]:
        takes = self.accepts.letters + self.accepts.widens

        def machine(primitive: str) -> Callable[..., Any]:
            return REGISTRY[primitive].kernel(backend)

        computed: Any = None  # traced late: the formula may need ops that are not declared yet

        def run(*natives: Any) -> Any:
            if any(promote(getattr(native, "dtype", type(native))).kind not in takes for native in natives):
                raise TypeError("formula: a dtype is not accepted")  # refusal() says which
            nonlocal computed
            computed = computed or elements.traced(formula, len(natives), machine)
            return computed(*natives)

        return run

    def dtype(self, *operands: DType | type, **params: Any) -> DType:
        """Return the result dtype for operand dtypes and Python scalar types: that of the CPU kernel's result for ones.

        Raises TypeError, naming the argument that is not accepted.
        """
        key = (operands, *params.items())
        found = self._dtypes.get(key)
        if found is None:
            samples = [np.ones(1, d) if isinstance(d, np.dtype) else d(1) for d in operands]
            try:
                result = CPU.call(self.kernel(CPU), *samples, **params)
            except TypeError as error:
                raise self.refusal(operands, error) from None
            found = self._dtypes[key] = np.asarray(result).dtype
        return found

    def refusal(self, operands: Iterable[DType | type], error: Exception | None = None) -> Exception:
        """Return the error for operands that the kernel refused, naming the first whose dtype is not accepted."""
        dtypes = [d if isinstance(d, np.dtype) else promote(d) for d in operands]
        about_dtypes = error is None or re.match("ufunc|numpy boolean|The numpy boolean|formula", str(error))
        standard, wider = self.accepts.letters, self.accepts.letters + self.accepts.widens
        for letters in (wider, standard) if about_dtypes else (wider,):
            for name, dtype in zip(self.parameters, dtypes, strict=False):
                if dtype.kind not in letters:
                    return TypeError(expected(self.name, name, f"be {self.accepts.word}", dtype))
        if error is not None and (not about_dtypes or len(dtypes) == 1):
            return prefixed(self.name, error)
        return TypeError(mismatch(self.name, dtypes[0], dtypes[-1], "they have no common dtype"))


# ---- the door


def apply(op: Op, operands: tuple[Any, ...]) -> Tensor:
    """Compute or record an elementwise op; every dtype, shape and device error is raised here, at the call."""
    if watchers:
        selected = apply_selected(op, operands, apply)
        if selected is not None:
            return selected
    if active[0]:
        if not SEQUENCES.isdisjoint(map(type, operands)):
            operands = tuple(map(stacked_operand, operands))
        steps = steps_of(operands)
        if steps is not None:
            return _apply_on_tape(op, operands, steps)
    return _apply(op, operands)


def operand_of(op: Op, x: Any, argument: str, device: Device | None = None) -> Any:
    """Return an operand as a Tensor, a Python scalar or a Number, as `as_operand` does. An exponent is never a Number,
    as small powers have code of their own.
    """
    return x if is_traced(x) and op.name != "pow" else as_operand(x, op.name, argument, device)


def _apply_on_tape(op: Op, operands: tuple[Any, ...], steps: list[Any]) -> Tensor:
    """Compute or record an elementwise op, with a step on the tape to its operands that have a gradient."""
    native = None if thin_closed[0] else _quickly(op, operands, DIRECT_BELOW, quickly)
    if native is None:
        result = _apply(op, operands, is_on_tape=True)
    else:
        result = settled(native, CPU_DEVICE)
    remember_elementwise(op.rule, op.slots, operands, steps, result)
    return result


def _quickly(
    op: Op, operands: tuple[Any, ...], most: int, call: Callable[..., Any], *, may_take: bool = False
) -> Native | None:
    """Return the library's result for operands of at most so many bytes that are computed and on the CPU; None where
    one is not, or is refused. call: calls the library's function. may_take: whether the result may be in an operand's
    memory.
    """
    natives = []
    for x in operands:
        native: Any = native_up_to(x, most) if type(x) is Tensor else x if type(x) in SCALARS else None
        if native is None:
            return None
        natives.append(native)
    x = native = None  # which would count as others that hold the last operand
    are_two = len(natives) == 2
    if are_two and type(natives[0]) is type(natives[1]) is np.ndarray and spreads(natives[0], natives[1], most):
        return None
    kernel = op.cpu_kernel
    is_large = may_take and most > ELIDED and type(kernel) is np.ufunc
    frame = operators_frame() if is_large else None
    try:
        into = None
        if is_large:
            held = _HELD_SQUARED if op.name == "square" else _HELD
            into = memory_of_operand(kernel, operands, natives, held, frame)
        result = np.asarray(call(kernel, *natives)) if into is None else quickly(kernel, *natives, into)
    except REFUSED:
        return None  # the long way reports what is wrong
    note_made(result, frame)
    return cast(Native, result)


_HELD = Held(references(4, 4, 4), references(5, 4, 4), references(4, 4, 4), references(3, 3, 3))
_HELD_SQUARED = Held(references(7, 6, 6), 0, references(5, 5, 5), 0)  # of `x ** 2`


def _apply(op: Op, operands: tuple[Any, ...], *, is_on_tape: bool = False) -> Tensor:
    """Compute or record an elementwise op, whatever its operands depend on. is_on_tape: whether a gradient may need
    their values.
    """
    known = call_known(op, operands) if op.known_there and not thin_closed[0] else None
    if known is not None:
        return known
    if not op.slow and not thin_closed[0] and Tensor in map(type, operands):
        cannot_wait = others_write(operands) or (latest_at_once and follows_at_once(operands))
        most = op.launched if cannot_wait else op.below[0]
        native = _quickly(op, operands, most, CPU.compute, may_take=not is_on_tape)
        if native is not None:
            if cannot_wait:
                latest_at_once.append(ref(native))
            return wrap(native, CPU_DEVICE) if native.ndim else valued(wrap(native, CPU_DEVICE))
    recorded = recorded_before(op, operands)
    if recorded is not None:
        return recorded
    near = common_device(op.name, operands)
    given = zip(operands, op.parameters, strict=True)
    operands = tuple([operand_of(op, x, name, near) for x, name in given])
    if not any(isinstance(x, Tensor) for x in operands):
        operands = (as_tensor(operands[0], op.name), *operands[1:])
    device = common_device(op.name, operands)
    kinds = tuple(x.dtype if isinstance(x, Tensor) else type_of(x) for x in operands)
    try:
        shape = broadcast(op.name, operands)
    except ValueError:
        op.dtype(*kinds)  # where dtypes are wrong as well, NumPy reports these first
        raise
    if _recordable(op, operands, kinds, shape):
        dtype = op.dtype(*kinds)
        result = node_later(op, operands, {}, shape, dtype, device)
        node: Any = result._content
        result_dtypes[node.signature] = node.dtype
        return result
    return _direct(op, tuple(map(asked, operands)), kinds, {}, device)


def reduce_on_tape(op: Op, kernel: Any, x: Any, given: dict[str, Any]) -> Tensor | None:
    """Reduce a small tensor that has a gradient at once; None for any other, or unusual or refused parameters."""
    if type(x) is not Tensor or thin_closed[0]:
        return None
    steps = steps_of((x,))
    native = None if steps is None else native_up_to(x, DIRECT_BELOW)
    if native is None or not native.size:
        return None
    reduced = reduce_small(kernel, native, given)
    if reduced is None:
        return None
    result = settled(np.asarray(reduced), x.device)
    _remember_reduced(op, x, {**op.defaults, **given}, cast(Any, steps), result)
    return result


def reduce(op: Op, x: Any, params: dict[str, Any]) -> Tensor:
    """Compute or record a reduction over params["axis"] (None: all axes); errors are raised here, at the call."""
    if watchers:
        selected = reduce_selected(op, x, params)
        if selected is not None:
            return selected
    if active[0]:
        x = stacked_operand(x)
        steps = steps_of((x,))
        if steps is not None:
            given = dict(params)
            with recording(OFF):  # its own rule counts, not those of the functions it is composed of
                result = _reduce(op, x, params)
            _remember_reduced(op, x, given, steps, result)
            return result
    return _reduce(op, x, params)


def _remember_reduced(op: Op, x: Tensor, given: dict[str, Any], steps: list[Any], result: Tensor) -> None:
    step = remember(op.rule, op.slots, steps, result)
    if step is not None and is_keeping():
        keep(step, op.rule, {"x": x, **given}, result)


def _reduce(op: Op, x: Any, params: dict[str, Any]) -> Tensor:
    """Compute or record a reduction, whatever its operand depends on.

    For a whole array the library is tried first, for other axes only where others can write to the operand.
    """
    known = reduce_known(op, x, params) if op.known_there and not thin_closed[0] else None
    if known is not None:
        return known
    # searches are composed only along one axis, other reductions along any
    whole = params["axis"] is None and (op.composed is None or op.one_axis)
    reduced = _reduce_quickly(op, x, params) if whole else _search_at_once(op, x, params)
    if reduced is None:
        reduced = _reduced_before(op, x, params)
    if reduced is not None:
        return reduced
    exposed = exposed_memory((x,))
    if exposed:
        if pays_at_once(settings(), x.nbytes, LAUNCH_PAYS, is_node(x)):
            with at_once(exposed):
                return _reduce(op, x, params)
        reduced = None if whole else _reduce_quickly(op, x, params)
        if reduced is not None:
            return reduced
    values = tuple(params.values())
    x = as_tensor(x, op.name)
    axes = _reduced_axes(op, x, params)
    _check_params(op, x, params)
    if not _recordable(op, (x,), (x.dtype,), x.shape):
        dtype = None if x.device is CPU_DEVICE else _dtype_of(op, (x.dtype,), params)
        first = None if dtype is None else reduce_first(op, x, values, params, dtype)
        return _direct(op, (x,), (x.dtype,), params, x.device) if first is None else first
    keepdims = params["keepdims"]
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    composed: Tensor | None = None if op.composed is None else step_by_step(_composed, op, x, params)
    if composed is not None:
        _remember_reduction(op, x, values, (params, macro_of(op.name, composed, x)))
        return composed
    dtype = _dtype_of(op, (x.dtype,), params)
    _remember_reduction(op, x, values, (params, (shape, dtype)))
    return node_later(op, (x,), params, shape, dtype, x.device)


def _composed(op: Op, x: Tensor, params: dict[str, Any]) -> Tensor | None:
    """Return a reduction composed of other functions, None where it is not. Of integers and booleans, searches are
    composed as they are, and reductions that have floats as results after a conversion to these.
    """
    if op.composed is None or not x.size:
        return None
    if op.one_axis and x.dtype.kind in "biu":
        return op.composed(x, dict(params))
    if x.dtype in _COMPOSED:
        return op.composed(x, dict(params)) if _keeps_dtype(params.get("dtype"), x.dtype) else None
    counts = x.dtype.kind in "biu" and _keeps_dtype(params.get("dtype"), _DOUBLE)
    if not counts or _dtype_of(op, (x.dtype,), params) != _DOUBLE:
        return None
    return op.composed(x.astype(_DOUBLE), dict(params))


def _dtype_of(op: Op, kinds: tuple[Any, ...], params: dict[str, Any]) -> DType:
    """Return the result dtype, which depends on no axes."""
    neutral = {"axis": 0 if op.one_axis else (0,), "keepdims": False, "correction": 0}
    return op.dtype(*kinds, **{name: neutral.get(name, value) for name, value in params.items()})


def _reduce_quickly(op: Op, x: Any, params: dict[str, Any]) -> Tensor | None:
    """Reduce a computed tensor at once, where the library takes less time than a launch; None for anything else.

    Recording a reduction of a whole array saves little; others may be fused with the steps that follow.
    """
    if thin_closed[0] or type(x) is not Tensor:
        return None
    native = native_up_to(x, FAST_LAUNCH_PAYS if op.name in FAST or follows_at_once((x,)) else LAUNCH_PAYS)
    if native is None or not native.size:
        return None
    given = {name: value for name, value in params.items() if value is not op.defaults[name]}
    reduced = reduce_small(op.cpu_kernel, native, given)
    return None if reduced is None else wrap(reduced, x.device)


def _search_at_once(op: Op, x: Any, params: dict[str, Any]) -> Tensor | None:
    """Search along one axis of a computed tensor at once, where the library goes along rows in memory, or takes less
    time than recorded steps; None for anything else.
    """
    axis = params["axis"]
    if not op.one_axis or thin_closed[0] or type(x) is not Tensor or type(axis) is not int:
        return None
    native = native_up_to(x, 1 << 62)
    if native is None or not native.size or not -native.ndim <= axis < native.ndim:
        return None
    is_row = native.strides[axis] == native.itemsize and native.shape[axis] > SEARCHED_BELOW
    if not is_row and native.nbytes > SEARCHED_AT_ONCE:
        return None
    reduced = reduce_small(op.cpu_kernel, native, {"axis": axis, "keepdims": params["keepdims"]})
    return None if reduced is None else wrap(reduced, x.device)


_PLAIN_AXES = (int, tuple, type(None))


def _remember_reduction(
    op: Op, x: Tensor, given: tuple[Any, ...], found: tuple[dict[str, Any], tuple[Shape, DType] | Macro | None]
) -> None:
    """Cache a reduction's checked parameters, and what is recorded for them, if they are of the usual types."""
    if all(type(value) in (int, bool, float, tuple, type(None)) for value in given):
        make_room(op.reduced, REMEMBERED)
        op.reduced[_kind_of(x), given] = found


def _kind_of(x: Tensor) -> tuple[Any, ...]:
    """Return what decides on the steps that a reduction is composed of: captured functions have others."""
    return x.shape, x.dtype.num, x.device is CPU_DEVICE, bool(watchers)


def _reduced_before(op: Op, x: Any, params: dict[str, Any]) -> Tensor | None:
    """Record a reduction that was recorded before, of the same shape, dtype and parameters; None for any other."""
    axis = params["axis"]
    if type(x) is not Tensor or type(axis) not in _PLAIN_AXES or type(params["keepdims"]) is not bool:
        return None
    if type(axis) is tuple and not all(type(one) is int for one in axis):
        return None
    value = read_later(x)
    limits = settings()
    nbytes = prod(x.shape) * x.dtype.itemsize
    if value is None or not worth_recording(limits, nbytes, type(value) is Node, op.most(x.device)):
        return None
    try:
        found = op.reduced.get((_kind_of(x), tuple(params.values())))
    except TypeError:  # a parameter that does not hash: the long way reports what is wrong
        return None
    if found is None:
        return None
    checked, known = found
    if isinstance(known, tuple):
        return enter(node_of(op, (value,), checked, *known, x.device), limits)
    if known is None or thin_closed[0]:
        return _composed(op, x, checked)
    return enter(known.node((value,), x.device), limits)


def _keeps_dtype(dtype: DType | None, own: DType) -> bool:
    """Return whether a reduction is computed in the dtype its operand has; NumPy takes None for float64."""
    return dtype is None or dtype == own


# The dtypes in which a composed reduction gives the same bits as NumPy's own function.
_COMPOSED, _DOUBLE = tuple([np.dtype(code) for code in "fdFD"]), np.dtype(np.float64)


def _check_params(op: Op, x: Tensor, params: dict[str, Any]) -> None:
    """Check a reduction's parameters other than its axes, and convert them for the kernels."""
    if not isinstance(params["keepdims"], (bool, int, np.bool_)):
        raise TypeError(expected(op.name, "keepdims", "be True or False", repr(params["keepdims"])))
    params["keepdims"] = bool(params["keepdims"])
    if not isinstance(params.get("correction", 0), Real):
        raise TypeError(expected(op.name, "correction", "be a real number", repr(params["correction"])))
    if params.get("dtype") is not None:
        dtype = params["dtype"] = canonical(params["dtype"], op.name)
        op.accepts.check(dtype, op.name, "dtype")
        check_real(x.dtype, dtype, op.name, "x")


def _reduced_axes(op: Op, x: Tensor, params: dict[str, Any]) -> tuple[int, ...]:
    """Return the axes that a reduction removes, and convert `axis` for its kernel."""
    axis = params["axis"]
    if op.one_axis and axis is not None:
        axis = params["axis"] = as_axis(axis, x.ndim, op.name)
    axes = as_axes(axis, x.ndim, op.name)
    if not op.one_axis:
        params["axis"] = axes
    if op.of_nothing is None and any(x.shape[a] == 0 for a in axes):
        raise ValueError(expected(op.name, "x", "have elements along the reduced axes", f"shape {x.shape}"))
    return axes


def _recordable(op: Op, operands: tuple[Any, ...], kinds: tuple[Any, ...], shape: Shape) -> bool:
    """Return whether a call is to be recorded: worth it, and safe to compute and to read later."""
    if len(operands) == 1 and small(operands[0]) is not None and not thin_closed[0] and not op.slow:
        return False  # the commonest case, found out at once
    tensors = [x for x in operands if isinstance(x, Tensor)]
    nbytes = prod(shape) * max([x.itemsize for x in tensors], default=0)
    device = tensors[0].device
    pending = any(is_node(x) for x in tensors) or (op.slow != "" and pays_to_wait(op, op.dtype(*kinds), nbytes, device))
    limits = settings()
    if not worth_recording(limits, nbytes, pending, op.most(device)) or op.fails_on_values(*kinds):
        return False
    if limits.reproducible and op.name in EXACT:
        return False
    if exposed_memory(tensors) and not pays_at_once(limits, nbytes, op.launched, pending):
        return False
    return all(isinstance(x, Tensor) or fits(x, kinds) for x in operands)


def fits(scalar: Any, kinds: tuple[Any, ...]) -> bool:
    """Return whether a Python integer fits every integer dtype beside it, so that no OverflowError is due."""
    if type_of(scalar) is not int:
        return True
    integers = [np.iinfo(d) for d in kinds if isinstance(d, np.dtype) and d.kind in "iu"]
    return all(info.min <= scalar <= info.max for info in integers) and -(1 << 63) <= scalar < 1 << 63


def node_later(
    op: Any, operands: tuple[Any, ...], params: dict[str, Any], shape: Shape, dtype: DType, device: Device
) -> Tensor:
    """Return a tensor over a new pending node."""
    inputs = tuple([value_of(x) if isinstance(x, Tensor) else x for x in operands])
    return enter(node_of(op, inputs, params, shape, dtype, device), settings())


def value_of(x: Tensor) -> Node | TBlob:
    """Return what a node reads for a tensor: the pending node behind it, else its blob."""
    value: Any = x._content
    if type(value) is Part:
        record_part(x)
        value = x._content
    return value if type(value) is Node and value.blob is None else x.blob


class _Cast:
    """The conversion to another dtype, as something that can be recorded; its parameter is the dtype."""

    name = "astype"
    kind = "elementwise"
    element = None

    def kernel(self, backend: Backend) -> Callable[..., Any]:
        return backend.astype


CAST = _Cast()


def cast_later(x: Tensor, dtype: DType) -> Tensor | None:
    """Return a tensor that is converted to another dtype when it is asked for, an array as copies are if it has no
    axes, or None where to convert it now.
    """
    if settings().reproducible and not (is_generated(x.dtype) and is_generated(dtype)):
        return None  # libraries convert alike, but steps fused with it would be the library's as well
    nbytes = x.size * max(x.itemsize, dtype.itemsize)
    below = cheap_below[0] if x.device is CPU_DEVICE else LAUNCHED_BELOW
    if not worth_recording(settings(), nbytes, is_node(x), DIRECT_BELOW if thin_closed[0] else below):
        return None
    if exposed_memory((x,)) and not pays_at_once(settings(), nbytes, LAUNCH_PAYS, is_node(x)):
        return None
    return marked(node_later(CAST, (x,), {"dtype": dtype}, x.shape, dtype, x.device), False)


def library_later(
    op: Any, operands: tuple[Tensor, ...], params: dict[str, Any], shape: Shape, dtype: DType
) -> Tensor | None:
    """Return a tensor that the library's own function computes when it is asked for, or None where to compute it now.

    This is for lazy="always" alone: nothing fuses with such a step, but a captured function may contain one.
    """
    limits = settings()
    if limits.lazy != "always":
        return None
    if limits.pinned_limit is not None and prod(shape) * dtype.itemsize > limits.pinned_limit:
        return None
    return node_later(op, operands, params, shape, dtype, common_device(op.name, operands))


def contraction_later(
    op: Any, operands: tuple[Tensor, ...], params: dict[str, Any], shape: Shape, dtype: DType, work: int
) -> Tensor | None:
    """Return a contraction that is computed with the steps that follow it, or None where to compute it now.

    work: its multiplications. Waiting costs some microseconds, and pays where our own code computes it, however small
    the result is.
    """
    limits = settings()
    if limits.lazy == "always":
        return library_later(op, operands, params, shape, dtype)
    nbytes = prod(shape) * dtype.itemsize
    if work < CONTRACTION_WAITS or dtype.char not in "fd" or limits.engine not in ("auto", "llvm"):
        return None
    if not worth_recording(limits, nbytes, True) or exposed_memory(operands):
        return None
    device = common_device(op.name, operands)
    return node_later(op, operands, params, shape, dtype, device) if device is CPU_DEVICE and can_generate() else None


def _direct(
    op: Op, operands: tuple[Any, ...], kinds: tuple[Any, ...], params: dict[str, Any], device: Device
) -> Tensor:
    """Compute now, with the backend's own function."""
    backend = device.backend
    capture = watching() if watchers else None
    if capture is not None:
        tensors = tuple([x for x in operands if isinstance(x, Tensor)])
        if tensors:
            function = _with_scalars(op, operands, params, backend)
            return cast(Tensor, valued(captured_call(capture, tensors, op.name, function, device)))
    natives = [native_of(x) for x in operands]
    dtype = None
    try:
        if backend is not CPU:  # the CPU's kernel decides which dtypes are accepted and come out
            dtype = _dtype_of(op, kinds, params)
            if not all(isinstance(x, Tensor) or fits(x, kinds) for x in operands):
                CPU.call(op.cpu_kernel, *[np.ones(1, x.dtype) if isinstance(x, Tensor) else x for x in operands])
            first = call_first(op, operands, dtype, device) if op.kind == "elementwise" else None
            if first is not None:
                return first
        compute = noting(backend.compute, backend, op.name) if observers else backend.compute
        result = compute(op.kernel(backend), *natives, **params)
    except TypeError as error:
        raise op.refusal(kinds, error) from None
    except (ValueError, OverflowError) as error:
        raise prefixed(op.name, error) from None
    return valued(wrap(backend.asarray(result, dtype), device))


def _with_scalars(op: Op, operands: tuple[Any, ...], params: dict[str, Any], backend: Backend) -> Callable[..., Any]:
    """Return an op's kernel as a function of the native arrays of its tensor operands alone."""
    scalars = [None if isinstance(x, Tensor) else x for x in operands]
    kernel = partial(op.kernel(backend), **params)

    def function(*natives: Native) -> Any:
        given = iter(natives)
        return kernel(*[next(given) if one is None else one for one in scalars])

    return function
