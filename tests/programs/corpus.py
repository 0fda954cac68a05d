"""Every program that ever failed, cut down, and those that are hard for a known reason; CI replays all of them.

A case is added under the kind it failed as, with a word on what was wrong.
"""

from __future__ import annotations

PLAIN: list[list[str]] = [
    ["v0 = xp.zeros((0,), dtype=xp.complex64)", "v1 = xp.mean(v0)"],  # NaN in both parts
    ["v0 = xp.permute_dims(xp.zeros((2, 3, 4)), (1, 0, 2))[..., :0]", "v1 = xp.mean(v0, axis=2)"],  # not in C order
    ["v0 = xp.permute_dims(xp.zeros((2, 3, 4)), (2, 1, 0))[:0]", "v1 = xp.sum(v0, axis=0)"],
    ["v0 = xp.permute_dims(xp.zeros((2, 3, 4)), (2, 1, 0))[:0]", "v1 = xp.sum(v0 * 2, axis=0)"],
    ["v0 = xp.permute_dims(xp.zeros((2, 3, 4)), (2, 1, 0))[:0]", "v1 = xp.mean(v0 * 2, axis=0)"],
    ["v0 = xp.permute_dims(xp.zeros((2, 3, 4)), (2, 1, 0))[:0]", "v1 = xp.count_nonzero(v0, axis=0)"],
    ["v0 = xp.arange(9)", "v0[1:] += v0[:-1]", "v0[::-1] = v0", "v0[2:] *= v0[6::-1]"],
    ["v0 = xp.reshape(xp.arange(9), (3, 3))", "v0 += xp.matrix_transpose(v0)", "v0 -= v0[1]", "v0 *= v0[:, 1:2]"],
    ["v0 = xp.arange(9000.0)", "v1 = v0 * v0", "v2 = v1 + v0[::-1]", "v0[...] = 7", "v0 += v1", "del v1"],
    ["v0 = xp.ones((4,))", "v1 = v0[::2] * 3", "v2 = xp.host(v0)", "v2[...] = 5", "v3 = v0 + v1"],
    ["v0 = xp.arange(4)", "v1 = xp.flip(v0)", "v1[v0 > 1] = xp.apart(v0[:2])"],
    ["v0 = xp.ones((2, 3))", "v1 = xp.broadcast_to(v0[0], (4, 3))", "v2 = xp.reshape(v1, (12,))", "v1[0, 0] = 1"],
    ["v0 = xp.asarray([1, 2], dtype=xp.uint8)", "v0[...] = [300, 1]"],  # NumPy: the list must fit, nothing wraps
    [  # products of stacks lie as their operands do
        "v0 = xp.stack((xp.broadcast_to(xp.reshape(xp.arange(15.0), (3, 5)), (2, 3, 5)),) * 2, axis=-1)",
        "v1 = xp.matmul(v0, xp.matrix_transpose(v0))",
    ],
]

CAPTURED: list[list[str]] = [  # NumPy drops imaginary parts
    ["v0 = xp.asarray(data(569, (2, 2), 'complex64'), copy=True)", "v1 = xp.astype(v0, xp.uint32)"],
    [  # a value selected of memory was read after others had written to that
        "v0 = xp.asarray(data(747, (4, 4), 'uint16'), copy=True)",
        "v3 = xp.expand_dims(v0, axis=1)",
        "v4 = xp.host(v0)",
        "v5 = xp.pick(v3, 0, 0, 3)",
        "v4[...] = 0",
    ],
    [
        "v0 = xp.asarray(data(954, (3, 5), 'int16'), copy=True)",
        "v2 = v0[xp.asarray([[-3]], dtype=xp.int64), -4::1]",
        "v2[::2, :, :] -= v2",
        "v4 = xp.host(v2)",
        "v5 = xp.pick(v2, 0, 0, 3)",
        "v4[...] = True",
    ],
    [  # a product of a product that the library had laid out in another way than was planned
        "v1 = xp.asarray(data(607, (3, 5), 'complex128'), copy=True)",
        "v2 = xp.broadcast_to(v1, (2, 3, 5))",
        "v5 = xp.stack((v2, v2), axis=-1)",
        "v0 = xp.matmul(v5, xp.matrix_transpose(v5))",
        "v5 = xp.matmul(v0, xp.matrix_transpose(v0))",
    ],
]

GRADIENT: list[list[str]] = [
    [  # a view of a view, both kept for the gradient, was computed after the write
        "v0 = xp.asarray(numbers(463, (2, 5, 2)), copy=True)",
        "v1 = v0 * v0",
        "v2 = xp.reshape(v1, (1, 20))",
        "v3 = xp.matmul(v2, xp.matrix_transpose(v2))",
        "v2 = v0 + 1",
        "v1[:, ::-3, 0] *= v3",
    ],
    [  # a view was read after the temporary memory that it shows had been given to others, of another part
        "v0 = xp.asarray(numbers(24, (1, 2)), copy=True)",
        "v1 = xp.matrix_transpose(v0)",
        "v2 = xp.multiply(v1, v0)",
        "v3 = xp.where(v1 > v2, v1, v2 * 2.0)",
    ],
]

CORPUS: dict[str, list[list[str]]] = {"plain": PLAIN, "captured": CAPTURED, "gradient": GRADIENT}
