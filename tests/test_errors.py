"""Bad input: an error of the right class, at the call, saying what was expected, with nothing changed.

Each row is an expression over a few arrays, the class it raises and the beginning of the message. Messages xtensor
makes itself start with the function's name; "" stands for one that NumPy, SciPy or Python words. Every row runs with
calls computed at once and with calls recorded: what is wrong is said at the call either way.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.devices import Device, as_device
from xtensor.storage.blob import TBlob
from xtensor.tensor.face import face


def operands() -> dict[str, Any]:
    twin = Device("cuda:7", as_device("cpu", "tests").backend)  # another name for NumPy: two devices without a GPU
    read_only = np.arange(4.0)
    read_only.flags.writeable = False
    return {
        "xt": xt,
        "np": np,
        "pickle": pickle,
        "f": xt.reshape(xt.arange(1.0, 13.0), (3, 4)),
        "i": xt.reshape(xt.arange(1, 13), (3, 4)),
        "u": xt.asarray([1, 2, 3], dtype=xt.uint8),
        "b": xt.reshape(xt.arange(12) > 5, (3, 4)),
        "c": xt.astype(xt.reshape(xt.arange(12), (3, 4)), xt.complex128),
        "e": xt.zeros((0, 4)),
        "s": xt.asarray(1.5),
        "ro": xt.broadcast_to(xt.ones((4,)), (3, 4)),
        "imported": xt.asarray(read_only),
        "there": face(TBlob.adopt(np.ones((3, 4)), twin)),
        "huge": face(TBlob.empty((1 << 45,), xt.float64, as_device("cpu", "tests"))),
    }


Row = tuple[str, type[Exception], str]

KIND: list[Row] = [
    ("xt.bitwise_and(f, i)", TypeError, "bitwise_and: x1 must be integer or boolean, got float64"),
    ("xt.bitwise_and(i, f)", TypeError, "bitwise_and: x2 must be integer or boolean, got float64"),
    ("f | True", TypeError, "bitwise_or: x1 must be integer or boolean, got float64"),
    ("~f", TypeError, "bitwise_invert: x must be integer or boolean, got float64"),
    ("f << 1", TypeError, "bitwise_left_shift: x1 must be integer, got float64"),
    ("-b", TypeError, "negative: x must be numeric, got bool"),
    ("b - b", TypeError, "subtract: x1 must be numeric, got bool"),
    ("xt.sign(b)", TypeError, "sign: x must be numeric, got bool"),
    ("xt.floor(c)", TypeError, "floor: x must be real, got complex128"),
    ("c // c", TypeError, "floor_divide: x1 must be real, got complex128"),
    ("c % 2", TypeError, "remainder: x1 must be real, got complex128"),
    ("xt.atan2(i, c)", TypeError, "atan2: x2 must be real floating, got complex128"),
    ("xt.hypot(c, f)", TypeError, "hypot: x1 must be real floating, got complex128"),
    ("xt.signbit(c)", TypeError, "signbit: x must be real floating, got complex128"),
    ("xt.clip(c, 0, 1)", TypeError, "clip: x must be real, got complex128"),
    ("xt.clip(i, 0, 1j)", TypeError, "clip: max must be real, got complex"),
    ("xt.astype(c, xt.float64)", TypeError, "astype: x must be real to fit into float64, got complex"),
    ("xt.take(f, f, axis=0)", TypeError, "take: indices must be integer, got float64"),
    ("xt.take_along_axis(f, f, axis=0)", TypeError, "take_along_axis: indices must be integer, got float64"),
    ("xt.repeat(f, 1.5)", TypeError, "repeat: repeats must be integer, got float64"),
    ("xt.iinfo(f)", TypeError, "iinfo: type must be integer, got float64"),
    ("xt.finfo(i)", TypeError, "finfo: type must be floating, got int64"),
    ("xt.linalg.inv(xt.linalg.diagonal(f) > 0)", ValueError, "inv: x must have at least 2 axes, got shape (3,)"),
    ("xt.asarray(1j, dtype=xt.float64)", TypeError, ""),
    ("xt.full((2,), 1j, dtype=xt.float64)", TypeError, ""),
    ("f.__setitem__(0, 1j)", TypeError, "setitem: value must be real to fit into float64, got complex"),
    ("f.__setitem__(0, c[0])", TypeError, "setitem: value must be real to fit into float64, got complex"),
    ("float(c[0, 0])", TypeError, "float: x must be real, got complex128"),
    ("int(c[0, 0])", TypeError, "int: x must be real, got complex128"),
    ("[1][f[0, 0]]", TypeError, "index: x must be integer, got float64"),
]

STRANGERS: list[Row] = [
    ("xt.add(f, 'a')", TypeError, "add: x2 must be an array or a scalar, got str"),
    ("xt.exp(None)", TypeError, "exp: x must be an array or a scalar, got NoneType"),
    ("xt.where(b, f, 'a')", TypeError, "where: x2 must be an array or a scalar, got str"),
    ("xt.clip(f, 'a')", TypeError, "clip: min must be an array or a scalar, got str"),
    ("xt.sum('a')", TypeError, "sum: x must be an array or a scalar, got str"),
    ("xt.evaluate(3)", TypeError, "evaluate: tensors must be"),
    ("f + 'a'", TypeError, "unsupported operand type(s) for +: 'Tensor' and 'str'"),
    ("object() @ f", TypeError, "unsupported operand type(s) for @: 'object' and 'Tensor'"),
    ("exec('f += None')", TypeError, "unsupported operand type(s) for +=: 'Tensor' and 'NoneType'"),
    ("f.__setitem__(0, 'a')", TypeError, "setitem: value must be an array or a scalar, got str"),
    ("f.__setitem__(0, None)", TypeError, "setitem: value must be an array or a scalar, got NoneType"),
    ("xt.sin([1, 'a'])", TypeError, "sin: x must hold numbers or booleans, got <U21 elements"),
    ("xt.sin([[1], [1, 2]])", ValueError, "sin: x must be nested evenly, got a ragged sequence"),
    ("xt.asarray([1, [2, 3]])", ValueError, "asarray: obj must be nested evenly, got a ragged sequence"),
    ("xt.asarray('abc')", TypeError, "asarray: "),
    ("xt.asarray([None])", TypeError, "asarray: obj must hold numbers or booleans, got object elements"),
    ("xt.asarray({1: 2})", TypeError, "asarray: obj must be an array, a scalar or nested sequences, got dict"),
    ("xt.asarray(object())", TypeError, "asarray: obj must be an array, a scalar or nested sequences, got object"),
    ("xt.full(3, 'a')", TypeError, "full: fill_value must be a scalar or an array, got str"),
    ("xt.concat(3)", TypeError, "concat: arrays must be a tuple or list of arrays, got int"),
    ("xt.linspace('a', 1, 3)", TypeError, ""),
    ("xt.arange('a')", TypeError, "arange: bounds must be real numbers, got (0, 'a', 1)"),
    ("xt.Tensor(1)", TypeError, ""),
    ("xt.add(f)", TypeError, "add"),
    ("xt.where(b, f)", TypeError, "where"),
    ("xt.sum(f, axes=1)", TypeError, "sum: a keyword must be one of 'axis', 'dtype', 'keepdims', got 'axes'"),
    ("xt.options(nonsense=1)", TypeError, "options: a setting must be one of 'lazy'"),
    (
        "xt.nn.embedding(xt.asarray([0]), f, padding_idx=7)",
        np.exceptions.AxisError,
        "embedding: padding_idx must be in",
    ),
    (
        "xt.nn.dropout(f, 0.5, generator=xt.random.default_rng(0), together=5)",
        np.exceptions.AxisError,
        "dropout: together must be in",
    ),
    ("xt.nn.normalize(xt.ones(3))", np.exceptions.AxisError, "normalize: axis must be in [-1, 1), got 1"),
    (
        "xt.nn.cosine_similarity(xt.ones((2, 3)), xt.ones((2, 4)))",
        ValueError,
        "cosine_similarity: shapes (2, 3) and (2, 4)",
    ),
    (
        "xt.vmap(lambda x: x, out_axes=2)(xt.ones(3))",
        np.exceptions.AxisError,
        "vmap: out_axes must be in [-1, 1), got 2",
    ),
    ("xt.fft.rfft(xt.asarray([1j]))", TypeError, "rfft: x must be real, got complex128"),
    ("xt.fft.rfftn(xt.asarray([[1j]]))", TypeError, "rfftn: x must be real, got complex128"),
    ("xt.tril(f, k='a')", TypeError, "tril: k must be an integer, got 'a'"),
    ("xt.finfo('S3')", TypeError, "finfo: type must be a boolean, integer, floating or complex dtype, got 'S3'"),
    ("xt.options(lazy='sometimes')", ValueError, "options: lazy must be one of 'auto', 'always', 'never', got 'some"),
    ("xt.options(fuse_limit=0)", ValueError, "options: fuse_limit must be a positive integer, got 0"),
]

NAMES: list[Row] = [
    ("xt.zeros(3, device='gpu')", ValueError, "zeros: device must be one of 'cpu', got 'gpu'"),
    ("xt.zeros(3, device=3)", TypeError, "zeros: device must be a Device or its name, got 3"),
    ("xt.asarray(f, device='tpu')", ValueError, "asarray: device must be one of 'cpu', got 'tpu'"),
    ("xt.from_dlpack(f, device='tpu')", ValueError, "from_dlpack: device must be one of 'cpu', got 'tpu'"),
    ("xt.astype(f, xt.int8, device='tpu')", ValueError, "astype: device must be one of 'cpu', got 'tpu'"),
    ("f.to_device('tpu')", ValueError, "to_device: device must be one of 'cpu', got 'tpu'"),
    ("f.to_device('cpu', stream=1)", ValueError, "to_device: stream must be None on cpu, got 1"),
    ("f + there", ValueError, "add: x1 on cpu and x2 on cuda:7 do not match: devices differ"),
    ("xt.matmul(f, there.T)", ValueError, "matmul: x1 on cpu and x2 on cuda:7 do not match: devices differ"),
    ("xt.concat([f, there])", ValueError, "concat: x1 on cpu and x2 on cuda:7 do not match: devices differ"),
    ("f.__setitem__(0, there[0])", ValueError, "setitem: x1 on cpu and x2 on cuda:7 do not match: devices differ"),
    ("f.__iadd__(there)", ValueError, "add: x1 on cpu and x2 on cuda:7 do not match: devices differ"),
    ("f[there > 0]", ValueError, "index: x1 on cpu and x2 on cuda:7 do not match: devices differ"),
    ("xt.zeros(3, dtype='nonsense')", TypeError, "zeros: dtype must be a boolean, integer, floating or complex dtype"),
    ("xt.zeros(3, dtype='U3')", TypeError, "zeros: dtype must be"),
    ("xt.zeros(3, dtype='float128')", TypeError, "zeros: dtype must be"),
    ("xt.astype(f, None)", TypeError, "astype: dtype must be"),
    ("xt.sum(f, dtype=object)", TypeError, "sum: dtype must be"),
    ("xt.isdtype(xt.int8, 'whole')", ValueError, "isdtype: kind must be one of 'bool', 'signed integer'"),
    ("xt.isdtype(3, 'bool')", TypeError, "isdtype: dtype must be"),
    ("xt.can_cast('x', xt.int8)", TypeError, "can_cast: from_ must be"),
    ("xt.result_type('x')", TypeError, "result_type: arrays_and_dtypes must be"),
    ("xt.result_type()", ValueError, "result_type: arrays_and_dtypes must hold at least one, got none"),
    ("xt.searchsorted(f[0], f, side='up')", ValueError, "searchsorted: side must be one of 'left', 'right', got 'up'"),
    ("xt.meshgrid(f[0], indexing='ab')", ValueError, "meshgrid: indexing must be one of 'xy', 'ij', got 'ab'"),
    ("xt.linalg.qr(f, mode='x')", ValueError, "qr: mode must be one of 'reduced', 'complete', got 'x'"),
    ("xt.fft.fft(f, norm='x')", ValueError, "fft: norm must be one of 'backward', 'ortho', 'forward', got 'x'"),
    ("f.__array_namespace__(api_version='1999.12')", ValueError, "__array_namespace__: api_version must be one of"),
]

SHAPES: list[Row] = [
    ("f + xt.ones((3, 5))", ValueError, "add: shapes (3, 4) and (3, 5) could not be broadcast together: 4 != 5"),
    (
        "xt.where(b, f, xt.ones(7))",
        ValueError,
        "where: shapes (3, 4) and (3, 4) and (7,) could not be broadcast together: 4 != 7",
    ),
    ("xt.clip(f, xt.ones(7))", ValueError, "clip: "),
    ("xt.broadcast_arrays(f, xt.ones(7))", ValueError, "broadcast_arrays: "),
    (
        "xt.broadcast_shapes((2,), (3,))",
        ValueError,
        "broadcast_shapes: shapes (2,) and (3,) could not be broadcast together: 2 != 3",
    ),
    ("xt.broadcast_to(f, (4,))", ValueError, "broadcast_to: shape must be one that (3, 4) broadcasts to, got (4,)"),
    ("f @ f", ValueError, "matmul: x1 (3, 4) and x2 (3, 4) do not match: 4 != 3"),
    ("f @ s", ValueError, "matmul: x2 must have at least 1 axis, got shape ()"),
    ("xt.vecdot(f, xt.ones((3, 5)))", ValueError, "vecdot: x1 (3, 4) and x2 (3, 5) do not match: 4 != 5"),
    ("xt.tensordot(f, f, axes=1)", ValueError, ""),
    ("xt.linalg.inv(f)", ValueError, "inv: x must be square matrices, got shape (3, 4)"),
    ("xt.linalg.det(f[0])", ValueError, "det: x must have at least 2 axes, got shape (4,)"),
    ("xt.linalg.inv(xt.zeros((2, 2)))", ValueError, ""),
    ("xt.linalg.cross(f, f)", ValueError, "cross: x1 must have length 3 along axis -1, got shape (3, 4)"),
    ("xt.linalg.outer(f, f)", ValueError, "outer: x1 must have 1 axis, got shape (3, 4)"),
    ("xt.linalg.solve(xt.eye(3), xt.ones(4))", ValueError, "solve: x1 (3, 3) and x2 (4,) do not match"),
    ("xt.concat([f, xt.ones((2, 2))])", ValueError, "concat: arrays must have equal lengths along the other axes"),
    ("xt.concat([])", ValueError, "concat: arrays must hold at least one array, got none"),
    ("xt.stack([f, xt.ones((2, 2))])", ValueError, "stack: arrays must have equal lengths along the other axes"),
    ("xt.reshape(f, (5, 5))", ValueError, "reshape: shape must make 12 elements, got (5, 5)"),
    ("xt.reshape(f, (-1, 5))", ValueError, "reshape: shape must make 12 elements, got (-1, 5)"),
    ("xt.reshape(f, (-1, -1))", ValueError, "reshape: shape must not be negative"),
    ("xt.reshape(f, (-3, -4))", ValueError, "reshape: shape must not be negative, got (-3, -4)"),
    ("xt.reshape(f, (2.5, 4))", TypeError, "reshape: shape must be an integer or a sequence of integers, got (2.5, 4)"),
    ("xt.reshape(f.T, (12,), copy=False)", ValueError, "reshape: copy must be None or True for strides (8, 32)"),
    ("xt.repeat(f, [1, 2], axis=0)", ValueError, "repeat: repeats must be one number or 3 of them, got shape (2,)"),
    ("xt.repeat(f, -1)", ValueError, "repeat: repeats must not be negative, got -1"),
    ("xt.roll(f, (1, 2, 3), axis=(0, 1))", ValueError, "roll: shift must be one number or 2 of them, got (1, 2, 3)"),
    ("xt.tile(f, (-1,))", ValueError, "tile: repetitions must not be negative, got (-1,)"),
    ("xt.diff(f, n=-1)", ValueError, "diff: n must not be negative, got -1"),
    ("xt.max(e)", ValueError, "max: x must have elements along the reduced axes, got shape (0, 4)"),
    ("xt.argmin(e, axis=0)", ValueError, "argmin: x must have elements along the reduced axes, got shape (0, 4)"),
    ("xt.cumulative_sum(f)", ValueError, "cumulative_sum: axis must be given unless x has 1 axis, got shape (3, 4)"),
    ("xt.nonzero(s)", ValueError, "nonzero: x must have at least 1 axis, got shape ()"),
    ("xt.searchsorted(f, f)", ValueError, "searchsorted: x1 must have 1 axis, got shape (3, 4)"),
    ("xt.meshgrid(f, f)", ValueError, "meshgrid: arrays must have at most 1 axis, got shape (3, 4)"),
    ("xt.tril(f[0])", ValueError, "tril: x must have at least 2 axes, got shape (4,)"),
    (
        "xt.permute_dims(xt.ones((2, 3, 4)), (1, 0, 2)).flat_2d()",
        ValueError,
        "flat_2d: x must have strides that flatten",
    ),
    ("f.__setitem__(0, xt.ones(5))", ValueError, ""),
    ("f.__setitem__(0, [1, 2])", ValueError, ""),
    ("f.__setitem__(f > 0, xt.ones(5))", ValueError, ""),
    ("f.__setitem__(([0], slice(None)), xt.ones(5))", ValueError, ""),
    ("f.__iadd__(xt.ones(5))", ValueError, "add: shapes (3, 4) and (5,) could not be broadcast together: 4 != 5"),
    ("f[0].__iadd__(f)", ValueError, "add: x2 must broadcast to x1's shape (4,), got shape (3, 4)"),
    ("f.__imatmul__(xt.ones((4, 2)))", ValueError, "matmul: x2 must keep x1's shape (3, 4), got a product of (3, 2)"),
    ("bool(f)", ValueError, "bool: x must have one element (use any() or all()), got shape (3, 4)"),
    ("bool(e)", ValueError, "bool: x must have one element (use any() or all()), got shape (0, 4)"),
    ("int(f)", TypeError, "int: x must have 0 axes, got shape (3, 4)"),
    ("len(s)", TypeError, "len: x must have at least 1 axis, got shape ()"),
    ("list(s)", TypeError, "iter: x must have at least 1 axis, got shape ()"),
    ("f.item()", ValueError, ""),
    ("hash(f)", TypeError, ""),
    ("xt.fft.fft(f, n=0)", ValueError, "fft: n must be positive, got 0"),
    ("xt.fft.fftn(f, s=(1, 2, 3))", ValueError, "fftn: s must "),
]

AXES: list[Row] = [
    ("xt.sum(f, axis=2)", IndexError, "sum: axis must be in [-2, 2), got 2"),
    ("xt.sum(f, axis=-3)", ValueError, "sum: axis must be in [-2, 2), got -3"),  # NumPy's AxisError is both
    ("xt.sort(f, axis=2)", np.exceptions.AxisError, "sort: axis must be in [-2, 2), got 2"),
    ("xt.sum(f, axis=(0, 0))", ValueError, "sum: axis must not name an axis twice, got (0, 0)"),
    ("xt.sum(f, axis=1.5)", TypeError, "sum: axis must be an integer, got 1.5"),
    ("xt.sum(s, axis=0)", IndexError, "sum: axis must be absent for 0 axes, got 0"),
    ("xt.sum(s * 1, axis=0)", IndexError, "sum: axis must be absent for 0 axes, got 0"),
    ("xt.max(s * 1, axis=-1)", IndexError, "max: axis must be absent for 0 axes, got -1"),
    ("xt.any(s * 1, axis=0)", IndexError, "any: axis must be absent for 0 axes, got 0"),
    ("xt.argmax(s * 1, axis=0)", IndexError, "argmax: axis must be absent for 0 axes, got 0"),
    ("xt.count_nonzero(s * 1, axis=0)", IndexError, "count_nonzero: axis must be absent for 0 axes, got 0"),
    ("xt.argmax(f, axis=(0, 1))", TypeError, "argmax: axis must be an integer, got (0, 1)"),
    ("xt.flip(f, axis=2)", IndexError, "flip: axis must be in [-2, 2), got 2"),
    ("xt.sort(f, axis=2)", IndexError, "sort: axis must be in [-2, 2), got 2"),
    ("xt.argsort(s)", IndexError, "argsort: axis must be absent for 0 axes, got -1"),
    ("xt.concat([f], axis=2)", IndexError, "concat: axis must be in [-2, 2), got 2"),
    ("xt.stack([f], axis=4)", IndexError, "stack: axis must be in [-3, 3), got 4"),
    ("xt.unstack(f, axis=2)", IndexError, "unstack: axis must be in [-2, 2), got 2"),
    ("xt.expand_dims(f, axis=4)", IndexError, "expand_dims: axis must be in [-3, 3), got 4"),
    ("xt.expand_dims(f, axis=(0, 0))", ValueError, "expand_dims: axis must not name an axis twice, got (0, 0)"),
    ("xt.squeeze(f, 0)", ValueError, "squeeze: axis must name axes of length 1, got axis 0 of shape (3, 4)"),
    ("xt.squeeze(f, 5)", IndexError, "squeeze: axis must be in [-2, 2), got 5"),
    ("xt.moveaxis(f, 0, 2)", IndexError, "moveaxis: destination must be in [-2, 2), got 2"),
    ("xt.moveaxis(f, (0, 1), 0)", ValueError, "moveaxis: destination must name 2 axes, got 0"),
    ("xt.permute_dims(f, (0,))", ValueError, "permute_dims: axes must name each of the 2 axes once, got (0,)"),
    ("xt.permute_dims(f, (0, 0))", ValueError, "permute_dims: axes must not name an axis twice, got (0, 0)"),
    ("xt.permute_dims(f, 1)", TypeError, ""),
    ("xt.vecdot(f, f, axis=2)", IndexError, "vecdot: axis must be in [-2, 2), got 2"),
    ("xt.tensordot(f, f, axes=((0,), (5,)))", IndexError, ""),
    ("xt.fft.fftn(f, axes=(0, 5))", IndexError, "fftn: axes must be in [-2, 2), got 5"),
    ("xt.linalg.vector_norm(f, axis=2)", IndexError, "vector_norm: axis must be in [-2, 2), got 2"),
]

INDICES: list[Row] = [
    ("f[['a']]", IndexError, "index: key must be an array of integers or booleans, got <U1"),
    ("f[3]", IndexError, "index: key must be in [-3, 3) for axis 0, got 3"),
    ("f[..., -5]", IndexError, "index: key must be in [-4, 4) for axis 1, got -5"),
    ("e[0]", IndexError, "index: key must be absent: axis 0 has size 0, got 0"),
    ("s[0]", IndexError, "index: key must have at most 0 indices, got 1"),
    ("f[0, 0, 0]", IndexError, "index: key must have at most 2 indices, got 3"),
    ("f[2**70]", IndexError, "index: key must be in [-3, 3) for axis 0, got 1180591620717411303424"),
    ("f[..., ...]", IndexError, "index: key must have at most one Ellipsis, got 2"),
    ("f[1.0]", IndexError, "index: key must be an integer, slice, Ellipsis, None, or an array or list of"),
    ("f['a']", IndexError, "index: key must be an integer, slice, Ellipsis, None, or an array or list of"),
    ("f[None, {}]", IndexError, "index: key must be an integer, slice, Ellipsis, None, or an array or list of"),
    ("f[1:2:0]", ValueError, ""),
    ("f[1.5:]", TypeError, ""),
    ("f[xt.asarray([1.0])]", IndexError, "index: key must be an array of integers or booleans, got float64"),
    ("f[[1.5]]", IndexError, "index: key must be an array of integers or booleans, got float64"),
    ("f[[0, -4]]", IndexError, "index: "),
    ("f[xt.ones(5, dtype=xt.bool)]", IndexError, "index: "),
    ("f[xt.ones((4, 3), dtype=xt.bool)]", IndexError, "index: "),
    ("f[[0, 1], [0, 1, 2]]", IndexError, "index: "),
    ("f[[0], [0], [0]]", IndexError, "index: "),
    ("f[[[0], [1, 2]]]", ValueError, ""),
    ("f.__setitem__(3, 0)", IndexError, "index: key must be in [-3, 3) for axis 0, got 3"),
    ("f.__setitem__([0, 7], 0)", IndexError, "index: "),
    ("f.__setitem__(xt.ones(5, dtype=xt.bool), 0)", IndexError, "index: "),
    ("f.__setitem__('a', 0)", IndexError, "index: key must be"),
    ("xt.take(f, xt.asarray([0, 9]), axis=0)", IndexError, "take: "),
    ("xt.take_along_axis(f, xt.asarray([[9]]), axis=0)", IndexError, "take_along_axis: "),
    ("xt.take_along_axis(f, xt.asarray([0]), axis=0)", ValueError, "take_along_axis: indices must have 2 axes, got"),
    ("f.item(99)", IndexError, ""),
]

READ_ONLY: list[Row] = [
    (f"{target}.{write}", ValueError, f"{name}: the target must be writable, got a read-only view")
    for target in ("ro", "imported", "imported[::-1]", "ro.T[1]", "xt.squeeze(ro[:, None], 1)", "ro.detach()")
    for write, name in [("__setitem__(..., 1)", "setitem"), ("__setitem__([0], 1)", "setitem"), ("__iadd__(1)", "add")]
]

SIZES: list[Row] = [
    ("xt.zeros(-1)", ValueError, "zeros: shape must not be negative, got (-1,)"),
    ("xt.empty((2, -3))", ValueError, "empty: shape must not be negative, got (2, -3)"),
    ("xt.ones((0, -3))", ValueError, "ones: shape must not be negative, got (0, -3)"),
    ("xt.zeros(1.5)", TypeError, "zeros: shape must be an integer or a sequence of integers, got 1.5"),
    ("xt.full('a', 1)", TypeError, "full: shape must be an integer or a sequence of integers, got 'a'"),
    ("xt.zeros((2**31, 2**31))", ValueError, "zeros: shape must have fewer than 2**60 elements"),
    ("xt.zeros(2**100)", ValueError, "zeros: shape must have fewer than 2**60 elements"),
    ("xt.zeros((0, 2**70))", ValueError, "zeros: shape must have fewer than 2**60 elements"),
    ("xt.zeros((1,) * 65)", ValueError, "zeros: shape must have at most 64 axes, got 65"),
    ("xt.zeros(2**50)", MemoryError, "zeros: shape must fit into memory"),
    ("xt.ones(2**50)", MemoryError, "ones: shape must fit into memory"),
    ("xt.full(2**50, 1)", MemoryError, "full: shape must fit into memory"),
    ("huge.__setitem__(0, 1)", MemoryError, ""),
    ("xt.broadcast_to(f[0], (2**60, 4))", ValueError, "broadcast_to: shape must have fewer than 2**60 elements"),
    ("xt.eye(-1)", ValueError, "eye: n_rows, n_cols must not be negative, got (-1, -1)"),
    ("xt.eye(2**30)", ValueError, "eye: n_rows, n_cols must have fewer than 2**60 elements"),
    ("xt.linspace(0, 1, -1)", ValueError, "linspace: num must not be negative"),
    ("xt.linspace(0, 1, 2**50)", MemoryError, ""),
    ("xt.arange(0, 1, 0)", ValueError, "arange: step must not be 0, got 0"),
    ("xt.arange(2**60)", ValueError, "arange: bounds must give a length that fits memory"),
    ("xt.arange(0, float('inf'))", ValueError, "arange: bounds must give a length that fits memory, got (0, inf, 1)"),
    ("xt.fft.fftfreq(-1)", ValueError, "fftfreq: n must be positive, got -1"),
]

INTEGERS: list[Row] = [
    ("u + 300", OverflowError, ""),
    ("300 + u", OverflowError, ""),
    ("u + (-1)", OverflowError, ""),
    ("i + 2**70", OverflowError, ""),
    ("u * -2**70", OverflowError, ""),
    ("xt.maximum(u, 256)", OverflowError, ""),
    ("xt.where(u > 0, u, 300)", OverflowError, ""),
    ("u.__iadd__(300)", OverflowError, ""),
    ("i.__imul__(2**64)", OverflowError, ""),
    ("u.__setitem__(0, 300)", OverflowError, ""),
    ("u.__setitem__([0, 1], -1)", OverflowError, ""),
    ("u.__setitem__(u > 0, 256)", OverflowError, ""),
    ("u.__setitem__(..., [1, 300, 1])", OverflowError, ""),
    ("i.__setitem__(0, 2**63)", OverflowError, ""),
    ("xt.asarray(2**70)", OverflowError, "asarray: obj must hold integers of at most 64 bits, got a larger one"),
    ("xt.asarray([1, -2**70])", OverflowError, "asarray: obj must hold integers of at most 64 bits, got a larger one"),
    ("xt.asarray([1, 300], dtype=xt.int8)", OverflowError, ""),
    ("xt.asarray(-1, dtype=xt.uint8)", OverflowError, ""),
    ("xt.full(3, 300, dtype=xt.uint8)", OverflowError, ""),
    ("xt.full(3, 2**70)", OverflowError, ""),
    ("xt.full_like(u, -1)", OverflowError, ""),
    ("i ** -1", ValueError, ""),
    ("i ** xt.asarray([0, 1, 2, -1])", ValueError, ""),
    ("i.__ipow__(-1)", ValueError, ""),
    ("i.__ipow__(xt.asarray([0, 1, 2, -1]))", ValueError, ""),
    ("i.__iadd__(1.5)", TypeError, "add: the result's dtype must fit into x1's int64, got float64"),
    ("i.__itruediv__(2)", TypeError, "divide: the result's dtype must fit into x1's int64, got float64"),
    ("f.__imul__(c)", TypeError, "multiply: the result's dtype must fit into x1's float64, got complex128"),
    ("u.__iadd__(i[0, :3])", TypeError, "add: the result's dtype must fit into x1's uint8, got int64"),
    ("b.__iadd__(1)", TypeError, "add: the result's dtype must fit into x1's bool, got int64"),
    ("b.__isub__(b)", TypeError, "subtract: x1 must be numeric, got bool"),
    ("f.__iand__(f)", TypeError, "bitwise_and: x1 must be integer or boolean, got float64"),
    ("i.__imatmul__(xt.ones((4, 4)))", TypeError, "matmul: the result's dtype must fit into x1's int64, got float64"),
]

COPIES: list[Row] = [
    ("xt.asarray([1, 2], copy=False)", ValueError, "asarray: copy must be None or True for Python scalars"),
    ("xt.asarray(f, dtype=xt.float32, copy=False)", ValueError, "asarray: copy must be None or True when dtype or"),
    ("xt.asarray(i, dtype=xt.float64, copy=False)", ValueError, "asarray: copy must be None or True when dtype or"),
    ("xt.asarray(np.ones(3), dtype=xt.int8, copy=False)", ValueError, "asarray: copy must be None or True to make"),
    ("f.__array__(xt.int64, copy=False)", ValueError, "__array__: dtype must be float64 when copy=False, got int64"),
    ("ro.__dlpack__(copy=False)", BufferError, "__dlpack__: x must be packed, writable"),
    ("f[::-1].__dlpack__(copy=False)", BufferError, "__dlpack__: x must be packed, writable"),
    ("f.__dlpack__(stream=1)", BufferError, "__dlpack__: stream must be None on the CPU, got 1"),
    ("f.__dlpack__(dl_device=(2, 0))", BufferError, "__dlpack__: dl_device must be (1, 0), got (2, 0)"),
    ("xt.from_dlpack(3)", TypeError, "from_dlpack: x must have __dlpack__ and __dlpack_device__, got int"),
]

ROWS = KIND + STRANGERS + NAMES + SHAPES + AXES + INDICES + READ_ONLY + SIZES + INTEGERS + COPIES


@pytest.mark.parametrize(("call", "error", "text"), ROWS, ids=[row[0] for row in ROWS])
@pytest.mark.parametrize("lazy", ["auto", "always"])
def test_bad_input(call: str, error: type[Exception], text: str, lazy: Any) -> None:
    with xt.options(lazy=lazy):
        names = operands()
        arrays = {k: v for k, v in names.items() if isinstance(v, xt.Tensor) and k != "huge"}
        before = {name: np.array(x.tolist(), x.dtype).reshape(x.shape) for name, x in arrays.items()}
        with pytest.raises(error, match="^" + re.escape(text)) as raised:
            eval(call, names)
        if text and " must " in text:
            assert re.fullmatch(r"(?s)\w+: .+ must .+, got .+", str(raised.value))
        for name, x in arrays.items():
            assert x.shape == before[name].shape and x.dtype == before[name].dtype
            np.testing.assert_array_equal(x.native(), before[name], err_msg=name)


def test_names_of_numpys_are_told_from_others() -> None:
    for name, hint in {"concatenate": "; NumPy's names are in xtensor.numpy", "concatonate": ""}.items():
        with pytest.raises(AttributeError, match=f"^module 'xtensor' has no attribute '{name}'{hint}$"):
            getattr(xt, name)


def test_every_message_xtensor_makes_names_its_function() -> None:
    named = [(call, text) for call, error, text in ROWS if text and "unsupported operand" not in text]
    assert all(re.match(r"\w+(: |$)", text) for _, text in named)


# ---- foreign objects


class Foreign:
    """An object with `__dlpack__`, broken in one way."""

    def __init__(self, capsule: Any, device: tuple[int, int] = (1, 0)) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack__(self, **asked: Any) -> Any:
        if isinstance(self.capsule, Exception):
            raise self.capsule
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


BROKEN: dict[str, Any] = {
    "raises RuntimeError": lambda: Foreign(RuntimeError("no")),
    "raises BufferError": lambda: Foreign(BufferError("no")),
    "raises TypeError": lambda: Foreign(TypeError("no")),
    "no capsule": lambda: Foreign(3),
    "None": lambda: Foreign(None),
    "device elsewhere": lambda: Foreign(RuntimeError("on the GPU"), (2, 0)),
    "used capsule": lambda: used(Foreign(np.ones(3).__dlpack__())),
    "unknown dtype": lambda: Strings(),
}


def used(foreign: Foreign) -> Foreign:
    xt.from_dlpack(foreign)
    return foreign


class Strings:
    """NumPy itself refuses to export these."""

    def __dlpack__(self, **asked: Any) -> Any:
        return np.array(["a"]).__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("make", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("take", [xt.from_dlpack, xt.asarray], ids=["from_dlpack", "asarray"])
def test_broken_dlpack(make: Any, take: Any) -> None:
    with pytest.raises(BufferError):
        take(make())


def test_old_dlpack_producers_are_fine() -> None:
    class Old:
        def __dlpack__(self, stream: Any = None) -> Any:
            return np.arange(3).__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    assert xt.from_dlpack(Old()).tolist() == xt.asarray(Old()).tolist() == [0, 1, 2]


def test_half_a_dlpack_object() -> None:
    class Half:
        def __dlpack__(self, **asked: Any) -> Any:
            raise AssertionError("not to be asked")

    with pytest.raises(TypeError, match="^from_dlpack: x must have __dlpack__ and __dlpack_device__, got Half"):
        xt.from_dlpack(Half())


@pytest.mark.parametrize("result", [3, None, "abc", RuntimeError("no"), ValueError("no")], ids=repr)
def test_broken_array_protocol(result: Any) -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            if isinstance(result, Exception):
                raise result
            return result

    with pytest.raises((TypeError, ValueError, RuntimeError)):
        xt.asarray(Broken())


# ---- pickles


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_truncated_pickles(protocol: int) -> None:
    data = pickle.dumps(xt.reshape(xt.arange(6.0), (2, 3)), protocol=protocol)
    for length in range(0, len(data), 7):
        with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError, IndexError)):
            pickle.loads(data[:length])


def test_pickles_without_their_buffers() -> None:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(xt.arange(1000.0), protocol=5, buffer_callback=buffers.append)
    assert len(buffers) == 1 and len(data) < 1000
    assert pickle.loads(data, buffers=buffers)[999] == 999
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(data)
    with pytest.raises(pickle.UnpicklingError):
        pickle.loads(data, buffers=[])
    with pytest.raises(ValueError):
        pickle.loads(data, buffers=[b"short"])


def test_pickle_from_a_machine_with_another_device() -> None:
    there = operands()["there"]
    with pytest.raises(ValueError, match=r"^unpickle: device must be .*'cuda:"):
        pickle.loads(pickle.dumps(there))
