"""NumPy's own polynomials, which take tensors: `from xtensor.numpy.polynomial import Polynomial`."""

import sys

import numpy.polynomial

sys.modules[__name__] = numpy.polynomial
