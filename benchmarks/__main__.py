"""The command line: `python -m benchmarks [NAME] [--quick]`."""

from __future__ import annotations

import argparse
from importlib import import_module

# Each is a file of this folder with a function main(quick).
BENCHMARKS = ("overhead",)


def main() -> None:
    """Run the benchmarks asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Side-by-side benchmarks.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}; all if none is given"
    )
    parser.add_argument("--quick", action="store_true", help="a few repeats only: whether it runs, not how fast")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}: there is {', '.join(BENCHMARKS)}")
    for name in options.names or BENCHMARKS:
        import_module(f"benchmarks.{name}").main(options.quick)


if __name__ == "__main__":
    main()
