"""What a kernel may do wrong, found while it is interpreted."""


class KernelError(Exception):
    """Something that a GPU would not define: the message says what, where in the kernel, and which thread.

    `lane` is the number of the thread among those that ran the instruction, until the machine has named it.
    """

    def __init__(self, text: str, lane: int | None = None) -> None:
        super().__init__(text)
        self.lane = lane


class OutOfBoundsError(KernelError):
    """An access that no buffer contains, or a write to one that is read only."""


class MisalignedError(KernelError):
    """An access whose address is no multiple of its size."""


class RaceError(KernelError):
    """Two threads use the same bytes of shared memory, one writes, and no barrier stands between."""


class DeadlockError(KernelError):
    """Threads wait at a barrier or for their warp, and the others never come."""


class UndefinedError(KernelError):
    """A division by zero, or a value taken from a thread that takes no part."""


class TooLongError(KernelError):
    """More steps than the limit: the kernel does probably not end."""
