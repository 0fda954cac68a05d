"""Samples of the functions beyond the standard."""

from __future__ import annotations

from tests.samples import Sample, complexes, normal

SAMPLES = [
    *[
        Sample("diag", lambda xp, x, k=k: xp.diag(x, k), (x,), f"{note} {k}")
        for x, note in ((normal(3), "vector"), (normal(3, 4), "matrix"), (complexes(4, 3), "complex"))
        for k in (0, 1, -2)
    ],
    Sample("diag", lambda xp, x: xp.diag(x, 5), (normal(3, 4),), "beyond the matrix"),
    *[
        Sample("einsum", lambda xp, *args, text=text: xp.einsum(text, *args), args, text.replace(",", " "))
        for text, args in (
            ("ij,jk->ik", (normal(2, 3), normal(3, 4))),
            ("ij,jk", (complexes(2, 3), normal(3, 4))),
            ("ij->", (normal(2, 3),)),
            ("ij->j", (complexes(2, 3),)),
            ("ii", (normal(3, 3),)),
            ("ii->i", (complexes(3, 3),)),
            ("iij,i->j", (normal(3, 3, 2), normal(3))),
            ("iii->", (normal(2, 2, 2),)),
            ("ij,j,jk->ki", (complexes(2, 3), complexes(3), complexes(3, 4))),
            ("i,j->ij", (normal(2), complexes(3))),
            ("ij,k->i", (normal(2, 3), normal(4))),
            ("...ij,...jk->...ik", (normal(2, 1, 2, 3), normal(4, 3, 2))),
            ("...i,i", (normal(2, 3), normal(3))),
            ("i...,i...->...", (complexes(3, 2), complexes(3, 1))),
            ("bi,bi,ij->j", (normal(2, 3), normal(2, 3), normal(3, 4))),
            (",ij->ji", (normal(), normal(2, 3))),
            ("ij,ij->ij", (normal(3, 1), normal(3, 4))),
            ("ij,j->i", (normal(3, 1), normal(4))),
            ("ab,bc->ac", (normal(0, 3), normal(3, 2))),
        )
    ],
]
