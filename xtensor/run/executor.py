"""Evaluation of pending nodes, and the barrier that lets pending readers finish before the bytes they read change."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from math import prod
from sys import getrefcount, is_finalizing
from typing import Any

import numpy as np

from ..base.locks import fork_waiting_lock
from ..base.options import Closing, Settings, settings
from ..base.profiling import LIBRARY, WAIT, noted, observers
from ..base.threads import inside_task
from ..devices import Backend, Device
from ..devices.cpu import CPU
from ..devices.cuda_memory import bare, evaluating, let_go
from ..graph.node import VIEWS, Masked, Node, Part, last_users, pending_below, rounds, with_small_ends
from ..plan.costs import ASK_BYTES, DIRECT_BYTES, FREE_PART
from ..storage.blob import TBlob
from ..storage.storage import Guard, Native, Storage, first_use, is_in_step, trusted, watchers, watching
from .steps import step

_evaluating = fork_waiting_lock()
_lent = nullcontext()


def turn() -> AbstractContextManager[Any]:
    """Return the lock of evaluations, as a context: two threads that force the same node must get the same bytes.

    A worker thread shares the lock of the evaluation that it works for: a finalizer that evaluates something, called by
    the garbage collector inside a worker, must not wait for that evaluation, which waits for the worker.
    """
    if inside_task():
        return _lent
    return _WaitedFor() if observers else _evaluating


class _WaitedFor:
    """The same lock, with each wait for it as an entry of a profile."""

    def __enter__(self) -> None:
        if not _evaluating.acquire(blocking=False):
            with noted(WAIT, "lock", ("another thread's evaluation",)):
                _evaluating.acquire()

    def __exit__(self, *failure: object) -> None:
        _evaluating.release()


# More counted buffers than this are checked for those that still exist.
MANY_COUNTED = 1 << 16


# The planner and the engines, imported when something is first planned: they would double the time of `import xtensor`.
_loaded: list[Any] = []


def _planner() -> Any:
    if not _loaded:
        from . import replay

        _loaded.append(replay)
    return _loaded[0]


def force(value: Node | TBlob | Part | Masked) -> TBlob:
    """Return a value's bytes, computing them if they are pending."""
    if isinstance(value, Node):
        if value.blob is None:
            evaluate([value])
    elif isinstance(value, TBlob):
        return value
    elif isinstance(value, Masked):
        return value.settled()
    elif value.blob is None:
        whole = force(value.whole)
        value.blob, value.seen = whole.view(whole.layout.index(value.key)), None
    assert value.blob is not None
    return value.blob


# How many evaluations have begun inside another one of the same thread.
_overtaking = [0]


def evaluate(nodes: Sequence[Node], *, is_again: bool = False) -> None:
    """Compute pending nodes and everything they need. If another device than the CPU runs out of memory for that, and
    this is inside no other evaluation, all else that is pending there is computed, and this is tried once more. It is
    also tried once more if it fails because a signal handler or a finalizer has computed some of it meanwhile.
    """
    overtaken = _overtaking[0]
    _overtaking[0] += _evaluating._is_owned()
    try:
        with turn():
            if _run_again(nodes):
                return
            for order, wanted, is_last in rounds(nodes):
                if goes_direct(order):
                    _step_by_step(order)
                    continue
                if is_last:
                    order, wanted = with_small_ends(order, wanted)
                if not _run_again(wanted):
                    _planner().run(_planner().planned(order, wanted))
        return
    except (IndexError, KeyError, TypeError, ValueError):
        if is_again or _overtaking[0] == overtaken:
            raise
        evaluate([node for node in nodes if node.blob is None], is_again=True)
        return
    except MemoryError as error:
        backend = nodes[0].device.backend
        if is_again or backend is CPU or not _is_outermost():
            raise
        bare(error)
    let_go(backend)
    evaluate_others(backend, nodes)
    evaluate([node for node in nodes if node.blob is None], is_again=True)


def _run_again(nodes: Sequence[Node]) -> bool:
    """Compute nodes by the plan of an earlier expression like theirs; return whether there was one."""
    again = _loaded[0].found_again(nodes, DIRECT_BYTES) if _loaded and nodes else None
    if again is not None:
        _loaded[0].run(again)
    return again is not None


def _is_outermost() -> bool:
    """Return whether this thread is not inside an evaluation, a capture, or the first use of some memory."""
    inside = inside_task() or _evaluating._is_owned() or first_use._is_owned()
    return not inside and not (watchers and watching() is not None)


def evaluate_others(backend: Backend, nodes: Sequence[Node] = ()) -> bool:
    """Evaluate everything that is pending on a device and not needed by `nodes`, one end after the other, to free the
    memory that it reads; return whether any was. Nothing is done inside an evaluation (of any thread) or a capture.
    """
    if not _is_outermost() or not _evaluating.acquire(blocking=False):
        return False
    try:
        needed = set(pending_below(nodes))
        found = [node for node in ledger.waiting() if node.device.backend is backend and node not in needed]
        ends = last_users(found)
        for node in ends:
            with suppress(MemoryError):
                evaluate([node])
    finally:
        _evaluating.release()
    return any([node.blob is not None for node in ends])


evaluating.append(evaluate_others)


def _step_by_step(order: list[Node]) -> None:
    """Compute nodes in order by the library's own functions; the list `order` is emptied."""
    for watcher in tuple(watchers):
        for node in order:
            watcher.served(node.inputs)
    todo = order[::-1]
    order.clear()
    while todo:  # a node is dropped as soon as it is done, so that its memory can be freed
        node = todo.pop()
        if node.blob is None:
            node.finish(step(node))


def goes_direct(order: list[Node]) -> bool:
    """Return whether to call the library step by step: it was asked for, or the arrays are small and on the CPU."""
    engine = settings().engine
    if engine != "auto" or order[0].device.backend is not CPU or (watchers and watching() is not None):
        return engine == "direct" or _is_too_late()
    return all([is_small(node) for node in reversed(order)]) or _is_too_late()


def _is_too_late() -> bool:
    """Return whether the interpreter is shutting down, and the planner cannot be imported any more."""
    return not _loaded and is_finalizing()


def is_small(node: Node) -> bool:
    """Return whether neither a node nor an array that it reduces is large."""
    if prod(node.shape) * node.dtype.itemsize > DIRECT_BYTES:
        return False
    read = [value for value in node.inputs if isinstance(value, (Node, TBlob))] if node.op.kind == "reduction" else []
    return all([prod(value.shape) * value.dtype.itemsize <= DIRECT_BYTES for value in read])


def before_write(owner: Storage) -> None:
    """Evaluate all pending readers of some memory, whose values a write would change, and count the write."""
    if owner.guard is None and not trusted.owners and not watchers:
        owner.version += 1  # as `count_write` does
        return
    with turn():
        for other in () if is_in_step() else trusted.owners:  # a step writes its own; the others may be the same memory
            _serve(other.guard)
        _release(owner)
        owner.count_write()


def count_thin_write(x: Any) -> None:
    """Count a write through a thin face, after it: another thread may have made a blob of its memory meanwhile."""
    owner = x._owner
    if owner is None and x._blob is not None:
        owner = x._blob.owner
    if owner is not None:
        owner.version += 1


class _Open(weakref.ref[Any]):
    """A reference to the array through which some memory is written."""

    __slots__ = ("owner",)
    owner: Storage


# The references that exist, by their ids: they hash like their arrays, which cannot be hashed.
_open: dict[int, _Open] = {}


def _close(reference: Any) -> None:
    """Note that a write has ended."""
    reference.owner.changes += 1
    _open.pop(id(reference), None)


def opened(blob: TBlob) -> Native:
    """Return a native array through which to write a blob, after all pending readers were evaluated. The write ends
    when nobody holds the array any more, and its end is counted, too.
    """
    before_write(blob.owner)
    native = blob.native()
    if type(native) is np.ndarray:
        native = native.view()
        reference = _Open(native, _close)
        reference.owner = blob.owner
        _open[id(reference)] = reference
    return native


def _release(owner: Storage) -> None:
    """Serve the guard of some memory and remove it, unless it has a history."""
    guard = owner.guard
    if guard is None:
        return
    _serve(guard)
    _protect(guard)
    if guard.history is None:
        owner.guard = None
        try:  # a reader or saver that joined meanwhile has perhaps not seen that it is gone
            _serve(guard)
            _protect(guard)
        except BaseException:
            _rejoin(owner, guard)
            raise


def _rejoin(owner: Storage, guard: Guard) -> None:
    """Put back a guard that could not be served."""
    for reader in tuple(guard.readers):
        owner.read_by(reader)
    for saver in tuple(guard.savers):
        owner.saved_by(saver)


def serve(owners: Iterable[Storage]) -> None:
    """Evaluate all pending readers of some memory."""
    with turn():
        for owner in owners:
            _serve(owner.guard)


def _serve(guard: Guard | None) -> None:
    """Evaluate all pending readers, including those that are added as views of views are made."""
    if guard is not None and (waiting := guard.readers.waiting()):
        evaluate(last_users(waiting))
        while waiting := guard.readers.waiting():
            evaluate(waiting)


def _protect(guard: Guard) -> None:
    """Have views of some memory that are saved for a gradient copied before it is written."""
    for saved in guard.savers.waiting():
        saved.protect()


class at_once:  # noqa: N801 - reads as an adverb at the call
    """A block in which this thread records nodes that read memory that others can write to; its end evaluates them.

    owners: of that memory. No code of the user's may run in the block unless the user has agreed to that.
    """

    def __init__(self, owners: Iterable[Storage]) -> None:
        self._owners = frozenset([owner for owner in owners if owner.shared])

    def __enter__(self) -> None:
        self._before = trusted.owners
        self._closing = Closing() if self._owners else None
        trusted.owners = self._before | self._owners

    def __exit__(self, *failure: object) -> None:
        owners = (self._owners | trusted.owners) - self._before
        trusted.owners = trusted.owners & self._before
        if self._closing is not None:
            self._closing.end()
        with turn():
            for owner in owners:
                _serve(owner.guard)


def _count_write(owner: Storage) -> None:
    """Protect saved views of some memory whose readers have been evaluated, and count the write."""
    if owner.guard is not None:
        _protect(owner.guard)
    owner.count_write()


def _run_into(owner: Storage, plan: Any) -> None:
    """Run a plan that writes into some memory, and count the end of the write, however it ends."""
    try:
        _planner().run(plan)
    finally:
        owner.changes += 1


def write(node: Node, blob: TBlob, passing: Node | None = None) -> bool:
    """Compute a pending node straight into existing memory of its shape and dtype; return whether that was possible.

    All other pending readers of that memory are evaluated first. It is not possible if the node's graph reads the
    memory at other places than it writes; nothing has been done then.

    passing: a node below it whose holder is about to drop it, so that its value need not be kept.
    """
    with turn():
        order, owners = pending_below([node]), _same_memory(blob.owner)
        if not order:  # another thread that is about to write this memory has evaluated its readers
            return False
        if not owners or goes_direct(order) or not _reads_in_place(order, blob, owners):
            return False
        evaluate([one for one in order[:-1] if _is_saved(one) and any(_reads(pending_below([one]), owners))])
        inside = set(pending_below([node]))
        others = [reader for owner in owners for reader in owner.readers() if reader not in inside]
        evaluate([end for end in last_users(others) if end not in inside])
        while others := [reader for owner in owners for reader in owner.readers() if reader not in inside]:
            evaluate(others)
        order = pending_below([node])
        if not order:
            return False
        _count_write(blob.owner)
        if passing is not None and not passing.is_seen():
            passing.face = None
        _run_into(blob.owner, _planner().planned(order, [node], (node, blob)))
        return True


def write_again(node: Node, blob: TBlob, passing: Node | None) -> bool:
    """Do what `write` does, by the plan of an earlier expression like this one; return whether there was one."""
    with turn():
        owners = _same_memory(blob.owner)
        if not owners or node.blob is not None or not _loaded:
            return False
        others = [one for owner in owners for one in owner.readers() if one is not node]
        if others and not set(others) <= set(pending_below([node])):
            return False
        face = None if passing is None else passing.face
        if passing is not None and not passing.is_seen():
            passing.face = None
        again = None if any(map(_is_saved, others)) else _loaded[0].found_again([node], 0, blob)
        if again is not None:
            _count_write(blob.owner)
            _run_into(blob.owner, again)
        elif passing is not None:
            passing.face = face
        return again is not None


def write_apart(node: Node, blob: TBlob) -> None:
    """Compute a node straight into some memory of which it reads nothing, after all pending readers of that memory."""
    with turn():
        before_write(blob.owner)
        _run_into(blob.owner, _planner().planned(pending_below([node]), [node], (node, blob)))


def is_new(node: Node) -> bool:
    """Return whether `write_again` may work for an expression later, although it did not now."""
    return not _loaded or bool(_loaded[0].is_new(node))


def _is_saved(node: Node) -> bool:
    """Return whether a node is saved for a gradient, which could not recompute it after the write."""
    return node.saver is not None and node.saver() is not None


def _same_memory(owner: Storage) -> Collection[Storage]:
    """Return the owners of memory that may be the same; none if others might write to it meanwhile."""
    if not owner.shared or not trusted.owners:
        return (owner,)
    return trusted.owners if owner in trusted.owners else ()


def _reads(nodes: Iterable[Node], owners: Collection[Storage]) -> Iterator[tuple[Node, TBlob]]:
    """Yield those of these nodes that read some memory, each with the blob that it reads."""
    for node in nodes:
        for value in node.inputs:
            read = value.blob if isinstance(value, Node) else value
            if isinstance(read, TBlob) and read.owner in owners:
                yield node, read


def _reads_in_place(order: Iterable[Node], blob: TBlob, owners: Collection[Storage]) -> bool:
    """Return whether a graph reads a blob's memory only element by element where it will be written."""
    if blob.layout.may_repeat():
        return False
    for node, read in _reads(order, owners):
        same = read.owner is blob.owner and read.layout == blob.layout and node.op.kind != "view"
        if not (same and read.dtype == blob.dtype and node.shape == blob.shape) and read.overlaps(blob):
            return False
    return True


# ---- a look at a part


def look(part: Part) -> Native:
    """Return the elements of a part for reading; while its node is pending, only these elements are computed."""
    with turn():
        if part.blob is None and part.whole.blob is None:
            if part.seen is None:
                part.seen = _noted_part(part) if observers else _compute_part(part)
            return part.seen
        return force(part).native()


def _noted_part(part: Part) -> Native:
    """Compute the elements of a part as one entry of a profile."""
    whole = part.whole
    nbytes = prod(part.shape) * whole.dtype.itemsize
    with noted(LIBRARY, whole.device.backend.library.__name__, (f"{whole.op.name}, a part of it",), nbytes):
        return _compute_part(part)


def _compute_part(part: Part) -> Native:
    """Compute only the elements of a part, from the same parts of all elementwise nodes below it."""
    found: dict[Node, Native] = {}
    for node in pending_below([part.whole]):
        natives = []
        for value in node.inputs:
            if isinstance(value, Node) and value.blob is None:
                natives.append(found[value])
            elif isinstance(value, (Node, TBlob)):
                blob = force(value)
                layout = blob.layout.broadcast_to(part.whole.shape)
                assert layout is not None
                strided = blob.view(layout.index(part.key)).native()
                # NumPy's bits may depend on whether operands are packed.
                natives.append(node.device.backend.call(strided.copy, "C"))
            else:
                natives.append(value)
        backend = node.device.backend
        found[node] = backend.asarray(backend.call(node.op.kernel(backend), *natives, **node.params))
    return found[part.whole]


def seen_later(value: Any, way: str, given: Any) -> Node | None:
    """Return a pending view of a pending value if everything is recorded; None if the view is to be made now.

    way: a method of Layout; given: its argument.
    """
    limits = settings()
    if limits.lazy != "always":
        return None
    if type(value) is Part:
        value = VIEWS["index"].node(value.whole, value.key) if value.whole.blob is None else None
    if type(value) is not Node or value.blob is not None:
        return None
    node = VIEWS[way].node(value, given)
    if node is not None:
        ledger.enter(node, limits)
    return node


def can_look(node: Node) -> bool:
    """Return whether the library can compute single parts of a node: all below it is elementwise, of the same shape."""
    if settings().reproducible:
        return False
    with turn():
        below = pending_below([node])
    return all(one.op.kind == "elementwise" and one.shape == node.shape for one in below)


# ---- bounds


class Ledger:
    """All pending nodes that read memory, held weakly, and the bytes that they keep alive together.

    The bytes are those of buffers that nobody else held at the last check, and of all buffers that nodes have come to
    read since. There is a new check if the sum exceeds what the user allows, or has grown by so much that the free
    memory may have changed.
    """

    def __init__(self) -> None:
        self._nodes: list[weakref.ref[Node]] = []
        self._bytes, self._ask = 0, ASK_BYTES
        self._counted: dict[int, int] = {}  # bytes by owners' ids; of owners with the same id the largest
        self._room = 128

    def enter(self, node: Node, limits: Settings) -> None:
        """Add a new node; evaluate it if its graph outgrows the bounds, and all nodes if their buffers do."""
        if node.held:  # others keep nothing alive that these do not
            self._nodes.append(node.reference)
            for value in node.inputs:
                if type(value) is TBlob:
                    owner, counted = value._owner or value.owner, self._counted
                    if owner.nbytes > counted.get(id(owner), 0):
                        self._bytes += owner.nbytes - counted.get(id(owner), 0)
                        counted[id(owner)] = owner.nbytes
            limit = limits.most_pinned
            most = self._ask if limit is None else limit
            if self._bytes > most or len(self._nodes) > self._room:
                with turn():
                    self._settle(limit)
        if node.serial - node.first >= limits.fuse_limit:
            with turn():
                order = pending_below([node])  # serial numbers count nodes of other graphs, too
                for place, one in enumerate(order):
                    one.first = node.serial - place
            if len(order) > limits.fuse_limit:
                evaluate([node])

    def waiting(self) -> list[Node]:
        """Return the nodes that still exist and are pending."""
        return [node for reference in self._nodes if (node := reference()) is not None and node.blob is None]

    def _settle(self, limit: int | None) -> None:
        """Drop nodes that are no longer pending; if others keep too much memory alive, evaluate them together."""
        nodes = self.waiting()
        if self._bytes > (self._ask if limit is None else limit) or len(self._counted) > MANY_COUNTED:
            kept = kept_alive(nodes)
            self._bytes = sum([owner.nbytes for owner in kept])
            if _is_too_much(kept, limit):
                evaluate(last_users([node for node in nodes if not _memory_of(node).isdisjoint(kept)]))
                nodes, kept, self._bytes = [node for node in nodes if node.blob is None], [], 0
            self._ask = self._bytes + ASK_BYTES
            self._counted = {id(owner): owner.nbytes for owner in kept}
        self._nodes = [node.reference for node in nodes]
        self._room = max(128, 2 * len(nodes))


def _memory_of(node: Node) -> set[Storage]:
    """Return the owners of the buffers that a node reads directly."""
    return {value.owner for value in node.inputs if type(value) is TBlob}


def _is_too_much(kept: Iterable[Storage], limit: int | None) -> bool:
    """Return whether buffers take more bytes than a limit, or than the allowed part of some device's free memory."""
    if limit is not None:
        return sum([owner.nbytes for owner in kept]) > limit
    taken: Counter[Device] = Counter()
    for owner in kept:
        taken[owner.device] += owner.nbytes
    return any([nbytes > FREE_PART * device.backend.free_memory() for device, nbytes in taken.items()])


def kept_alive(nodes: Iterable[Node]) -> list[Storage]:
    """Return the buffers that nobody but these nodes holds.

    Reference counts tell: those of views of a buffer, and of its owner. Only the time of evaluation depends on them.
    """
    blobs = Counter([value for node in nodes for value in node.inputs if type(value) is TBlob])
    held = {id(blob.owner) for blob, references in _beyond(blobs) if references > _ALONE}
    owners = Counter([blob.owner for blob in blobs])
    alone = [owner for owner, references in _beyond(owners) if references <= _ALONE and id(owner) not in held]
    return [owner for owner in alone if not owner.is_held()]


def _beyond(counted: Counter[Any]) -> list[tuple[Any, int]]:
    """Return the counted objects, each with the number of references beyond those counted."""
    return [(one, getrefcount(one) - count) for one, count in counted.items()]


# What `_beyond` returns for an object whose references have all been counted, as CPython counts.
_ALONE = 1 + _beyond(Counter([frozenset([0])]))[0][1]


ledger = Ledger()
