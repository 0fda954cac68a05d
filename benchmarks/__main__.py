"""The command line: `python -m benchmarks [NAME ...] [options]`."""

from __future__ import annotations

import argparse
from importlib import import_module
from inspect import signature
from pathlib import Path

from .gpu import TABLES
from .peers import PEERS
from .programs import BESIDE, LIMIT, PRESETS
from .workloads import DTYPES, WORKLOADS

# Each is a file of this folder with a function main; it is given the options that its parameters name.
BENCHMARKS = (
    "overhead",
    "engine",
    "calls",
    "consumers",
    "functions",
    "sizes",
    "imported",
    "latency",
    "memory",
    "accuracy",
    "gradients",
    "convolution",
    "layers",
    "networks",
    "nn",
    "programs",
    "steps",
    "gpu",
)
USUAL = ("overhead", "engine")
USUAL_ON_CUDA = ("gpu",)
USUAL_WORDS = f"{' and '.join(USUAL)} if none is given"


def main() -> None:
    """Run the benchmarks asked for, or the usual ones."""
    parser = make_parser()
    options = vars(parser.parse_args())
    on_cuda = options["device"] != "cpu"
    names = [whole_name(name) for name in options.pop("names")] or (USUAL_ON_CUDA if on_cuda else USUAL)
    for name in names:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark {name!r}: there is {', '.join(BENCHMARKS)}")
        if on_cuda and name not in USUAL_ON_CUDA:
            parser.error(f"{name} runs on the CPU alone; on {options['device']} there is {', '.join(USUAL_ON_CUDA)}")
    if "gpu" in names and not on_cuda:
        options["device"] = "cuda:0"
    for name in names:
        benchmark = import_module(f"benchmarks.{name}").main
        benchmark(**{option: options[option] for option in signature(benchmark).parameters if option in options})


def whole_name(name: str) -> str:
    """Return the benchmark whose name begins so, if there is a single one; else the name as it is."""
    found = [one for one in BENCHMARKS if one.startswith(name)]
    return found[0] if len(found) == 1 else name


def make_parser() -> argparse.ArgumentParser:
    """Return the parser; but for the first two, options belong to one benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Side-by-side benchmarks.")
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}, or how it begins; {USUAL_WORDS}")
    add("--quick", action="store_true", help="a few repeats only: whether it runs, not how fast")
    add("--wide", action="store_true", help="calls: many more, of all chapters, instead of the usual tables")
    engine = parser.add_argument_group("engine")
    add = engine.add_argument
    names = [workload.name for workload in WORKLOADS]
    add("--sizes", nargs="+", type=int, metavar="N", help="numbers of elements")
    add("--workloads", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    add("--dtypes", nargs="+", choices=DTYPES, metavar="DTYPE", help=f"of {', '.join(DTYPES)}")
    add("--peers", nargs="*", choices=PEERS, metavar="NAME", help=f"of {', '.join(PEERS)}; all installed if not given")
    add("--repeats", type=int, metavar="N", help="rounds in which each contestant is timed once")
    add("--out", type=Path, default=Path("build/benchmarks"), metavar="FOLDER", help="for the chart, JSON and tables")
    add_options_of_programs(parser.add_argument_group("programs"))
    parser.add_argument("--device", metavar="DEV", default="cpu", help="cpu, or cuda:N for the benchmark gpu")
    parser.add_argument("--tables", nargs="+", choices=TABLES, metavar="NAME", help=f"gpu: some of {', '.join(TABLES)}")
    return parser


def add_options_of_programs(group: argparse._ArgumentGroup) -> None:
    """Add the options of `programs`."""
    add = group.add_argument
    add("--suite", type=Path, metavar="FOLDER", help="of NPBench; $NPBENCH_DIR or a cache folder if not given")
    add("--preset", choices=PRESETS, default=PRESETS[0], help="how large the inputs are")
    add("--programs", nargs="+", metavar="NAME", help="some of NPBench's programs")
    add(
        "--beside",
        nargs="*",
        choices=BESIDE,
        metavar="NAME",
        help=f"of {', '.join(BESIDE)}; all installed if not given",
    )
    add("--fused", action="store_true", help="each program under xt.fuse as well")
    add("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each version of a program")


if __name__ == "__main__":
    main()
