"""Masked stores behind branches: the values are those of the text without branches, in loops too."""

from __future__ import annotations

import numpy as np
import pytest

from xtensor.codegen.cpu import compile as compile_
from xtensor.codegen.cpu.masks import branched
from xtensor.run.contractions import address

pytestmark = pytest.mark.skipif(compile_.host() is None, reason="there is no compiler")

# Copies `count` numbers, four at a time; the sum of its turns, which a phi hands on, goes behind them.
COPY = """declare <4 x float> @llvm.masked.load.v4f32.p0(ptr, <4 x i1>, <4 x float>)
declare void @llvm.masked.store.v4f32.p0(<4 x float>, ptr, <4 x i1>)
define void @kernel(ptr %table) {
entry:
  %from = load ptr, ptr %table
  %to.at = getelementptr i64, ptr %table, i64 1
  %to = load ptr, ptr %to.at
  %count.at = getelementptr i64, ptr %table, i64 2
  %count = load i64, ptr %count.at
  br label %some
some:
  %i = phi i64 [0, %entry], [%i.n, %some]
  %turns = phi float [0.0, %entry], [ %turns.n, %some ]
  %left = sub i64 %count, %i
  %left.n = trunc i64 %left to i32
  %one = insertelement <4 x i32> poison, i32 %left.n, i32 0
  %all = shufflevector <4 x i32> %one, <4 x i32> poison, <4 x i32> zeroinitializer
  %mask = icmp slt <4 x i32> <i32 0, i32 1, i32 2, i32 3>, %all
  %from.i = getelementptr float, ptr %from, i64 %i
  %x = call <4 x float> @llvm.masked.load.v4f32.p0(ptr align 4 %from.i, <4 x i1> %mask, <4 x float> zeroinitializer)
  %to.i = getelementptr float, ptr %to, i64 %i
  call void @llvm.masked.store.v4f32.p0(<4 x float> %x, ptr align 4 %to.i, <4 x i1> %mask)
  %turns.n = fadd float %turns, 1.0
  %i.n = add i64 %i, 4
  %more = icmp slt i64 %i.n, %count
  br i1 %more, label %some, label %done
done:
  %end = getelementptr float, ptr %to, i64 %count
  store float %turns.n, ptr %end
  ret void
}"""


@pytest.mark.parametrize("text", [COPY, branched(COPY)])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_whole_and_partial_stores(text: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_, "branched", lambda text: text)
    x, found = np.arange(1, 13, dtype=np.float32), np.full(13, -1, np.float32)
    code = compile_.handmade(text)
    code.call(np.array([address(x), address(found), count], np.int64).tobytes())
    wanted = np.full(13, -1, np.float32)
    wanted[:count], wanted[count] = x[:count], -(-count // 4)
    np.testing.assert_array_equal(found, wanted)


def test_each_store_has_a_plain_one_beside_it() -> None:
    made = branched(COPY)
    assert made.count("call void @llvm.masked.store") == 1
    assert made.count("store <4 x float> %x, ptr %to.i, align 4") == 1
    assert "[%i.n, %masked0.done]" in made and "[ %turns.n, %masked0.done ]" in made
