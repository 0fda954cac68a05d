"""Run the array API tests of other libraries, as installed, with xtensor as their namespace.

python conformance/consumers.py sklearn                          every module that has such tests
python conformance/consumers.py dask                             what Dask tests with CuPy, on tensors
python conformance/consumers.py array_api_extra --download       tests that are in the source distribution alone
python conformance/consumers.py scipy --only stats/tests/test_entropy.py cluster
python conformance/consumers.py sklearn --lazy always -- -k PCA  after --, pytest's own options
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from progress import OUTCOMES, Result, clock
from report import ERROR_WIDTH, ROW, row
from run import HERE, run
from suite import cache_folder


@dataclass(frozen=True)
class Consumer:
    """A package whose tests can be run on another namespace."""

    package: str
    distribution: str
    environment: dict[str, str]  # what must be set before the package is imported
    select: tuple[str, ...]  # pytest's options that choose the tests of xtensor
    tests: tuple[str, ...] = ("",)  # files or folders of the package
    source: str = ""  # the version whose source distribution has the tests and the package, in src

    @property
    def plugin(self) -> str:
        """The pytest plugin that makes the package test xtensor."""
        return f"{self.package}_plugin"

    @property
    def folder(self) -> Path:
        """Where the package is installed, or its source lies; raises ModuleNotFoundError."""
        if self.source:
            return source_folder(self)
        spec = find_spec(self.package)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{self.distribution} is not installed: pip install {self.distribution}")
        return Path(spec.origin).parent

    @property
    def version(self) -> str:
        """The version that is tested."""
        return self.source or metadata.version(self.distribution)


def source_folder(consumer: Consumer) -> Path:
    """Return where a source distribution was unpacked; raises ModuleNotFoundError."""
    name = f"{consumer.distribution.replace('-', '_')}-{consumer.source}"
    folder = cache_folder().parent / name
    if not folder.is_dir():
        raise ModuleNotFoundError(f"{name} was not found in {folder.parent}: fetch it with --download")
    return folder


def download(consumer: Consumer) -> None:
    """Fetch a source distribution with pip and unpack it in the cache."""
    cache = cache_folder().parent
    cache.mkdir(parents=True, exist_ok=True)
    wanted = [f"{consumer.distribution}=={consumer.source}", "--no-deps", "--no-binary", consumer.distribution]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "-d", str(cache), *wanted], check=True)
    (archive,) = cache.glob(f"{consumer.distribution.replace('-', '_')}-{consumer.source}.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(cache, filter="data")


# Dask's tests for CuPy, but for those of CuPy's own generators and sparse matrices.
OF_DASK = ("core", "creation", "gufunc", "linalg", "overlap", "percentile", "reductions", "routines", "slicing")

CONSUMERS = {
    "sklearn": Consumer("sklearn", "scikit-learn", {"SCIPY_ARRAY_API": "1"}, ("-k", "xtensor")),
    "scipy": Consumer(
        "scipy",
        "scipy",
        {"SCIPY_ARRAY_API": '["array_api_strict"]'},
        ("-m", "array_api_backends", "--ignore=scipy/datasets"),  # these need pooch, and have no such tests
    ),
    "dask": Consumer("dask", "dask", {}, (), tuple(f"array/tests/test_cupy_{name}.py" for name in OF_DASK)),
    "cubed": Consumer(
        "cubed",
        "cubed",
        {"CUBED_BACKEND_ARRAY_API_MODULE": "xtensor"},
        ("-k", "not cloud and not dask"),  # these need an account, and a cluster that Cubed cannot start itself
        ("tests/test_array_api.py", "tests/test_core.py", "tests/test_gufunc.py"),
    ),
    "array_api_extra": Consumer("array_api_extra", "array-api-extra", {}, (), ("tests/main",), source="0.11.5"),
    "xarray": Consumer(
        "xarray",
        "xarray",
        {},
        ("-k", "array_api or jax"),
        ("tests/test_array_api.py", "tests/test_duck_array_wrapping.py"),
    ),
    "einops": Consumer("einops", "einops", {"EINOPS_TEST_BACKENDS": "xtensor"}, (), ("tests",)),
}


def main() -> int:
    """Run one consumer's tests, report, and return the exit status."""
    options = parse(sys.argv[1:])
    consumer = CONSUMERS[options.consumer]
    try:
        if options.download and consumer.source:
            download(consumer)
        arguments = pytest_arguments(consumer, options)
    except (ModuleNotFoundError, FileNotFoundError, subprocess.CalledProcessError) as error:
        print("error:", error)
        return 2
    set_environment(consumer, options)
    progress, crashed = run(arguments, consumer.folder.parent)
    print_report(consumer, progress.results, progress.elapsed)
    failed = any(result.outcome == "failed" for result in progress.results.values())
    return 1 if failed or crashed or not progress.results else 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; what follows `--` is for pytest."""
    cut = argv.index("--") if "--" in argv else len(argv)
    summary, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("consumer", choices=list(CONSUMERS), help="whose tests")
    add("--workers", type=int, default=1, metavar="N", help="processes (1)")
    add("--only", nargs="+", default=[], metavar="PATH", help="test files or folders inside the package")
    add("--download", action="store_true", help="fetch the source distribution first, where the tests are in that")
    add("--lazy", choices=["auto", "always", "never"], help="when xtensor records calls")
    options = parser.parse_args(argv[:cut])
    options.pytest = argv[cut + 1 :]
    return options


def pytest_arguments(consumer: Consumer, options: argparse.Namespace) -> list[str]:
    """Return what pytest is to run, and how."""
    paths = [consumer.folder / path for path in options.only or consumer.tests]
    if missing := [str(path) for path in paths if not path.exists()]:
        raise FileNotFoundError(f"no such file or folder: {', '.join(missing)}")
    return [
        f"--rootdir={consumer.folder.parent}",
        f"--config-file={consumer.folder / 'pyproject.toml' if consumer.source else os.devnull}",
        "-pno:cacheprovider",
        f"-p{consumer.plugin}",
        "--import-mode=append",  # keep the installed package's own folder from shadowing other modules
        *(["-n", str(options.workers), "--dist", "worksteal"] if options.workers > 1 else []),
        *consumer.select,
        *options.pytest,
        *(str(path) for path in paths),
    ]


def set_environment(consumer: Consumer, options: argparse.Namespace) -> None:
    """Tell the package, xtensor and the worker processes, all of which read the environment, what to do."""
    os.environ.update(consumer.environment)
    if options.lazy:
        os.environ["XTENSOR_LAZY"] = options.lazy
    sys.path[:0] = [str(HERE.parent), str(HERE)]  # this checkout, installed or not, and the plugins
    if consumer.source:
        sys.path.insert(0, str(consumer.folder / "src"))


def print_report(consumer: Consumer, results: dict[str, Result], elapsed: float) -> None:
    """Print a line per test file, a total, and every failing test with its error."""
    heading = ROW.format(f"{consumer.distribution} {consumer.version}", *OUTCOMES, "seconds")
    print(heading, "-" * len(heading), sep="\n")
    files: dict[str, list[Result]] = {}
    for test, result in results.items():
        files.setdefault(short_name(test), []).append(result)
    for name, members in sorted(files.items()):
        print(row(name, members))
    print("-" * len(heading), row("total", results.values()), sep="\n")
    print(f"{len(results)} tests in {clock(elapsed)}")
    for test, result in results.items():
        if result.outcome == "failed":
            print(f"\nFAILED {test}\n       {result.error[:ERROR_WIDTH]}")


def short_name(test: str) -> str:
    """Return the module that a test id is about: `sklearn/metrics/tests/test_pairwise.py::...` is metrics/pairwise."""
    path = test.partition("::")[0].removesuffix(".py")
    return path.partition("/")[2].replace("tests/test_", "")


if __name__ == "__main__":
    sys.exit(main())
