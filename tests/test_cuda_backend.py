"""The CUDA backend where there is no GPU: what it asks of CuPy, its repairs and its error paths.

Arrays are genuine `cupy.ndarray` objects over host memory and NumPy does their arithmetic (host_cupy.py), with CuPy's
departures put in. So this shows that the backend asks for the right things; what a GPU makes of them test_gpu.py shows.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import xtensor as xt
import xtensor.nn
from tests import host_cupy
from tests.samples import Sample, samples
from xtensor import devices, special
from xtensor.autograd.tape import active
from xtensor.base.dtypes import ALL
from xtensor.base.layout import Layout
from xtensor.calls.op import REGISTRY
from xtensor.storage.blob import TBlob
from xtensor.storage.storage import Storage

HOUSE = Path(xt.__file__).parent
needs_cupy = pytest.mark.skipif(host_cupy.MISSING is not None, reason=str(host_cupy.MISSING))
CUDA = "cuda:0"


@pytest.fixture
def cp() -> Iterator[Any]:
    """The stand-in in the place of CuPy."""
    if host_cupy.MISSING:
        pytest.skip(host_cupy.MISSING)
    with host_cupy.installed() as library:
        yield library


def moved(*arrays: Any) -> list[Any]:
    """Return NumPy arrays as tensors on the device, anything else as it is."""
    return [xt.asarray(a, device=CUDA, copy=True) if isinstance(a, np.ndarray) else a for a in arrays]


def host(x: Any) -> Any:
    """Return tensors, which must lie on the device, as NumPy arrays."""
    if isinstance(x, (tuple, list)):
        return [host(one) for one in x]
    assert x.device == CUDA
    return x.host()


def outcome(call: Any) -> Any:
    """Return a call's result, or its error."""
    try:
        return call()
    except Exception as error:
        return error


# ---- the device


def has_gpu() -> bool:
    return len(xt.__array_namespace_info__().devices()) > 1


@pytest.mark.skipif(has_gpu(), reason="there is a usable GPU here")
def test_without_a_usable_gpu_the_error_says_what_to_install() -> None:
    """Whatever is missing on this machine, CuPy or a driver: the text names the extras."""
    for name in ("cuda", "cuda:0", "cuda:3"):
        with pytest.raises(
            ValueError, match=r"^zeros: device must be usable, which takes .*xtensor\[cuda13\]"
        ) as caught:
            xt.zeros(3, device=name)
        assert ("CUDA says" in str(caught.value)) == (host_cupy.MISSING is None)
    assert xt.__array_namespace_info__().devices() == ("cpu",)
    with xt.options(device=CUDA), pytest.raises(ValueError, match="^asarray: device must be usable"):
        xt.asarray([1.0])


def test_cupy_is_imported_only_when_asked_for() -> None:
    code = "import sys, xtensor as xt; xt.sum(xt.ones(3) * 2); print('cupy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"


def test_without_cupy_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ValueError, match=r"^to_device: device must be usable, which takes CuPy \(pip install"):
        xt.ones(2).to_device("cuda:8")
    assert devices.devices() == ("cpu",)


def test_names_and_numbers(cp: Any) -> None:
    x = xt.zeros(2, device="cuda")
    assert x.device == "cuda:0" == x.device and x.device == "cuda" and x.device != "cpu"
    assert str(x.device) == CUDA
    assert xt.__array_namespace_info__().devices() == ("cpu", CUDA)
    with pytest.raises(ValueError, match="^zeros: device must be one of 'cuda:0', got 'cuda:1'"):
        xt.zeros(2, device="cuda:1")
    for name in ("cuda:", "cuda:-1", "cuda:01", "gpu"):
        with pytest.raises(ValueError, match="^zeros: device must be one of 'cpu', 'cuda:0', got"):
            xt.zeros(2, device=name)


def test_the_default_device(cp: Any) -> None:
    with xt.options(device=CUDA):
        made = [xt.zeros(2), xt.arange(3), xt.linspace(0, 1, 3), xt.asarray([1, 2]), xt.asarray(np.ones(2)), xt.eye(2)]
        made += [xt.full(2, 3.0), xt.random.default_rng(0).random(3), xt.fft.fftfreq(4), xt.asarray(2.5)]
        assert all(x.device == CUDA for x in made)
    assert xt.zeros(2).device == "cpu"


def test_a_native_array_takes_the_dtype_asked_for(cp: Any) -> None:
    """Also float64, which NumPy says is equal to None."""
    backend: Any = xt.zeros(1, device=CUDA).device.backend
    native = cp.zeros(3, np.float32)
    assert backend.asarray(native) is native is backend.asarray(native, np.dtype(np.float32))
    for dtype in (np.float64, np.int64):
        assert backend.asarray(native, np.dtype(dtype)).dtype == dtype


def test_mixing_devices_names_both(cp: Any) -> None:
    here, there = xt.ones((2, 2)), xt.ones((2, 2), device=CUDA)
    for call in (
        lambda: here + there,
        lambda: there @ here,
        lambda: xt.concat([there, here]),
        lambda: xt.where(there > 0, there, here),
        lambda: there.__setitem__(0, here[0]),
        lambda: there[xt.asarray([0])],
        lambda: there.__iadd__(here),
        lambda: there + np.ones((2, 2)),
        lambda: xt.linalg.solve(there, here),
        lambda: xt.searchsorted(there[0], here[0]),
        lambda: xt.nn.conv(there[None, None, ...], here[None, None, ...]),
    ):
        with pytest.raises(ValueError, match=r"cuda:0.*cpu|cpu.*cuda:0"):
            call()


def test_scalars_and_sequences_go_where_the_tensor_is(cp: Any) -> None:
    x = xt.asarray([3.0, 1.0, 2.0], device=CUDA)
    assert host(x * np.float64(2.0)).tolist() == [6.0, 2.0, 4.0]
    assert host(x + [1.0, 2.0, 3.0]).tolist() == [4.0, 3.0, 5.0]
    assert host(xt.searchsorted(xt.sort(x), 1.5)).tolist() == 1
    assert host(xt.isin(x, 2.0)).tolist() == [False, False, True]
    assert host(xt.repeat(x, 2)).tolist() == [3.0, 3.0, 1.0, 1.0, 2.0, 2.0]
    assert host(x[[2, 0]]).tolist() == [2.0, 3.0]
    assert host(x[np.asarray([True, False, True])]).tolist() == [3.0, 2.0]
    x[[0, 0]] = [7.0, 8.0]
    assert host(x).tolist() == [8.0, 1.0, 2.0]


def test_numpy_must_not_see_it(cp: Any) -> None:
    x = xt.ones(3, device=CUDA)
    with pytest.raises(
        TypeError, match=r"^__array__: x must be on the CPU \(copy it there with x.to_device\('cpu'\)\)"
    ):
        np.asarray(x)
    with pytest.raises(TypeError):
        x.numpy()
    assert np.asarray(x.to_device("cpu")).tolist() == [1.0, 1.0, 1.0]


def test_what_copies_by_itself(cp: Any) -> None:
    x = xt.asarray([[1.5, -0.0]], device=CUDA)
    assert repr(x) == "Tensor([[ 1.5, -0. ]], dtype=float64)"
    assert str(x) == "[[ 1.5 -0. ]]"
    assert (float(x[0, 0]), int(x[0, 0]), bool(x[0, 1]), complex(x[0, 0])) == (1.5, 1, False, 1.5 + 0j)
    assert x.tolist() == [[1.5, -0.0]] and x[0, 0].item() == 1.5
    assert [1, 2, 3][xt.asarray(1, device=CUDA)] == 2
    assert f"{x[0, 0]:.3f}" == "1.500" and 1.5 in x
    again = pickle.loads(pickle.dumps(x))
    assert again.device == CUDA and again.tolist() == x.tolist()


def test_transfers(cp: Any) -> None:
    values = np.arange(12.0).reshape(3, 4)
    x = xt.asarray(values).to_device(CUDA)
    assert x.device == CUDA and x.to_device("cuda") is x
    for view in (x, x.T, x[::-1, ::2], xt.broadcast_to(x[0], (3, 4)), x[:0]):
        back = view.to_device("cpu")
        assert back.device == "cpu" and back.shape == view.shape
    assert np.asarray(x.T[::-1].to_device("cpu")).tolist() == values.T[::-1].tolist()
    assert x.to_device("cpu").to_device(CUDA).tolist() == values.tolist()  # from page-locked memory
    assert xt.asarray([x[0, 0], 2.0, x[1, 1]]).tolist() == [0.0, 2.0, 5.0]
    with pytest.raises(ValueError, match="stream must be None"):
        xt.ones(2).to_device("cpu", stream=1)
    big = values.astype(">f8")
    assert host(xt.asarray(big, device=CUDA)).tolist() == values.tolist()
    with pytest.raises(ValueError, match="to move an array to cuda:0"):
        xt.asarray(values, device=CUDA, copy=False)


def test_arrays_of_another_device(cp: Any) -> None:
    """Are copied once they are there, and until they are."""
    own = host_cupy.made(np.arange(6.0))
    memory = host_cupy.memory.UnownedMemory(own.data.ptr, own.nbytes, own, 3)
    beside = host_cupy.ndarray((6,), np.float64, host_cupy.memory.MemoryPointer(memory, 0))
    backend: Any = devices.as_device(CUDA, "tests").backend
    assert not backend.owns(beside)
    with cp.cuda.Stream(5) as stream:
        copy = backend.asarray(beside, np.dtype(np.float32))
    assert backend.owns(copy) and copy.dtype == np.float32 and copy.tolist() == list(range(6))
    assert stream.waited == [5, -3, 0]


def test_dlpack(cp: Any) -> None:
    x = xt.asarray([[1.0, 2.0], [3.0, 4.0]], device=CUDA)
    assert x.__dlpack_device__() == (2, 0)
    taken = xt.from_dlpack(Producer(x))
    assert taken.device == CUDA
    assert taken.blob.address == x.blob.address  # the same memory
    assert np.from_dlpack(x, device="cpu").tolist() == x.tolist()
    with pytest.raises(BufferError, match=r"dl_device must be \(2, 0\)"):
        x.__dlpack__(dl_device=(1, 0), copy=False)
    with pytest.raises(BufferError):
        x.__dlpack__(dl_device=(2, 5))
    assert xt.asarray(Producer(x)).blob.address == x.blob.address
    assert xt.from_dlpack(Producer(x), copy=True).blob.address != x.blob.address
    moved_here = xt.from_dlpack(Producer(x), device="cpu")
    assert moved_here.device == "cpu" and moved_here.tolist() == x.tolist()
    assert xt.from_dlpack(np.ones(2), device=CUDA).device == CUDA
    with xt.options(device=CUDA):
        assert xt.from_dlpack(np.ones(2)).device == "cpu"


class Producer:
    """An array of another library on the same GPU, which NumPy cannot read."""

    def __init__(self, x: Any) -> None:
        self.x = x

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    def __dlpack__(self, **given: Any) -> Any:
        return self.x.__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)


def _forgotten(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call of an op be known, here and afterwards."""
    for table in ("known_there", "ready"):
        monkeypatch.setattr(REGISTRY[name], table, {})


def test_out_of_memory_leaves_tensors_intact(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = xt.ones(4, device=CUDA)

    def full(*given: Any, **params: Any) -> Any:
        raise host_cupy.memory.OutOfMemoryError(1 << 40, 0, 0)

    _forgotten("add", monkeypatch)
    for name in ("add", "empty", "zeros", "sort"):
        monkeypatch.setattr(cp, name, full)
    for call in (lambda: x + x, lambda: xt.empty(5, device=CUDA).native(), lambda: xt.zeros(1 << 40, device=CUDA)):
        with pytest.raises(MemoryError, match="cuda:0"):
            call()
    with pytest.raises(MemoryError):
        x += 1.0
    assert x.tolist() == [1.0] * 4


def test_without_cuda_headers_it_says_what_to_install(cp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> Any:
        raise RuntimeError("Failed to find CUDA headers. Please install CUDA toolkit headers")

    _forgotten("add", monkeypatch)
    monkeypatch.setattr(cp, "add", refuse)
    with pytest.raises(RuntimeError, match=r"^cuda:0: CuPy finds no CUDA headers \(pip install 'xtensor\[cuda13\]'"):
        xt.ones(2, device=CUDA) + 1.0


def test_the_current_stream(cp: Any) -> None:
    backend: Any = devices.as_device(CUDA, "tests").backend
    assert backend.current_stream().ptr == 0
    assert backend.architecture() == "sm_90"
    with cp.cuda.Stream(5):
        assert backend.current_stream().ptr == 5


def test_transfers_on_a_stream(cp: Any) -> None:
    """By its number or as an object of any library; it waits for the one that is current."""
    x, backend = xt.ones(4, device=CUDA), devices.as_device(CUDA, "tests").backend
    seen: list[Any] = []
    for stream in (7, cp.cuda.Stream(7), SimpleNamespace(__cuda_stream__=lambda: (0, 7))):
        with cp.cuda.Stream(5):
            backend.on_stream(stream, lambda: seen.append(cp.cuda.get_current_stream()))  # type: ignore[attr-defined]
        assert seen[-1].ptr == 7 and seen[-1].waited == [7, 5]
        assert x.to_device("cpu", stream=stream).tolist() == [1.0] * 4
        assert xt.ones(4).to_device(CUDA, stream=stream).device == CUDA


# ---- buffers and views, with CuPy's own arrays


def test_storage_of_views_and_views_of_storage(cp: Any) -> None:
    device = devices.as_device(CUDA, "tests")
    backend: Any = device.backend
    whole = host_cupy.made(np.arange(24, dtype=np.float32).reshape(2, 3, 4))
    for view in (whole, whole[1], whole[::-1, 1:, ::-2], whole.T, whole[:, :0], whole[1, 2, 3]):
        storage, layout = backend.storage_of(view)
        assert storage.dtype == np.uint8 and storage.ndim == 1
        again = backend.view(storage, view.dtype, layout, True)
        assert again.data.ptr == view.data.ptr or not view.size
        assert (again.shape, again.strides) == (view.shape, view.strides)
        assert host_cupy.seen(again).tolist() == host_cupy.seen(view).tolist()
    blob = TBlob.adopt(whole[:, 1], device)
    assert blob.address == whole[:, 1].data.ptr
    assert Storage(device, 100).bytes.nbytes == 100
    assert blob.view(Layout((4,), (4,), 16)).native().data.ptr == blob.owner.address + 16


def test_views_share_memory_and_readonly_stays(cp: Any) -> None:
    x = xt.zeros((3, 4), device=CUDA)
    x[1:, ::2] = 5.0
    x.T[0, 0] = 1.0
    assert host(x)[0, 0] == 1.0 and host(x)[2].tolist() == [5.0, 0.0, 5.0, 0.0]
    assert xt.reshape(x, (4, 3)).blob.owner is x.blob.owner
    with pytest.raises(ValueError, match="read-only"):
        xt.broadcast_to(x[0], (5, 4))[0] = 1.0
    y = x + 0.0
    y.resize((2, 2))
    assert y.shape == (2, 2)
    assert host(x.view(xt.int64)).shape == (3, 4)


def test_pending_readers_finish_before_a_write(cp: Any) -> None:
    x = xt.ones(2_000_000, device=CUDA)
    z = x * 2.0
    assert z.is_pending
    with xt.options(engine="direct"):  # the stand-in has no device to launch kernels on
        x[...] = 7.0
    assert float(z[0]) == 2.0 and float(x[0]) == 7.0


# ---- every function, and every repair


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("sample", [s for s in samples() if s.function != "to_device"], ids=str)
def test_every_differentiable_function_and_its_gradient(sample: Sample, cp: Any) -> None:
    """The same numbers, dtypes and gradients as on the CPU; all results lie on the device."""
    wanted = evaluated(sample, "cpu")
    try:
        found = evaluated(sample, CUDA)
    except NotImplementedError as error:
        assert sample.function.startswith("special.") and str(error).endswith(f"{CUDA} has no function of this name")
        pytest.skip(str(error))
    rtol = 1e-5 if "float32" in sample.note else 1e-7
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_functions_that_cupy_lacks(dtype: str, cp: Any) -> None:
    """Student's t and the other tail of the beta distribution, near 0 and far away, beside more digits; inverses."""
    mp, kind = pytest.importorskip("mpmath"), np.dtype(dtype)
    df = np.array([0.5, 1, 2, 3.5, 10, 100, 1e4], kind)
    t = np.array([-1e10, -50, -3, -1, -0.1, -1e-8, 0, 1e-30, 0.3, 0.999, 1.5, 30], kind)
    bound = 1e-12 if dtype == "float64" else 2e-7

    def student(df: float, t: float) -> float:
        with mp.workdps(40):
            tail = mp.betainc(mp.mpf(df) / 2, 0.5, 0, df / (df + mp.mpf(t) ** 2), regularized=True) / 2
            return float(1 - tail if t > 0 else tail)

    def there(a: Any) -> xt.Tensor:
        return xt.asarray(a, device=CUDA)

    found = special.stdtr(there(df[:, None]), there(t))
    expected = [[student(float(d), float(x)) for x in t] for d in df]
    assert found.dtype == kind
    np.testing.assert_allclose(host(found), expected, rtol=bound, atol=float(np.finfo(kind).tiny))
    assert host(special.stdtr(there(df), np.inf)).tolist() == [1.0] * 7
    assert np.isnan(host(special.stdtr(there(df), np.nan))).all()
    np.testing.assert_allclose(host(special.stdtr(np.inf, there(t))), host(special.ndtr(there(t))), rtol=bound)
    p = np.array([1e-3, 0.1, 0.25, 0.4, 0.4999, 0.5, 0.6, 0.75, 0.99], kind)
    again = special.stdtr(there(df[:, None]), special.stdtrit(there(df[:, None]), there(p)))
    np.testing.assert_allclose(host(again), np.broadcast_to(p, again.shape), rtol=100 * bound)
    assert not host(special.stdtrit(there(df), 0.5)).any()
    x = np.linspace(0, 1, 11).astype(kind)
    other = host(special.betaincc(there(df[:, None]), 2.5, there(x)))
    wanted = pytest.importorskip("scipy.special").betaincc(df[:, None].astype(float), 2.5, x.astype(float))
    np.testing.assert_allclose(other, wanted, rtol=bound, atol=1e-37)


# Their factors are determined up to signs and order only: what is compared is the sum of squares, and its gradient.
FREE_FACTORS = ("linalg.eig", "linalg.eigh", "linalg.eigvals", "linalg.qr", "linalg.svd")


def evaluated(sample: Sample, device: str) -> list[Any]:
    """Return the results of a sample, and the gradient of the sum of their squares, as NumPy arrays."""
    args = [xt.asarray(a, device=device) for a in sample.args]

    def squares(*given: Any) -> Any:
        return sum(xt.sum(xt.abs(y) ** 2) for y in flat(sample.call(xt, *given)) if y.dtype.kind in "fc")

    with xt.options(device=device):  # samples make further operands of their own; what makes gradients does not
        results = [squares(*args)] if sample.function in FREE_FACTORS else flat(sample.call(xt, *args))
        total, pull = xt.vjp(squares, *args)
    results += flat(pull(xt.ones_like(total)))
    assert all(y.device == device for y in results)
    return [y.detach().host() for y in results]


def flat(result: Any) -> list[Any]:
    return [y for one in result for y in flat(one)] if isinstance(result, (tuple, list)) else [result]


SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.1, -0.1, 2.5, -2.5, 1e-30, 3e10]
NUMBERS = [0, 1, -1, 0.0, -0.0, 0.5, True, 300, 1j]


def specials(dtype: Any) -> Any:
    """Return the numbers of a dtype that functions are particular about."""
    if dtype.kind == "b":
        return np.asarray([True, False])
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        signed = [-1, -2, -7] if dtype.kind == "i" else []
        return np.asarray([bounds.min, bounds.max, 0, 1, 2, 3, 7, 31, 63, 64, *signed], dtype)
    if dtype.kind == "f":
        return np.asarray(SPECIAL, dtype)
    return np.asarray([complex(a, b) for a in SPECIAL[:9] for b in SPECIAL[:9]], dtype)


def same(found: Any, wanted: Any, cp: Any, terms: Any = None) -> bool:
    """Return whether arrays hold the same numbers, with the signs of zeros; those of NaNs are free.

    On a device CuPy's own kernels are allowed what docs/gpu.md says of them: what is too small for a normal number may
    be 0, and the terms of a sum come in another order. Beside a NaN, the other part of a complex number is free there.
    Both parts of a complex number share the rounding errors of the whole, of which 32 are allowed: NumPy multiplies
    where exponents are small integers, CuPy's exp(y log x) has half of one for each unit of y log x, 64 log 1j at most.
    """
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    a, b = (np.ascontiguousarray(x).reshape(-1) for x in (found, wanted))
    allowed: Any = 0.0
    if a.dtype.kind == "c":
        allowed = 32 * np.finfo(a.dtype).eps * np.where(np.isfinite(b), np.abs(b), 0.0).repeat(2)
        unknown = (np.isnan(a) & np.isnan(b)).repeat(2)
        a, b = a.view(a.real.dtype), b.view(b.real.dtype)
    else:
        unknown = np.zeros(a.shape, bool)
    if a.dtype.kind != "f":
        return bool(np.all(a == b))
    with np.errstate(all="ignore"):
        near = np.isclose(a, b, rtol=1e-6, atol=0) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
        if cp is host_cupy.real:
            limits = np.finfo(a.dtype)
            near |= unknown | ((a == 0) & (np.abs(b) < limits.tiny))
            near |= np.abs(a - b) <= 4 * limits.eps * np.abs(terms if terms is not None else 0.0).sum()
            near |= ((a != 0) | (b != 0)) & (np.abs(a - b) <= allowed)
    return bool(np.all(near))


ELEMENTWISE = [name for name, op in REGISTRY.items() if op.kind == "elementwise" and len(op.parameters) < 3]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_special_values(name: str, cp: Any) -> None:
    """Every dtype, and every Python number beside every dtype: the CPU's values, or the CPU's error."""
    function = getattr(import_module(REGISTRY[name].stub.__module__), name)
    for dtype in ALL.values():
        x = specials(dtype)
        if len(REGISTRY[name].parameters) == 1:
            cases: list[tuple[Any, ...]] = [(x,)]
        else:
            cases = [(x[:, None], x[None, :])] + [pair for s in NUMBERS for pair in ((x, s), (s, x))]
        cases.append(tuple(x[i : i + 1].reshape(()) for i in range(len(REGISTRY[name].parameters))))
        for case in cases:
            wanted = outcome(
                lambda case=case: function(*[xt.asarray(a) if isinstance(a, np.ndarray) else a for a in case]).host()
            )
            found = outcome(lambda case=case: host(function(*moved(*case))))
            if isinstance(wanted, Exception) or isinstance(found, Exception):
                assert repr(found) == repr(wanted), (name, dtype, case)
            else:
                assert same(found, wanted, cp), (name, dtype, case, found, wanted)


REDUCTIONS = [name for name, op in REGISTRY.items() if op.kind == "reduction"]
WAYS: list[dict[str, Any]] = [{}, {"axis": 0}, {"axis": -1, "keepdims": True}, {"axis": ()}, {"axis": (0, 1)}]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_special_values(name: str, cp: Any) -> None:
    """NaN, infinities, no elements, no axes: the CPU's values, or the CPU's error."""
    for dtype in (d for d in ALL.values() if d.kind != "c" or name in ("sum", "prod", "any", "all", "mean")):
        x = specials(dtype)
        x = x[: len(x) // 2 * 2].reshape(2, -1)
        for values in (x, x[:, :0], x[0], np.asarray(x[0, 0]), np.ones((2, 3), dtype)):
            for way in WAYS:
                wanted = outcome(lambda values=values, way=way: getattr(xt, name)(xt.asarray(values), **way).host())
                found = outcome(lambda values=values, way=way: host(getattr(xt, name)(*moved(values), **way)))
                if isinstance(wanted, Exception) or isinstance(found, Exception):
                    assert repr(found) == repr(wanted), (name, dtype, way)
                else:
                    terms = values[np.isfinite(values)].astype("D") if name in ("sum", "mean") else None
                    assert same(found, wanted, cp, terms), (name, dtype, values, way, found, wanted)


KEYS: list[Any] = [
    np.asarray([2, 0, -1]),
    np.asarray([[0, 1], [-1, 0]]),
    (slice(None), np.asarray([1, 1])),
    (np.asarray([0, 1]), slice(None), np.asarray([2, -1])),
    (0, slice(None), np.asarray([2, 0])),
    (np.asarray([0, 1]), Ellipsis, 1),
    (None, np.asarray([0, 2]), 1),
    (Ellipsis, np.asarray([1, 1, 0])),
    np.arange(36).reshape(3, 3, 4) % 3 == 0,
    (slice(None), np.arange(12).reshape(3, 4) > 5),
    (np.asarray([True, False, True]), slice(1, None), np.asarray([3])),
    True,
    (np.asarray([], np.int64), slice(None, None, -1)),
    np.zeros((0, 3), bool),
]
WRONG: list[Any] = [
    np.asarray([0, 3]),
    (slice(None), np.asarray([-4])),
    np.ones(4, bool),
    (np.asarray([0, 1]), np.asarray([0, 1, 2])),
    (np.asarray([0]), 0, 0, 0),
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_advanced_keys(key: Any, cp: Any) -> None:
    """Reading, writing (the last of several values stays) and adding, by NumPy's rules."""
    values = np.arange(36.0).reshape(3, 3, 4)
    ours = tuple(moved(*key)) if isinstance(key, tuple) else moved(key)[0]
    assert np.array_equal(host(moved(values)[0][ours]), values[key])
    new = np.random.default_rng(0).normal(size=values[key].shape)
    for given in (new, -0.0):
        wanted, x = values.copy(), moved(values)[0]
        wanted[key] = given
        x[ours] = moved(given)[0]
        assert same(host(x), wanted, cp)
    wanted, x = values.copy(), moved(values)[0]
    np.add.at(wanted, key, new)
    native_key = tuple(
        k.native() if isinstance(k, xt.Tensor) else k for k in (ours if isinstance(ours, tuple) else (ours,))
    )
    x.device.backend.add_at(x.native(), native_key, moved(new)[0].native())
    assert np.allclose(host(x), wanted, rtol=1e-14)


@pytest.mark.parametrize("key", WRONG, ids=str)
def test_wrong_keys_raise_as_on_the_cpu(key: Any, cp: Any) -> None:
    values = np.zeros((3, 3, 4))
    ours = tuple(moved(*key)) if isinstance(key, tuple) else moved(key)[0]
    with pytest.raises(IndexError) as wanted:
        values[key]
    x = moved(values)[0]
    for call in (lambda: x[ours], lambda: x.__setitem__(ours, 1.0)):
        with pytest.raises(IndexError) as caught:
            call()
        assert str(wanted.value).strip() in str(caught.value)
    assert not host(x).any()


LIBRARY: dict[str, Any] = {
    "take out of bounds": lambda xt, x, i: xt.take(x, i + 9, axis=0),
    "take_along_axis out of bounds": lambda xt, x, i: xt.take_along_axis(x, xt.reshape(i, (3, 1)) - 9, axis=0),
    "solve a singular system": lambda xt, x, i: xt.linalg.solve(x * 0, x),
    "invert a singular matrix": lambda xt, x, i: xt.linalg.inv(x * 0),
    "no factor": lambda xt, x, i: xt.linalg.cholesky(-x @ x.T),
    "solve stacks that broadcast": lambda xt, x, i: xt.linalg.solve(xt.stack([x, 2 * x]), x[:, :2]),
    "solve stacks of nothing": lambda xt, x, i: [
        xt.linalg.solve(a, b) for a in (x[None, :0, :0], xt.stack([x, x])[:0]) for b in (a, a[..., :0])
    ],
    "solve a vector": lambda xt, x, i: xt.linalg.solve(xt.stack([x, 2 * x]), x[0]),
    "vecdot": lambda xt, x, i: xt.vecdot(x + 1j, x - 2j, axis=0),
    "tensordot over nothing": lambda xt, x, i: xt.tensordot(x, x, axes=0),
    "tensordot": lambda xt, x, i: xt.tensordot(x, x, axes=((0,), (1,))),
    "matmul of nothing": lambda xt, x, i: xt.matmul(x[:, :0], x[:0]),
    "matmul of booleans": lambda xt, x, i: xt.matmul(x > 0, x > 1),
    "matrix norms": lambda xt, x, i: (
        [xt.linalg.matrix_norm(x, ord=o) for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)]
    ),
    "vector norms": lambda xt, x, i: (
        [xt.linalg.vector_norm(x, ord=o, axis=(0, 1)) for o in (0, 1, 2, 3.5, np.inf, -np.inf)]
    ),
    "pinv": lambda xt, x, i: [xt.linalg.pinv(xt.stack([x, x]), rtol=r) for r in (None, 0.1)],
    "matrix_rank": lambda xt, x, i: [xt.linalg.matrix_rank(x, rtol=r) for r in (None, 0.9)],
    "cross": lambda xt, x, i: xt.linalg.cross(x, x[0], axis=-1),
    "outer, trace, svdvals": lambda xt, x, i: (xt.linalg.outer(x[0], x[1]), xt.linalg.trace(x), xt.linalg.svdvals(x)),
    "repeat by array": lambda xt, x, i: (
        (xt.repeat(x, i, axis=0), xt.repeat(x[:0], i[:0], axis=0), xt.repeat(x[0], i))
    ),
    "searchsorted": lambda xt, x, i: xt.searchsorted(x[0], x[1], sorter=xt.argsort(x[0]), side="right"),
    "searchsorted wrong sorter": lambda xt, x, i: xt.searchsorted(x[0], x[1], sorter=i + 5),
    "sort": lambda xt, x, i: [xt.sort(x, axis=0, descending=d) for d in (False, True)],
    "argsort": lambda xt, x, i: [xt.argsort(xt.round(x), axis=1, descending=d) for d in (False, True)],
    "sort nothing": lambda xt, x, i: (xt.sort(x[:, :0]), xt.argsort(x[:0], axis=0)),
    "cumulative": lambda xt, x, i: (
        [xt.cumulative_sum(y, axis=0, include_initial=t) for y in (x, x[:0], i) for t in (False, True)]
    ),
    "cumulative products": lambda xt, x, i: xt.cumulative_prod(xt.astype(i, xt.int8), include_initial=True),
    "unique": lambda xt, x, i: (
        (*xt.unique_all(xt.round(x)), xt.unique_values(i), *xt.unique_counts(i), *xt.unique_inverse(x))
    ),
    "isin": lambda xt, x, i: xt.isin(i, xt.asarray([1.0, 2.5]), invert=True),
    "meshgrid, tril, roll, tile": lambda xt, x, i: (
        (*xt.meshgrid(i, x[0]), xt.tril(x, k=-1), xt.roll(x, (1, -1), axis=(0, 1)), xt.tile(x, (2, 1, 2)))
    ),
    "negative powers": lambda xt, x, i: i ** (-i),
    "a large integer": lambda xt, x, i: xt.astype(i, xt.uint8) + 300,
    "an integer too large to assign": lambda xt, x, i: xt.astype(i, xt.uint8).__setitem__(0, 300),
    "einsum": lambda xt, x, i: xt.einsum("ij,jk->ki", x, x),
    "fftn with lengths": lambda xt, x, i: (xt.fft.fftn(x, s=(2,)), xt.fft.irfftn(x, s=(2, 4)), xt.fft.fftshift(x)),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_library_functions(name: str, cp: Any) -> None:
    """The CPU's values, or an error of the CPU's class and, where it is ours, of its text."""
    call = LIBRARY[name]
    values = np.random.default_rng(4).normal(size=(3, 3)), np.asarray([2, 0, 1])
    wanted = outcome(lambda: call(xt, *map(xt.asarray, values)))
    with xt.options(device=CUDA):
        found = outcome(lambda: call(xt, *moved(*values)))
    if isinstance(wanted, Exception):
        assert type(found) is type(wanted), (found, wanted)
        return
    assert not isinstance(found, Exception), found
    # Another order of elimination moves a solution by its rounding errors times the condition of the matrix.
    condition = np.linalg.cond(values[0]) if name.startswith("solve") else 0.0
    for a, b in zip(flat(found), flat(wanted), strict=True):
        assert same(host(a), b.host(), cp, condition * b.host() if condition else None), (host(a), b)


def test_filling_keeps_the_sign_of_zero(cp: Any) -> None:
    x = xt.ones((2, 2), device=CUDA)
    x[...] = -0.0
    x[0, 0] = 0.0
    assert np.signbit(host(x)).tolist() == [[False, True], [True, True]]
    for made in (xt.asarray(-0.0, device=CUDA), xt.full((), -0.0, device=CUDA), xt.full((2, 3), -0.0, device=CUDA)):
        assert np.signbit(host(made)).all()
    z = xt.full((2,), complex(-0.0, 0.0), device=CUDA)
    assert np.signbit(host(z).real).all() and not np.signbit(host(z).imag).any()


def test_floats_become_integers_as_on_x86(cp: Any) -> None:
    """Where C leaves it open and CUDA saturates."""
    x = moved(np.asarray([-1.5, 255.9, 300.0, -3e9, 1e20, np.inf, np.nan]))[0]
    assert host(xt.astype(x, xt.uint8)).tolist() == [255, 255, 44, 0, 0, 0, 0]
    assert host(xt.astype(x, xt.int8)).tolist() == [-1, -1, 44, 0, 0, 0, 0]
    assert host(xt.astype(x, xt.int32)).tolist() == [-1, 255, 300] + 4 * [-(2**31)]
    assert host(xt.astype(x, xt.uint32)).tolist() == [2**32 - 1, 255, 300, 2**32 - 3 * 10**9 % 2**32, 0, 0, 0]
    assert host(xt.astype(x, xt.int64)).tolist() == [-1, 255, 300, -3 * 10**9] + 3 * [-(2**63)]
    assert host(xt.astype(xt.abs(x) * 1e8, xt.uint64))[1:4].tolist() == [25590000000, 30000000000, 3 * 10**17]
    y = xt.zeros(2, dtype=xt.int32, device=CUDA)
    y[...] = x[4:6]
    assert host(y).tolist() == [-(2**31)] * 2


def test_sums_at_repeated_places_keep_their_digits(cp: Any) -> None:
    """Where one element gets many values they are added as a tree, not as differences of running sums."""
    g = np.concatenate([np.full(4000, 1e8), np.full(4000, 1e-8)])
    places = np.repeat([0, 1], 4000)
    x = xt.zeros(2, device=CUDA)
    x.device.backend.add_at(x.native(), moved(places)[0].native(), moved(g)[0].native())
    assert np.allclose(host(x), [4e11, 4e-5], rtol=1e-12)


# ---- what is asked of CuPy exists


def names_used(file: str) -> Iterator[str]:
    """Yield the dotted names that a file reads from `cp` or `self.library`."""
    for node in ast.walk(ast.parse((HOUSE / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node).replace("self.library.", "cp.").replace("self._library.", "cp.")
            if text.startswith("cp.") and text.replace(".", "").isidentifier():
                yield text.removeprefix("cp.")


@needs_cupy
@pytest.mark.parametrize("file", ["cuda.py", "cuda_keys.py", "cuda_repairs.py"])
def test_every_name_exists_in_cupy(file: str) -> None:
    used = sorted(set(names_used(f"devices/{file}")))
    assert len(used) > 5
    for name in used:
        found: Any = host_cupy.real
        for part in name.split("."):
            assert hasattr(found, part), f"xtensor/devices/{file} uses cupy.{name}"
            found = getattr(found, part)


def keywords_used() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the functions of CuPy that the backend calls with keywords, and these."""
    for file in ("cuda.py", "cuda_keys.py", "cuda_repairs.py"):
        for node in ast.walk(ast.parse((HOUSE / "devices" / file).read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name.startswith("cp.") and name.replace(".", "").isidentifier():
                given = tuple(word.arg for word in node.keywords if word.arg)
                if given:
                    yield name.removeprefix("cp."), given


@needs_cupy
def test_every_library_function_that_is_asked_for_exists() -> None:
    """What the rest of the package asks of `xp`, repaired or by way of array-api-compat and CuPy."""
    from xtensor.devices import cuda
    from xtensor.standard import fft

    text = "".join(file.read_text(encoding="utf-8") for file in HOUSE.rglob("*.py"))
    used = set(re.findall(r"(?<![\w.])xp\.((?:linalg\.|fft\.)?[a-z_0-9]+)(?=\()", text)) | {"tril", "triu"}
    used |= {f"fft.{name}" for name in fft.__all__} | {"linalg.matrix_rank", "linalg.pinv"}
    assert len(used) > 50
    for name in used:
        found: Any = cuda.CUDA(0).xp
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found), name


@needs_cupy
def test_every_keyword_exists_in_cupy() -> None:
    checked = 0
    for name, given in keywords_used():
        found: Any = host_cupy.real
        for part in name.split("."):
            found = getattr(found, part)
        try:
            parameters = inspect.signature(found).parameters
        except (TypeError, ValueError):  # a ufunc, which has none to look at
            continue
        assert set(given) <= set(parameters), f"cupy.{name} takes {list(parameters)}, not {given}"
        checked += 1
    assert checked > 10


@needs_cupy
def test_every_kernel_has_loops_for_the_dtypes_it_is_given() -> None:
    """Rows that are not repaired go to CuPy's own function of that name."""
    from xtensor.devices.cuda_repairs import KERNELS

    for name, op in REGISTRY.items():
        if name in KERNELS or op.element is not None:
            continue
        own = getattr(host_cupy.real, name)
        loops = [loop.split("->")[0] for loop in own.types if "E" not in loop]
        for dtype in [one for one in ALL.values() if one in op.accepts]:
            taken = len(op.parameters) * [dtype]
            assert any(all(map(np.can_cast, taken, loop)) for loop in loops), f"cupy.{name} takes no {dtype}"


# ---- what a small call costs the host

# Calls of small tensors, and the one function of CuPy's that each calls; of some, how many functions of the package
# they enter.
SMALL_CALLS: dict[str, tuple[Any, str]] = {
    "x + y": (lambda x, y: x + y, "add"),
    "2.5 * x": (lambda x, y: 2.5 * x, "multiply"),
    "x - 1": (lambda x, y: x - 1, "subtract"),
    "x < y": (lambda x, y: x < y, "less"),
    "exp": (lambda x, y: xt.exp(x), "exp"),
    "sqrt": (lambda x, y: xt.sqrt(x), "sqrt"),
    "sum": (lambda x, y: xt.sum(x), "sum"),
    "sum of an axis": (lambda x, y: xt.sum(x, axis=0, keepdims=True), "sum"),
    "x @ y": (lambda x, y: x @ y, "matmul"),
    "x += y": (lambda x, y: x.__iadd__(y), "add"),
    "x *= 0.5": (lambda x, y: x.__imul__(0.5), "multiply"),
    "x[2:500] = 1.0": (lambda x, y: x.__setitem__(slice(2, 500), 1.0), "__setitem__"),
    "x[2:500] = y[:498]": (lambda x, y: x.__setitem__(slice(2, 500), y), "__setitem__"),
    "x[2:500]": (lambda x, y: x[2:500], "__getitem__"),
}
ENTERED = {"x + y": 12, "exp": 14, "sum": 17, "x[2:500] = 1.0": 6, "x[2:500] = y[:498]": 9, "x[2:500]": 6}
VIEWS: dict[str, tuple[Any, int]] = {
    "x[2:500]": (lambda x, m: x[2:500], 6),
    "x[None]": (lambda x, m: x[None], 6),
    "x[2:500][::-3]": (lambda x, m: x[2:500][::-3], 12),
    "m[1:, 2]": (lambda x, m: m[1:, 2], 7),
    "reshape": (lambda x, m: xt.reshape(x, (50, -1)), 9),
    "x.reshape": (lambda x, m: x.reshape(10, 100), 10),
    "m.T": (lambda x, m: m.T, 9),
    "m.mT": (lambda x, m: m.mT, 8),
    "permute_dims": (lambda x, m: xt.permute_dims(m, (1, 0)), 8),
    "squeeze": (lambda x, m: xt.squeeze(m[:1], axis=0), 14),
    "expand_dims": (lambda x, m: xt.expand_dims(m, axis=1), 12),
    "flip": (lambda x, m: xt.flip(m, axis=0), 12),
    "moveaxis": (lambda x, m: xt.moveaxis(m, 0, 1), 16),
}


def entered(call: Any) -> list[str]:
    """Return the functions of the package that a call enters, but what counts calls of methods, and what is no function
    in every Python.
    """
    found = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and Path(frame.f_code.co_filename).is_relative_to(HOUSE):
            found.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [name for name in found if name not in ("counted", "<listcomp>")]


def calls_of_cupy(call: Any) -> list[str]:
    """Return the stand-in's functions that the package calls: what would launch, copy, wait, or change the device."""
    found = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code.co_filename != host_cupy.__file__ or frame.f_back is None:
            return
        if Path(frame.f_back.f_code.co_filename).is_relative_to(HOUSE):
            name = frame.f_locals.get("name") or getattr(frame.f_locals.get("own"), "__name__", None)
            found.append(name or frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return [name for name in found if name != "<lambda>"]  # of the device that is current


@pytest.mark.parametrize("name", SMALL_CALLS)
def test_a_small_call_is_one_call_of_cupy(name: str, cp: Any) -> None:
    """One launch, and no conversion, copy, wait or change of the device beside it; once the call is known."""
    call, wanted = SMALL_CALLS[name]
    x, y = moved(np.linspace(0.0, 1.0, 1000), np.linspace(1.0, 2.0, 498 if "y[:498]" in name else 1000))
    call(x, y)
    assert calls_of_cupy(lambda: call(x, y)) == [wanted]


@pytest.mark.parametrize("name", ENTERED)
def test_a_small_call_enters_few_functions(name: str, cp: Any) -> None:
    """Four more where gradients were asked for before, of anything, but for views and assignments."""
    x, y = moved(np.linspace(0.0, 1.0, 1000), np.linspace(1.0, 2.0, 498 if "y[:498]" in name else 1000))
    call, _ = SMALL_CALLS[name]
    call(x, y)
    found = entered(lambda: call(x, y))
    assert len(found) <= ENTERED[name] + 4 * (active[0] > 0 and "[" not in name), found


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_one_call_of_cupy_and_few_functions(name: str, cp: Any) -> None:
    """It shows the memory of what it is a view of, and can be written through. Two more ask whether it is of a value,
    and, where gradients were asked for before, for these.
    """
    array, square = np.linspace(0.0, 1.0, 1000), np.arange(30.0).reshape(5, 6)
    call, most = VIEWS[name]
    x, m = moved(array, square)
    call(x, m)
    found = [one for one in entered(lambda: call(x, m)) if one not in ("is_value", "_has_no_steps")]
    assert len(found) <= most, found
    view, wanted = call(x, m), call(xt.asarray(array), xt.asarray(square))
    assert (host(view).tolist(), view.shape) == (wanted.numpy().tolist(), wanted.shape)
    whole = x if view.owner is x.owner else m
    assert view.owner is whole.owner
    version, reader = whole.version, whole + whole
    view[...] = -1.0
    assert whole.version == version + 1
    assert (host(reader) >= 0).all() and (host(whole) == -1).sum() == view.size


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_what_takes_no_shortcut(name: str, cp: Any) -> None:
    """Of a constant it is one, and a gradient goes back through it."""
    call, _ = VIEWS[name]
    x, m = moved(np.linspace(0.0, 1.0, 1000), np.arange(30.0).reshape(5, 6))
    assert call(x.detach(), m.detach())._content.constant
    slopes = xt.grad(lambda x, m: xt.sum(call(x, m) * 2.0) + 0.0 * (xt.sum(x) + xt.sum(m)), argnums=(0, 1))(x, m)
    plain = xt.grad(lambda x, m: xt.sum(call(x, m) * 2.0) + 0.0 * (xt.sum(x) + xt.sum(m)), argnums=(0, 1))(
        x.to_device("cpu"), m.to_device("cpu")
    )
    assert all(host(one).tolist() == other.numpy().tolist() for one, other in zip(slopes, plain, strict=True))


def test_assigning_without_questions_is_assigning(cp: Any) -> None:
    """Memory that overlaps, numbers that do not fit, keys of all kinds, views and readers: as on the CPU, each time."""
    rng = np.random.default_rng(0)
    keys: list[Any] = [
        0,
        -1,
        9,
        slice(1, 4),
        slice(None, None, -1),
        (0, 1),
        (..., 0),
        (None, 1),
        (slice(0, 0), 1),
        (0, 0, 0),
        ...,
    ]
    values: list[Any] = [1, 0, -1, 2.5, -0.0, float("nan"), 300, True, 1j]
    for dtype in ("float32", "int8", "bool", "complex64"):
        plain = rng.integers(0, 2, (5, 5)).astype(dtype)
        for key in keys:
            row = np.arange(5).astype(dtype)
            for value in [*values, row, row[:1], row[:2], lambda a: a[::-1], lambda a: a[0], lambda a: a]:
                outcomes = []
                for device in ("cpu", CUDA):
                    x = xt.asarray(plain, device=device, copy=True)
                    part, reader = x[1:], x + x
                    given = (
                        value(x)
                        if callable(value)
                        else xt.asarray(value, device=device)
                        if isinstance(value, np.ndarray)
                        else value
                    )
                    error = outcome(lambda x=x, given=given, key=key: x.__setitem__(key, given))
                    outcomes.append((repr(error), [one.host().tolist() for one in (x, part, reader)]))
                assert repr(outcomes[0]) == repr(outcomes[1]), (dtype, key, value)


def test_known_calls_are_what_the_first_ones_were(cp: Any) -> None:
    """Dtypes, shapes, numbers that do not fit, parameters of other types: as on the CPU, each time."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 100, (3, 4)).astype(dtype) for dtype in ("float32", "float64", "int8", "uint8", "int64", "bool")
    ]
    calls: list[Any] = [
        lambda a, b=b: a + (xt.asarray(b, device=a.device) if isinstance(b, np.ndarray) else b)
        for b in (*arrays, 1, 2.5, 300, -1, True, 1j)
    ]
    calls += [
        lambda a, way=way: xt.sum(a, **way)
        for way in (
            {},
            {"axis": 0},
            {"axis": 1, "keepdims": True},
            {"axis": (0, 1)},
            {"axis": 5},
            {"axis": True},
            {"keepdims": 1},
            {"axis": 1.0},
            {"dtype": xt.float64},
        )
    ]
    calls += [
        lambda a: (
            a ** xt.asarray(-1, dtype=a.dtype, device=a.device) if a.dtype != xt.bool and a.dtype != xt.uint8 else a
        )
    ]
    calls += [
        lambda a: a - a,
        lambda a: -a,
        lambda a: xt.exp(a),
        lambda a: a[:, :0] + a[:, :0],
        lambda a: xt.max(a[:0]),
    ]
    for values in arrays:
        x = moved(values)[0]
        for call in calls:
            wanted = outcome(lambda call=call, values=values: call(xt.asarray(values)).host())
            for _ in range(3):
                found = outcome(lambda call=call, x=x: host(call(x)))
                if isinstance(wanted, Exception) or isinstance(found, Exception):
                    assert repr(found) == repr(wanted)
                else:
                    assert same(found, wanted, cp), (found, wanted)
