"""Storage: one allocation on one device, the pending readers of its bytes, and who outside can write to them.

A write tests one pointer, `guard`: None unless somebody needs the old bytes. Whoever will read memory later joins its
guard, and checks that this is still the guard; the barrier (run/executor.py) serves all in the guard and removes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from ctypes import addressof, c_char
from threading import get_ident, local
from typing import TYPE_CHECKING, Any, Protocol

from ..base.layout import Layout
from ..base.locks import fork_safe_lock

if TYPE_CHECKING:
    from ..devices import Device

# Held while an object is made at its first use: two threads must not make two owners of the same bytes.
first_use = fork_safe_lock()

# The number of histories of writes: while it is 0 nobody looks for one.
histories = [0]

# Held while a list of readers changes.
reading = fork_safe_lock()

# The number of readers from which on dead ones are looked for.
MANY_READERS = 64

Native = Any  # a numpy.ndarray or a cupy.ndarray


class Readers(list["weakref.ref[Any]"]):
    """Weak references to the pending nodes that will read some bytes; threads may add to it at once."""

    __slots__ = ()

    def add(self, reference: weakref.ref[Any]) -> None:
        """Add a node; dead and finished ones are dropped whenever the number of readers has doubled.

        Appending needs no lock, and `forget` replaces only entries that were there before: no thread loses another's.
        """
        self.append(reference)
        if len(self) >= MANY_READERS:
            self.forget()

    def forget(self) -> None:
        """Drop dead and finished nodes where their number has doubled."""
        if not len(self) & (len(self) - 1):
            self.waiting()

    def waiting(self) -> list[Any]:
        """Return the nodes that are alive and still pending; drop the others."""
        if not self:
            return []
        with reading:
            count = len(self)
            alive = [(node, reference) for reference in self[:count] if (node := _pending(reference)) is not None]
            if len(alive) < count:
                self[:count] = [reference for _, reference in alive]
            return [node for node, _ in alive]


def _pending(reference: weakref.ref[Any]) -> Any:
    """Return the node behind a reference if it is alive and not yet evaluated, else None."""
    node = reference()
    return node if node is not None and node.blob is None else None


class Guard:
    """The readers and savers to serve before some memory is written.

    readers: the pending nodes that read it. savers: the Saved that keep views of it for a gradient, and copy them.
    history: the writes into it while a gradient was recorded (autograd/history.py), None before the first such
        write; a guard that has one stays.
    """

    __slots__ = ("history", "readers", "savers")

    def __init__(self) -> None:
        self.readers = Readers()
        self.savers = Readers()
        self.history: Any = None


class Loan:
    """An object that lives as long as somebody holds a part of some memory. given: an array of all of the memory that
    was handed out since, and lives as long.
    """

    given: Native = None


def refuse_capture(function: str) -> None:
    """Refuse to capture a function that calls one whose work depends on values, or would not be repeated later."""
    capture = watching() if watchers else None
    if capture is not None:
        capture.refuse_call(function)


def handed_out(x: Any) -> float | None:
    """Return a tensor's only element as a number if a function that is being captured only returns it; else None."""
    capture = watching() if watchers else None
    return None if capture is None else capture.hands_out(x)


def _nobody_knows() -> bool:
    """Stand for the lender of memory that may be held for ever."""
    return True


class _Trusted(local):
    """The memory that this thread treats as if nobody outside could write to it: see `executor.at_once`."""

    owners: frozenset[Storage] = frozenset()


trusted = _Trusted()


class Watcher(Protocol):
    """An observer of memory: called when it is imported from a NumPy array, its bytes are asked for or written, or
    values are evaluated.
    thread: the one whose calls are watched, except for those inside a step that it has recorded.
    """

    thread: int

    @property
    def is_inside(self) -> bool: ...
    def takes(self, array: Native) -> bool: ...
    def imported(self, owner: Storage, array: Native) -> None: ...
    def looked(self, owner: Storage) -> None: ...
    def written(self, owner: Storage) -> None: ...
    def served(self, values: Iterable[Any]) -> None: ...


# The active watchers, nearly always none; a watcher closes the fast path of thin faces.
watchers: list[Watcher] = []


def watching() -> Any:
    """Return the watcher of this thread, None if there is none, or it is inside a step that it records itself."""
    here = get_ident()
    return next((one for one in tuple(watchers) if one.thread == here and not one.is_inside), None)


def is_in_step() -> bool:
    """Return whether this thread runs a step that its watcher records itself."""
    here = get_ident()
    return any(one.thread == here and one.is_inside for one in tuple(watchers))


def tell_of_a_look() -> None:
    """Notify the capture that watches this thread that values are asked for."""
    capture = watching()
    if capture is not None:
        capture.looked(None)


class Storage:
    """One allocation on one device, the owner of the memory that tensors show.

    bytes: the bytes, a 1-d uint8 array of the device's library; allocated when they or their address are first
        asked for.
    version: how often it has been written.
    guard: those who need the bytes as they are, None if nobody does.
    shared: whether someone outside xtensor could write to it at the last check (it was imported or exported without
        a copy); `is_exposed` checks.
    changes: how often a write has ended, one through a thin face has started, or somebody outside became able to write
        to it.
    is_written: whether a running schedule writes to it.
    layouts: copies in other layouts that machine code keeps as long as the bytes do not change (run/launches.py).
    lender: for imported memory, a function that returns None once nobody else holds it. borrower: for exported memory,
        a reference to an object that lives as long as somebody does. Both are None where there is none.
    """

    __slots__ = (
        "_address",
        "_bytes",
        "_memory",
        "__weakref__",
        "_root",
        "borrower",
        "changes",
        "device",
        "guard",
        "is_written",
        "layouts",
        "lender",
        "nbytes",
        "shared",
        "version",
    )

    def __init__(self, device: Device, nbytes: int, memory: Native = None) -> None:
        self.device = device
        self.nbytes = nbytes
        self.shared = False
        self.version = self.changes = 0
        self.is_written = False
        self.layouts: Any = None
        self.guard: Guard | None = None
        self.lender: Callable[[], Any] | None = None
        self.borrower: weakref.ref[Any] | None = None
        self._bytes = memory
        self._root: Native = None  # the packed array over the bytes, until these are asked for
        self._memory: Any = None  # keeps bytes alive for which nobody has asked yet
        self._address: int | None = None

    @classmethod
    def of(cls, native: Native, device: Device) -> Storage:
        """Return the owner of a native array's memory, from its first byte to its last."""
        if native.flags.c_contiguous:
            owner = cls(device, native.nbytes)
            owner._root = native
            return owner
        memory, _ = device.backend.storage_of(native)
        return cls(device, memory.nbytes, memory)

    def __repr__(self) -> str:
        state = "allocated" if self.is_allocated else "not allocated"
        return f"Storage({self.nbytes} bytes on {self.device}, {state}, version {self.version})"

    # ---- the bytes

    @property
    def is_allocated(self) -> bool:
        return self._bytes is not None or self._root is not None or self._memory is not None

    @property
    def bytes(self) -> Native:
        """The bytes, allocated at the first request; raises MemoryError when there is no room for them."""
        if watchers:
            self._tell()
        if self._bytes is None:
            with first_use:
                if self._bytes is None:
                    self._bytes = self._made()
        return self._bytes

    def _made(self) -> Native:
        backend = self.device.backend
        if self._root is not None:
            return backend.storage_of(self._root)[0]
        address = self.lend()
        return backend.cut(self._memory, address, self.nbytes)

    def lend(self) -> int:
        """Allocate the bytes if needed; return their address. Callers hold `first_use`, or are alone yet."""
        if self._address is None:
            self._memory, self._address = self.device.backend.lend(self.nbytes)
        return self._address

    @property
    def address(self) -> int:
        """The address of the bytes, for generated code, hidden from watchers; raises MemoryError as `bytes` does."""
        address = self._address
        if address is None:
            native = self._bytes if self._root is None else self._root
            if native is not None:
                address = self._address = address_of(native)
            else:
                with first_use:
                    address = self.lend()
        return address

    def place(self, native: Native) -> Layout:
        """Return the layout in these bytes of a native array that shows some of them."""
        offset = 0 if native is self._root or not native.size else address_of(native) - self.address
        return Layout(native.shape, native.strides, offset)

    def _tell(self) -> None:
        for watcher in tuple(watchers):
            watcher.looked(self)

    # ---- who needs them

    def guarded(self) -> Guard:
        """Return the guard, made if there is none."""
        guard = self.guard
        if guard is None:
            with first_use:
                guard = self.guard
                if guard is None:
                    guard = self.guard = Guard()
        return guard

    def read_by(self, reference: weakref.ref[Any]) -> None:
        """Add a pending node that reads these bytes."""
        guard = self.guarded()
        guard.readers.add(reference)
        while self.guard is not guard:  # a write has removed it meanwhile
            guard = self.guarded()
            guard.readers.add(reference)

    def saved_by(self, reference: weakref.ref[Any]) -> None:
        """Add a Saved that keeps a view for a gradient: it copies that before the next write."""
        guard = self.guarded()
        guard.savers.add(reference)
        while self.guard is not guard:
            guard = self.guarded()
            guard.savers.add(reference)

    def readers(self) -> list[Any]:
        """Return the pending nodes that read these bytes."""
        guard = self.guard
        return [] if guard is None else guard.readers.waiting()

    @property
    def history(self) -> Any:
        """The writes into the bytes while a gradient was recorded, None before the first such write."""
        guard = self.guard
        return None if guard is None else guard.history

    def count_write(self) -> None:
        """Count a change of the bytes, and notify watchers."""
        self.version += 1
        if watchers:
            for watcher in tuple(watchers):
                watcher.written(self)

    # ---- who else can write to them

    def part(self, low: int, high: int) -> Storage:
        """Return some of the bytes as memory with an owner of its own. As long as both exist, reads of either are not
        deferred, except in threads that trust both.
        """
        loan = None if self.borrower is None else self.borrower()
        loan = Loan() if loan is None else loan
        part = Storage(self.device, high - low, self.bytes[low:high])
        with first_use:
            self.shared, self.borrower = True, weakref.ref(loan)
            self.changes += 1
            part.shared, part.lender = True, lambda: (self, loan)
        trusted.owners |= {self, part}
        return part

    def is_exposed(self) -> bool:
        """Return whether someone outside can write to it: reads of such memory are never deferred."""
        if not self.shared or self in trusted.owners:
            return False
        if self.is_held():
            return True
        with first_use:  # so that nobody gets hold of it meanwhile
            if not self.is_held():
                self.shared = False
            return self.shared

    def is_held(self) -> bool:
        """Return whether somebody outside holds it."""
        lender, borrower = self.lender, self.borrower
        return (lender is not None and lender() is not None) or (borrower is not None and borrower() is not None)

    def expose(self, lender: Callable[[], Any] | None) -> None:
        """Mark it as memory that someone outside can write to: until `lender` returns None, or for ever."""
        if self in trusted.owners:
            trusted.owners = frozenset()  # another of them may be the same memory
        with first_use:
            self.shared, self.lender = True, lender or _nobody_knows
            self.changes += 1

    def hand_out(self) -> Native | None:
        """Return the bytes for somebody outside, who can write to them as long as the array or a view of it lives; None
        where that lifetime cannot be tracked.
        """
        given = self.device.backend.handed_out(self.bytes)
        if given is None:
            self.expose(None)
            return None
        trusted.owners = frozenset()
        with first_use:
            before = None if self.borrower is None else self.borrower()
            self.shared = True
            self.changes += 1
            if before is None or isinstance(before, Loan):
                self.borrower = weakref.ref(given)
            if isinstance(before, Loan):
                before.given, before = given, None
        return given if before is None else before


def address_of(native: Native) -> int:
    """Return the address of a native array: from its buffer, in a fifth of the time of NumPy's array interface."""
    if native.flags.c_contiguous:  # else asking for the buffer takes twenty times as long, and fails
        try:
            return addressof(c_char.from_buffer(native))
        except (TypeError, ValueError, BufferError):  # read-only, empty, or on a CUDA device
            pass
    interface = getattr(native, "__array_interface__", None)
    return int(native.data.ptr if interface is None else interface["data"][0])
