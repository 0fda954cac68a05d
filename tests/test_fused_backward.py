"""Training steps that go back themselves: `backward()` inside a fused function, and what it adds up to in leaves."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from test_capture import needs_llvm

import xtensor as xt
from xtensor.autograd.direct import UNKNOWN
from xtensor.calls.signature import GRADIENT

room = import_module("xtensor.calls.capture")

Loop = tuple[Callable[..., Any], Callable[[], list[Any]]]
ROWS, COLUMNS = 16, 8


@pytest.fixture(autouse=True, params=["interpret", pytest.param("llvm", marks=needs_llvm)])
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    with xt.options(engine=request.param):
        yield


def leaf(*shape: int, seed: int = 0) -> Any:
    return xt.asarray(np.random.default_rng(seed).standard_normal(shape), requires_grad=True)


def batch(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return xt.asarray(rng.standard_normal((ROWS, COLUMNS))), xt.asarray(rng.standard_normal(ROWS))


def descend(w: Any, rate: float = 0.02) -> None:
    with xt.no_grad():
        w -= rate * w.grad


class Net:
    """Two layers, one after the other."""

    def __init__(self) -> None:
        self.w, self.b, self.v = leaf(COLUMNS, 6, seed=4), leaf(6, seed=5), leaf(6, seed=6)

    def parameters(self) -> list[Any]:
        return [self.w, self.b, self.v]

    def __call__(self, x: Any) -> Any:
        return xt.tanh(x @ self.w + self.b) @ self.v

    def loss(self, x: Any, y: Any) -> Any:
        return xt.mean((self(x) - y) ** 2)


class Adam:
    """An optimiser with moments in lists and a count."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters, self.rate, self.count = parameters, 1e-2, 0
        self.m = [xt.zeros_like(p.detach()) for p in parameters]
        self.v = [xt.zeros_like(p.detach()) for p in parameters]

    def zero_grad(self) -> None:
        for p in self.parameters:
            p.grad = None

    @xt.no_grad()
    def step(self) -> None:
        self.count += 1
        for p, m, v in zip(self.parameters, self.m, self.v, strict=True):
            m[...] = 0.9 * m + 0.1 * p.grad
            v[...] = 0.999 * v + 0.001 * p.grad**2
            p -= self.rate * (m / (1 - 0.9**self.count)) / (xt.sqrt(v / (1 - 0.999**self.count)) + 1e-8)


def with_gradients(*leaves: Any) -> Callable[[], list[Any]]:
    return lambda: [*leaves, *[x.grad for x in leaves]]


# ---- loops that are captured


def forgets_at_the_end() -> Loop:
    w = leaf(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        loss = xt.mean((x @ w - y) ** 2)
        loss.backward()
        descend(w)
        w.grad = None
        return loss.detach()

    return step, with_gradients(w)


def forgets_at_the_beginning() -> Loop:
    net = Net()

    def step(x: Any, y: Any) -> Any:
        for p in net.parameters():
            p.grad = None
        loss = net.loss(x, y)
        loss.backward()
        for p in net.parameters():
            descend(p)
        return loss.detach()

    return step, with_gradients(*net.parameters())


def adds_up() -> Loop:
    w = leaf(COLUMNS)

    def step(x: Any, y: Any) -> None:
        xt.mean((x @ w - y) ** 2).backward()

    return step, with_gradients(w)


def zeroes_in_place() -> Loop:
    w = leaf(COLUMNS)
    w.grad = xt.zeros(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        w.grad[...] = 0.0
        xt.mean((x @ w - y) ** 2).backward()
        descend(w)
        return w.grad

    return step, with_gradients(w)


def clips_with_adam() -> Loop:
    net = Net()
    optimiser = Adam(net.parameters())

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = net.loss(x, y)
        loss.backward()
        norm = xt.sqrt(sum(xt.sum(p.grad**2) for p in net.parameters()))
        for p in net.parameters():
            p.grad *= xt.minimum(1.0, 1.0 / norm)
        optimiser.step()
        return loss

    return step, lambda: [*with_gradients(*net.parameters())(), *optimiser.m, *optimiser.v]


def returns_what_is_used_up() -> Loop:
    w = leaf(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        made = x @ w
        loss = xt.mean((made - y) ** 2)
        loss.backward()
        return {"loss": loss, "made": made}

    return step, with_gradients(w)


def finds_one_leaf_twice() -> Loop:
    w = leaf(COLUMNS)
    others = {"w": w, "again": [w]}

    def step(x: Any, y: Any) -> Any:
        xt.mean((x @ w - y * xt.sum(others["w"])) ** 2).backward()
        descend(others["again"][0])
        found, w.grad = w.grad, None
        return found

    return step, with_gradients(w)


def appends_losses() -> Loop:
    w, losses = leaf(COLUMNS), list[Any]()

    def step(x: Any, y: Any) -> None:
        loss = xt.mean((x @ w - y) ** 2)
        loss.backward()
        losses.append(loss)
        descend(w)
        w.grad = None

    return step, lambda: [w, *losses]


def is_given_its_leaves() -> Loop:
    w = leaf(COLUMNS)

    def back(w: Any, x: Any, y: Any) -> Any:
        loss = xt.mean((x @ w - y) ** 2)
        loss.backward()
        return loss

    return lambda x, y: back(w, x, y), with_gradients(w)


def has_a_gradient_inside() -> Loop:
    w = leaf(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        slope = xt.grad(lambda v: xt.sum((x @ v - y) ** 2))(w.detach())
        (xt.sum(slope * w) + xt.sum(w**2)).backward()
        return slope

    return step, with_gradients(w)


def reads_gradients_alone() -> Loop:
    w, momentum = leaf(COLUMNS), xt.zeros(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        momentum[...] = 0.9 * momentum + w.grad * xt.mean(y)
        descend(w)
        return xt.sum(x)

    w.grad = xt.ones(COLUMNS)
    return step, lambda: [w, w.grad, momentum]


CAPTURED = (
    *(forgets_at_the_end, forgets_at_the_beginning, adds_up, zeroes_in_place, clips_with_adam, returns_what_is_used_up),
    *(finds_one_leaf_twice, appends_losses, is_given_its_leaves, has_a_gradient_inside, reads_gradients_alone),
)


# ---- loops that are plain calls


def returns_a_graph() -> Loop:
    w = leaf(COLUMNS)
    return lambda x, y: xt.mean((x @ w - y) ** 2), with_gradients(w)


def keeps_the_graph() -> Loop:
    w = leaf(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        loss = xt.mean((x @ w - y) ** 2)
        loss.backward(retain_graph=True)
        return loss

    return step, with_gradients(w)


def asks_for_another_gradient() -> Loop:
    w, flags = xt.ones(COLUMNS), [False]

    def step(x: Any, y: Any) -> Any:
        w.requires_grad = flags[0]
        flags[0] = not flags[0]
        return xt.sum(y)

    return step, lambda: [w]


def writes_what_has_a_gradient() -> Loop:
    w, target = leaf(COLUMNS), xt.zeros(ROWS)

    def step(x: Any, y: Any) -> Any:
        target[...] = x @ w
        return xt.sum(y)

    return step, lambda: [w, target]


def makes_another_leaf() -> Loop:
    parameters = {"w": leaf(COLUMNS)}

    def step(x: Any, y: Any) -> Any:
        xt.mean((x @ parameters["w"] - y) ** 2).backward()
        w = (parameters["w"].detach() - parameters["w"].grad).copy()
        w.requires_grad = True
        parameters["w"] = w
        return xt.sum(y)

    return step, lambda: [parameters["w"]]


def goes_back_by_another_name() -> Loop:
    w, back = leaf(COLUMNS), xt.Tensor.backward

    def step(x: Any, y: Any) -> Any:
        loss = xt.mean((x @ w - y) ** 2)
        back(loss)
        return loss.detach()

    return step, with_gradients(w)


def reads_by_another_name() -> Loop:
    w, read = leaf(COLUMNS), xt.Tensor.grad.fget
    calls: list[Any] = []

    def step(x: Any, y: Any) -> Any:
        slope = read(w)
        return xt.sum(y) if slope is None else xt.sum(slope)

    def state() -> list[Any]:
        calls.append(None)
        w.grad = w.detach() * len(calls) if len(calls) > 2 else None
        return [w]

    return step, state


def returns_a_view_of_a_leaf() -> Loop:
    w = leaf(COLUMNS)

    def step(x: Any, y: Any) -> Any:
        view = w[:4]
        xt.sum(view * y[:4]).backward()
        return view

    return step, with_gradients(w)


PLAIN = {
    goes_back_by_another_name: UNKNOWN,
    reads_by_another_name: UNKNOWN,
    returns_a_view_of_a_leaf: room.REQUIRES,
    returns_a_graph: room.REQUIRES,
    keeps_the_graph: room.REQUIRES,
    asks_for_another_gradient: room.TRACKED,
    writes_what_has_a_gradient: GRADIENT,
    makes_another_leaf: room.REQUIRES,
}


def same(found: Any, known: Any) -> bool:
    """Return whether two results are the same, with the same gradients."""
    if isinstance(known, dict):
        return all(same(found[key], known[key]) for key in known)
    if known is None or found is None:
        return found is known
    both = [np.asarray(x.detach()) for x in (found, known)]
    return found.requires_grad == known.requires_grad and np.allclose(*both, rtol=1e-12, atol=1e-14)


def check(loop: Callable[[], Loop], *, strict: bool) -> Any:
    """Compare calls of a fused step with plain ones, with what they leave; return the step."""
    (plain, plain_state), (function, state) = loop(), loop()
    fused = xt.fuse(function, strict=strict)
    for seed in range(6):
        assert same(fused(*batch(seed)), plain(*batch(seed)))
        assert all(map(same, state(), plain_state()))
    return fused


@pytest.mark.parametrize("loop", CAPTURED)
def test_a_captured_step(loop: Callable[[], Loop]) -> None:
    """What it returns, writes and leaves in leaves is what plain calls do."""
    fused = check(loop, strict=True)
    assert fused.why(*batch(0)) == ""
    assert "schedule" in fused.explained()


@pytest.mark.parametrize("loop", PLAIN)
def test_a_step_that_is_not_captured(loop: Callable[[], Loop]) -> None:
    """It gives what plain calls give, and says why."""
    fused = check(loop, strict=False)
    reasons = [why for why in {GRADIENT, UNKNOWN, room.REQUIRES, room.TRACKED} if why in fused.explained()]
    reasons += [fused.why(*batch(0))]
    assert PLAIN[loop] in reasons


def test_against_numpy() -> None:
    """Steps of least squares, by the formula of their gradient."""
    step, state = forgets_at_the_end()
    fused, (w, _) = xt.fuse(step, strict=True), state()
    known = np.asarray(w.detach()).copy()
    for seed in range(5):
        x, y = map(np.asarray, batch(seed))
        loss = fused(*batch(seed))
        np.testing.assert_allclose(float(loss), np.mean((x @ known - y) ** 2), rtol=1e-12)
        known -= 0.02 * 2.0 * x.T @ (x @ known - y) / ROWS
        np.testing.assert_allclose(np.asarray(w.detach()), known, rtol=1e-12)


def test_what_is_used_up_says_so() -> None:
    """A loss that a later call returns depends on the leaf, but nobody goes back from it again."""
    step, state = returns_what_is_used_up()
    fused, (w, _) = xt.fuse(step, strict=True), state()
    for seed in range(4):
        loss = fused(*batch(seed))["loss"]
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="already used"):
            loss.backward()
        with pytest.raises(RuntimeError, match="already used"):
            (loss + xt.sum(w)).backward()
        with pytest.raises(RuntimeError, match="detach"):
            loss.numpy()
        assert (2.0 * loss).requires_grad
        assert not loss.detach().requires_grad


def test_leaves_that_are_frozen_and_thawed() -> None:
    """Whether a tensor asks for its gradient is looked up at each call."""
    nets = Net(), Net()

    def step(net: Net, x: Any, y: Any) -> Any:
        loss = net.loss(x, y)
        loss.backward()
        return loss.detach()

    fused = xt.fuse(step, strict=True)
    for seed, trained in enumerate((True, False, True, True, False, False, True)):
        for net, call in zip(nets, (fused, step), strict=True):
            net.b.requires_grad = trained
            call(net, *batch(seed))
        assert all(same(p.grad, q.grad) for p, q in zip(*[net.parameters() for net in nets], strict=True))
        assert (nets[0].b.grad is not None) == trained


def test_with_and_without_recording() -> None:
    """The same function without recording computes its loss alone."""
    w = leaf(COLUMNS)

    def function(x: Any, y: Any) -> Any:
        loss = xt.mean((x @ w - y) ** 2)
        if loss.requires_grad:
            loss.backward()
        return loss.detach()

    fused = xt.fuse(function, strict=True)
    for seed in range(4):
        w.grad = None
        with xt.no_grad():
            known = fused(*batch(seed))
            assert w.grad is None
        assert same(fused(*batch(seed)), known)
        assert w.grad is not None


def test_a_failure_leaves_gradients_as_a_plain_call() -> None:
    """What was added up before an error stays, and the next call begins with it."""
    results = []
    for wrap in (lambda f: f, xt.fuse):
        w, rates = leaf(COLUMNS), [1.0, 1.0, 2.0, 0.0, 2.0]

        def step(x: Any, y: Any, rate: float, w: Any = w) -> None:
            xt.mean((x @ w - y) ** 2).backward()
            w.grad *= 1.0 / operator.index(int(rate))

        call = wrap(step)
        for seed, rate in enumerate(rates):
            if rate:
                call(*batch(seed), rate)
            else:
                with pytest.raises(ZeroDivisionError):
                    call(*batch(seed), rate)
        results.append(w.grad)
    assert same(*results)


def test_a_fused_function_inside_a_gradient() -> None:
    """One whose leaf is that of a gradient around it is called as it is."""
    fused = xt.fuse(lambda w, x: xt.sum((x @ w) ** 2))
    x, _ = batch(0)
    for _ in range(4):
        w = leaf(COLUMNS).detach().copy()
        found = xt.grad(fused)(w, x)
        assert same(found, 2.0 * x.T @ (x @ w))
