"""The repairs of the suite, one and one more on CUDA devices, a pytest plugin; `--as-is` runs without them.

test_can_cast looks promotions up with `promotion_table.get(pair) == to`. For a pair that does not promote that is
`None == to`, and NumPy takes None for float64: `None == numpy.dtype("float64")` holds. A namespace whose dtypes
are real numpy dtypes is then asked for `can_cast(complex64, float64)` to be True, which the standard's promotion
rules forbid. Here the table answers with a value that equals no dtype.

test_dunder_dlpack exports to the CPU with copy=False, and takes every error for a failure. The standard asks for a
BufferError where that is impossible, as it is for the memory of a CUDA device. Here such an example is not counted.
"""

from __future__ import annotations

import os
from functools import wraps
from typing import Any

import pytest
from hypothesis import reject


class NoPromotion:
    """What two dtypes promote to that do not promote: equal to nothing."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return False


@pytest.hookimpl
def pytest_collection_finish() -> None:
    """Give the suite's promotion table the honest default, once its modules are imported."""
    from array_api_tests import dtype_helpers

    table, nothing = dtype_helpers.promotion_table, NoPromotion()

    def get(key: Any, default: Any = nothing) -> Any:
        try:
            return table[key]
        except KeyError:
            return default

    table.get = get
    if os.environ.get("XTENSOR_DEVICE", "cpu") != "cpu":
        import xtensor

        _pass_over_impossible_exports(xtensor.standard.creation.Tensor)


def _pass_over_impossible_exports(kind: Any) -> None:
    """Let hypothesis pass over examples that export the memory of a CUDA device to the CPU without a copy."""
    export = kind.__dlpack__

    @wraps(export)
    def checked(x: Any, **given: Any) -> Any:
        try:
            return export(x, **given)
        except BufferError:
            if x.device != "cpu" and given.get("dl_device") == (1, 0) and given.get("copy") is False:
                reject()
            raise

    kind.__dlpack__ = checked
