"""Libraries: which are taken to be constant, and which of their functions return something else at each call."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import accumulate
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from .codes import attributes_of, loads_of, names_of

# Modules whose functions and constants never change.
_LIBRARIES = sys.stdlib_module_names | {"array_api_compat", "cupy", "jax", "numpy", "scipy", "tqdm", "xtensor"}

# Modules of libraries whose functions return something else at each call, and such attributes of other modules.
_VARYING = frozenset(
    (
        *("_contextvars", "contextvars", "datetime", "getpass", "glob", "http", "locale", "multiprocessing"),
        *("numpy.random", "psutil", "random", "resource", "secrets", "select", "shutil", "signal", "socket", "sqlite3"),
        *("subprocess", "tempfile", "time", "urllib", "uuid"),
    )
)
_OF_OS = frozenset(
    (
        *("access", "environ", "environb", "fstat", "getcwd", "getcwdb", "getenv", "getenvb", "getloadavg", "getlogin"),
        *("getpid", "getppid", "getrandom", "getuid", "listdir", "lstat", "open", "popen", "readlink", "scandir"),
        *("stat", "statvfs", "system", "times", "umask", "urandom", "walk"),
    )
)
_OF_NUMPY = frozenset(("fromfile", "genfromtxt", "get_printoptions", "geterr", "load", "loadtxt", "memmap", "random"))
_OF_THREADS = frozenset(("active_count", "current_thread", "enumerate", "get_ident", "get_native_id"))
_OF_GC = frozenset(("get_count", "get_objects", "get_referrers", "get_stats", "get_threshold"))
_OF_SYS = frozenset(("argv", "exc_info", "getrecursionlimit", "getrefcount", "path", "stdin"))

# Built-in functions that find values that code does not mention or that read files, and those that distinguish equal
# objects. Names of functions that read files; and of those that ask the file system, which count where a function has
# paths or `os`. Answers to libraries and installed packages are taken to be constant, except for files that are read.
_FINDING, _TELLING = frozenset(("eval", "exec", "globals", "input", "open")), frozenset(("hash", "id"))
_READING = frozenset(("read_bytes", "read_text"))
_OUTSIDE = frozenset(
    (
        *("absolute", "abspath", "cwd", "exists", "expanduser", "expandvars", "getatime", "getmtime", "getsize"),
        *("glob", "home", "is_dir", "is_file", "isdir", "isfile", "islink", "iterdir", "lexists", "lstat", "open"),
        *("realpath", "relpath", "resolve", "rglob", "samefile", "stat"),
    )
)
_OF_PATHS = frozenset(("genericpath", "ntpath", "os", "pathlib", "posixpath"))
_VARYING_OF = {"builtins": _FINDING | _TELLING, "gc": _OF_GC, "numpy": _OF_NUMPY, "sys": _OF_SYS}
_VARYING_OF |= dict.fromkeys(("_thread", "threading"), _OF_THREADS)
_VARYING_OF |= dict.fromkeys(("nt", "os", "posix"), _OF_OS)
_VARYING_OF |= dict.fromkeys(("genericpath", "ntpath", "posixpath"), _OUTSIDE)

# Libraries whose functions are deterministic, except for those of some names.
_DETERMINISTIC = frozenset(
    (
        *("abc", "array_api_compat", "bisect", "builtins", "cmath", "collections", "contextlib", "copy", "dataclasses"),
        *("decimal", "enum", "fractions", "functools", "heapq", "itertools", "logging", "math", "numbers", "numpy"),
        *("operator", "re", "statistics", "string", "struct", "sys", "typing", "types", "warnings", "xtensor"),
        *("scipy.constants", "scipy.fft", "scipy.integrate", "scipy.interpolate", "scipy.linalg", "scipy.ndimage"),
        *("scipy.signal", "scipy.spatial", "scipy.special"),
    )
)
_DRAWING = frozenset(("default_rng", "rand", "randn", "RandomState", "rvs"))
NONDETERMINISTIC = frozenset(("from_address", "mmap", "open_memmap", "read")).union(
    _DRAWING, _FINDING, _OF_NUMPY, _OF_OS, _READING
)


@lru_cache(maxsize=1024)
def is_library(module: str) -> bool:
    """Return whether a module of this name belongs to a library."""
    return module.partition(".")[0] in _LIBRARIES


def module_of(value: Any) -> str:
    """Return the name of a module, or of the module of a function or a class; "" for none."""
    found = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return found if isinstance(found, str) else ""


def is_of_deterministic(value: Any) -> bool:
    """Return whether a value is, or belongs to, a deterministic library, or no library: the functions of user code are
    looked into.
    """
    module = module_of(value)
    if not _DETERMINISTIC.isdisjoint(accumulate(module.split("."), "{}.{}".format)):
        return True
    if isinstance(value, ModuleType):
        return "site-packages" not in str(vars(value).get("__file__", "")) and not is_library(module)
    return not is_library(module) and type(value) is not BuiltinFunctionType


def varying_in(function: Any, own: Mapping[str, Any]) -> str:
    """Return something that a function can call whose result differs between calls; "" if there is none.

    own: the values of names that the function looks up outside, None for missing ones.
    """
    code, names = function.__code__, names_of(function.__code__)
    if is_library(str(function.__globals__.get("__name__"))):  # such as the one that makes the reprs of dataclasses
        return ""
    finding = _FINDING.intersection(names).difference(function.__globals__)
    if function.__name__ != "__hash__" and _is_own(function):  # else from the hashes of an object's parts
        finding |= _TELLING.intersection(names).difference(function.__globals__)
    if finding:
        finding &= {name for name, _ in loads_of(code)}
    modules = {name: module_of(value) for name, value in own.items()}
    finding |= {one.__name__ for name, one in own.items() if _is_of(one, _VARYING_OF.get(modules[name], ()))}
    finding |= attributes_of(code) & (_READING | {"__subclasses__"} if _is_own(function) else _READING)
    if finding:
        return min(finding)
    asked = {name: value for name, value in own.items() if type(value) is ModuleType and "__getattr__" in vars(value)}
    if not (
        asked or any(one in _VARYING or not names.isdisjoint(_VARYING_OF.get(one, ())) for one in modules.values())
    ):
        return ""  # spares a look at each instruction, which takes as long as running some
    for name, attribute in loads_of(code):
        module = modules.get(name, "")
        if module in _VARYING:
            return module
        of_module = _VARYING_OF.get(module, frozenset())
        found = attributes_of(code) if attribute is None else {attribute}
        if not found.isdisjoint(of_module):
            return f"{module}.{sorted(found & of_module)[0]}"
        if attribute and name in asked and not is_library(module) and attribute not in vars(asked[name]):
            return f"{module}.{attribute}"
    return ""


def _is_own(function: Any) -> bool:
    """Return whether a function is the user's code, in neither a library nor an installed package."""
    library = is_library(str(function.__globals__.get("__name__")))
    return not library and "site-packages" not in function.__code__.co_filename


def asked_outside(function: Any) -> frozenset[str]:
    """Return the names in a user's function that may ask a path about the file system."""
    return attributes_of(function.__code__) & _OUTSIDE if _is_own(function) else frozenset()


def is_of_paths(value: Any) -> bool:
    """Return whether a value is a module for paths, or a function, class or object of one."""
    return module_of(value).partition(".")[0] in _OF_PATHS


def _is_of(value: Any, names: Collection[str]) -> bool:
    """Return whether a value is a function with one of some names."""
    return isinstance(value, (BuiltinFunctionType, FunctionType)) and value.__name__ in names
