"""Samples of the manipulation functions."""

from __future__ import annotations

import numpy as np

from tests.samples import Sample, complexes, normal

A, B = normal(3, 4), normal(3, 4, seed=1)
Z = complexes(2, 3)
EMPTY = np.zeros((0, 3))
TIMES = np.asarray([2, 0, 3])

SAMPLES = [
    Sample("broadcast_arrays", lambda xp, x, y: xp.broadcast_arrays(x, y), (normal(3, 1), normal(4))),
    Sample("broadcast_arrays", lambda xp, x, y: xp.broadcast_arrays(x, y)[0], (normal(), Z), "one used"),
    Sample("broadcast_arrays", lambda xp, x, y: xp.broadcast_arrays(x, y), (A, B), "same shapes"),
    Sample("broadcast_to", lambda xp, x: xp.broadcast_to(x, (2, 3, 4)), (normal(3, 1),)),
    Sample("broadcast_to", lambda xp, x: xp.broadcast_to(x, (2, 3)), (normal(),), "scalar"),
    Sample("broadcast_to", lambda xp, x: xp.broadcast_to(x, (0, 3)), (normal(1, 3),), "empty"),
    Sample("concat", lambda xp, x, y: xp.concat((x, y)), (A, normal(1, 4))),
    Sample("concat", lambda xp, x, y: xp.concat([x, y, x], axis=-1), (A, normal(3, 0)), "axis repeated empty"),
    Sample("concat", lambda xp, x, y: xp.concat((x, y), axis=None), (normal(), Z), "flat complex"),
    Sample("concat", lambda xp, x: xp.concat(x, axis=1), (normal(2, 3, 2),), "rows of a tensor"),
    Sample("expand_dims", lambda xp, x: xp.expand_dims(x, axis=1), (A,)),
    Sample("expand_dims", lambda xp, x: xp.expand_dims(x, axis=(0, -1)), (Z,), "several"),
    Sample("flip", lambda xp, x: xp.flip(x, axis=0), (A,)),
    Sample("flip", lambda xp, x: xp.flip(x, axis=None), (Z,), "all"),
    Sample("flip", lambda xp, x: xp.flip(x, axis=(0, 2)), (normal(2, 3, 2),), "several"),
    Sample("moveaxis", lambda xp, x: xp.moveaxis(x, 0, -1), (normal(2, 3, 4),)),
    Sample("moveaxis", lambda xp, x: xp.moveaxis(x, (0, 1), (2, 0)), (normal(2, 3, 4),), "several"),
    Sample("permute_dims", lambda xp, x: xp.permute_dims(x, (2, 0, 1)), (normal(2, 3, 4),)),
    Sample("permute_dims", lambda xp, x: xp.permute_dims(x, (-1, -2)), (Z,), "negative"),
    Sample("permute_dims", lambda xp, x: xp.permute_dims(x, ()), (normal(),), "no axes"),
    Sample("repeat", lambda xp, x: xp.repeat(x, 3), (A,), "flat"),
    Sample("repeat", lambda xp, x: xp.repeat(x, 2, axis=-1), (Z,), "axis"),
    Sample("repeat", lambda xp, x: xp.repeat(x, 0, axis=0), (A,), "none"),
    Sample("repeat", lambda xp, x: xp.repeat(x, xp.asarray(TIMES), axis=0), (A,), "each"),
    Sample("repeat", lambda xp, x: xp.repeat(x, xp.asarray(TIMES), axis=1), (Z,), "each complex"),
    Sample("repeat", lambda xp, x: xp.repeat(x, xp.asarray([2]), axis=1), (A,), "one in an array"),
    Sample("repeat", lambda xp, x: xp.repeat(x, 2, axis=1), (EMPTY,), "empty"),
    Sample("reshape", lambda xp, x: xp.reshape(x, (2, 6)), (A,)),
    Sample("reshape", lambda xp, x: xp.reshape(xp.permute_dims(x, (1, 0)), (-1,)), (Z,), "copy"),
    Sample("reshape", lambda xp, x: xp.reshape(x, (3, 0)), (EMPTY,), "empty"),
    Sample("roll", lambda xp, x: xp.roll(x, 2), (A,), "flat"),
    Sample("roll", lambda xp, x: xp.roll(x, -1, axis=1), (Z,), "axis"),
    Sample("roll", lambda xp, x: xp.roll(x, (1, -2), axis=(0, 1)), (A,), "several"),
    Sample("roll", lambda xp, x: xp.roll(x, 1, axis=0), (EMPTY,), "empty"),
    Sample("squeeze", lambda xp, x: xp.squeeze(x, axis=1), (normal(3, 1, 2),)),
    Sample("squeeze", lambda xp, x: xp.squeeze(x, axis=(0, -1)), (complexes(1, 3, 1),), "several"),
    Sample("stack", lambda xp, x, y: xp.stack((x, y)), (A, B)),
    Sample("stack", lambda xp, x, y: xp.stack([x, y, x], axis=-1), (Z, normal(2, 3)), "mixed"),
    Sample("stack", lambda xp, x: xp.stack(x, axis=1), (A,), "rows of a tensor"),
    Sample("tile", lambda xp, x: xp.tile(x, (2, 3)), (A,)),
    Sample("tile", lambda xp, x: xp.tile(x, (2,)), (Z,), "fewer axes"),
    Sample("tile", lambda xp, x: xp.tile(x, (2, 1, 3)), (normal(3),), "more axes"),
    Sample("tile", lambda xp, x: xp.tile(x, (0, 2)), (A,), "none"),
    Sample("tile", lambda xp, x: xp.tile(x, ()), (normal(),), "scalar"),
    Sample("unstack", lambda xp, x: xp.unstack(x), (A,)),
    Sample("unstack", lambda xp, x: xp.unstack(x, axis=-1)[1:3], (complexes(3, 4),), "some used"),
    Sample("unstack", lambda xp, x: xp.unstack(x, axis=1)[0] * x[:, 0], (normal(3, 2),), "and the whole"),
]
