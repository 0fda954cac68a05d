"""Batching: the steps that a function took for one row, taken for all rows at once.

A call of the function for the first row is captured. Its steps are then repeated over tensors with the row axis in
front. Graphs consist of few kinds of nodes: elementwise functions keep their shapes aligned, reductions and views have
their axes moved by one, and matrix products become one product of all rows. Any other function, such as a library
function, is called for each row within one step. Where random draws, writes or reads depend on the order of rows, the
function is called row by row. Where a gradient is recorded, the first row's tape becomes that of all rows
(batched_tape.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard, cast

from ..autograd.direct import accumulated
from ..autograd.rules import xt
from ..autograd.tape import OFF, Saved, Step, carry, is_keeping, now, recording, step_of
from ..base.dtypes import DType
from ..base.layout import Layout, Shape, axes_of
from ..base.options import settings
from ..graph.node import Node, View, serial_now
from ..plan.costs import FEW_ROWS
from ..storage.blob import TBlob
from ..storage.storage import Storage, watchers, watching
from ..tensor.face import Tensor, evaluate, face
from ..tensor.operands import as_tensor
from ..tensor.trees import Rebuild, flatten
from .arrays import Snapshot
from .batched_tape import StayApartError, Tape, kept_below
from .known import asks_for_plain_calls
from .library import on, rearranged
from .op import node_later, reduce
from .reach import Reach
from .rebound import Contents
from .watch import Watch

if TYPE_CHECKING:
    from ..plan.layouts import Meta
    from ..run.capture import Capture
    from ..run.taken_down import Called, Evaluated, Spot
    from .op import Op

# Reductions that return indices.
_SEARCHES = ("argmax", "argmin")

# Library functions that also take stacks of arguments: those of matrices, and those along axes counted from the end.
_OF_STACKS = frozenset(
    (
        *("cholesky", "det", "eigh", "eigvalsh", "inv", "qr", "slogdet", "solve", "svd", "svdvals"),
        *("argsort", "cumulative_prod", "cumulative_sum", "sort", "take_along_axis"),
        *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift"),
    )
)

# Why rows are computed one by one if the function changes the state that it finds: each row begins with the state that
# the last one left.
CHANGES = "[changing] it changes what the next row finds"


class Value(NamedTuple):
    """A tensor or a scalar. whole: whether it has the row axis in front, or is the same for every row."""

    tensor: Any
    whole: bool

    @property
    def ndim(self) -> int:
        """Return the number of axes that it has for one row."""
        return self.tensor.ndim - self.whole if isinstance(self.tensor, Tensor) else 0

    def at_least(self, ndim: int) -> Any:
        """Return the tensor with `ndim` axes behind the row axis, to broadcast as one row does."""
        missing = ndim - self.ndim
        if not self.whole or missing <= 0:
            return self.tensor
        first, *own = self.tensor.shape
        return xt.reshape(self.tensor, (first, *(1,) * missing, *own))


class Batch:
    """Rows that are to be computed at once. alone: the first row of each tensor, in memory of its own.

    capture: the capture that is watching already, None if a new one is to watch the first row.
    """

    def __init__(self, tensors: Sequence[Tensor], rows: int, capture: Capture | None) -> None:
        self._rows, self._tensors = rows, tensors
        self._wholes = [_packed(x) for x in tensors]
        self._watch: Watch | None = None
        if capture is None:
            capture = _capture_of(self._wholes)
            self._watch = Watch(capture)
        self._capture, self._reason = capture, ""
        self._holds = capture.held is None
        self._begin = self._roots = self._nodes = self._since = self._accumulated = 0
        self._versions: list[int] = []
        self.alone: list[Tensor] = []

    @classmethod
    def of(cls, tensors: Sequence[Tensor], rows: int, is_taped: bool) -> Batch | None:
        """Return a batch of the rows of some tensors if they may be computed at once, else None."""
        capture: Any = watching() if watchers else None
        if capture is None and (not is_taped or rows < FEW_ROWS or asks_for_plain_calls(settings())):
            return None
        if capture is not None and capture.reason:
            return None
        return cls(tensors, rows, capture)

    def first(self, function: Callable[[Sequence[Tensor]], Any], state: State | None) -> tuple[list[Any], Rebuild]:
        """Return the leaves of the function's result for the first row, which is watched, and a function that rebuilds
        the result from leaves. state: the state that the function finds, which must not change.
        """
        with self._watch or nullcontext():
            if self._holds:
                self._capture.held = []
            self.alone = [xt.astype(x[0, ...], x.dtype) for x in self._wholes]
            evaluate(*self._wholes, *self.alone)
            self._begin, self._roots = len(self._capture.steps), len(self._capture.roots)
            self._versions, self._nodes = [x.owner.version for x in self.alone], serial_now()
            self._since, self._accumulated = now(), accumulated[0]
            contents = None if state is None else Contents(state.holders, state.reach, ())
            arrays = () if state is None else state.arrays
            leaves, rebuild = flatten(function(self.alone))
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            evaluate(*tensors, *kept_below(_ends(tensors), self._since))
            self._reason = self._capture.reason
            stays = contents is None or contents.changes() == ([], True)
            if not (stays and all(one.is_so_still for one in arrays)):
                self._reason = CHANGES
        return leaves, rebuild

    def close(self) -> None:
        """Stop watching, if an interrupt has kept that from ending, and release the first row's memory."""
        if self._watch is not None:
            self._watch.close()
        if self._holds:
            self._capture.held = None

    def put_back(self, state: State | None) -> bool:
        """Copy first rows that were written back into the arguments; return False where these share memory with each
        other or with state, so that the function has to be called again on the arguments themselves.
        """
        both = zip(self._tensors, self.alone, self._versions, strict=True)
        written = [(x, one) for x, one, version in both if one.owner.version != version]
        others = [] if state is None else [x.owner for x in state.tensors if not x.is_pending]
        owners = [x.owner for x in self._tensors]
        if written and (len({*owners}) < len(owners) or not {*owners}.isdisjoint(others)):
            return False
        for x, one in written:
            if x.ndim > 1:  # else rows are values, not views
                x[0, ...] = one
        return True

    def columns(self, leaves: Sequence[Any]) -> list[Tensor] | None:
        """Return the leaves of all rows' results, with the row axis in front, given those of the first row; None where
        rows have to be computed one by one.
        """
        capture = self._capture
        is_written = [x.owner.version for x in self.alone] != self._versions
        if self._reason or is_written or self._accumulated != accumulated[0]:
            return None
        begin, end = self._begin, len(capture.steps)
        steps, is_bare = capture.steps[begin:end], not is_keeping()
        with recording(OFF):
            lifted = _Lifted(capture, self._rows, self._roots, self._nodes, steps)
            try:
                for whole, one in zip(self._wholes, self.alone, strict=True):
                    lifted.enter(capture.spot_of(one.blob).root, whole)
                for step in steps:
                    lifted.take(step)
                found = [lifted.of_leaf(leaf) for leaf in leaves]
                self._carry(lifted, leaves, found, is_bare)
            except StayApartError:
                del capture.steps[end:]
                return None
        capture.taped += self._rows * len(steps)  # the steps of a plain call, which takes them for each row
        capture.steps[begin:end] = lifted.kept()
        return found

    def _carry(self, lifted: _Lifted, leaves: Sequence[Any], columns: Sequence[Tensor], is_bare: bool) -> None:
        """Give the columns tape steps that lead back to the tensors whose gradients are wanted."""
        ends = [step_of(leaf) if isinstance(leaf, Tensor) else None for leaf in leaves]
        if not any(ends):
            return
        tape = Tape(self._rows, self._since, lifted.of_saved, over_rows, is_bare)
        for whole, one in zip(self._wholes, self.alone, strict=True):
            tape.enter(step_of(one), step_of(whole))
        tape.take([end for end in ends if end is not None])
        for column, end in zip(columns, ends, strict=True):
            if end is not None:
                carry(column, tape.whole(end))


class State(NamedTuple):
    """The state that a function finds by name or is given for all rows: holders (objects that it looks into), tensors,
    snapshots of NumPy arrays, and the reach that finds them.
    """

    holders: Sequence[Any]
    tensors: Sequence[Tensor]
    arrays: Sequence[Snapshot]
    reach: Reach


def over_rows(
    function: Callable[[Sequence[Tensor]], Any],
    tensors: Sequence[Tensor],
    rows: int,
    *,
    is_taped: bool = True,
    state: State | None = None,
) -> tuple[list[Tensor], Rebuild]:
    """Return the leaves of a function's results for all rows of some tensors, and what rebuilds a result from leaves.

    is_taped: whether a tape is wanted, so that the first row is watched even outside of a capture. state: the state
    that the function must not change; None for a library function, which changes nothing.
    """
    batch = Batch.of(tensors, rows, is_taped)
    done: list[tuple[list[Any], Rebuild]] = []
    if batch is not None:
        try:
            done.append(batch.first(function, state))
            columns = batch.columns(done[0][0])
        finally:
            batch.close()
        if columns is not None:
            return columns, done[0][1]
        if not batch.put_back(state):
            done.clear()
    return one_by_one(function, tensors, range(len(done), rows), done)


def one_by_one(
    function: Callable[[Sequence[Tensor]], Any],
    tensors: Sequence[Tensor],
    rows: Iterable[int],
    done: Sequence[tuple[list[Any], Rebuild]] = (),
) -> tuple[list[Tensor], Rebuild]:
    """Return the stacked results of a function for rows, called one by one, after those that are already done."""
    every = [*done, *[flatten(function([x[row] for x in tensors])) for row in rows]]
    both = zip(*[leaves for leaves, _ in every], strict=True)
    return [xt.stack([as_tensor(x, "vmap", "a result") for x in one]) for one in both], every[0][1]


def _capture_of(tensors: Sequence[Tensor]) -> Capture:
    """Return a capture of a call that reads some tensors, which is not kept after the call."""
    from ..run.capture import Capture

    evaluate(*tensors)
    capture = Capture([x.blob for x in tensors])
    capture.is_lasting = False
    return capture


def _ends(tensors: Sequence[Tensor]) -> list[Step]:
    return [step for step in map(step_of, tensors) if step is not None]


def _packed(x: Tensor) -> Tensor:
    """Return a tensor in C order: itself if it is, else a copy."""
    evaluate(x)
    return x if x.is_contiguous else x.copy()


class _Lifted:
    """Steps of one row, repeated over all rows.

    values: tensors that differ between rows, or are written by them, by the root of the memory that they occupy for one
    row. Those that are the same for every row stay where the first row has found or made them. first, nodes: the first
    root and node serial that belong to the first row's call; steps: those to repeat.
    """

    def __init__(
        self, capture: Capture, rows: int, first: int, nodes: int, steps: Sequence[Evaluated | Called]
    ) -> None:
        self.values: dict[int, Value] = {}
        self._rows, self._capture, self._first, self._nodes, self._steps = rows, capture, first, nodes, steps
        self._written = {step.spots[number].root for step in steps if _is_evaluated(step) for number in step.into}
        self._memory: dict[int, tuple[Storage, int]] = {}
        self._returned: set[int] = set()
        self._same: list[Evaluated | Called] = []
        self._is_mixed = False

    def enter(self, root: int, whole: Tensor) -> None:
        """Enter an argument: the memory that its first row was copied to is replaced by that of all rows."""
        self.values[root] = Value(whole, True)
        self._returned.add(root)

    def kept(self) -> Sequence[Evaluated | Called]:
        """Return the first row's steps that are still needed: those whose results do not differ between rows, and all
        of them if a single one has results of both kinds.
        """
        return self._steps if self._is_mixed else self._same

    def of_leaf(self, leaf: Any) -> Tensor:
        """Return a returned leaf for all rows, in memory of its own."""
        if not isinstance(leaf, Tensor):
            return _repeated(as_tensor(leaf, "vmap", "a result"), self._rows)
        spot = self._capture.spot_of(leaf.blob)
        value = self._seen(spot)
        if not value.whole:
            return _repeated(value.tensor, self._rows)
        is_alone = value is self.values[spot.root] and spot.root not in self._returned
        self._returned.add(spot.root)
        return value.tensor if is_alone else cast(Tensor, value.tensor.copy())

    def of_saved(self, saved: Saved) -> Value:
        """Return a value that was kept for a gradient."""
        value = saved.value
        if type(value) is not TBlob:
            raise StayApartError
        return self._seen(self._capture.spot_of(value))

    def take(self, step: Evaluated | Called) -> None:
        """Repeat a step over all rows."""
        if not _is_evaluated(step):
            self._call(cast("Called", step))
            return
        trace, values = step.trace, dict[int, Value]()
        for number, value in enumerate(trace.values):
            if number not in trace.arguments:
                spot = step.spots.get(number)
                values[number] = Value(value, False) if spot is None else self._seen(spot)
        if not step.into and not any(value.whole for value in values.values()):
            made = [step.spots[number].root for number in step.spots if number in trace.arguments]
            if self._written.isdisjoint(made):
                self._same.append(step)
                return
        for number, node in trace.nodes():
            values[number] = self._made(node, [values[one] for one in trace.arguments[number]])
        for number, spot in step.spots.items():
            if number in step.into:
                self._write(spot, values[number])
            elif number in trace.arguments:
                self._keep(step, number, spot, values)

    def _call(self, step: Called) -> None:
        """Repeat a call of a function of native arrays."""
        if step.writes or not step.takes:
            raise StayApartError
        given, made = [self._seen(spot) for spot in step.takes], {spot.root for spot in step.gives}
        if not any(value.whole for value in given):
            if not self._written.isdisjoint(made):
                raise StayApartError
            self._same.append(step)
            return
        if not made:
            self._check(step, given)
            return
        fresh = [spot.root >= self._first and spot.root not in self.values and not spot.after for spot in step.gives]
        if not all(fresh) or len(made) < len(fresh) or not all(_is_packed(spot.meta) for spot in step.gives):
            raise StayApartError
        results = [(spot.meta.shape, spot.meta.dtype) for spot in step.gives]
        for spot, found in zip(step.gives, self._each(step.function, given, results, step.name), strict=True):
            self.values[spot.root] = Value(found, True)

    def _each(
        self, function: Callable[..., Any], given: Sequence[Value], results: Sequence[tuple[Shape, DType]], name: str
    ) -> Sequence[Tensor]:
        """Return the results of a function of native arrays for all rows. results: shapes and dtypes of one row's."""
        both = [(isinstance(value.tensor, Tensor), value) for value in given]
        form = [(is_tensor, value.whole, None if is_tensor else value.tensor) for is_tensor, value in both]
        takes_stacks = _takes_stacks(function, name)
        call: Callable[..., Any] = partial(_row_by_row, function, self._rows, form, results, takes_stacks)
        inner: Any = getattr(function, "func", None)  # of captured machine code
        if takes_stacks and hasattr(inner, "lapack") and _are_stacks(form, name):
            call = inner
        elif hasattr(inner, "of_stacks") and inner.shifts is not None:
            call = inner.of_stacks(1 + given[0].ndim)
        try:
            found = on(tuple([value.tensor for value in given if isinstance(value.tensor, Tensor)]), name, call)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # which the function may handle
            raise StayApartError from None
        return (found,) if isinstance(found, Tensor) else cast(Sequence[Tensor], found)

    def _check(self, step: Called, given: Sequence[Value]) -> None:
        """Repeat a check, which raises ValueError, for each row."""
        form = [(True, value.whole, None) for value in given]
        check = step.function
        if not getattr(getattr(check, "func", None), "takes_stacks", False):
            check = partial(_row_by_row, step.function, self._rows, form, (), False, None)
        blobs = [value.tensor.blob for value in given]
        with self._capture.inside():
            try:
                self._capture.device.backend.call(check, *[blob.shallow_copy().native() for blob in blobs])
            except ValueError:  # a call row by row reports the error
                raise StayApartError from None
        if self._capture.is_lasting:
            self._capture.called(check, blobs, ())

    def _keep(self, step: Evaluated, number: int, spot: Spot, values: dict[int, Value]) -> None:
        """Remember a result by its memory, or by that of its base if it is a view."""
        if spot.root in self.values:
            return
        whole = step.whole(number)
        value, meta = values[whole], step.metas[whole]
        if not value.whole and spot.root not in self._written:
            self._is_mixed = True
            return
        is_own = spot.root >= self._first and (value.whole or self._capture.recorded[spot.root] > self._nodes)
        if not is_own or not meta.layout.is_contiguous(meta.dtype.itemsize):  # others see writes of all rows
            raise StayApartError
        self.values[spot.root] = value if value.whole else Value(_repeated(value.tensor, self._rows), True)

    def _write(self, spot: Spot, value: Value) -> None:
        target = self._seen(spot)
        if not target.whole:  # all rows share this memory
            raise StayApartError
        target.tensor[...] = value.at_least(len(spot.meta.shape))

    def _own(self, root: int) -> Tensor:
        """Return memory for all rows that begins as that of one: with the contents of a constant, or unset."""
        _, constant, nbytes, array = self._capture.roots[root]
        if root in self._capture.blank:
            return cast(Tensor, xt.empty((self._rows, nbytes), dtype=xt.uint8, device=self._capture.device))
        if constant is None or array is not None or not constant.is_contiguous:
            raise StayApartError
        return _repeated(face(constant), self._rows)

    def _seen(self, spot: Spot) -> Value:
        """Return the tensor at a spot, that of all rows if it differs between them."""
        if spot.root in self._written and spot.root >= self._first and spot.root not in self.values:
            self.values[spot.root] = Value(self._own(spot.root), True)
        value, meta = self.values.get(spot.root), spot.meta
        if value is None:
            return Value(self._shared(spot), False)
        x, shape = value.tensor, (self._rows, *meta.shape)
        if x.shape == shape and x.dtype == meta.dtype and meta.layout.is_contiguous(meta.dtype.itemsize):
            return value
        evaluate(x)
        layout = Layout(shape, (x.nbytes // self._rows, *meta.layout.strides), x.blob.layout.offset + spot.after)
        return Value(x.viewed(layout, dtype=meta.dtype), True)

    def _shared(self, spot: Spot) -> Tensor:
        """Return the tensor at a spot whose memory is the same for every row, and is written by none."""
        capture, meta = self._capture, spot.meta
        if spot.root in self._written:
            raise StayApartError
        constant = capture.roots[spot.root].constant
        if constant is not None:
            layout = Layout(meta.shape, meta.layout.strides, constant.layout.offset + spot.after)
            blob = constant.view(layout, writeable=False, dtype=meta.dtype)
            blob.fixed = True
            return face(blob)
        if spot.root not in self._memory:
            self._memory = capture.memory()
        if spot.root not in self._memory:
            raise StayApartError
        owner, begin = self._memory[spot.root]
        layout = Layout(meta.shape, meta.layout.strides, begin + spot.after)
        return face(TBlob(owner, meta.dtype, layout, capture.device))

    # ---- nodes

    def _made(self, node: Node, given: Sequence[Value]) -> Value:
        """Return a node's value for all rows, or for one where no operand differs between them."""
        whole = any(value.whole for value in given)
        if type(node.op) is View:
            return Value(self._view(node, given[0]), whole)
        if node.op.name == "matmul" and not (whole and any(value.ndim > 2 for value in given)):
            return Value(_product(node, *given), whole)
        if node.op.kind == "elementwise":
            shape = (self._rows, *node.shape) if whole else node.shape
            operands = tuple([value.at_least(len(node.shape)) for value in given])
            return Value(node_later(node.op, operands, node.params, shape, node.dtype, node.device), whole)
        is_search = whole and node.op.name in _SEARCHES
        if node.op.kind == "reduction" and not (is_search and node.params["axis"] is None and given[0].ndim != 1):
            return Value(_reduced(node, given[0]), whole)
        if not whole:
            raise StayApartError
        kernel = partial(node.op.kernel(self._capture.device.backend), **node.params)
        return Value(self._each(kernel, given, [(node.shape, node.dtype)], node.op.name)[0], True)

    def _view(self, node: Node, value: Value) -> Tensor:
        op, given = node.op, node.params["given"]
        assert type(op) is View
        x = value.at_least(len(given)) if op.way == "broadcast_to" else value.tensor
        return _viewed(x, op.way, self._moved(op.way, given) if value.whole else given)

    def _moved(self, way: str, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a view's parameter for operands with the row axis in front."""
        if way in ("reshape", "broadcast_to"):
            return (self._rows, *given)
        if way == "index":
            return ((slice, None, None, None), *given)
        axes = [axis + 1 for axis in given]
        return (0, *axes) if way == "permute" else tuple(axes)


def _viewed(x: Tensor, way: str, given: tuple[Any, ...]) -> Tensor:
    """Return a view by a method of Layout, whose parameter is that of a node."""
    if way == "index":
        return x[tuple([slice(*item[1:]) if type(item) is tuple else item for item in given])]
    if way in ("reshape", "broadcast_to"):
        return cast(Tensor, getattr(xt, way)(x, given))
    return rearranged(x, way, given)


def _repeated(x: Tensor, rows: int) -> Tensor:
    """Return copies of a tensor, one for each row."""
    return cast(Tensor, xt.broadcast_to(x, (rows, *x.shape)).copy())


def _is_evaluated(step: Evaluated | Called) -> TypeGuard[Evaluated]:
    from ..run.taken_down import Evaluated  # loaded already if anything was captured

    return isinstance(step, Evaluated)


def _reduced(node: Node, value: Value) -> Tensor:
    """Return a reduction over axes of each row."""
    axis, ndim = node.params["axis"], value.ndim
    if value.whole and node.op.name in _SEARCHES:
        axis = 1 if axis is None else axis + 1
    elif value.whole:
        axis = tuple([one + 1 for one in axes_of(axis, ndim)])
    return reduce(cast("Op", node.op), value.tensor, {**node.params, "axis": axis})


def _product(node: Node, a: Value, b: Value) -> Tensor:
    """Return a matrix product: a single product for all rows where only one operand differs between them."""
    a, b = [_turned(*pair) for pair in zip((a, b), node.params["turned"], strict=True)]
    ways = a.ndim, b.ndim
    if not (a.whole or b.whole) or (a.whole and ways == (1, 2) and not b.whole):
        return cast(Tensor, xt.matmul(a.tensor, b.tensor))
    if a.whole and not b.whole and a.ndim == 2 and b.ndim <= 2:
        rows, n, terms = a.tensor.shape
        flat = xt.reshape(a.tensor, (rows * n, terms))
        return cast(Tensor, xt.reshape(xt.matmul(flat, b.tensor), (*a.tensor.shape[:2], *b.tensor.shape[1:])))
    if b.whole and not a.whole and ways == (2, 1):
        return cast(Tensor, xt.matmul(b.tensor, xt.matrix_transpose(a.tensor)))
    x = xt.expand_dims(a.tensor, axis=-2) if a.ndim == 1 else a.tensor
    y = xt.expand_dims(b.tensor, axis=-1) if b.ndim == 1 else b.tensor
    found = xt.matmul(x, y)
    return cast(Tensor, xt.reshape(found, (found.shape[0], *node.shape)))


def _takes_stacks(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function takes a stack of all rows' matrices as it takes one matrix."""
    return name in _OF_STACKS and getattr(function, "func", None) is not _row_by_row


def _are_stacks(form: Sequence[tuple[bool, bool, Any]], name: str) -> bool:
    """Return whether operands have the row axis of a stack: all of them, or any for "solve", which broadcasts."""
    wholes = [whole for _, whole, _ in form]
    return any(wholes) if name == "solve" else all(wholes)


def _is_packed(meta: Meta) -> bool:
    return meta.layout.is_contiguous(meta.dtype.itemsize)


def _row_by_row(
    function: Callable[..., Any],
    rows: int,
    form: Sequence[tuple[bool, bool, Any]],
    results: Sequence[tuple[Shape, DType]],
    is_of_stacks: bool,
    library: Any,
    *natives: Any,
) -> Any:
    """Call a function for each row of native arrays; return its results with the rows in front.

    form: of each operand whether it is an array, whether it has the row axis in front, and its scalar if it is no
    array. results: the shapes and dtypes of one row's. is_of_stacks: whether the function takes all rows at once.
    """
    left = iter(natives)
    operands = [(next(left) if is_array else scalar, whole) for is_array, whole, scalar in form]
    if is_of_stacks and all(whole for _, whole in operands):
        found = function(*[x for x, _ in operands])
        parts = found if isinstance(found, (tuple, list)) else (found,)
        if [part.shape for part in parts] == [(rows, *shape) for shape, _ in results]:
            return found
    made = [library.empty((rows, *shape), dtype=dtype) for shape, dtype in results]
    for row in range(rows):
        found = function(*[x[row, ...] if whole else x for x, whole in operands])
        for result, part in zip(made, found if isinstance(found, (tuple, list)) else (found,), strict=bool(made)):
            result[row, ...] = part
    return made[0] if len(made) == 1 else tuple(made)


def _turned(value: Value, is_turned: bool) -> Value:
    if not is_turned:
        return value
    turned = xt.matrix_transpose(value.tensor)
    return Value(xt.conj(turned) if turned.dtype.kind == "c" else turned, value.whole)
