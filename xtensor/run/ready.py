"""Ready launches: a plan over memory of known layouts and scalars, of which nothing is open but where the memory lies.

What planning, choosing engines and preparing nests would find out again at every evaluation is found out once; a run
fills in addresses and calls machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from math import inf, prod
from time import perf_counter
from typing import Any, NamedTuple

from ..base.dtypes import DType
from ..base.layout import Layout, Shape
from ..base.options import Settings
from ..base.threads import SHARE_PAYS, WAKE_PAYS, worth
from ..base.threads import count as threads_here
from ..codegen.cpu.compile import CHEAP
from ..codegen.cpu.primitives import LacksError
from ..devices.cpu import packed_copy
from ..graph.node import View
from ..plan.program import Kernel
from ..storage.blob import TBlob
from ..storage.storage import Native, Storage
from . import columns, engines, launch, reduce, rows
from .planned import Evaluation

Addresses = list[int]
Run = Callable[[Addresses, list[TBlob]], None]

# Of so many calls, the first few try by turns whether several threads are faster than one.
PERIOD, TRIALS = 128, 8


class Made(NamedTuple):
    """A value that gets memory of its own: its number, bytes, dtype, layout and whether that is packed."""

    number: int
    nbytes: int
    dtype: Any
    layout: Layout
    packed: bool | None


class Launch(NamedTuple):
    """One kernel, or several that go by rows. run: takes the addresses of all values, and the blobs made for it.

    drops: the numbers of values with memory of their own that nobody needs after it.
    """

    makes: list[Made]
    run: Run
    drops: list[int]


class Library(NamedTuple):
    """A step that the library's own function computes.

    number: of its result. operands: their numbers. function: takes native arrays. drops: as of a Launch.
    """

    number: int
    operands: tuple[int, ...]
    function: Callable[..., Any]
    drops: list[int]


class Shown(NamedTuple):
    """A value that is a view of another one, whose first element lies so many bytes after that one's.

    lies: dtype, layout but for its offset, and whether it can be written if that one can; None where nobody asks for
    more than where.
    """

    number: int
    whole: int
    after: int
    lies: tuple[DType, Layout, bool] | None
    drops: list[int]


class Ready:
    """A plan as launches of compiled kernels, under the settings it was made for.

    leaves: numbers of values that are given, each with the number of its blob and bytes after that one's beginning.
    results: the numbers of the values that a run returns.
    """

    def __init__(
        self, evaluation: Evaluation, leaves: list[tuple[int, int, int]], results: list[int], limits: Settings
    ) -> None:
        self.limits = limits
        self._leaves = leaves
        self.results = results
        self._fixed = {n: v for n, v in enumerate(evaluation.values) if type(v) is TBlob and v.fixed}
        self._addresses = [self._fixed[n].address if n in self._fixed else 0 for n in range(len(evaluation.values))]
        self._needed = needed = _needed(evaluation)
        self._seen = {n: (_lie(evaluation.values[n]), given, after) for n, given, after in leaves if n in needed}
        self._device = evaluation.values[results[0]].device
        self._places: list[tuple[int, int]] = []
        self._scratch = 0
        together = _by_rows(evaluation, limits) or _by_columns(evaluation, limits)
        self._launches: list[Launch | Library | Shown] = [together] if together else self._one_by_one(evaluation)

    def run(self, blobs: Sequence[TBlob]) -> list[TBlob]:
        """Return the results for memory laid out as it was when this was made."""
        addresses = self._addresses.copy()
        for number, given, after in self._leaves:
            blob = blobs[given]
            addresses[number] = (blob._address or blob.address) + after
        device = self._device
        if self._scratch:
            scratch = Storage(device, self._scratch)
            base = scratch.address
            for number, place in self._places:
                addresses[number] = base + place
        found: dict[int, TBlob] = {}
        for step in self._launches:
            if isinstance(step, Launch):
                made = []
                for number, nbytes, dtype, layout, packed in step.makes:
                    buffer = Storage(device, nbytes)
                    blob = found[number] = TBlob(buffer, dtype, layout, device)
                    blob._packed = packed
                    addresses[number] = blob._address = buffer.lend()
                    made.append(blob)
                step.run(addresses, made)
            elif isinstance(step, Library):
                found[step.number] = self._call(step, blobs, found)
                addresses[step.number] = found[step.number].address
            else:
                addresses[step.number] = addresses[step.whole] + step.after
                if step.lies is not None:
                    found[step.number] = self._show(step, blobs, found)
            for number in step.drops:
                found.pop(number, None)
        return [found[number] for number in self.results]

    def _show(self, step: Shown, blobs: Sequence[TBlob], found: dict[int, TBlob]) -> TBlob:
        """Return a view of a value that has its bytes."""
        assert step.lies is not None
        dtype, layout, writeable = step.lies
        if step.whole in self._seen:
            _, given, after = self._seen[step.whole]
            whole = blobs[given]
        else:
            whole, after = found.get(step.whole) or self._fixed[step.whole], 0
        offset = whole.layout.offset + after + step.after
        return whole.view(Layout(layout.shape, layout.strides, offset), writeable=writeable, dtype=dtype)

    def _call(self, step: Library, blobs: Sequence[TBlob], found: dict[int, TBlob]) -> TBlob:
        """Return what the library's function computes."""
        natives = [self._native(number, blobs, found) for number in step.operands]
        backend = self._device.backend
        return TBlob.adopt(backend.asarray(backend.call(step.function, *natives)), self._device)

    def _native(self, number: int, blobs: Sequence[TBlob], found: dict[int, TBlob]) -> Native:
        """Return an operand of a library's function: computed, fixed, or what is seen of given memory."""
        blob = found.get(number) or self._fixed.get(number)
        if blob is not None:
            return blob.native()
        (layout, dtype), given, after = self._seen[number]
        blob = blobs[given]
        offset = blob.layout.offset + after
        if (blob.layout.shape, blob.layout.strides, after) == (layout.shape, layout.strides, 0):
            return blob.native()
        return blob.view(Layout(layout.shape, layout.strides, offset), dtype=dtype).native()

    # ---- preparing

    def _one_by_one(self, evaluation: Evaluation) -> list[Launch | Library | Shown]:
        """Return a launch for each kernel; temporary values share scratch memory, reused when nobody needs them."""
        plan = evaluation.plan
        launches: list[Launch | Library | Shown] = []
        free: list[tuple[int, int]] = []
        held: dict[int, tuple[int, int]] = {}
        for kernel, last in zip(plan.kernels, plan.last, strict=True):
            made = {number: evaluation.result(number) for number in kernel.results}
            evaluation.blobs.update(made)
            if kernel.direct is not None:
                launches.append(self._direct(kernel.direct, evaluation, self._drops(last, held)))
                free += [held[number] for number in last if number in held]
                continue
            run, own = _runner(kernel, evaluation, self.limits.fast_math)
            for number in set(made) - plan.kept - own - self._needed:
                held[number] = self._place(number, made[number].owner.nbytes, free)
            makes = [_made(number, blob) for number, blob in made.items() if number not in held]
            launches.append(Launch(makes, run, self._drops(last, held)))
            free += [held[number] for number in last if number in held]
        return launches

    def _direct(self, number: int, evaluation: Evaluation, drops: list[int]) -> Library | Shown:
        """Return a step that no loop computes; the operands that are scalars stand in the library's function."""
        node, arguments = evaluation.values[number], evaluation.trace.arguments[number]
        if type(node.op) is not View:
            function = partial(node.op.kernel(node.device.backend), **node.params)
            return Library(number, arguments, function, drops)
        whole = evaluation.blobs[arguments[0]]
        shown = evaluation.blobs[number] = node.op.of(whole, **node.params)
        if shown.owner is not whole.owner:  # a reshape that strides do not allow
            return Library(number, arguments, partial(_reshaped, shape=node.shape), drops)
        lies = (shown.dtype, shown.layout, node.op.may_be_written) if number in self._needed else None
        return Shown(number, arguments[0], shown.layout.offset - whole.layout.offset, lies, drops)

    @staticmethod
    def _drops(last: Sequence[int], held: Mapping[int, Any]) -> list[int]:
        """Return those of the values needed last that have memory of their own."""
        return [number for number in last if number not in held]

    def _place(self, number: int, nbytes: int, free: list[tuple[int, int]]) -> tuple[int, int]:
        """Give a temporary value a place in the scratch memory; return where, and how much may lie there."""
        found = next((place for place in free if place[1] >= nbytes), None)
        if found is None:
            found = self._scratch, -(-nbytes // 64) * 64
            self._scratch += found[1]
        else:
            free.remove(found)
        self._places.append((number, found[0]))
        return found


def _needed(evaluation: Evaluation) -> set[int]:
    """Return the values that must be found as blobs: results, what the library's functions take, and what such values
    are views of.
    """
    needed = set(evaluation.plan.kept)
    for kernel in reversed(evaluation.plan.kernels):
        if kernel.direct is None:
            continue
        op = evaluation.values[kernel.direct].op
        copies = op.name == "reshape" and not evaluation.packed
        if type(op) is not View or copies or kernel.direct in needed:
            needed.update(kernel.inputs)
    return needed


def _reshaped(native: Native, shape: Shape) -> Native:
    return packed_copy(native).reshape(shape)


def _lie(blob: TBlob) -> tuple[Layout, DType]:
    """Return what is kept of a given value: its own memory would live as long as the plan."""
    return blob.layout, blob.dtype


def _made(number: int, blob: TBlob) -> Made:
    assert blob.layout.offset == 0
    return Made(number, blob.owner.nbytes, blob.dtype, blob.layout, blob._packed)


def _faster(make: Callable[[int], Run], seconds: float) -> Run:
    """Return what runs work on one thread or on several: little work where several are there, other work as is faster.

    make: returns the work for a number of threads, whose results do not depend on that number. seconds: an estimate of
    how long one thread takes; little work has one.
    """
    threads = threads_here() if seconds > SHARE_PAYS else 1
    if threads == 1:
        return make(1)
    ways, least, calls = (make(1), make(threads)), [inf, inf], count()

    def run(addresses: Addresses, made: list[TBlob]) -> None:
        if seconds <= WAKE_PAYS:
            ways[worth(seconds) > 1](addresses, made)
            return
        call = next(calls) % PERIOD
        if call >= TRIALS:
            ways[least[1] < least[0]](addresses, made)
            return
        if call == 0:
            least[:] = inf, inf
        started = perf_counter()
        ways[call % 2](addresses, made)
        least[call % 2] = min(least[call % 2], perf_counter() - started)

    return run


# ---- one kernel


def _runner(kernel: Kernel, evaluation: Evaluation, contract: bool) -> tuple[Run, set[int]]:
    """Return what runs a kernel, and which of its results must have memory of their own."""
    program, values, blobs = kernel.program, evaluation.values, evaluation.blobs
    shape = values[kernel.domain].shape
    numbers = (*kernel.inputs, *kernel.results)
    plain = len(program.moved)
    seen = [blobs[number] for number in numbers]
    seen[plain:] = [engines._with_axes(blob, shape, kernel.axes) for blob in seen[plain:]]
    strides = [_over(blob, shape) for blob in seen]
    scalars = _packed(kernel, values)
    lying = [launch.Operand(blob.address, one, blob.dtype.itemsize) for blob, one in zip(seen, strides, strict=True)]
    seconds = launch.seconds_of(program, prod(shape), launch.traffic_of(shape, lying))

    def mapping(threads: int) -> Run:
        return _caller(launch._ready_map(program, shape, strides, contract, threads, True), numbers, scalars)

    def reducing(threads: int) -> Run:
        ready = reduce._ready_reduction(program, shape, kernel.axes, strides, contract, threads)
        return _reducer(ready, numbers, scalars)

    if not program.reductions:
        return _faster(mapping, seconds), set()
    first = reduce._ready_reduction(program, shape, kernel.axes, strides, contract, 1)
    own = set() if _is_straight(first) else set(kernel.results[len(program.outputs) :])
    return _faster(reducing, seconds), own


def _is_straight(reducing: reduce.Reducing) -> bool:
    """Return whether the results of reductions are written by the code itself."""
    return not reducing.folds and all([one.room is None for one in reducing.partials])


def _reducer(reducing: reduce.Reducing, numbers: Sequence[int], scalars: bytes) -> Run:
    """Return what runs a reduction over the values of these numbers."""
    if _is_straight(reducing):
        return _caller(reducing.ready, numbers, scalars)
    results = len(reducing.partials)
    plain = numbers[:-results]
    every = range(len(numbers))
    calls = [(_several(one, None, scalars), which) for one, which in reducing.folds or ((reducing.ready, every),)]

    def run(addresses: Addresses, made: list[TBlob]) -> None:
        blobs = made[-results:]
        memories, given = reducing.places([addresses[number] for number in plain], blobs)
        for call, which in calls:
            call([given[place] for place in which], made)
        reducing.finish(memories, blobs)

    return run


def _over(blob: TBlob, shape: Shape) -> Shape:
    """Return a blob's strides over a shape it broadcasts to."""
    layout = blob.layout.broadcast_to(shape)
    assert layout is not None
    return layout.strides


def _packed(kernel: Kernel, values: Sequence[Any]) -> bytes:
    """Return the slots of a kernel's scalars."""
    return launch.scalar_slots([values[number] for number in kernel.scalars], kernel.program.scalars)


def _caller(ready: launch.Ready, numbers: Sequence[int], scalars: bytes) -> Run:
    """Return what runs prepared code over the values of these numbers."""
    if len(ready.groups) > 1 or len(ready.groups[0]) > 1 or ready.own:
        return _several(ready, numbers, scalars)
    code, pack, ((slots, offsets),) = ready.code, ready.pack, ready.groups[0]
    moves = list(zip(ready.positions, numbers, offsets, strict=True))

    def run(addresses: Addresses, made: list[TBlob]) -> None:
        filled = slots.copy()
        for position, number, offset in moves:
            filled[position] = addresses[number] + offset
        if code.level != CHEAP:
            code.call(pack(*filled) + scalars)
            return
        started = perf_counter()
        code.call(pack(*filled) + scalars)
        code.used(perf_counter() - started)

    return run


def _several(ready: launch.Prepared, numbers: Sequence[int] | None, scalars: bytes) -> Run:
    """Return what runs prepared code of several calls; numbers: those of its operands, where it does not know them."""
    code, table = ready.code, ready.table(scalars)
    if numbers is not None:
        table = table._replace(moves=[(slot, numbers[operand], offset) for slot, operand, offset in table.moves])

    def run(addresses: Addresses, made: list[TBlob]) -> None:
        if code.level != CHEAP:
            table.run(code, addresses)
            return
        started = perf_counter()
        table.run(code, addresses)
        code.used(perf_counter() - started)

    return run


# ---- all kernels by rows


def _by_rows(evaluation: Evaluation, limits: Settings) -> Launch | None:
    """Return all kernels as one launch over rows, where that is how they would run."""
    plan, values = evaluation.plan, evaluation.values
    if not plan.rows:
        return None
    shape = values[next(kernel for kernel in plan.kernels if kernel.program.reductions).domain].shape
    if not rows.pays(plan, shape):
        return None
    made = _kept(evaluation)
    lying = {**evaluation.blobs, **made}
    scalars = launch.scalars_of(plan.kernels, values)

    def make(threads: int) -> Run:
        # Large results come from the pool, whose blocks begin at cache lines.
        found = rows.ready_rows(plan, shape, values, lying, limits.fast_math, threads, True)
        return _caller(found.ready, found.numbers, scalars)

    try:
        seconds = launch.seconds_together(plan.kernels, plan.kept, values)
        return Launch([_made(n, blob) for n, blob in made.items()], _faster(make, seconds), [])
    except LacksError:
        return None


def _kept(evaluation: Evaluation) -> dict[int, TBlob]:
    """Return memory for all results that somebody wants."""
    plan = evaluation.plan
    return {n: evaluation.result(n) for kernel in plan.kernels for n in kernel.results if n in plan.kept}


def _by_columns(evaluation: Evaluation, limits: Settings) -> Launch | None:
    """Return all kernels as one launch over columns, where that is how they would run."""
    plan, values, found = evaluation.plan, evaluation.values, evaluation.plan.columns
    if found is None or not evaluation.goes_by_columns() or not columns.pays(plan, values):
        return None

    def make(threads: int) -> Run:
        prepared = columns.Prepared(found, plan.kept, values, limits.fast_math, threads, True)
        return _several(prepared, None, launch.scalars_of(found.kernels, values))

    try:
        seconds = launch.seconds_together(found.kernels, plan.kept, values)
        return Launch([_made(n, blob) for n, blob in _kept(evaluation).items()], _faster(make, seconds), [])
    except LacksError:
        return None
