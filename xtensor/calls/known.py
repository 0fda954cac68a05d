"""The record of a kind of calls of a captured function, and when its schedule runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..base.errors import UntouchedError
from ..base.options import Settings, in_force, settings
from ..graph.number import Again
from ..run import executor as run
from ..storage.blob import TBlob
from ..tensor.face import Tensor, face
from ..tensor.scalars import valued
from ..tensor.trees import rebuilt
from .dispatch import (
    AGAIN_AFTER,
    DISPATCHED_AFTER,
    SMALL_AFTER,
    SMALL_ALONE,
    Call,
    Kind,
    Kinds,
    Result,
    kind_of,
    made_thin,
)
from .leaves import Spent, told_tree
from .reach import Reach
from .rebound import Left
from .thin import is_exchanged

if TYPE_CHECKING:
    from ..run.captured import Captured

# Why a call is a plain one although it was captured.
ASKED = "[asked] the options ask for plain calls (lazy='never', engine='direct' or show)"
SMALL = "[small] a plain call costs less: arrays are small, or the time goes into library functions"


# What stands for the results of a call in which a boolean is not what it was when the call was captured.
OTHERWISE: list[TBlob] = []


def asks_for_plain_calls(limits: Settings) -> bool:
    return limits.lazy == "never" or limits.engine == "direct" or bool(limits.show)


class Known:
    """The record of a signature: what a call did, or the reason why that could not be captured.

    leaves: for each leaf of the result, and of values left elsewhere, a function that returns it, given results,
    tensors, holders and cells (leaves.py). build: builds the result from its leaves. left: where the other values are
    put. values: the places of results that are values; spent: the results whose gradients the function computed. plain:
    the settings under which library calls cost less, or are the only way, as far as is known; runs: those under which
    its schedule runs. used: the number of its last call. uses: how many calls Python has answered; kinds: those of
    machine code, which has answered others.
    is_long: whether only its first steps were recorded, as more do not pay yet. is_one_way: whether the call branched
    before it did what cannot be captured, so that others may be captured. again: the arithmetic on numbers;
    otherwise: the record of another call of the same signature, which branched differently: a comparison of such
    numbers, or a boolean of its own, was another one.
    """

    def __init__(
        self,
        captured: Captured | None,
        leaves: Any,
        build: Any,
        reason: str = "",
        values: Sequence[int] = (),
        spent: Sequence[Spent] = (),
        left: Sequence[Left] = (),
    ) -> None:
        self.captured, self.leaves, self.build, self.reason, self.values = captured, leaves, build, reason, values
        self.spent, self.left = spent, left
        self.is_long = self.is_one_way = False
        self.plain: Any = None
        self.runs: Any = None
        self.used = 0
        self.uses = 1
        self.kinds: list[Kind] = []
        self._before = self._seen = self._waited = self._patience = 0
        self.again = Again([], [], [])
        self.otherwise: Known | None = None

    @property
    def branches(self) -> bool:
        """Whether its schedule checks booleans that a call may have branched on."""
        return self.captured is not None and self.captured.branches

    def ways(self) -> Iterator[Known]:
        """Yield this record and the others of calls that branch differently."""
        known: Known | None = self
        while known is not None:
            yield known
            known = known.otherwise

    @property
    def dispatched(self) -> int:
        """How many calls machine code has answered."""
        return self._before + sum([kind.uses for kind in self.kinds])

    def let_go(self, kinds: Kinds) -> None:
        """Drop kinds that machine code no longer knows."""
        gone = [kind for kind in self.kinds if kinds.isdisjoint((kind,))]
        self._before += sum([kind.uses for kind in gone])
        self.kinds = [kind for kind in self.kinds if kind not in gone]

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self.uses + self.dispatched

    def is_to_be_told(self) -> bool:
        """Return whether enough calls of this kind were answered in Python to describe it to machine code now."""
        most = self._patience or DISPATCHED_AFTER
        self._waited += 1
        if self._waited < most:
            return False
        answered, self._seen = self.dispatched - self._seen, self.dispatched
        self._waited, self._patience = 0, AGAIN_AFTER if answered >= most else 2 * most
        return True

    def told(self, blobs: list[TBlob], call: Call, reach: Reach) -> Kind | None:
        """Return the description of this kind for machine code, made from one of its calls; None where these do more
        than machine code can.
        """
        stands = None if self.captured is None or self.spent else self.captured.standing(blobs)
        if stands is None or self.captured is None or self._is_put_back(self.captured):
            return None
        leaves, build, itself = told_tree(self.leaves, self.build, self.left, call.holders)
        result = Result(leaves, build, self.values, itself)
        kind = kind_of(call, in_force.get(), reach, stands, self.captured, result, self.again)
        if kind is not None:
            self._patience = self._patience if self.kinds else AGAIN_AFTER
            self.kinds.append(kind)
        return kind

    def results(self, blobs: list[TBlob], cells: Sequence[Any]) -> list[TBlob] | None:
        """Return the blobs of the results for these arguments; OTHERWISE where the call branches differently, and None
        where the function is to be called instead, as after a failed step: the function may handle the error, and its
        lines belong in the traceback.
        """
        captured, limits = self.captured, settings()
        if captured is None:
            self.plain = limits
            return None
        if limits is not self.runs and not self._may_run(captured, limits):
            return None
        with run.turn():
            before = captured.before(blobs) if self._is_put_back(captured) else None
            try:
                return captured.run(blobs, limits, cells)
            except UntouchedError:
                pass
            except (ArithmeticError, LookupError, ValueError, RuntimeError):  # LinAlgError is a ValueError
                if before is not None:
                    before.put_back()
                elif captured.fails_late or not (captured.fails or captured.may_be_repeated):
                    raise
            return OTHERWISE if captured.branches else None

    def _is_put_back(self, captured: Captured) -> bool:
        """Return whether what a call has changed is put back after a failed step: values left elsewhere by earlier
        statements would be missing, and a call that branches differently begins anew.
        """
        return captured.fails_late and bool(self.left or captured.branches)

    def _may_run(self, captured: Captured, limits: Settings) -> bool:
        """Return whether the schedule is to run under some settings, which are remembered."""
        if asks_for_plain_calls(limits):
            return False
        if self._is_small(captured, limits):
            self.plain = limits
            return False
        if captured.is_prepared:
            self.runs = limits
        return True

    def rebuild(self, results: list[TBlob], tensors: list[Tensor], holders: list[Any], cells: Sequence[Any]) -> Any:
        """Return the result of a call, and leave its other values elsewhere."""
        if not self.leaves and not self.left:
            return rebuilt(self.build, ())
        made = [face(blob) for blob in results]
        for place in self.values:
            valued(made[place])
        for one in self.spent:
            one.put(made, tensors)
        made_thin((*made, *tensors))  # which are fast for other calls, and needed by machine code
        if self.build is next:
            return self.leaves[0](made, tensors, holders, cells)
        tree = rebuilt(self.build, [leaf(made, tensors, holders, cells) for leaf in self.leaves])
        if not self.left:
            return tree
        for left, value in zip(self.left, tree[1], strict=True):
            left.put(holders, value)
        return tree[0]

    def why(self) -> str:
        """Return why the next call runs the function itself, "" if it does not."""
        limits = settings()
        if self.reason or asks_for_plain_calls(limits):
            return self.reason or ASKED
        assert self.captured is not None
        return SMALL if self._is_small(self.captured, limits) else ""

    def _is_small(self, captured: Captured, limits: Settings) -> bool:
        """Return whether library calls cost less than kernels, also than those that machine code finds."""
        often = captured.pays_dispatched and self.uses > (SMALL_AFTER if is_exchanged() else SMALL_ALONE)
        return captured.is_small and limits.engine == "auto" and not often
