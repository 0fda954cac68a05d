"""Capture: while a function runs once, everything that is computed for it is recorded, in order.

The function really runs: its values are computed, its writes happen, and if something cannot be captured it just goes
on. The record has the steps that the executor took, evaluations and calls of the library's functions. It names memory
by its origin: an argument, a constant, or an earlier step. The same steps in the same order give the same results for
other arguments whose memory is laid out alike and overlaps alike (see captured.py).
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakSet, ref

import numpy as np

from ..base.dtypes import DType
from ..base.layout import Layout, Shape
from ..base.options import Closing, Settings
from ..base.profiling import users_line
from ..codegen.cpu.compile import host
from ..devices import as_device
from ..devices.cpu import CPU, bits_of
from ..graph.node import Node, View
from ..graph.number import Arithmetic, Number
from ..plan.layouts import Meta, Work, work_of
from ..plan.program import Plan
from ..plan.trace import Trace
from ..storage.blob import TBlob
from ..storage.storage import Native, Storage, address_of, watchers
from .places import Window, without_place
from .products import ByBlas
from .taken_down import Alike, Called, Evaluated, Outcome, Place, Root, Shown, Spot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..devices import Device
    from .replay import Planned
    from .schedule import Schedule

# Why a call was not captured.
LOOKED = "[values] it asks for values, or a step of it cannot be captured"
OUTSIDE = "[outside] it reads a tensor that is no argument, and that is not found through the function's names"
ARRAYS = f"{OUTSIDE}: it lies in memory of a NumPy array (xtensor.numpy makes tensors instead)"
RETURNED = "[outside] it returns memory of a NumPy array that others may have"
WRITES = "[writes] it writes to memory in a way that cannot be captured"
ELSEWHERE = "[device] it reads or makes memory on another device than its arguments'"
DISTURBED = "[disturbed] another thread used an argument meanwhile, or the process was forked"
LONG = "[long] it has more steps than pay for so few calls; it is captured once plain calls have taken as long as that"
UNROLLED = "[steps] it has more steps than can be captured; fuse the body of its loop instead"

# The most steps of a captured call, the most of them that repeat no other one, and the most calls of the library.
MOST_STEPS, MOST_NEW, MOST_CALLS = 200_000, 65_536, 1000

# The most bytes of NumPy arrays that are taken as constants.
MOST_OF_ARRAYS = 1 << 27

# Work that comes more often than this in a call, as the body of a loop does, has kernels compiled for it at once.
LOOPED = 8


class Capture:
    """The record of a call: used as `with capture:`, it hears of all values that are computed, looked at and written.

    reason: why the record is incomplete, "" as long as it may be complete. arguments: their blobs; device: theirs, or
    the CPU. steps: in order. roots: of the memory that steps name. written_roots: those that were written; blank: those
    that begin unset; recorded: for each root that was evaluated, the serial number of its node. arrays: NumPy arrays
    that the function finds by name, which hold the same in each call; deterministic: whether those that it makes hold
    the same, too; handles: whether it goes on after errors. given_up: called when the captured thread has given a
    reason, perhaps more than once. hands_out: called for a number that is asked for; returns it if the function only
    returns it. checked: why it cannot be captured if it does something that must not be done twice:
    it looks into values and may be called after all, or goes on after errors. arithmetic: of a call that is traced.
    is_lasting: whether other calls will take the same steps, so that all memory must be known. leaves: those whose
    gradients all calls of the kind have, among those that existed at `since`, by the tape's numbers. held: memory that
    is kept alive, None where none is. most: the most steps to record. taped: the additional cost of plain calls, as a
    number of tape steps: those that gradients went back through, and those of rows that are done at once here.
    """

    def __init__(
        self,
        arguments: Sequence[TBlob],
        arrays: Sequence[Native] = (),
        most: int = MOST_STEPS,
        *,
        deterministic: bool = True,
        handles: bool = False,
    ) -> None:
        self.most = most
        self.is_lasting = True
        self.leaves: Set[Any] = frozenset()
        self.since = 0
        self.held: list[Storage] | None = None
        self.reason = self.checked = ""
        self.arithmetic: Arithmetic | None = None
        self.given_up: Callable[[], None] = lambda: None
        self.hands_out: Callable[[Any], float | None] = lambda x: None
        self.thread = get_ident()
        self.arguments = list(arguments)
        self.device = arguments[0].device if arguments else as_device("cpu", "fuse")
        self.steps: list[Evaluated | Called] = []
        self.roots: list[Root] = []
        self.written_roots: set[int] = set()
        self.blank: set[int] = set()
        self._announced: Counter[int] = Counter()
        self._numbers: WeakKeyDictionary[Storage, list[Place]] = WeakKeyDictionary()
        self._first: dict[int, int] = {}
        self._made: list[ref[Storage]] = []
        self.taped = self._inside = self._calls = self._repetitions = 0
        self._times: Counter[tuple[Plan, tuple[Any, ...]]] = Counter()
        self._before: dict[tuple[Any, ...], Evaluated] = {}
        self._alike: dict[tuple[Any, ...], Alike] = {}
        self._constants: dict[tuple[int, bytes], TBlob] = {}
        self.recorded: dict[int, int] = {}
        self._shown: dict[int, Shown] = {}
        self._stale: set[int] = set()
        self._arrays = [np.lib.array_utils.byte_bounds(array) for array in arrays if array.size]
        self._wholes = [np.lib.array_utils.byte_bounds(array) for array in arrays if array.flags.c_contiguous]
        self._imports = WeakSet[Storage]()
        self._of_arrays: dict[int, Root] = {}
        self._returned: dict[int, TBlob] = {}
        self._is_deterministic, self._nbytes_of_arrays = deterministic, 0
        self._handles = handles
        for number, blob in enumerate(arguments):
            self._enter_root(blob.owner, Root(number, None, 0), blob)

    def __enter__(self) -> Capture:
        self._closing = Closing()
        watchers.append(self)
        return self

    def __exit__(self, *failure: object) -> None:
        with suppress(ValueError):  # after a fork, or an interrupt, it has been removed already
            watchers.remove(self)
        self._closing.end()
        self._constants.clear()
        if self.arithmetic is not None:
            self.arithmetic.indices.clear()

    @property
    def draws(self) -> bool:
        """Whether random numbers were drawn."""
        return any([isinstance(step, Called) and not step.takes for step in self.steps])

    @property
    def branches(self) -> bool:
        """Whether the call may have branched on booleans that it computed."""
        return any([isinstance(step, Called) and isinstance(step.function, Outcome) for step in self.steps])

    @property
    def reaches_out(self) -> bool:
        """Whether memory is read or written that is not that of an argument."""
        return self.reason.startswith((OUTSIDE, WRITES, DISTURBED))

    @property
    def is_inside(self) -> bool:
        """Whether a step is being run."""
        return self._inside > 0

    # ---- memory

    def takes(self, array: Native) -> bool:
        """Return whether the contents of a NumPy array follow from constants."""
        if self._is_deterministic or not isinstance(array, np.ndarray) or not array.size:
            return self._is_deterministic
        low, high = np.lib.array_utils.byte_bounds(array)
        return any([begin <= low and high <= end for begin, end in self._wholes])

    def imported(self, owner: Storage, array: Native) -> None:
        if self.takes(array):
            self._imports.add(owner)

    def looked(self, owner: Storage | None) -> None:
        if get_ident() != self.thread:
            if owner is not None and owner in self._numbers:
                self.refuse(DISTURBED)
        elif not self._inside:
            self.refuse(LOOKED)

    def written(self, owner: Storage) -> None:
        if get_ident() != self.thread:
            if owner in self._numbers:
                self.refuse(DISTURBED)
        elif owner in self._numbers:
            self._announced[self._numbers[owner][0].root] += 1
        elif owner in self._imports:
            self.refuse(WRITES)

    def served(self, values: Iterable[Any]) -> None:
        """Note that values were evaluated: if another thread did so with memory that is known here, it has perhaps
        computed nodes that this call recorded, and they would be missing among the steps.
        """
        is_other = get_ident() != self.thread
        if is_other and any([type(value) is TBlob and value.owner in self._numbers for value in values]):
            self.refuse(DISTURBED)

    def _is_found(self, blob: TBlob) -> bool:
        """Return whether memory overlaps a NumPy array that the function finds by name."""
        if not self._arrays or self.device.backend is not CPU:
            return False
        low, high = blob.span
        return any([begin < high and low < end for begin, end in self._arrays])

    def refuse(self, reason: str) -> None:
        """Note why the call is not captured: the first reason counts, but one from another thread replaces it."""
        if reason == DISTURBED:
            self.reason = reason
        elif not self.reason:
            self.reason = _at_users_line(reason)
        if get_ident() == self.thread and not self._inside:
            self.given_up()

    def refuse_call(self, name: str) -> None:
        """Refuse a library function whose shapes depend on values, or that depends on more than its arguments."""
        self.refuse(f"{LOOKED} ({name})")

    def holds(self, check: Callable[..., Any], blob: TBlob, name: str) -> bool:
        """Return whether a check passes, which raises ValueError if not. Each later call repeats the check at this
        point, and becomes a plain call if it fails.
        """
        with self.inside():
            try:
                self.device.backend.call(check, blob.shallow_copy().native())
            except ValueError:
                return False
        self.checked = self.checked or _at_users_line(f"{LOOKED} ({name}, and writes or draws)")
        self.called(check, (blob,), ())
        return True

    def decides(self, blob: TBlob) -> bool:
        """Return a boolean that the call may branch on. Each later call compares its own at this point, and becomes
        another call, or a plain one, where that differs.
        """
        with self.inside():
            outcome = Outcome(bool(blob.shallow_copy().native()))
        if self.reason:  # a plain call from here on, at the latest
            self.refuse(LOOKED)
        self.called(outcome, (blob.view(blob.layout, dtype=np.dtype(np.uint8)),), (), name="bool")
        return outcome.is_true

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Return a context for code that belongs to a step: the memory that it looks at and writes is known."""
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1

    # ---- steps

    def run(self, schedule: Schedule, blobs: Sequence[TBlob], scalars: Sequence[Any]) -> list[TBlob]:
        """Run a schedule; its results share no cached arrays through which values could be seen unnoticed."""
        with self.inside():
            found = schedule.run([blob.shallow_copy() for blob in blobs], scalars)
            return [TBlob(one.owner, one.dtype, one.layout, one.device, writeable=one.writeable) for one in found]

    def times(self, plan: Plan, key: tuple[Any, ...]) -> int:
        """Return how often a plan has come with operands of the same layouts. key: of its schedule."""
        self._times[plan, key] += 1
        return self._times[plan, key]

    def settings(self, plan: Plan, limits: Settings) -> Settings:
        """Return the settings for some work: work that a loop repeats is worth compiling kernels at once."""
        self._times[plan, ()] += 1
        return limits if self._times[plan, ()] <= LOOPED else with_kernels(limits, self.device)

    def key_of(
        self, trace: Trace, plan: Plan, layouts: tuple[Any, ...], into: tuple[int, TBlob] | None
    ) -> tuple[Any, ...] | None:
        """Return what identifies an evaluation that writes one given result and creates no memory: its plan, layouts,
        places of memory, and scalars. None for any other evaluation.
        """
        if into is None or len(plan.kept) > 1:
            return None
        key: list[Any] = [plan, layouts]
        for value in (*trace.values, into[1]):
            kind = type(value)
            if kind is TBlob:
                places = self._numbers.get(value.owner)
                if places is None:
                    return None
                key += (places[0].root, value.layout.offset)
            elif kind is Number:
                key.append((kind, cast(Number, value).cell))
            elif kind is not Node:
                key.append((kind, repr(value)))  # 0.0 is not -0.0, and NaN is NaN
        return tuple(key)

    def repeated(self, key: tuple[Any, ...] | None) -> bool:
        """Record an evaluation once more if it was recorded before, as in a loop; return whether it was."""
        step = None if key is None else self._before.get(key)
        if step is None or self.reason:
            return False
        for number in step.into:
            self._note_write(step.spots[number].root)
        self._repetitions += 1
        self._enter(step)
        return True

    def evaluated(
        self, planned: Planned, found: Iterable[tuple[int, TBlob]], key: tuple[Any, ...] | None = None
    ) -> None:
        """Record an evaluation that has just been run. found: its results, by number. key: as of `key_of`."""
        if self.reason:
            return
        alike = self._alike_of(planned)
        trace, metas, into, calls = alike
        values = planned.trace.values
        with self.inside():
            spots = {n: self._spot(value, metas[n]) for n, value in enumerate(values) if type(value) is TBlob}
            for number, blob in found:
                spots[number] = self._spot(blob, is_made=number not in into)
                self.recorded.setdefault(spots[number].root, getattr(values[number], "serial", 0))
            for number in into:
                self._note_write(spots[number].root)
        self._calls += calls
        step = Evaluated(alike.trace_with(values) if planned.scalars else trace, planned.plan, metas, spots, into)
        self._enter(step)
        if key is not None and not calls:
            self._before[key] = step

    def _alike_of(self, planned: Planned) -> Alike:
        """Return the part of an evaluation's record that it shares with evaluations of the same schedule."""
        key = (planned.plan, planned.key, None if planned.into is None else planned.into[0])
        if key not in self._alike:
            work = work_of(planned.trace, planned.plan, planned.into, planned.limits)
            self._alike[key] = Alike(work.trace.structure(), work.metas, work.into, self._library_calls(work))
        return self._alike[key]

    def _library_calls(self, work: Work) -> int:
        """Return for how many of an evaluation's kernels Python will call the library."""
        direct = [kernel for kernel in work.plan.kernels if kernel.direct is not None]
        called = [kernel for kernel in direct if type(work.trace.values[kernel.results[0]].op) is not View]
        if not called:
            return 0
        work = work._replace(limits=with_kernels(work.limits, self.device))
        return sum([ByBlas.of(kernel, work) is None for kernel in called])

    def called(
        self,
        function: Callable[..., Any],
        takes: Sequence[TBlob],
        gives: Sequence[TBlob],
        writes: Sequence[TBlob] = (),
        name: str = "",
    ) -> None:
        """Record a call of a function of native arrays. gives: its results; writes: those of `takes` that it wrote."""
        if self.reason:
            return
        if self.arithmetic is not None:
            self.arithmetic.ask_within(function)
        if self._handles and takes and not self.checked:
            self.checked = _at_users_line(f"{LOOKED} (where it handles errors, and writes or draws)")
        with self.inside():
            given = [self._spot(blob) for blob in takes]
            roots = tuple([self._spot(blob).root for blob in writes])
            for root in roots:
                self._note_write(root)
            made = [self._spot(blob, is_made=True) for blob in gives]
        self._enter(Called(function, given, made, roots, name))

    def created(self, native: Native, device: Device) -> TBlob:
        """Return memory whose contents follow from Python's constants alone: each call begins with a copy of them."""
        native = device.backend.asarray(native)
        blob = TBlob(Storage.of(native, device), native.dtype, Layout(native.shape, native.strides), device)
        with self.inside():
            constant = TBlob.adopt(device.backend.call(native.copy, "K"), device)
            constant.fixed = True
            self._enter_root(blob.owner, Root(None, constant, blob.owner.nbytes))
        return blob

    def constant(self, native: Native, device: Device) -> TBlob:
        """Return memory that only steps read, with a number that follows from Python's constants alone."""
        key = (native.dtype.num, native.tobytes())
        blob = self._constants.get(key)
        if blob is None:
            blob = self._constants[key] = self.created(native, device)
        return blob.shallow_copy()

    def drawn(self, draw: Callable[[], Native], native: Native, device: Device) -> TBlob:
        """Return random numbers that a function has drawn; each call draws them anew."""
        blob = TBlob.adopt(device.backend.asarray(native), device)
        found = TBlob(blob.owner, blob.dtype, blob.layout, device)
        self.called(draw, (), [found])
        return found

    def emptied(self, shape: Shape, dtype: DType, device: Device) -> TBlob:
        """Return memory whose values are not set."""
        blob = TBlob.empty(shape, dtype, device)
        self.blank.add(len(self.roots))
        self._enter_root(blob.owner, Root(None, None, blob.owner.nbytes))
        return blob

    def show(self, view: TBlob, base: TBlob, key: tuple[Any, ...]) -> None:
        """Record a view by a key that contains values; the view has an owner of its own. Later calls make a copy: it is
        copied back after it was written, and copied anew when it is used after its base was written.
        """
        self._enter_root(view.owner, Root(None, None, view.owner.nbytes), view)
        self._made.append(ref(view.owner))
        with self.inside():
            shown = self._shown_by(base, key, self._spot(view))
        self._enter(shown.copied(self.device.backend))
        self._shown[shown.own.root] = shown

    def shows(self, view: TBlob, base: TBlob, key: tuple[Any, ...]) -> bool:
        """Return whether this view was recorded by `show` with the same base and key."""
        places = self._numbers.get(view.owner, ())
        if not places or places[0].root not in self._shown:
            return False
        with self.inside():
            return self._shown[places[0].root] == self._shown_by(base, key, self._spot(view))

    def _shown_by(self, base: TBlob, key: tuple[Any, ...], own: Spot) -> Shown:
        starts = [one.start if type(one) is Window else one for one in key]
        places = tuple([self._spot(one) for one in starts if type(one) is TBlob])
        return Shown(own, self._spot(base), places, tuple(map(without_place, key)))

    def _enter(self, step: Evaluated | Called) -> None:
        """Enter a step, after copies that renew views at computed places for it, and before copies back from them."""
        if not self._shown:
            self._append(step)
            return
        if isinstance(step, Called):
            used, written = [*step.takes], {*step.writes}
        else:
            used, written = [*step.spots.values()], {step.spots[number].root for number in step.into}
        for spot in used:
            self._renew(spot.root)
        self._append(step)
        for root in written:
            self._changed(root)

    def _renew(self, root: int) -> None:
        """Copy a view anew if its base was written meanwhile."""
        shown = self._shown.get(root)
        if shown is not None:
            self._renew(shown.base.root)
            if root in self._stale:
                self._append(shown.renewed(self.device.backend))
                self._stale.discard(root)
                self._outdate(root, root)

    def _changed(self, root: int, source: int = -1) -> None:
        """Copy a view back after it was written, and have other views of that memory copied anew. source: the view from
        which the memory was written.
        """
        self._outdate(root, source)
        shown = self._shown.get(root)
        if shown is not None:
            self._append(shown.put_back(self.device.backend))
            self.written_roots.add(shown.base.root)
            self._changed(shown.base.root, root)

    def _outdate(self, root: int, source: int) -> None:
        """Mark views of written memory to be copied anew when they are used, except the one it was written from."""
        self._stale |= {
            one for one, shown in self._shown.items() if one != source and self._meet(shown.base.root, root)
        }

    def _meet(self, one: int, other: int) -> bool:
        """Return whether two roots may be the same memory: of one owner, or of arguments that overlap."""
        first, second = self._first.get(one, one), self._first.get(other, other)
        if first == second:
            return True
        numbers = [self.roots[root].argument for root in (first, second)]
        if None in numbers:
            return False
        (low, high), (begin, end) = [self.arguments[number].span for number in numbers if number is not None]
        return low < end and begin < high

    def _append(self, step: Evaluated | Called) -> None:
        self._calls += isinstance(step, Called) and step.shifts is None
        new = len(self.steps) - self._repetitions
        too_many = len(self.steps) >= MOST_STEPS or new >= MOST_NEW or self._calls > MOST_CALLS
        if too_many or len(self.steps) >= self.most:
            self.refuse(UNROLLED if too_many else LONG)
            self.steps.clear()
        else:
            self.steps.append(step)

    def _note_write(self, root: int) -> None:
        """Note that a step writes memory: this accounts for one write that was announced."""
        self.written_roots.add(root)
        self._announced[self._first[root]] -= 1

    def wrote_otherwise(self) -> bool:
        """Return whether memory was written other than by the recorded steps, or whether a NumPy array was written,
        which is a constant for later calls.
        """
        if any([count > 0 for count in self._announced.values()]):
            return True
        roots = [self.roots[root] for root in self.written_roots]
        arguments = [self.arguments[root.argument] for root in roots if root.argument is not None]
        if any([root.array is not None for root in roots]) or any(map(self._is_found, arguments)):
            return True
        with self.inside():
            return not all([_is_as_before(root) for root in self._of_arrays.values()])

    def _spot(self, blob: TBlob, meta: Meta | None = None, *, is_made: bool = False) -> Spot:
        """Return the spot of a blob. meta: its meta, if that is known; is_made: whether memory that is not known yet is
        created by this step.
        """
        owner, layout = blob.owner, blob.layout
        if blob.device is not self.device:
            self.refuse(ELSEWHERE)
        place = self._place_of(owner, blob)
        if place is None and is_made and owner not in self._numbers:
            place = self._enter_root(owner, Root(None, None, owner.nbytes))
        elif place is None and blob.fixed:
            place = Place(len(self.roots), layout.offset, *layout.extent(blob.dtype.itemsize))
            self.roots.append(Root(None, blob, 0))
        elif place is not None and place.root in self._of_arrays and not _is_as_before(self.roots[place.root]):
            self.refuse(WRITES)
        elif place is None and not self.is_lasting:
            place = self._enter_root(owner, Root(None, None, owner.nbytes))
        elif place is None and owner in self._imports:
            place = self._enter_array(owner)
        elif place is None:
            self.refuse(ARRAYS if owner.shared else OUTSIDE)
            place = Place(0, 0, 0, 0)
        if meta is None:
            meta = Meta(blob.shape, blob.dtype, Layout(blob.shape, layout.strides), blob.is_packed)
        return Spot(place.root, layout.offset - place.begin, meta)

    def _place_of(self, owner: Storage, blob: TBlob) -> Place | None:
        """Return the place of the first root that contains all bytes of a blob; None if none does."""
        places = self._numbers.get(owner, ())
        if places and places[0].high - places[0].low == owner.nbytes:
            return places[0]
        low, high = blob.layout.extent(blob.dtype.itemsize)
        return next((one for one in places if one.low <= low and high <= one.high), None)

    def _enter_array(self, owner: Storage) -> Place:
        """Enter the memory of a NumPy array, which may have been entered before."""
        for number, root in self._of_arrays.items():
            same = (address_of(root.array), root.nbytes) == (owner.address, owner.nbytes)
            if same and _is_as_before(root):
                self._numbers[owner] = [Place(number, 0, 0, owner.nbytes)]
                return self._numbers[owner][0]
        self._nbytes_of_arrays += owner.nbytes
        if self._nbytes_of_arrays > MOST_OF_ARRAYS:
            self.refuse(ARRAYS)
        constant = TBlob.adopt(owner.bytes.copy(), self.device)
        constant.fixed = True
        root = self._of_arrays[len(self.roots)] = Root(None, constant, owner.nbytes, owner.bytes)
        return self._enter_root(owner, root)

    def _enter_root(self, owner: Storage, root: Root, blob: TBlob | None = None) -> Place:
        """Enter memory: all that its owner has, or the part of it that a blob shows."""
        place = Place(len(self.roots), 0, 0, owner.nbytes)
        if blob is not None:
            place = Place(len(self.roots), blob.layout.offset, *blob.layout.extent(blob.dtype.itemsize))
        else:
            self._made.append(ref(owner))
        if self.held is not None:
            self.held.append(owner)
        places = self._numbers.setdefault(owner, [])
        places.append(place)
        self._first[place.root] = places[0].root
        self.roots.append(root)
        return place

    def memory(self) -> dict[int, tuple[Storage, int]]:
        """Return the owner of each root whose memory still exists, and the offset at which the root begins there."""
        return {place.root: (owner, place.begin) for owner, places in self._numbers.items() for place in places}

    def spot_of(self, blob: TBlob) -> Spot:
        """Return the spot of a result."""
        with self.inside():
            spot = self._spot(blob)
            if spot.root in self._shown:
                self.refuse(f"{LOOKED} (it returns a view at computed places)")
            if spot.root in self._of_arrays:
                others = self._returned.items()
                if self._is_found(blob) or any([root != spot.root and blob.overlaps(one) for root, one in others]):
                    self.refuse(RETURNED)
                self._returned[spot.root] = blob
            return spot

    def kept_besides(self, results: Iterable[TBlob]) -> bool:
        """Return whether somebody holds memory that the call made, besides these results and garbage in cycles."""
        owners = {blob.owner for blob in results}
        if not self._is_held(owners):
            return False
        gc.collect()
        return self._is_held(owners)

    def _is_held(self, but: set[Storage]) -> bool:
        return any([owner not in but for reference in self._made if (owner := reference()) is not None])


def _is_as_before(root: Root) -> bool:
    """Return whether a NumPy array holds the same values as when its memory was entered."""
    array, constant = root.array, cast(TBlob, root.constant)
    return array is not None and bool((bits_of(array) == bits_of(constant.native())).all())


def _at_users_line(reason: str) -> str:
    line = users_line()
    return f"{reason}, at {line}" if line else reason


@lru_cache(maxsize=64)
def with_kernels(limits: Settings, device: Device) -> Settings:
    """Return settings under which machine code is compiled at once, where other ways would be allowed at first."""
    made = limits.engine == "auto" and device.backend is CPU and host() is not None
    return limits._replace(engine="llvm") if made else limits


def stop_all() -> None:
    """Stop all captures in the child of a fork, which does not have the threads that they watch."""
    for watcher in tuple(watchers):
        if isinstance(watcher, Capture):
            watcher.reason = DISTURBED
            watcher._closing.end()
    watchers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stop_all)
