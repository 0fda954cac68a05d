"""Convolution by cuDNN, with a stand-in for its frontend that computes by NumPy on host memory: what it is told, which
plans it may take, what is remembered, and what happens without it. Nothing of cuDNN runs here.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import host_cupy
import numpy as np
import pytest

import xtensor as xt
from xtensor.nn import cudnn_plans as cudnn

pytestmark = pytest.mark.skipif(bool(host_cupy.MISSING), reason=str(host_cupy.MISSING))

Array = np.ndarray[Any, Any]
NOTES = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "NONDETERMINISTIC")
ORDER = ["validate", "build_operation_graph", "create_execution_plans", "deselect_numeric_notes"]
ORDER += ["deselect_workspace_greater_than", "check_support", "build_plans", "get_workspace_size"]


class NotSupportedError(Exception):
    """What the frontend raises where there is no plan."""


class Name:
    """The frontend's tensor: lengths and strides."""

    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.is_output = dim, stride, False

    def set_output(self, value: bool) -> Name:
        self.is_output = value
        return self

    def set_data_type(self, value: Any) -> Name:
        assert value == "float"
        return self

    def set_dim(self, dim: Any) -> Name:
        self.dim = dim
        return self

    def set_stride(self, stride: Any) -> Name:
        self.stride = stride
        return self

    def seen(self, pointer: int) -> Array:
        """Return the memory at a pointer as this tensor lies in it."""
        reach = 4 * (1 + sum((n - 1) * s for n, s in zip(self.dim, self.stride, strict=True)))
        memory = np.ctypeslib.as_array((host_cupy.ctypes.c_uint8 * reach).from_address(pointer))
        return np.ndarray(self.dim, np.float32, memory, 0, [4 * s for s in self.stride])


class Graph:
    """The frontend's graph of one convolution, which is computed one element of the window after the other."""

    made: list[Graph] = []
    scratch, supported = 1000, True

    def __init__(self, *, handle: Any, **types: Any) -> None:
        assert set(types.values()) == {"float"} and len(types) == 3
        self.calls: list[str] = []
        self.refused: list[str] = []
        Graph.made.append(self)

    def tensor(self, *, dim: Any, stride: Any, data_type: Any) -> Name:
        return Name(dim, stride, data_type)

    def _describe(self, wanted: str, roles: dict[str, Name], ways: dict[str, Any]) -> Name:
        self.wanted, self.ways, self.roles, self.found = wanted, ways, roles, Name()
        return self.found

    def conv_fprop(self, *, image: Name, weight: Name, **ways: Any) -> Name:
        return self._describe("y", {"x": image, "w": weight}, ways)

    def conv_dgrad(self, *, loss: Name, filter: Name, **ways: Any) -> Name:
        return self._describe("x", {"y": loss, "w": filter}, ways)

    def conv_wgrad(self, *, image: Name, loss: Name, **ways: Any) -> Name:
        return self._describe("w", {"x": image, "y": loss}, ways)

    def __getattr__(self, name: str) -> Any:
        if name not in ORDER:
            raise AttributeError(name)
        return lambda *given: self._call(name, *given)

    def _call(self, name: str, *given: Any) -> Any:
        assert name == ORDER[len(self.calls)]
        self.calls.append(name)
        if name == "deselect_numeric_notes":
            self.refused = given[0]
        if name == "deselect_workspace_greater_than" and given[0] < self.scratch:
            Graph.supported = False
        if name == "check_support" and not Graph.supported:
            raise NotSupportedError("no engine")
        return self.scratch

    def execute(self, pointers: dict[Name, int], workspace: int, *, handle: Any, **as_planned: Any) -> None:
        assert as_planned == dict.fromkeys(("override_uids", "override_shapes", "override_strides"), [])
        assert self.calls == ORDER and workspace and self.found.is_output
        own = {role: name.seen(pointers[name]) for role, name in {**self.roles, self.wanted: self.found}.items()}
        own[self.wanted][...] = 0
        low, high = self.ways["pre_padding"], self.ways["post_padding"]
        x, w, y = own["x"], own["w"], own["y"]
        padded = np.zeros((*x.shape[:2], *(n + a + b for n, a, b in zip(x.shape[2:], low, high, strict=True))))
        inside = (..., *(slice(a, a + n) for n, a in zip(x.shape[2:], low, strict=True)))
        padded[inside] = x
        groups = x.shape[1] // w.shape[1]
        per, channels = w.shape[0] // groups, w.shape[1]
        for group, element in product(range(groups), np.ndindex(*w.shape[2:])):
            outputs, inputs = slice(group * per, (group + 1) * per), slice(group * channels, (group + 1) * channels)
            steps = zip(element, y.shape[2:], self.ways["stride"], self.ways["dilation"], strict=True)
            at = (slice(None), inputs, *(slice(k * d, k * d + (n - 1) * s + 1, s) for k, n, s, d in steps))
            taken, own_w, own_y = padded[at], w[(outputs, slice(None), *element)], y[:, outputs]
            if self.wanted == "y":
                own_y += np.einsum("nc...,oc->no...", taken, own_w)
            elif self.wanted == "w":
                flat = (a.reshape(*a.shape[:2], -1) for a in (taken, own_y))
                own_w += np.einsum("ncp,nop->oc", *flat)
            else:
                padded[at] = taken + np.einsum("no...,oc->nc...", own_y, own_w)
        if self.wanted == "x":
            x[...] = padded[inside]


def stand_in(version: int = 91900) -> Any:
    found: Any = ModuleType("cudnn")
    found.pygraph, found.cudnnGraphNotSupportedError = Graph, NotSupportedError
    found.data_type = SimpleNamespace(FLOAT="float")
    found.numerical_note = SimpleNamespace(**{name: name for name in NOTES})
    found.heur_mode = SimpleNamespace(A="A", FALLBACK="FALLBACK")
    found.build_plan_policy = SimpleNamespace(HEURISTICS_CHOICE="choice")
    found.backend_version = lambda: version
    found.__version__ = "1.32.0"
    found.handles = []
    found.create_handle = lambda: found.handles.append(object()) or found.handles[-1]
    found.set_stream = lambda *, handle, stream: None
    return found


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """CuPy's stand-in with cuDNN's beside it, from which nothing is remembered."""
    monkeypatch.setitem(sys.modules, "cudnn", stand_in())
    monkeypatch.setattr(cudnn, "_plans", {})
    monkeypatch.setattr(cudnn, "_own", cudnn.threading.local())
    monkeypatch.setattr(Graph, "made", [])
    monkeypatch.setattr(Graph, "supported", True)
    cudnn.frontend.cache_clear()
    with host_cupy.installed() as library:
        monkeypatch.setattr(host_cupy, "_allocate", aligned)
        yield library
    cudnn.frontend.cache_clear()


def aligned(nbytes: int) -> Any:
    """Allocate as CuPy's pool does, on multiples of 512 bytes."""
    host = np.empty(nbytes + 1024, np.uint8)
    start = host.ctypes.data + -host.ctypes.data % 512
    return host_cupy.memory.MemoryPointer(host_cupy.memory.UnownedMemory(start, max(nbytes, 1), host, 0), 0)


def numbers(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def results(device: str, call: Any, *arrays: Array) -> list[Array]:
    """Return a call's result and gradients."""
    y, back = xt.vjp(call, *(xt.asarray(a, device=device) for a in arrays))
    return [one.host() for one in (y, *back(xt.asarray(numbers(*y.shape), device=device)))]


WAYS: list[dict[str, Any]] = [
    {},
    {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 2)},
    {"groups": 2, "padding": ((1, 0), (2, 1))},
    {"groups": 4, "padding": "same", "stride": 3},
]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC", ("NCHW", "NHWC")], ids=str)
@pytest.mark.parametrize("ways", WAYS, ids=str)
def test_what_it_is_told(cp: Any, ways: dict[str, Any], layout: Any) -> None:
    """Forward and both gradients, and the transposed convolution: whole numbers, so that every sum is exact."""
    last = layout if isinstance(layout, str) else layout[0]
    x = numbers(*((2, 4, 9, 8) if last == "NCHW" else (2, 9, 8, 4)))
    w, bias = numbers(8, 4 // ways.get("groups", 1), 3, 2), numbers(8)
    for call, arrays in (
        (lambda a, k, b: xt.nn.conv(a, k, b, layout=layout, **ways), (x, w, bias)),
        (
            lambda a, k, b: xt.nn.conv_transpose(a, k, b, layout=layout, **ways),
            (x, w[:4], numbers(w.shape[1] * ways.get("groups", 1))),
        ),
    ):
        before = len(Graph.made)
        for ours, theirs in zip(results("cuda:0", call, *arrays), results("cpu", call, *arrays), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert [graph.wanted for graph in Graph.made[before:]] in (["y", "x", "w"], ["x", "y", "w"])


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(cp: Any, rank: int) -> None:
    x, w = numbers(2, 3, *[7, 6, 5][:rank]), numbers(4, 3, *[3, 2, 2][:rank])
    for ours, theirs in zip(
        *(results(one, lambda a, k: xt.nn.conv(a, k, padding=1), x, w) for one in ("cuda:0", "cpu")), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert len(Graph.made) == 3


def convolved(**ways: Any) -> Array:
    x, w = (xt.asarray(numbers(*shape), device="cuda:0") for shape in ((1, 2, 6, 5), (3, 2, 3, 2)))
    return xt.nn.conv(x, w, **ways).host()


def test_plans_are_remembered(cp: Any) -> None:
    """For shapes, layouts and options, and one handle a thread."""
    wanted = convolved(algorithm="im2col")
    assert not Graph.made
    for _ in range(3):
        np.testing.assert_array_equal(convolved(), wanted)
    assert len(Graph.made) == 1
    convolved(padding=1)
    assert len(Graph.made) == 2 and len(sys.modules["cudnn"].handles) == 1


def test_which_plans_it_may_take(cp: Any) -> None:
    """None whose sums change from run to run; none that rounds as less than float32, unless asked for."""
    convolved()
    with xt.options(tf32=True):
        convolved()
    assert [set(graph.refused) for graph in Graph.made] == [set(NOTES), {"NONDETERMINISTIC"}]


SHOWN = {
    False: "cuDNN: a plan in float32",
    True: "cuDNN: a plan that may round operands as TF32",
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("tf32", SHOWN)
def test_the_choice_is_shown(cp: Any, tf32: bool, layout: str) -> None:
    """By `conv_algorithm`, and by `explain` of what is pending, which computes nothing; that plan is run then."""
    shapes = ((2, 4, 9, 8) if layout == "NCHW" else (2, 9, 8, 4), (4, 4, 3, 3))
    x, w = (xt.asarray(numbers(*shape), device="cuda:0") for shape in shapes)
    with xt.options(tf32=tf32, lazy="always"):
        assert xt.nn.conv_algorithm(x, w, layout=layout) == SHOWN[tf32]
        for call in (xt.nn.conv, xt.nn.conv_transpose):
            y = call(x, w, layout=layout)
            assert f", direct: by {SHOWN[tf32]}\n" in f"{xt.explain(y)}\n"
            before = len(Graph.made)
            assert before and Graph.made[-1].calls == ORDER
            y.evaluate()
            assert len(Graph.made) == before
        shown = xt.explain(xt.nn.conv(x + 1.0, w, layout=layout, padding=1) * 2.0)
    assert f"by {SHOWN[tf32]}" in shown and len(Graph.made) == 3


def test_another_choice_is_shown(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it has no plan, is asked for nothing, or is not there, and on the CPU."""

    def shown(device: str = "cuda:0", **ways: Any) -> str:
        x, w = (xt.asarray(numbers(*shape), device=device) for shape in ((1, 2, 6, 5), (3, 2, 3, 2)))
        with xt.options(lazy="always"):
            return xt.nn.conv_algorithm(x, w, **ways) + str(xt.explain(xt.nn.conv(x, w, **ways)))

    for ways in ({"algorithm": "im2col"}, {"padding": -1}, {"workspace_mb": 0.0009}, {"device": "cpu"}):
        assert "cuDNN" not in shown(**ways)
    Graph.supported = True
    assert shown().count("cuDNN") == 2
    monkeypatch.setitem(sys.modules, "cudnn", None)
    cudnn.frontend.cache_clear()
    assert "cuDNN" not in shown()


def test_padding_is_the_same_on_both_sides_where_that_changes_nothing(cp: Any) -> None:
    """The last window of a 7x7 stem with stride 2 needs 2 of the 3 zeros behind the image."""
    x, w = numbers(1, 1, 16, 17), numbers(1, 1, 7, 7)
    for ours, theirs in zip(
        *(results(one, lambda a, k: xt.nn.conv(a, k, stride=2, padding=3), x, w) for one in ("cuda:0", "cpu")),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert [graph.ways["post_padding"] for graph in Graph.made] == 3 * [[3, 3]]


@pytest.mark.parametrize("without", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_windows_of_one_element(cp: Any, layout: str, without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without cuDNN they are products of matrices."""
    if without:
        monkeypatch.setitem(sys.modules, "cudnn", None)
        cudnn.frontend.cache_clear()
    x, w = numbers(*((2, 3, 5, 4) if layout == "NCHW" else (2, 5, 4, 3))), numbers(6, 3, 1, 1)
    for ours, theirs in zip(
        *(results(one, lambda a, k: xt.nn.conv(a, k, layout=layout), x, w) for one in ("cuda:0", "cpu")), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert sorted(graph.wanted for graph in Graph.made) == ([] if without else ["w", "x", "y"])


def test_what_does_not_fit_the_workspace(cp: Any) -> None:
    """Is computed without cuDNN."""
    wanted = convolved(algorithm="im2col")
    np.testing.assert_array_equal(convolved(workspace_mb=0.0009), wanted)
    np.testing.assert_array_equal(convolved(workspace_mb=0.0009), wanted)
    assert len(Graph.made) == 1 and "build_plans" not in Graph.made[0].calls


def test_what_it_is_not_asked_for(cp: Any) -> None:
    """Other dtypes, padding below 0, addresses between multiples of 16, other engines."""
    x, w = (xt.asarray(numbers(*shape), device="cuda:0") for shape in ((1, 2, 6, 5), (3, 2, 3, 2)))
    xt.nn.conv(xt.astype(x, xt.float64), w)
    xt.nn.conv(x, w, padding=-1)
    xt.nn.conv(x[..., 1:], w)
    with xt.options(engine="direct"):
        xt.nn.conv(x, w)
    assert not Graph.made


def test_another_release(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is not used, which is said once."""
    wanted = convolved()
    made = len(Graph.made)
    monkeypatch.setitem(sys.modules, "cudnn", stand_in(80900))
    cudnn.frontend.cache_clear()
    with pytest.warns(RuntimeWarning, match="cuDNN is not used: it is of release 8, not 9"):
        np.testing.assert_array_equal(convolved(), wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(convolved(), wanted)
    assert len(Graph.made) == made


def test_an_extra_that_does_not_load(cp: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The frontend is installed, and a library that it is built for is missing: said once, and computed without it."""
    wanted = convolved()
    made = len(Graph.made)
    (tmp_path / "cudnn.py").write_text("raise ImportError('libcudnn.so.9: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    for broken in (None, SimpleNamespace(backend_version=lambda: 1 / 0)):
        monkeypatch.delitem(sys.modules, "cudnn")
        if broken is not None:
            monkeypatch.setitem(sys.modules, "cudnn", broken)
        cudnn.frontend.cache_clear()
        says = "libcudnn.so.9: cannot open" if broken is None else "division by zero"
        with pytest.warns(RuntimeWarning, match=f"cuDNN is not used: {says}") as said:
            for _ in range(3):
                np.testing.assert_array_equal(convolved(), wanted)
        assert len(said) == 1
        monkeypatch.setitem(sys.modules, "cudnn", None)
    assert len(Graph.made) == made


def test_without_it(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said."""
    monkeypatch.setitem(sys.modules, "cudnn", None)
    cudnn.frontend.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convolved()
    assert not Graph.made


def test_the_frontend_has_these_names() -> None:
    """Held against the frontend itself, where it is installed; no library of cuDNN is needed."""
    real = pytest.importorskip("cudnn", reason="cuDNN's frontend is not installed (the extra `cudnn`)")
    own = stand_in()
    for name in vars(own):
        if not name.startswith("_") and name != "handles":
            assert hasattr(real, name), name
    for group, names in (("numerical_note", NOTES), ("heur_mode", ("A", "FALLBACK")), ("data_type", ("FLOAT",))):
        assert all(hasattr(getattr(real, group), name) for name in names)
    graph = real.pygraph(handle=1)
    assert all(hasattr(graph, name) for name in ORDER)
    shapes = (((2, 4, 9, 8), (1152, 288, 32, 4)), ((8, 4, 3, 3), (144, 36, 12, 4)), ((2, 8, 9, 8), (2304, 288, 32, 4)))
    axes = tuple(cudnn.Axis(n, n, 3, 1, 1, 1) for n in (9, 8))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cudnn, "frontend", lambda: real)
        for wanted in (cudnn.OUTPUTS, cudnn.INPUTS, cudnn.WEIGHTS):
            names = cudnn._described(real.pygraph(handle=1), wanted, shapes, axes, [1, 1])
            assert [name.get_dim() for name in names] == [list(shape) for shape, _ in shapes]
