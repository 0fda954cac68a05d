"""What the package does not do: open connections, start processes, run text of others, unpickle."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import xtensor

PACKAGE = Path(xtensor.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

MODULES = frozenset(
    (
        *("socket", "socketserver", "ssl", "http", "urllib", "ftplib", "smtplib", "poplib", "imaplib", "telnetlib"),
        *("xmlrpc", "asyncio", "requests", "httpx", "aiohttp", "subprocess", "multiprocessing", "pty"),
        *("pickle", "marshal", "shelve", "dill", "cloudpickle", "code", "codeop"),
    )
)
CALLS = frozenset(("eval", "exec", "compile", "__import__", "input", "breakpoint"))
METHODS = frozenset(
    (module, name)
    for module, names in {
        "os": "system popen execv execve execvp spawnv spawnl posix_spawn startfile",
        "builtins": "eval exec compile",
        "np": "load fromregex",
        "numpy": "load fromregex",
    }.items()
    for name in names.split()
)


def forbidden(tree: ast.AST) -> Iterator[str]:
    """Yield what a file imports or calls and should not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            names = []
        yield from (f"imports {name}" for name in names if name.split(".")[0] in MODULES)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
            yield f"calls {node.func.id}"
        named = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        if named and (node.value.id, node.attr) in METHODS:  # type: ignore[attr-defined]
            yield f"has {node.value.id}.{node.attr}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())
def test_no_text_is_run_and_nothing_is_sent(file: Path) -> None:
    """No file of the package imports what connects or starts processes, or evaluates text as Python."""
    assert [*forbidden(ast.parse(file.read_text(encoding="utf-8")))] == []


@pytest.mark.parametrize(
    "text", ["import urllib.request", "from socket import socket", "eval('1')", "os.system('ls')", "np.load(file)"]
)
def test_the_search_finds(text: str) -> None:
    assert [*forbidden(ast.parse(text))] != []


WORK = """
import sys

found = []
watched = ("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "urllib.", "ftplib.", "pickle.")
sys.addaudithook(lambda event, given: found.append(event) if event.startswith(watched) else None)

import xtensor as xt

with xt.options(engine="llvm", lazy="always"):
    x = xt.linspace(0.0, 1.0, 100_000)
    float(xt.sum(xt.exp(x) * x))
    xt.linalg.inv(xt.eye(3)).evaluate()
    xt.fft.fft(xt.ones(8)).evaluate()
    xt.asarray(x.__dlpack__() and x)
xt.explain(xt.exp(x))
print(sorted(set(found)))
"""


def test_no_connection_at_run_time() -> None:
    """Python's audit events of importing and computing: none of a connection, a process or an unpickled object."""
    done = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
