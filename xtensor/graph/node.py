"""Node: an operation that was recorded and not yet computed.

A value is a Node or a TBlob. A node's inputs are values or Python scalars; once it is computed it drops them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from math import prod
from operator import index
from typing import Any, NamedTuple, Protocol
from weakref import ref

from ..base.caches import make_room
from ..base.dtypes import DType
from ..base.layout import Layout, Shape, contiguous
from ..base.locks import fork_waiting_lock
from ..devices import Backend, Device
from ..devices.cpu import CPU, packed_copy
from ..storage.blob import TBlob
from ..storage.storage import MANY_READERS, Readers
from .number import type_of

# The parameters of most nodes; nobody changes parameters.
NO_PARAMS: dict[str, Any] = {}

# The `first` of a node that waits for nothing: larger than any serial number.
NOTHING_PENDING = 1 << 62

# A result so many times smaller than its operand costs hardly any memory.
SMALL_END = 64

# Reductions that combine element by element, in any grouping; all others are computed on finished arrays.
COMBINING = {
    "sum": "add",
    "count_nonzero": "add",
    "prod": "multiply",
    "max": "maximum",
    "min": "minimum",
    "any": "logical_or",
    "all": "logical_and",
}

# The most structures that have a number at a time.
SIGNATURES = 1 << 16


class Operation(Protocol):
    """The properties of an op that the lazy layer uses.

    kind: "elementwise", "reduction", "library" if only the backend's own function computes it, packed,
        "contraction" for the same where generated code may go on with later steps (Contraction of run/joined.py),
        "view" if it computes nothing (View), or "macro" if it stands for several nodes (Macro).
    element: the formula of an elementwise op for one element, None for a primitive of the backends.
    """

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def element(self) -> Callable[..., Any] | None: ...

    def kernel(self, backend: Backend) -> Callable[..., Any]: ...


class Node:
    """A pending operation, made by `node_of`: it has no __init__, which halves the cost of making one.

    inputs: Nodes, TBlobs and Python scalars; () once evaluated.
    params: keyword arguments of the kernel (axis, keepdims, dtype ...).
    blob: the result, None while pending.
    readers: the pending nodes that use this one, None before the first.
    face: a weak reference to the tensor that shows this value to the user; a value that is shown is kept when computed.
    parts: the parts of it that somebody holds, None before the first; such a value is kept too.
    name: the user's name for the value, None without one.
    serial: its number among all nodes ever recorded. first: that of the first pending one it needs, or a later number
        where fewer are needed than were recorded: it waits for no more than `serial - first + 1` distinct steps.
    held: the bytes of the buffers it reads itself.
    saver: a weak reference to the Saved that keeps the value for a gradient, None if there is none.
    spelled: for a former macro, how it was recorded, else None.
    reference: the one weak reference by which others refer to this node.
    signature: the number of its expression: equal for expressions of one structure.
    """

    __slots__ = (
        "__weakref__",
        "blob",
        "device",
        "dtype",
        "face",
        "first",
        "held",
        "inputs",
        "name",
        "op",
        "params",
        "parts",
        "readers",
        "reference",
        "saver",
        "serial",
        "shape",
        "signature",
        "spelled",
    )

    op: Operation
    inputs: tuple[Any, ...]
    params: dict[str, Any]
    shape: Shape
    dtype: DType
    device: Device
    blob: TBlob | None
    readers: Readers | None
    face: Callable[[], Any] | None
    parts: list[ref[Part]] | None
    name: str | None
    saver: ref[Any] | None
    spelled: Spelled | None
    reference: ref[Node]
    signature: int
    serial: int
    first: int
    held: int

    def __repr__(self) -> str:
        state = "pending" if self.blob is None else "evaluated"
        return f"Node({self.op.name}, shape={self.shape}, dtype={self.dtype}, {state})"

    @property
    def steps(self) -> int:
        """The number of distinct pending steps that this value needs."""
        return len(pending_below([self]))

    def read_by(self, reference: ref[Node]) -> None:
        """Add a node that reads this one."""
        if self.readers is None:
            self.readers = Readers()
        self.readers.add(reference)
        if self.blob is not None:  # another thread has just finished it
            self.blob.owner.read_by(reference)

    def is_shown(self) -> bool:
        """Return whether somebody holds this value."""
        return (self.face is not None and self.face() is not None) or self.has_parts()

    def has_parts(self) -> bool:
        """Return whether somebody holds a part of this value."""
        return self.parts is not None and any([part() is not None for part in self.parts])

    def is_seen(self) -> bool:
        """Return whether another view shows, or will show, the memory that this value will have."""
        readers = () if self.readers is None else self.readers.waiting()
        return self.op.kind == "view" or self.has_parts() or any([node.op.kind == "view" for node in readers])

    def readers_outside(self, inside: Any) -> list[Node]:
        """Return the pending nodes that use this one and are not in `inside`."""
        return [] if self.readers is None else [node for node in self.readers.waiting() if node not in inside]

    def finish(self, blob: TBlob) -> None:
        """Take the result; readers of this node become readers of the result's buffer, and the inputs are dropped."""
        if self.readers:
            self._hand_over(blob)  # before, so that an interrupt loses no reader; and after, for those added since
        self.blob = blob
        if self.readers:
            self._hand_over(blob)
        saved = None if self.saver is None else self.saver()
        if saved is not None:
            saved.hold(blob)
        self.readers = self.parts = self.saver = self.spelled = None
        self.inputs = ()
        self.first = NOTHING_PENDING

    def _hand_over(self, blob: TBlob) -> None:
        """Make the readers of this node readers of its bytes."""
        for node in self.readers.waiting() if self.readers is not None else ():
            blob.owner.read_by(node.reference)


def node_of(
    op: Operation,
    inputs: tuple[Any, ...],
    params: dict[str, Any],
    shape: Shape,
    dtype: DType,
    device: Device,
    signature: int = 0,
    first: int = NOTHING_PENDING,
    held: int = 0,
) -> Node:
    """Return a new pending node, a reader of its inputs; the last three parameters are as `count_up` returns them."""
    if not signature:
        signature, first, held = count_up(op, inputs, params, shape)
    node = Node()
    node.op = op
    node.inputs = inputs
    node.params = params
    node.shape = shape
    node.dtype = dtype
    node.device = device
    node.blob = node.readers = node.face = node.parts = node.name = node.saver = node.spelled = None
    node.signature = signature
    node.serial = serial = next(_serials)
    node.first = first if first < serial else serial
    node.held = held
    node.reference = reference = ref(node)
    # Last of all: from here on other threads see the node. This is `read_by` inlined, as every step is recorded here.
    owner: Any = None
    guard: Any = None
    for value in inputs:
        kind = type(value)
        if kind is Node:
            readers = value.readers
            if readers is None:
                readers = value.readers = Readers()
        elif kind is TBlob:
            owner = value._owner or value.owner  # the property alone costs more
            guard = owner.guard or owner.guarded()
            readers = guard.readers
        else:
            continue
        readers.append(reference)
        if len(readers) >= MANY_READERS:
            readers.forget()
        if kind is TBlob:
            if owner.guard is not guard:  # a write has removed it meanwhile
                owner.read_by(reference)
        elif value.blob is not None:  # another thread has just finished it
            value.blob.owner.read_by(reference)
    return node


def count_up(op: Operation, inputs: Iterable[Any], params: dict[str, Any], shape: Shape) -> tuple[int, int, int]:
    """Return a node's signature, the smallest `first` of its inputs, and the bytes it reads itself."""
    first, held = NOTHING_PENDING, 0
    structure: list[Any] = [op]
    for value in inputs:
        kind = type(value)
        if kind is TBlob:
            held += (value._owner or value.owner).nbytes
            structure.append(value.dtype.num)  # hashes faster than the dtype
            own = value.shape
        elif kind is Node:
            first = min(first, value.first)
            structure.append(value.signature)
            own = value.shape
        else:
            kind = type_of(value)
            structure.append((kind, value) if op.name == "pow" else kind)  # a small power has its own code
            continue
        if own != shape:
            structure += (own, shape)
    if params:  # such as reduced axes: also the number of axes
        structure += (len(shape), *params.items())
    key = tuple(structure)
    return signatures.get(key) or _new_signature(key), first, held


# The numbers of structures: op, an entry for each input, and parameters. They are negative; those of dtypes are not.
signatures: dict[tuple[Any, ...], int] = {}
_counter = count(-1, -1)

# The result dtypes of calls that were checked and recorded, by these numbers.
result_dtypes: dict[int, DType] = {}
_serials = count()


def serial_now() -> int:
    """Return a number that is larger than the serials of all nodes so far, and smaller than those of all later ones."""
    return next(_serials)


def _new_signature(structure: tuple[Any, ...]) -> int:
    """Return the number of a structure met for the first time.

    Old ones are dropped, with the dtypes of their results; their numbers are not reused.
    """
    if len(signatures) >= SIGNATURES:
        make_room(signatures, SIGNATURES)
        oldest = max(signatures.values())
        for number in list(result_dtypes):
            if number > oldest:
                result_dtypes.pop(number, None)
    return signatures.setdefault(structure, next(_counter))


class Part:
    """A basic index of a pending node, such as `z[0]`, not computed until its values are asked for.

    It shows the memory that the node will have. seen: the values of the part, if they were computed alone, valid only
    while the node is pending.
    """

    __slots__ = ("__weakref__", "blob", "device", "dtype", "key", "seen", "shape", "whole")

    def __init__(self, whole: Node, key: tuple[Any, ...], shape: Shape) -> None:
        self.whole = whole
        self.key = key
        self.shape = shape
        self.dtype = whole.dtype
        self.device = whole.device
        self.blob: TBlob | None = None
        self.seen: Any = None
        whole.parts = [*(whole.parts or ()), ref(self)]


class Masked:
    """The elements of a tensor where a mask of its shape is true, such as `x[mask]` while a function is captured, not
    computed until their number is asked for.

    value, mask: tensors that nobody else holds; settle: computes the elements. step: of the elements on the tape.
    """

    __slots__ = ("blob", "device", "dtype", "mask", "settle", "step", "value")

    def __init__(self, value: Any, mask: Any, settle: Callable[[Masked], TBlob]) -> None:
        self.value, self.mask, self.settle = value, mask, settle
        self.dtype, self.device = value.dtype, value.device
        self.blob: TBlob | None = None
        self.step: Any = None

    @property
    def shape(self) -> Shape:
        """The shape, for which the elements are computed."""
        return self.settled().shape

    def settled(self) -> TBlob:
        """Return the elements."""
        if self.blob is None:
            self.blob = self.settle(self)
        return self.blob


class View:
    """The op of a recorded view: it computes nothing and shows the memory of its operand.

    name: of the public function. way: the method of Layout that makes it, which takes the parameter `given`. strides:
    whether the view of a packed array may be strided.
    """

    kind = "view"
    element = None

    def __init__(self, name: str, way: str, *, strides: bool = True) -> None:
        self.name = name
        self.way = way
        self.strides = strides

    def kernel(self, backend: Backend) -> Callable[..., Any]:
        raise NotImplementedError(f"{self.name}: a view is made by `of`, no function computes it")

    def layout(self, layout: Layout, itemsize: int, given: Any) -> Layout | None:
        """Return the layout of the view; None for a reshape that the strides do not allow."""
        if self.way == "reshape":
            return layout.reshape(given, itemsize)
        if self.way == "index":
            given = tuple([slice(*item[1:]) if type(item) is tuple else item for item in given])
        found: Layout = getattr(layout, self.way)(given)
        return found

    @property
    def may_be_written(self) -> bool:
        """Return whether a view of writeable memory is writeable: one that repeats elements is not."""
        return self.way != "broadcast_to"

    @property
    def can_go_back(self) -> bool:
        """Return whether the layout of the operand follows from that of the view."""
        return self.way != "index"

    def back(self, layout: Layout, given: Any, shape: Shape, itemsize: int) -> Layout | None:
        """Return the layout of an operand of some shape from that of its view, None where that had to be a copy."""
        if self.way == "permute":
            return layout.permute([given.index(axis) for axis in range(len(given))])
        if self.way == "flip":
            return layout.flip(given)
        if self.way == "broadcast_to":
            return Layout(shape, layout.strides[len(given) - len(shape) :], layout.offset)
        return layout.reshape(shape, itemsize)

    def of(self, blob: TBlob, given: Any) -> TBlob:
        """Return the view of a blob; a reshape that strides do not allow shows a copy."""
        layout = self.layout(blob.layout, blob.dtype.itemsize, given)
        if layout is None:
            backend = blob.device.backend
            return TBlob.adopt(backend.call(packed_copy, blob.native()).reshape(given), blob.device)
        return blob.view(layout, writeable=self.may_be_written)

    def node(self, whole: Node, given: Any) -> Node | None:
        """Return the view of a pending node, None where that needs a copy; raises the errors of Layout's method."""
        given = tuple([_plain_item(item) for item in given])
        layout = self.layout(contiguous(whole.shape, whole.dtype.itemsize), whole.dtype.itemsize, given)
        if layout is None:
            return None
        return node_of(self, (whole,), {"given": given}, layout.shape, whole.dtype, whole.device)


def _plain_item(item: Any) -> Any:
    """Return an item of a basic index in a hashable form."""
    if isinstance(item, slice):
        return (slice, *[None if one is None else index(one) for one in (item.start, item.stop, item.step)])
    return item if item is None or item is Ellipsis else index(item)


# The views, by the methods of Layout.
VIEWS = {
    view.way: view
    for view in (
        View("expand_dims", "insert", strides=False),
        View("squeeze", "drop", strides=False),
        View("reshape", "reshape", strides=False),
        View("permute_dims", "permute"),
        View("flip", "flip"),
        View("broadcast_to", "broadcast_to"),
        View("getitem", "index"),
    )
}


# ---- macros


class MacroStep(NamedTuple):
    """One node that a macro stands for.

    inputs: by number - inputs of the macro come first, then steps - or None and a Python scalar. The rest is as in a
    Node.
    """

    op: Operation
    inputs: tuple[tuple[int | None, Any], ...]
    params: dict[str, Any]
    shape: Shape
    dtype: DType


class Spelled(NamedTuple):
    """The record of a node that was a macro: the macro, its inputs, and the nodes of its steps before the last."""

    macro: Macro
    inputs: tuple[Any, ...]
    inner: list[Node]


class Macro:
    """A composition that is recorded as one node; it is spelled out before the graph is walked.

    name: of the function. steps: those that it stands for; the last one is its result. nbytes: of the largest step.
    """

    kind = "macro"
    element = None

    def __init__(self, name: str, steps: Sequence[MacroStep]) -> None:
        self.name = name
        self.steps = steps
        self.nbytes = max([prod(step.shape) * step.dtype.itemsize for step in steps])

    def kernel(self, backend: Backend) -> Callable[..., Any]:
        raise NotImplementedError(f"{self.name}: a macro is spelled out, no function computes it")

    def node(self, inputs: tuple[Node | TBlob, ...], device: Device) -> Node:
        """Return the composition of some inputs as one node."""
        last = self.steps[-1]
        before = [next(_serials) for _ in self.steps[1:]]
        node = node_of(self, inputs, NO_PARAMS, last.shape, last.dtype, device)
        node.first = min([node.first, *before])
        return node

    def spell_out(self, node: Node) -> None:
        """Turn a node of this macro into its last step, behind new nodes for the steps before."""
        with _spelling:
            if node.op is not self or node.blob is not None:
                return
            inner: list[Node] = []
            values = list(node.inputs)
            for step in self.steps[:-1]:
                inputs = _inputs_of(step, values)
                inner.append(node_of(step.op, inputs, step.params, step.shape, step.dtype, node.device))
                values.append(inner[-1])
            last = self.steps[-1]
            inputs = _inputs_of(last, values)
            for value in inputs:
                if type(value) is Node:
                    value.read_by(node.reference)
            node.spelled = Spelled(self, node.inputs, inner)
            node.inputs, node.params, node.op = inputs, last.params, last.op


def _inputs_of(step: MacroStep, values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([given if number is None else values[number] for number, given in step.inputs])


_spelling = fork_waiting_lock()


def spell_out(values: Iterable[Any]) -> None:
    """Replace macros among the values of a graph by their steps, as plans are made of steps."""
    for value in values:
        if type(value) is Node and type(value.op) is Macro:
            value.op.spell_out(value)


def pending_below(nodes: Iterable[Node]) -> list[Node]:
    """Return the pending nodes that these need, each after its inputs; walks without recursion."""
    order: dict[Node, None] = {}
    stack = [node for node in nodes if node.blob is None]
    while stack:
        node = stack[-1]
        if node in order:
            stack.pop()
            continue
        if type(node.op) is Macro:
            node.op.spell_out(node)
        above = len(stack)
        for value in node.inputs:
            if type(value) is Node and value.blob is None and value not in order:
                stack.append(value)
        if len(stack) == above:
            stack.pop()
            order[node] = None
    return list(order)


def last_users(nodes: Iterable[Node]) -> list[Node]:
    """Return the last pending nodes of those that use these: evaluating them evaluates all in between.

    A node that is shown, or has no readers, is a last one.
    """
    ends: list[Node] = []
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        users = node.readers_outside(())
        if node.is_shown() or not users:
            ends.append(node)
        stack.extend(users)
    return ends


def rounds(nodes: Sequence[Node]) -> Iterator[tuple[list[Node], list[Node], bool]]:
    """Yield the rounds in which pending nodes are computed: all nodes of a round in order, the results wanted of it,
    and whether it is the last, which computes the nodes themselves.

    There are several rounds only on other devices than the CPU: each contraction is a round of its own, after its
    inputs, as nothing is fused with it there, and the steps between contractions may be kernels that go over rows.
    """
    order = pending_below(nodes)
    if len(order) > 1 and order[0].device.backend is not CPU:
        for node in [node for node in order if node.op.kind == "contraction" and node.blob is None]:
            for value in [*[one for one in node.inputs if type(one) is Node and one.blob is None], node]:
                below = pending_below([value])
                if below:
                    yield below, [value], False
        order = pending_below(nodes)
    if order:
        yield order, [node for node in nodes if node.blob is None], True


def with_small_ends(order: list[Node], wanted: list[Node]) -> tuple[list[Node], list[Node]]:
    """Return nodes in order and those wanted, with small results that wait for some of them, if these are all that do.

    Computed in the same pass, as a loss with its gradient, they need no large values to be kept for them.
    """
    inside, ends = set(order), set(wanted)
    waiting = [
        reader
        for node in order
        if node.readers is not None and (len(node.readers) > 1 or node in ends)
        for reader in node.readers_outside(inside)
    ]
    if not waiting:
        return order, wanted
    found = last_users(waiting)
    small = max([prod(node.shape) for node in order]) // SMALL_END
    if not all([end.is_shown() and prod(end.shape) <= small for end in found]):
        return order, wanted
    return pending_below([*wanted, *found]), [*wanted, *found]
