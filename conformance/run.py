"""Run the array API test suite on xtensor, or on any other namespace, and print a table per chapter.

python conformance/run.py                                   everything, 100 examples a test
python conformance/run.py --lazy always --examples 1000     every call recorded
python conformance/run.py --gradients always                every call written down for gradients
python conformance/run.py --module array_api_strict         another library, for comparison
python conformance/run.py --only linalg fft -- -k solve -x  chapters; after --, pytest's own options
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from pathlib import Path

import pytest
from progress import Progress
from report import EXACT, print_report, write_json
from suite import STANDARD_URL, SUITE_URL, Suite, SuiteError, SuiteMissingError, check_pins, download, find

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Find the suite, run it, report, and return the exit status."""
    options = parse(sys.argv[1:])
    try:
        suite = prepare(options)
        arguments = pytest_arguments(options, suite)
    except SuiteError as error:
        skipped = options.if_found and isinstance(error, SuiteMissingError)
        print("skipped:" if skipped else "error:", error)
        return 0 if skipped else 2
    set_environment(options, suite)
    progress, crashed = run(arguments, suite.path)
    if not progress.results:
        return 2
    print_report(progress.results, progress.elapsed)
    if options.json:
        write_json(options.json, options, suite, progress)
    failed = any(result.outcome == "failed" for result in progress.results.values())
    return 1 if failed or crashed else 0


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; what follows `--` is for pytest."""
    cut = argv.index("--") if "--" in argv else len(argv)
    summary, _, examples = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_suite_options(parser)
    add_run_options(parser)
    options = parser.parse_args(argv[:cut])
    options.pytest = argv[cut + 1 :]
    return options


def add_suite_options(parser: argparse.ArgumentParser) -> None:
    """Options that say where the suite is."""
    add = parser.add_argument_group("the suite").add_argument
    add("--suite", type=Path, metavar="DIR", help="its folder; else $ARRAY_API_TESTS_DIR, else the cache")
    add("--download", nargs="?", const=SUITE_URL, metavar="URL", help="fill the cache from here with git")
    add("--array-api-url", default=STANDARD_URL, metavar="URL", help="fetch the standard from here")
    add("--if-found", action="store_true", help="succeed, and say so, where there is no suite")
    add("--any-commit", action="store_true", help="accept other commits than the pinned ones")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Options that say what runs and how."""
    add = parser.add_argument_group("the run").add_argument
    add("--module", default="xtensor", metavar="NAME", help="the namespace to test")
    add("--examples", type=int, default=100, metavar="N", help="examples a test (100)")
    add("--workers", type=int, default=1, metavar="N", help="processes (1)")
    add("--only", nargs="+", default=[], metavar="CHAPTER", help="some chapters instead of all")
    add("--lazy", choices=["auto", "always", "never"], help="when xtensor records calls")
    add("--gradients", choices=["asked", "always"], help="which calls xtensor writes down for gradients")
    add("--engine", metavar="NAME", help="the engine xtensor must use")
    add("--device", metavar="DEV", help="the device xtensor puts arrays on")
    add("--as-is", action="store_true", help="run without the repair of the suite (repairs.py says what it is)")
    add("--json", type=Path, metavar="FILE", help="write versions, counts and every outcome")


def prepare(options: argparse.Namespace) -> Suite:
    """Return the suite that the options ask for, fetched if need be and checked."""
    suite = download(options.download, options.array_api_url) if options.download else find(options.suite)
    if not options.any_commit:
        check_pins(suite)
    return suite


def pytest_arguments(options: argparse.Namespace, suite: Suite) -> list[str]:
    """Return what pytest is to run, and how."""
    of_suite = [
        f"--xfails-file={HERE / 'xfails.txt'}",
        f"--max-examples={options.examples}",
        "--disable-deadline",
        *([] if options.as_is else ["-prepairs"]),
    ]
    return [
        f"--rootdir={suite.path}",
        f"--config-file={suite.path / 'pytest.ini'}",
        "-pno:cacheprovider",
        *(["-n", str(options.workers), "--dist", "worksteal"] if options.workers > 1 else []),
        *([] if options.only == [EXACT] else of_suite),  # unknown to pytest unless it meets the suite
        *options.pytest,
        *test_files(options, suite),
    ]


def test_files(options: argparse.Namespace, suite: Suite) -> list[str]:
    """Return the test files of the chosen chapters."""
    files = {chapter: suite.tests / f"test_{chapter}.py" for chapter in suite.chapters()}
    if options.module == "xtensor":
        files[EXACT] = HERE  # the folder, so that pytest names the file in its ids
    if unknown := set(options.only) - set(files):
        raise SuiteError(f"no such chapter: {', '.join(sorted(unknown))}\nthere are: {', '.join(files)}")
    return [str(files[chapter]) for chapter in options.only or files]


def set_environment(options: argparse.Namespace, suite: Suite) -> None:
    """Tell the suite, xtensor and the worker processes, all of which read the environment, what to do."""
    wanted = {
        "ARRAY_API_TESTS_MODULE": options.module,
        "ARRAY_API_TESTS_DIR": str(suite.path),
        "XTENSOR_LAZY": options.lazy,
        "XTENSOR_GRADIENTS": options.gradients,
        "XTENSOR_ENGINE": options.engine,
        "XTENSOR_DEVICE": options.device,
    }
    os.environ.update({name: value for name, value in wanted.items() if value is not None})
    sys.path.insert(0, str(HERE.parent))  # test this checkout, installed or not
    if not options.as_is:
        more = "" if options.device in (None, "cpu") else ", and no memory of a device is exported to the CPU uncopied"
        print(f"the suite is repaired: None equals no dtype{more} (conformance/repairs.py; --as-is to go without)")


def run(arguments: list[str], folder: Path) -> tuple[Progress, bool]:
    """Run pytest in a folder, its output in a log, which is shown if pytest itself breaks down."""
    progress = Progress(sys.stdout)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log, contextlib.chdir(folder):
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            status = pytest.main(arguments, plugins=[progress])
        progress.close()
        crashed = status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if crashed:
            log.seek(0)
            print(*log.readlines()[-40:], sep="", file=sys.stderr)
    return progress, crashed


if __name__ == "__main__":
    sys.exit(main())
