"""The suite's core under many configurations: Pythons, NumPys, llvmlites, processors, engines, AArch64 and Windows.

`make machines` runs it, prints the table and writes it into docs/where-it-runs.md; with `--only` the other rows stay.
Environments are made once, under `--folder`; what cannot be had here (a Python, a processor) is a row that says so.
`--aarch64` names an arm64 Python, or a command that stands for one: `tests/aarch64.sh FOLDER` makes such a command with
qemu-user. `--windows` names one that runs Windows' Python: `python tests/windows_python.py FOLDER` makes it with Wine.
Pythons are looked for on the PATH; `tests/debian_python.sh` brings one that is newer than the system.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from time import perf_counter
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "where-it-runs.md"
BEGIN, END = "<!-- the table of machines begins -->", "<!-- the table of machines ends -->"

# What runs everywhere: numbers, integer division, launches and what runs them, the barrier of writes, memory at the
# edge of the engine. Some ten seconds of a processor; an emulator takes twenty times as long.
CORE = ("reproducible", "division", "launch", "barrier", "blob", "temporaries", "elision", "branches", "found_arrays")
DESELECTED = "not other_processors"  # each is a row

PYTHONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
NEEDED = ("llvmlite", "array-api-compat", "pytest", "mpmath")
NUMPYS = {"oldest": "numpy==2.3.0", "newest": "numpy"}  # pyproject.toml's floor
FIRST = {"3.14": "numpy==2.3.2", "3.15": "numpy==2.5.2"}  # the oldest there are wheels of, where that is another one


class Mode(NamedTuple):
    """How the package is asked to work. has_llvmlite: whether it can be imported."""

    name: str
    environment: dict[str, str]
    has_llvmlite: bool = True


MODES = (
    Mode("AVX-512", {"XTENSOR_TEST_PROCESSOR": "avx512", "XTENSOR_ENGINE": "llvm"}),
    Mode("AVX2", {"XTENSOR_TEST_PROCESSOR": "avx2", "XTENSOR_ENGINE": "llvm"}),
    Mode("plain x86-64", {"XTENSOR_TEST_PROCESSOR": "plain"}),
    Mode("as macOS", {"XTENSOR_TEST_SYSTEM": "macOS"}),
    Mode("engine interpret", {"XTENSOR_ENGINE": "interpret"}),
    Mode("lazy always", {"XTENSOR_LAZY": "always"}),
    Mode("no llvmlite", {}, has_llvmlite=False),
)


class Configuration(NamedTuple):
    """One row of the table. python: a command, "" where there is none."""

    python: str
    version: str
    numpy: str
    mode: Mode


class Outcome(NamedTuple):
    """What came of it."""

    configuration: Configuration
    versions: str
    summary: str
    seconds: float
    is_green: bool


def environment_of(folder: Path, version: str, numpy: str) -> str:
    """Return the interpreter of a virtual environment with the packages, made if need be; "" without that Python."""
    home = folder / f"python{version}-numpy-{numpy}"
    python = home / "bin" / "python"
    wanted = FIRST.get(version, NUMPYS[numpy]) if numpy == "oldest" else NUMPYS[numpy]
    if not python.exists():
        base = which(f"python{version}")
        if base is None or subprocess.run([base, "--version"], capture_output=True).returncode:
            return ""
        subprocess.run([base, "-m", "venv", "--without-pip", str(home)], check=True)  # Debian keeps it apart
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--only-binary=:all:"]
        subprocess.run([*command, wanted, *NEEDED], check=True)
    return str(python)


def configurations(folder: Path, elsewhere: dict[str, str], only: str) -> Iterator[Configuration]:
    """Yield every row whose description has the pattern `only`. elsewhere: commands by their systems' names."""
    for version in PYTHONS:
        for numpy in NUMPYS:
            rows = [one for one in (Configuration("", version, numpy, mode) for mode in MODES) if asked(one, only)]
            python = environment_of(folder, version, numpy) if rows else ""
            yield from [one._replace(python=python) for one in (rows if python else rows[:1])]
    for name, python in elsewhere.items():
        for mode in (Mode(name, {"XTENSOR_ENGINE": "llvm"}), Mode(f"{name}, lazy always", {"XTENSOR_LAZY": "always"})):
            row = Configuration(python, "", "newest", mode)
            if asked(row, only):
                yield row


def asked(configuration: Configuration, only: str) -> bool:
    """Return whether a row is to be run."""
    return bool(re.search(only, describe(configuration)))


def outcome_of(configuration: Configuration) -> Outcome:
    """Run the tests of a configuration."""
    if not configuration.python:
        return Outcome(configuration, "", "not here", 0.0, False)
    environment = os.environ | configuration.mode.environment
    inherited = "" if configuration.version else environment.get("PYTHONPATH", "")
    paths = [str(ROOT), str(ROOT / "tests"), inherited]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    environment["XTENSOR_TEST_PYTHON"] = configuration.python
    processors = ["-p", "processors"] if configuration.mode.has_llvmlite else ["-p", "without_llvmlite"]
    files = [str(ROOT / "tests" / f"test_{name}.py") for name in CORE]
    started = perf_counter()
    command = [*configuration.python.split(), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [*processors, "-k", DESELECTED, *files]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    seconds = perf_counter() - started
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["nothing was said"]
    summary = re.sub(r" in [\d.]+s.*", "", lines[-1]).strip("= ")
    if done.returncode:
        print(done.stdout[-4000:], done.stderr[-2000:], file=sys.stderr)
    return Outcome(configuration, versions_of(configuration, environment), summary, seconds, done.returncode == 0)


def versions_of(configuration: Configuration, environment: dict[str, str]) -> str:
    """Return the versions of Python, NumPy and llvmlite."""
    code = (
        "import sys, numpy\n"
        "try:\n    import llvmlite\n    version = llvmlite.__version__\n"
        "except ImportError:\n    version = 'none'\n"
        "print(sys.version.split()[0], numpy.__version__, version, sep=' | ')"
    )
    command = [*configuration.python.split(), "-c", code]
    text = subprocess.run(command, env=environment, capture_output=True, text=True).stdout.strip()
    return text if configuration.mode.has_llvmlite else f"{text.rpartition('|')[0]}| none"


def line(outcome: Outcome) -> str:
    """Return a row of the table."""
    configuration = outcome.configuration
    versions = outcome.versions or f"{configuration.version} | {configuration.numpy} | "
    verdict = "green" if outcome.is_green else outcome.summary if not configuration.python else "RED"
    return f"| {versions} | {configuration.mode.name} | {outcome.summary} | {outcome.seconds:.0f} | {verdict} |"


def main() -> int:
    """Run all configurations; return 1 where one that ran was not green."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path.home() / ".cache" / "xtensor" / "machines")
    parser.add_argument("--aarch64", default="", help="a command that runs an arm64 Python with the packages")
    parser.add_argument("--windows", default="", help="a command that runs Windows' Python with the packages")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="a regular expression for rows")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    elsewhere = {"AArch64, emulated": given.aarch64, "Windows, under Wine": given.windows}
    rows = list(configurations(given.folder, elsewhere, given.only))
    outcomes = []
    with ThreadPoolExecutor(given.workers) as pool:
        for outcome in pool.map(outcome_of, rows):
            print(line(outcome), flush=True)
            outcomes.append(outcome)
    ran = [one for one in outcomes if one.configuration.python]
    print(f"{sum(one.is_green for one in ran)} of {len(ran)} configurations are green")
    write(outcomes, keep_others=bool(given.only))
    return int(not all(one.is_green for one in ran))


def describe(configuration: Configuration) -> str:
    return f"python{configuration.version} numpy-{configuration.numpy} {configuration.mode.name}"


def write(outcomes: list[Outcome], keep_others: bool) -> None:
    """Put the table into the page; of one that holds it already, exchange the rows that were run, where asked to."""
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    found, _, tail = rest.partition(END)
    rows = {key(row): row for row in found.splitlines() if row[:3].strip("| ").isdigit()} if keep_others else {}
    rows |= {key(row): row for row in map(line, outcomes)}
    heading = "| Python | NumPy | llvmlite | as | tests | seconds | |\n|---|---|---|---|---|--:|---|"
    PAGE.write_text(head + "\n".join([BEGIN, "", heading, *rows.values(), "", END]) + tail, encoding="utf-8")


def key(row: str) -> tuple[str, ...]:
    """Return the cells of a row that say what was run: versions and mode."""
    return tuple(cell.strip() for cell in row.split("|")[1:5])


if __name__ == "__main__":
    sys.exit(main())
