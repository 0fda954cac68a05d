"""Samples of the data type functions, and of the methods that copy, move and look at memory otherwise."""

from __future__ import annotations

import copy

from tests.samples import Sample, complexes, normal

A, Z = normal(3, 4), complexes(3, 4)

SAMPLES = [
    Sample("astype", lambda xp, x: xp.astype(x, xp.float64), (A,), "same"),
    Sample("astype", lambda xp, x: xp.astype(x, xp.float64, copy=False), (A,), "no copy"),
    Sample("astype", lambda xp, x: xp.astype(x, xp.complex128), (A,), "complex"),
    Sample("astype", lambda xp, x: x.astype(xp.complex128) * x, (A,), "complex and real"),
    Sample("copy", lambda xp, x: x.copy(), (A,)),
    Sample("copy", lambda xp, x: x.T.copy("K") * copy.copy(x.T), (Z,), "in memory order"),
    Sample("copy", lambda xp, x: copy.deepcopy(x[::-1]), (A,), "deep"),
    Sample("to_device", lambda xp, x: x.to_device("cpu") * x, (A,)),
    Sample("real", lambda xp, x: x.real, (Z,), "view"),
    Sample("real", lambda xp, x: x.real, (A,), "view of a real one"),
    Sample("imag", lambda xp, x: x.imag[::2], (Z,), "view"),
    Sample("imag", lambda xp, x: x.real * x.imag, (complexes(),), "both"),
    Sample("T", lambda xp, x: x.T, (A,)),
    Sample("mT", lambda xp, x: x.mT, (complexes(2, 3, 2),)),
    Sample("flatten", lambda xp, x: x.T.flatten(), (A,)),
    Sample("ravel", lambda xp, x: x[:, ::-1].ravel(), (A,)),
    Sample("flat_2d", lambda xp, x: x.copy().flat_2d(), (normal(2, 3, 2),)),
    Sample("view", lambda xp, x: x.view(), (A,)),
    Sample("view", lambda xp, x: x.copy().view(xp.real(x).dtype), (Z,), "parts"),
    Sample("view", lambda xp, x: x.copy().view((1j * x[0, 0]).dtype), (A,), "of parts"),
    Sample("round", lambda xp, x: x.round(1), (A,), "decimals"),
]
