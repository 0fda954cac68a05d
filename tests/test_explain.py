"""Seeing the engine: what explain says is what then happens, and saying it changes nothing."""

from __future__ import annotations

import copy
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xtensor as xt
from xtensor.base.options import Settings, settings
from xtensor.codegen.cpu.compile import host, wait_for_better_code
from xtensor.explaining import CacheInfo
from xtensor.run import describe, engines

N = 100_000

needs_llvm = pytest.mark.skipif(host() is None, reason="generated code needs llvmlite and a fused multiply-add")


@pytest.fixture(autouse=True)
def defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with the default settings, whatever the environment asks of the other tests; leave the disk alone."""
    settings()  # asks the environment, which opens the shortcut of small operands
    monkeypatch.setattr(sys.modules["xtensor.base.options"], "_from_environment", [Settings(cache_dir="")])


@pytest.fixture
def always() -> Iterator[None]:
    """Record every call of a test, and plan it whatever its size."""
    with xt.options(lazy="always", engine="interpret"):
        yield


def ones(*shape: int, dtype: Any = xt.float64) -> xt.Tensor:
    return xt.ones(shape, dtype=dtype).evaluate()


# ---- pending values


@pytest.mark.usefixtures("always")
def test_graph_and_plan() -> None:
    """Values are numbered, scalars written out; a kernel's steps are called as in the graph."""
    x = ones(1000)
    z = xt.exp(x * 2.5) - x
    text = xt.explain(z)
    assert z.is_pending
    assert text.splitlines() == [
        "graph: 3 steps",
        "  %0                      float64 (1000,)",
        "  %2 = multiply(%0, 2.5)  float64 (1000,)",
        "  %3 = exp(%2)            float64 (1000,)",
        "  %4 = subtract(%3, %0)   float64 (1000,)  kept",
        "plan: 1 kernel, moving 16 kB to and from memory (step by step: 56 kB)",
        "  kernel 1 over (1000,), interpret: asked for",
        "    reads %0 float64 (1000,)",
        "    %2 = multiply(%0, 2.5) float64",
        "    %3 = exp(%2) float64",
        "    %4 = subtract(%3, %0) float64",
        "    writes %4 float64 (1000,)",
    ]
    assert repr(text) == str(text) == text
    assert type(str(text)) is str


@pytest.mark.usefixtures("always")
def test_reductions_and_several_kernels() -> None:
    """A reduction ends a loop; what follows it is a kernel of its own."""
    x = ones(30, 40, dtype=xt.float32)
    text = xt.explain(xt.sum(x * x, axis=1, keepdims=True) + 1)
    assert "%2 = sum(%1, axis=(1,), keepdims=True)  float32 (30, 1)" in text
    assert "plan: 2 kernels" in text
    assert "    %2 = sum(%1) over axes (1,) float32\n    writes %2 float32 (30, 1)" in text
    assert "kernel 2 over (30, 1), interpret" in text


@pytest.mark.usefixtures("always")
def test_operands_that_are_converted_say_so() -> None:
    """Before a step in another dtype; a cast is a step itself."""
    x, i = ones(5), ones(5, dtype=xt.int16)
    text = xt.explain(xt.astype(x + i, xt.float32))
    assert "add(%0, %1 as float64) float64" in text
    assert "= astype(%2) float32" in text and "astype(%2, dtype=float32)" in text


@pytest.mark.usefixtures("always")
def test_steps_that_no_loop_computes() -> None:
    """They are direct kernels, with their reason."""
    text = xt.explain(xt.argmax(ones(3, 6, 5) * 2, axis=1))
    assert "kernel 2 over (3, 5), direct: no loop of the engine computes this step" in text
    assert "%3 = argmax(%2, axis=1) int64 (3, 5)" in text


@pytest.mark.usefixtures("always")
def test_views_of_pending_values() -> None:
    """They stand between the kernels, and no engine runs them."""
    text = xt.explain(xt.flip(ones(6, 5) * 2) + 1)
    assert "kernel 2 over (6, 5), none: a view computes nothing" in text
    assert "%3 = flip(%2" in text


@pytest.mark.usefixtures("always")
def test_layouts_of_inputs_that_are_not_packed() -> None:
    """They have their strides."""
    assert "float64 (5, 6)  strides (8, 40)" in xt.explain(ones(6, 5).T + 1)


@pytest.mark.usefixtures("always")
def test_the_same_step_twice() -> None:
    """Two equal steps are two values, each with its own number."""
    x = ones(4)
    text = xt.explain(xt.exp(x) + xt.exp(x))
    assert {"%1 = exp(%0)", "%2 = exp(%0)"} <= set(re.findall(r"%\d = exp\(%0\)", text))
    assert re.search(r"%3 = add\(%[12], %[12]\) float64", text)


@pytest.mark.usefixtures("always")
def test_several_tensors() -> None:
    """What they share is in the graph once; evaluated ones come first, a tensor given twice is said once."""
    x = ones(100)
    y = x + 1
    z, w = y * 2, y * 3
    text = xt.explain(z, x, w, z)
    assert text.startswith("evaluated: float64 (100,)")
    assert text.count("graph:") == 1 and "graph: 3 steps" in text and "plan: 1 kernel," in text
    assert text.count("  kept") == 3 and all(one.is_pending for one in (y, z, w))
    assert xt.explain() == ""


def test_parts() -> None:
    """A part of a pending value, and the graph it is a part of."""
    z = xt.exp(ones(N))
    part = z[5:6]
    text = xt.explain(part)
    assert text.startswith("a part float64 (1,) of a pending value")
    assert "exp(%0)" in text and part.is_pending and z.is_pending
    z.evaluate()
    assert xt.explain(part).startswith("evaluated: float64 (1,)")


@pytest.mark.usefixtures("always")
def test_long_graphs() -> None:
    """However long a graph is, it is one evaluation."""
    x = ones(10)
    with xt.options(fuse_limit=1 << 60):
        for _ in range(400):
            x = x + 1
        assert "graph: 400 steps" in xt.explain(x)


def test_small_work_goes_direct() -> None:
    """So does what is asked to; the graph is shown, and why there is no plan."""
    with xt.options(lazy="always"):
        x = ones(10) + 1
        assert xt.explain(x).endswith("plan: one library call per step: no array takes more than 32 KiB")
        with xt.options(engine="direct"):
            assert xt.explain(x).endswith("plan: one library call per step: asked for")


@pytest.mark.usefixtures("always")
def test_no_elements() -> None:
    """There is a plan for them too."""
    assert "over (0, 3), interpret: there are no elements" in xt.explain(ones(0, 3) + 1)


@pytest.mark.parametrize("stranger", [np.ones(2), 1.0, None, []])
def test_strangers(stranger: Any) -> None:
    """Only tensors can be explained."""
    with pytest.raises(TypeError, match="^explain: tensors must be tensors, got "):
        xt.explain(ones(2), stranger)


# ---- engines


@needs_llvm
def test_the_engine_and_why() -> None:
    """What choose says: asked for, too little work yet, worth it, compiled."""
    x = ones(N)
    z = mixed(x)
    with xt.options(engine="llvm"):
        assert "llvm: asked for" in xt.explain(z)
    with xt.options(engine="interpret"):
        assert "interpret: asked for" in xt.explain(z)
    assert "interpret: library calls take 0." in xt.explain(z)
    large = mixed(ones(40 * N))
    assert re.search(r"llvm: library calls would have taken \d+\.\d ms by now", xt.explain(large))
    with xt.options(engine="llvm"):
        z.evaluate()
    assert "llvm: it is compiled" in xt.explain(large)


def mixed(x: xt.Tensor) -> xt.Tensor:
    """Return something no other test computes; here, so that the steps between are not held by the test."""
    return x * 0.123 + x / 7.0


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter runs everything, and says why."""
    monkeypatch.setattr(engines, "host", lambda: None)
    assert "interpret: there is no llvmlite" in xt.explain(ones(N) * 1.875 - 3.5)


@needs_llvm
def test_what_generated_code_lacks() -> None:
    """Asked for or not, such a kernel is interpreted."""
    x = ones(N, dtype=xt.complex64)
    with xt.options(engine="llvm"):
        z = xt.tan(x)
        assert "interpret: there is no tan of complex64 in generated code" in xt.explain(z)
        assert xt.explain(z, ir=True).endswith("llvm of kernel 1: none, its engine is interpret")
        z.evaluate()
        assert "interpret: there is no tan of complex64 in generated code" in xt.explain(xt.tan(x))


def test_looking_is_not_counted() -> None:
    """However often a graph is explained, it is neither computed nor compiled nor nearer to being compiled."""
    x = ones(N)
    z = xt.sqrt(x * 1.625) / 3.0
    before, memory, spent = xt.cache_info(), xt.memory.stats().in_use, dict(engines._spent)
    texts = {xt.explain(z) for _ in range(50)}
    assert len(texts) == 1 and z.is_pending
    assert (xt.cache_info(), xt.memory.stats().in_use, engines._spent) == (before, memory, spent)


# ---- generated code


def layouts() -> dict[str, Callable[[], xt.Tensor]]:
    """Return expressions whose operands lie in every way the launches tell apart."""
    a, b = ones(300, 400), ones(300, 400, dtype=xt.float32)
    row, column, large = ones(400), ones(300, 1), ones(4_000_000)
    cube = ones(20, 30, 40, dtype=xt.float32)
    return {
        "packed": lambda: a * 2.0 + a,
        "large": lambda: large * 2.0 + large,
        "transposed": lambda: a.T * 2.0 + xt.reshape(a, (400, 300)),
        "broadcast": lambda: a * row + column,
        "strided": lambda: a[::2, ::-3] * 2.0,
        "mixed": lambda: b + a,
        "one element": lambda: a[0, 0] * 2.0,
        "sum of all": lambda: xt.sum(a * a),
        "sum of a large one": lambda: xt.sum(large * large),
        "sum of rows": lambda: xt.sum(a * a, axis=1),
        "sum of columns": lambda: xt.sum(a * a, axis=0),
        "sum of a transposed one": lambda: xt.sum(a.T * 3.0, axis=0),
        "middle": lambda: xt.max(cube + 1.0, axis=1),
        "outer and inner": lambda: xt.sum(cube * 2.0, axis=(0, 2), keepdims=True),
        "softmax": lambda: softmax(b),
        "columns": lambda: b - xt.mean(b, axis=0),
        "truth": lambda: xt.any(xt.logical_and(a > 1, b < 2), axis=1),
        "two reductions": lambda: xt.sum(a) / xt.max(a),
    }


def softmax(x: xt.Tensor) -> xt.Tensor:
    e = xt.exp(x - xt.max(x, axis=1, keepdims=True))
    return e / xt.sum(e, axis=1, keepdims=True)


def _asked_for(info: CacheInfo) -> int:
    """Return how many kernels were made or found on disk, besides those made again with more care."""
    return info.compiled + info.loaded - info.improved


@needs_llvm
@pytest.mark.parametrize("name", layouts())
@pytest.mark.parametrize("fast_math", [False, True])
def test_the_code_shown_is_the_code_that_runs(name: str, fast_math: bool) -> None:
    """Explaining it compiled it, so evaluating it compiles nothing more."""
    expression = layouts()[name]
    with xt.options(lazy="always", engine="llvm", fast_math=fast_math):
        z = expression()
        text = xt.explain(z, ir=True)
        assert z.is_pending
        kernels = int(re.findall(r"plan: (\d+) kernel", text)[0])
        assert text.count("llvm: ") == kernels
        shown = text.count("define void @kernel(ptr %slots)")
        assert shown == (1 if "row by row" in text or "strip by strip" in text else kernels)
        explained = xt.cache_info()
        z.evaluate()
    wait_for_better_code()
    after = xt.cache_info()
    assert after.kernels == explained.kernels
    assert _asked_for(after) == _asked_for(explained)
    assert ("contract" in text) <= fast_math


@needs_llvm
def test_rows_may_lie_apart() -> None:
    """Rows with gaps between them, and masks that repeat along leading axes, go by rows; strided cells do not."""
    x, mask = ones(20, 30, 500), ones(30, 500)
    with xt.options(engine="llvm", lazy="always"):
        assert "  together, row by row of 450 elements" in xt.explain(softmax(x[:, 0, :450]))
        scores = x + mask
        e = xt.exp(scores - xt.max(scores, axis=2, keepdims=True))
        assert "  together, row by row of 500 elements" in xt.explain(e / xt.sum(e, axis=2, keepdims=True))
        assert "together" not in xt.explain(softmax(x[:, 0, ::2]))
        assert "together" not in xt.explain(softmax(xt.permute_dims(x, (2, 0, 1))[:, :, 0]))


@needs_llvm
def test_row_programs_say_so() -> None:
    """Kernels that go by rows together, and what never reaches memory."""
    x = ones(200, 1000, dtype=xt.float32)
    with xt.options(engine="llvm"):
        text = xt.explain(softmax(x))
    assert "plan: 3 kernels, moving 1.6 MB" in text
    assert "  together, row by row of 1000 elements" in text
    assert text.count("hands on") == 3 and text.count("writes") == 1
    with xt.options(engine="interpret"):
        text = xt.explain(softmax(x))
    assert "together" not in text and "hands on" not in text and text.count("writes") == 4


def test_a_graph_that_is_found_again() -> None:
    """It runs by the plan of its like, here as if it read another array; so it is explained."""
    x, y, c = ones(N), ones(N), ones(N)
    for _ in range(3):
        (x * c + y).evaluate()
    z = x * c + x
    assert "plan: 1 kernel, moving 3.2 MB" in xt.explain(z)
    assert xt.explain(z).count("reads") == 3
    with xt.profile() as found:
        z.evaluate()
    assert [entry.nbytes for entry in found.entries] == [4 * x.nbytes]
    loss = xt.nn.silu(x) * c + y
    for _ in range(3):
        loss = xt.nn.silu(x) * c + y
        loss.evaluate()
    again = xt.nn.silu(x) * c + x  # of a composition its steps are shown
    assert xt.explain(again).count("reads") == 3 and "exp(" in xt.explain(again)
    assert np.array_equal(again.numpy(), loss.numpy())


# ---- what is printed while it is evaluated


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    """The same text, to standard error, when it happens."""
    x = xt.named(ones(N), "x")
    z = xt.named(x * 1.25 + 2.0, "z")
    with xt.options(show="plan"):
        text = xt.explain(z)
        assert capsys.readouterr().err == ""
        z.evaluate()
    assert capsys.readouterr() == ("", f"{text}\n")
    assert "%z = add(" in text


def test_show_of_a_write(capsys: pytest.CaptureFixture[str]) -> None:
    """What is computed straight into a target is shown too."""
    x, y = ones(N), ones(N)
    with xt.options(show="plan", engine="interpret", lazy="always"):
        x += y * 2.0
    assert re.search(r"%\d = add\(%\d, %\d\) float64", capsys.readouterr().err)


@needs_llvm
def test_show_code(capsys: pytest.CaptureFixture[str]) -> None:
    """The code alone, or with the plan before it."""
    x = ones(N)
    with xt.options(engine="llvm"):
        with xt.options(show="llvm"):
            (x * 1.5).evaluate()
        code = capsys.readouterr().err
        assert code.startswith("llvm of kernel 1:\n") and "define void @kernel" in code and "graph:" not in code
        with xt.options(show="plan,llvm"):
            (x * 1.5).evaluate()
        both = capsys.readouterr().err
    assert both.startswith("graph:") and both.endswith(code)


def test_the_environment_shows() -> None:
    """XTENSOR_SHOW is for a whole process."""
    code = "import xtensor as xt; (xt.ones(100_000) * 2.0 + 1.0).evaluate()"
    environment = os.environ | {"XTENSOR_SHOW": "plan", "XTENSOR_ENGINE": "interpret", "XTENSOR_LAZY": "auto"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert "= add(" in done.stderr and "interpret: asked for" in done.stderr and done.stdout == ""


# ---- evaluated values


def test_evaluated_values() -> None:
    """Layout and memory."""
    x = ones(300, 400)
    x[...] = 1.0
    assert xt.explain(x).splitlines() == [
        "evaluated: float64 (300, 400)",
        "  layout: packed, strides (3200, 8), offset 0",
        f"  memory: 960 kB on cpu, version {x.version}",
    ]
    assert "strided, strides (-3200, 16), offset 956800" in xt.explain(x[::-1, ::2])
    assert "read-only" in xt.explain(xt.broadcast_to(x[0], (3, 400)))
    waiting = [x * 2, x * 3]
    assert "2 pending values will read it" in xt.explain(x)
    assert all(y.is_pending for y in waiting)
    assert "others can write to it, so it is read at once" in xt.explain(xt.asarray(np.ones(3)))
    channels = xt.permute_dims(ones(2, 4, 4, 3), (0, 3, 1, 2))
    assert "layout: channels last" in xt.explain(channels)


def test_explaining_makes_nothing_shared() -> None:
    """What was recorded lazily before still is."""
    x = ones(N)
    xt.explain(x)
    assert (x + 1).is_pending and "others" not in xt.explain(x)


# ---- names


@pytest.mark.usefixtures("always")
def test_names() -> None:
    """Inputs, steps between and results are called by name; the tensor itself comes back."""
    x = xt.named(ones(10), "x")
    h = xt.named(x * 2, "h")
    assert xt.named(h, "h") is h
    z = h + 1
    text = xt.explain(z)
    assert "%h = multiply(%x, 2)" in text and "= add(%h, 1)" in text
    z.evaluate()
    assert not h.is_pending
    assert "= subtract(%h, %x)" in xt.explain(h - x)
    assert xt.explain(h).startswith("evaluated: %h float64 (10,)")


@pytest.mark.usefixtures("always")
def test_names_are_made_unique() -> None:
    """loss, loss_2, ..., also where somebody has taken such a name or a number."""
    x = ones(10)
    losses = [xt.named(x * k, name) for k, name in enumerate(["loss", "loss_2", "loss", "loss"])]
    text = xt.explain(*losses)
    graph, _ = text.split("plan:")
    found = re.findall(r"(%\S+) = multiply", graph)
    assert len(set(found)) == 4 and {"%loss", "%loss_2", "%loss_3"} < set(found), found


@pytest.mark.usefixtures("always")
def test_a_new_name_takes_the_place_of_the_old() -> None:
    """Pending or not."""
    x = xt.named(xt.named(ones(10), "a"), "b")
    y = xt.named(xt.named(x + 1, "c"), "d")
    assert "%d = add(%b, 1)" in xt.explain(y)


@pytest.mark.usefixtures("always")
def test_names_belong_to_the_tensor() -> None:
    """Not to views, copies or results; a pending value keeps its name when the tensor is gone."""
    x = xt.named(ones(10), "x")
    assert "%x" not in xt.explain(x[1:], copy.copy(x), x[::-1])
    z = xt.named(ones(10) + 1, "inner") * 2
    assert "%inner = add(%" in xt.explain(z)


def test_names_go_with_their_tensors() -> None:
    """Nothing is kept alive, nothing is left over."""
    gc.collect()
    before = len(describe._faces)
    tensors = [xt.named(ones(10), f"t{k}") for k in range(20)]
    assert len(describe._faces) == before + 20
    del tensors
    gc.collect()
    assert len(describe._faces) == before


@pytest.mark.parametrize("name", ["x", "_x", "layer1.weight", "a/b-c", "größe"])
def test_good_names(name: str) -> None:
    assert f"%{name} " in xt.explain(xt.named(ones(2), name))


@pytest.mark.parametrize("name", ["", "1", "a b", "a,b", "%a", "a\n", ".a"])
def test_wrong_names(name: str) -> None:
    """A name stands between other words, and is told from a number."""
    with pytest.raises(ValueError, match=r"^named: name must be a word of letters, digits, _ \. / -, got "):
        xt.named(ones(2), name)


@pytest.mark.parametrize(("x", "name"), [(np.ones(2), "x"), (1.0, "x"), (None, "x")])
def test_only_tensors_have_names(x: Any, name: str) -> None:
    with pytest.raises(TypeError, match="^named: x must be a tensor, got "):
        xt.named(x, name)
    with pytest.raises(TypeError, match="^named: name must be a string, got int"):
        xt.named(ones(2), 3)  # type: ignore[arg-type]


# ---- the cache of kernels


@needs_llvm
def test_cache_info() -> None:
    """New kernels are compiled once; other sizes and scalars find them."""
    with xt.options(engine="llvm", lazy="always"):
        before = xt.cache_info()
        (ones(1000) * 1.375 - 0.5).evaluate()
        once = xt.cache_info()
        (ones(2000) * 5.125 - 7.5).evaluate()
        twice = xt.cache_info()
    assert once.compiled + once.loaded <= before.compiled + before.loaded + 1
    assert (twice.compiled, twice.loaded, twice.kernels) == (once.compiled, once.loaded, once.kernels)
    assert twice.hits >= once.hits and twice.seconds >= once.seconds >= before.seconds
    assert twice.kernels > 0 and twice.seconds > 0
    with pytest.raises(AttributeError):
        twice.hits = 0  # type: ignore[misc]


def test_memory_is_there() -> None:
    """The pool's module, by the name its own docstring uses."""
    assert xt.memory.stats().limit > 0


# ---- on the pages


@needs_llvm
def test_the_readme_shows_a_real_plan() -> None:
    """The second output in the README is what the code above it prints."""
    text = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    code, output = re.findall(r"^```py\n(.*?)^```\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    script = f"import xtensor as xt\nx = xt.linspace(0.0, 1.0, 1_000_000)\n{code}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("XTENSOR_")}
    done = subprocess.run([sys.executable, "-c", script], env=clean, capture_output=True, text=True)
    assert done.stdout == output, done.stderr


# ---- from several threads


def test_explaining_while_others_evaluate() -> None:
    """The graph stands still while it is looked at."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(50):
                z = xt.exp(shared) * 2.0
                xt.explain(z, shared)
                z.evaluate()
        except BaseException as error:
            failures.append(error)

    with xt.options(lazy="always"):
        shared = ones(N) + 1.0
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures and not any(thread.is_alive() for thread in threads)
