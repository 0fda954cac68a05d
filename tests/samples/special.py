"""Samples of special functions; those that SciPy computes are left out where it is not installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np

from tests.samples import Array, Sample, normal, positive

X, P = normal(3, 4), positive(3, 4)
CHANCE = np.linspace(0.05, 0.95, 12).reshape(3, 4)
A, B = positive(3, 4, seed=1), positive(4, seed=2)
ORDERS = np.array([1, 2, 3, 5])


def special(
    name: str, *args: Array, note: str = "", before: tuple[Any, ...] = (), second: bool = True, **keywords: Any
) -> Sample:
    """Return a sample of a function of xt.special: arguments without a gradient come before those that have one."""

    def call(xp: Any, *tensors: Any) -> Any:
        return getattr(xp.special, name)(*map(xp.asarray, before), *tensors, **keywords)

    return Sample(f"special.{name}", call, args, note, second)


FORMULAS = [
    *[special(name, X) for name in ("cosm1", "exp10", "exp2", "expit", "exprel", "log_expit", "sinc", "softplus")],
    *[special(name, X) for name in ("softmax", "log_softmax", "logsumexp", "expm1", "erf")],
    *[special(name, P) for name in ("entr", "log1p")],
    special("exprel", np.array([0.0, 1e-3, -5.0]), note="about 0"),
    special("sinc", np.array([0.0, 1e-3, 3.0]), note="about 0"),
    special("sinc", np.array(0.3), note="0-d"),
    special("logit", CHANCE),
    special("xlogy", X, B),
    special("xlogy", np.array([0.0, 2.0]), np.array([3.0, 0.5]), note="of 0", second=False),
    special("xlog1py", X, B),
    special("rel_entr", P, B),
    special("rel_entr", P, P * 1.1, note="alike"),
    special("kl_div", P, B),
    special("huber", B, X),
    special("pseudo_huber", B, X),
    special("pseudo_huber", normal(0, 3), normal(3), note="empty"),
    special("radian", X, B, A),
    Sample("special.logsumexp", lambda xp, a, b: xp.special.logsumexp(a, axis=1, b=b), (X, A), "scaled"),
    special("softmax", X, note="axis", axis=0),
]

LIBRARY = [
    *[special(name, X) for name in ("dawsn", "erfc", "erfcx", "erfi", "log_ndtr", "ndtr", "i0", "i0e", "i1", "i1e")],
    *[special(name, X) for name in ("j0", "j1", "cosdg", "sindg", "tandg", "cbrt", "wrightomega")],
    *[special(name, P) for name in ("gamma", "gammaln", "loggamma", "rgamma", "psi", "digamma", "expi", "exp1")],
    *[special(name, P) for name in ("y0", "y1", "k0", "k0e", "k1", "k1e", "spence", "erfcinv")],
    *[special(name, CHANCE) for name in ("erfinv", "ndtri", "ellipk", "ellipe")],
    special("cotdg", 30 * P),
    special("gammasgn", X),
    *[special(name, P, B) for name in ("beta", "betaln", "poch")],
    special("binom", 3 + P, B),
    special("polygamma", P, before=(2,)),
    special("multigammaln", 2 + P, d=3),
    special("zeta", P, before=(2.5,)),
    *[special(name, P, before=(B,)) for name in ("gammainc", "gammaincc", "chdtr", "chdtrc", "pdtr")],
    *[special(name, CHANCE, before=(A,)) for name in ("gammaincinv", "gammainccinv", "stdtrit")],
    *[special(name, CHANCE, before=(A, B)) for name in ("betainc", "betaincc", "betaincinv")],
    special("stdtr", X, before=(A,)),
    special("owens_t", X, B),
    special("expn", P, before=(ORDERS,)),
    *[special(name, P, before=(A,)) for name in ("jv", "yv", "iv", "kv")],
    *[special(name, P, B) for name in ("boxcox", "boxcox1p", "inv_boxcox", "inv_boxcox1p")],
]

SAMPLES = FORMULAS + (LIBRARY if find_spec("scipy") else [])
