"""scikit-learn's estimators, without its array API support, called with tensors: they find what NumPy's arrays give."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from typing import Any

import numpy as np
import pytest

import xtensor as xt

pytest.importorskip("sklearn")

# What an estimator may be asked after it was fitted.
ASKED = (
    "predict",
    "transform",
    "predict_proba",
    "decision_function",
    "score_samples",
    "score",
    "kneighbors",
    "inverse_transform",
)
WITH_Y = {"score"}

# Those that take no array of numbers: text, dictionaries, sets of labels; and those that take pictures.
OF_OTHER_DATA = {
    "CountVectorizer",
    "DictVectorizer",
    "FeatureHasher",
    "HashingVectorizer",
    "MultiLabelBinarizer",
    "PatchExtractor",
    "TfidfVectorizer",
}

KINDS = ("classifier", "regressor", "cluster", "transformer", "other")


def tables() -> tuple[Any, Any, Any]:
    """Return positive features, labels, and numbers to be predicted, for 40 samples."""
    rng = np.random.default_rng(0)
    x = np.abs(rng.normal(size=(40, 5))).round(3)
    labels = np.arange(40) % 3
    x[:, 0] += labels
    return x, labels, x @ np.arange(5.0) + 0.1 * rng.normal(size=40)


def of_kind(kind: str) -> dict[str, type]:
    """Return scikit-learn's estimators of a kind, by name."""
    from sklearn.utils import all_estimators

    kinds = dict.fromkeys(KINDS[:-1]) if kind == "other" else {kind: None}
    found = dict(all_estimators(type_filter=list(kinds)))
    if kind == "other":
        return {name: one for name, one in all_estimators() if name not in found}
    return {name: one for name, one in found.items() if name not in OF_OTHER_DATA}


def made(estimator: type) -> Any:
    """Return an estimator with few steps, over a tree where it needs another; None where it needs more than that."""
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    given: dict[str, Any] = {}
    wanted = {"random_state": 0, "n_estimators": 3, "n_components": 2}
    regresses = "Regress" in estimator.__name__
    tree = (DecisionTreeRegressor if regresses else DecisionTreeClassifier)(max_depth=2, random_state=0)
    for name, parameter in signature(estimator).parameters.items():
        if name in wanted:
            given[name] = wanted[name]
        elif name == "max_iter" and isinstance(parameter.default, (int, type(None))):
            given[name] = 250 if estimator.__name__ == "TSNE" else 20
        elif name in ("estimator", "base_estimator") and parameter.default in (parameter.empty, None):
            given[name] = tree
        elif name == "estimators":
            given[name] = [("tree", tree)]
        elif parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            return None
    return estimator(**given)


def answers(estimator: Any, convert: Callable[[Any], Any]) -> dict[str, Any]:
    """Fit a copy of an estimator, and return all that it answers."""
    from sklearn.base import clone
    from sklearn.utils import get_tags

    x, labels, numbers = tables()
    tags, name = get_tags(estimator), type(estimator).__name__
    regresses = tags.estimator_type == "regressor"
    if name in ("LabelEncoder", "LabelBinarizer"):
        x = labels
    elif tags.input_tags.one_d_array and not tags.input_tags.two_d_array:
        x = x[:, 1]
    elif name == "KernelCenterer":
        x = x @ x.T
    y = numbers if regresses else labels
    if name.startswith(("MultiTask", "PLS", "CCA")) or (
        name.startswith(("MultiOutput", "RegressorChain")) and regresses
    ):
        y = np.stack([y, -y], axis=1)
    elif name in ("MultiOutputClassifier", "ClassifierChain"):
        y = np.stack([y > 0, y > 1], axis=1).astype(int)
    x, y = convert(x), convert(y)
    fitted = clone(estimator)
    alone = name in ("LabelEncoder", "LabelBinarizer")
    fitted.fit(x) if alone else fitted.fit(x, y)
    found: dict[str, Any] = {}
    for method in ASKED:
        ask = getattr(fitted, method, None)
        if ask is not None and not (method == "inverse_transform" and "transform" not in found):
            given = found["transform"] if method == "inverse_transform" else x
            try:
                found[method] = ask(given, y) if method in WITH_Y else ask(given)
            except Exception as error:
                found[method] = type(error).__name__
    for learnt in ("labels_", "embedding_"):
        if hasattr(fitted, learnt):
            found[learnt] = getattr(fitted, learnt)
    return found


def same(theirs: Any, ours: Any) -> bool:
    """Return whether two answers have the same values and dtypes."""
    if hasattr(theirs, "toarray"):
        return same(theirs.toarray(), ours.toarray())
    if isinstance(theirs, (list, tuple)):
        return len(theirs) == len(ours) and all(map(same, theirs, ours))
    if isinstance(theirs, str):
        return bool(theirs == ours)
    a, b = np.asarray(theirs), np.asarray(ours)
    return a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-8, equal_nan=True)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Small fits, of which threads that wait for one another take most of the time."""
    from threadpoolctl import threadpool_limits

    of_kind("other")  # brings all libraries whose threads are limited
    with threadpool_limits(1):
        yield


@pytest.mark.parametrize(("kind", "least"), list(zip(KINDS, (35, 45, 10, 60, 15), strict=True)))
def test_estimators_answer_as_with_numpy(kind: str, least: int, one_thread: None) -> None:
    """Every one that takes NumPy's arrays; errors of single answers are the same too.

    least: fewer than any release of scikit-learn has, so that none is passed over unnoticed.
    """
    differ, agree = {}, []
    for name, estimator in of_kind(kind).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                one = made(estimator)
                wanted = answers(one, np.asarray)
            except Exception:  # NumPy's arrays are not what it takes
                continue
            try:
                found = answers(one, lambda values: xt.asarray(values, copy=True))
            except Exception as error:
                differ[name] = repr(error)
                continue
        wrong = [method for method in wanted if not same(wanted[method], found[method])]
        if wrong:
            differ[name] = ", ".join(wrong)
        else:
            agree.append(name)
    assert not differ
    assert len(agree) >= least, (len(agree), agree)
