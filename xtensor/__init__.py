"""xtensor: the whole Python array API standard, lazily fused, on NumPy and CuPy.

>>> import xtensor as xt
"""

from math import e, inf, nan, pi

from . import fft, linalg, op, ops
from .devices import Device
from .dtypes import (
    bool,  # noqa: A004 - the standard's name, as are the other shadowed builtins here
    can_cast,
    complex64,
    complex128,
    finfo,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from .info import __array_namespace_info__
from .ops.casting import astype, result_type
from .ops.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from .ops.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    exp,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log10,
    log1p,
    log2,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
)
from .ops.indexing import (
    take,
    take_along_axis,
)
from .ops.linear import (
    matmul,
    matrix_transpose,
    tensordot,
    vecdot,
)
from .ops.manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from .ops.searching import (
    argmax,
    argmin,
    count_nonzero,
    nonzero,
    searchsorted,
    where,
)
from .ops.sets import (
    isin,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from .ops.sorting import (
    argsort,
    sort,
)
from .ops.statistical import (
    cumulative_prod,
    cumulative_sum,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from .ops.utility import (
    all,
    any,
    diff,
)
from .options import options
from .tensor import Tensor, evaluate

__version__ = "0.1.0"
__array_api_version__ = "2025.12"
newaxis = None
