"""A pytest plugin for Cubed's own tests, which take xtensor by an environment variable: it checks that they did."""

from __future__ import annotations

from cubed.backend_array_api import namespace

import xtensor

if namespace is not xtensor:
    raise ImportError(f"Cubed has been imported with {namespace.__name__}: its variable came too late")
