"""Estimated costs of work, and the sizes from which on one way or another pays: all such figures are here.

They were measured on two cores of an AVX-512 machine; the benchmarks print their effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..base.machine import has_vector_library

if TYPE_CHECKING:
    from .program import Plan, Program, Step

# ---- which way a call goes, by the bytes of its widest operand

# Up to this many bytes on the CPU it is cheaper to call the library's function at once than to record: a recorded step
# costs some 6 us, 17 of a fresh view, and NumPy's 10. For larger arrays NumPy reuses the temporaries of its own
# expressions, which it cannot do in ours.
DIRECT_BELOW = 256 * 1024

# The same for functions that NumPy computes about as fast as generated code does, as the C library keeps the memory of
# results for the next ones (storage/pool.py). (With 64 000 float64 one thread takes for x + y 34 us at once and 92
# recorded, for x * 2 + y 52 and 111, for (x - y) * z + y) * 2 - x 157 and 138. A function like exp takes 340 and 135.)
CHEAP_BELOW = 512 * 1024

# The same for those of them whose results are booleans, in an eighth of the memory of numbers. (100 000 float64 on a
# slow core: x > 0 takes 9 us at once and 35 recorded, the sum of (x > 0) & (x < 1) 69 and 186; 200 000 of them 276 and
# 111.)
NARROW_BELOW = 1 << 20
NARROW = frozenset(
    (
        *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
        *("isnan", "isinf", "isfinite", "signbit"),
    )
)
CHEAP = NARROW | frozenset(
    (
        *("add", "subtract", "multiply", "divide", "negative", "positive", "abs", "square", "sqrt", "reciprocal"),
        *("minimum", "maximum", "floor", "ceil", "trunc", "round", "conj"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "logical_and", "logical_or", "logical_xor"),
        *("logical_not", "sum", "prod", "max", "min", "any", "all", "mean"),
    )
)
# Functions that NumPy computes as fast as generated code does where it has Intel's vector library: on Linux with
# AVX-512. (60 000 float64 take log1p 55 us at once and 76 recorded, cosh 42 and 83; sin is not among them: 304 and 55.)
VECTORISED = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sinh", "cosh", "tanh", "tan", "pow"),
        *("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2", "cbrt"),
    )
)
# The limits that are actually used, for those functions and for others: lists of one element, which tests set so that
# every array counts as large.
cheap_below, narrow_below, costly_below = [CHEAP_BELOW], [NARROW_BELOW], [DIRECT_BELOW]


def is_cheap(name: str) -> bool:
    """Return whether NumPy computes a function about as fast as generated code does, by its name."""
    return name in CHEAP or (name in VECTORISED and has_vector_library())


def limit_of(name: str) -> list[int]:
    """Return the limit of a function, by its name."""
    return narrow_below if name in NARROW else cheap_below if is_cheap(name) else costly_below


# Operators and indexings after which tensors get machine code for them: it is loaded in 60 ms, less if kernels have
# been compiled, and saves half a microsecond each time. No other thread loads it: in a loop of small calls that would
# wait for the interpreter's lock for seconds.
THIN_CALLS = 20_000

# Up to this many bytes NumPy's own function costs less than the calls of a composition of the same name: where
# generated code computes faster, where both traverse memory equally often, and where NumPy does so once and a
# composition twice. (With 30 000 float64 nanmean takes 34 us by NumPy and 63 composed, pad 11 and 25, insert 8 and 20;
# sinc 521 and 194, kron 267 and 87. With a million nanmax takes 90 and 210.)
COMPOSED_BELOW = 32 * 1024
LIBRARY_BELOW = 512 * 1024
TWICE_BELOW = 1 << 24

# Up to this many bytes NumPy's stable sort costs less than finding out whether another would do.
STABLE_BELOW = 2048

# Pending work on arrays of at most this many bytes costs less if each step is called at once than if it is planned.
DIRECT_BYTES = 32 * 1024

# From so many bytes on the result of an operator takes the memory of an operand that nothing else holds, as in NumPy.
# (2 * x + y of 60 000 float64 takes 65 us in new memory, which no second-level cache holds as well, and 30 otherwise.)
ELIDED = 256 * 1024

# Up to this many bytes on another device than the CPU a call is launched at once: recording and planning it costs the
# host as much as several launches, of some 10 us each, and moving three such arrays takes the device less than that.
LAUNCHED_BELOW = 4 << 20

# Bytes from which on a launch takes less time than the library for calls that cannot wait, for such calls of cheap
# functions, and for fast reductions and cheap functions in place. (The launch of a sum of 200 000 float64 takes 25 us
# in addition to the 70 that both NumPy and the kernel need.)
LAUNCH_PAYS, CHEAP_LAUNCH_PAYS, FAST_LAUNCH_PAYS = 512 * 1024, 2 << 20, 4 << 20

# Bytes from which on the lines of a Fourier transform are shared among threads, which costs 60 to 90 us an axis.
SHARED_TRANSFORM = 1 << 20

# In-place work on more bytes goes through the engine in one pass; cheap functions, if nothing is pending, from
# FAST_LAUNCH_PAYS on. (`z += c` on 160 000 and 320 000 float64 takes NumPy 40 and 80 us, and the engine 110 and 160.)
# On less, pending operands are computed into their own memory, in half the time that planning a pass into given memory
# takes, where it would be planned each time.
LARGE_UPDATE = 1 << 20

# ---- what may stay pending

# The fraction of free memory that pending work alone may keep alive. The free memory is determined again after each
# ASK_BYTES: that takes 0.2 milliseconds, in which NumPy computes a hundredth of these bytes.
FREE_PART, ASK_BYTES = 0.5, 128 << 20

# The most steps of one graph in a fused function, which is planned only once.
CAPTURED_STEPS = 4096

# Steps of a fused function that are recorded from its first call on, and the seconds that one takes, some hundred times
# as long as a plain step on small arrays: a function that is called once should not wait for work that only pays with
# more calls. (A loop of 1700 statements on 24 x 24 float64: .3 ms each, where plain ones take 4 us; a fluid solver's
# step of 1141 statements, 309 of them different: .1 ms on a fast core, .25 on a slow one.)
FIRST_STEPS, CAPTURING = 128, 3e-4

# Multiplications up to which machine code calls a matrix product, between kernels: interrupts wait for it, some 10 ms.
# (Entered by Python, one costs 40 us more on a fast core, 130 on a slow one, where 512 x 64 x 256 take as long.) The
# same for a matrix with a vector, and the most products of a stack that are called like this.
NATIVE_PRODUCT, NATIVE_VECTOR, NATIVE_PRODUCTS = 1 << 30, 1 << 24, 64

# Seconds of a product that another thread is worth, as each packs its operands. Products of a stack for each thread,
# beyond which threads take whole ones, however many are left for the last; lengths by which products are cut.
PRODUCT_SHARED, STACK_SHARED, PART_OF_PRODUCT = 8e-6, 4, 16

# Rows, and right sides, up to which machine code calls factorisations, and how many of a stack; the extra seconds of
# one by the library's function. (4 x 4: 12 us by that, 1 by machine code.)
NATIVE_FACTOR, NATIVE_FACTORS, FACTORED = 64, 64, 1e-5

# Bytes of indexed elements up to which machine code moves them, and seconds of the library's call. The most indices of
# single elements that it moves, and the elements of a row from which on it moves any number of rows. (20 000 elements
# take .6 of NumPy's time, 100 000 twice that; 500 rows of 500 the same.)
NATIVE_INDEXED, INDEXED = 1 << 22, 3e-6
NATIVE_INDICES, INDEXED_ROWS = 1 << 14, 16

# The most classes that machine code checks, one by one: interrupts wait for it, a millisecond.
CHECKED = 1 << 20

# Seconds for one element of a running sum, which waits for the one before.
RUNNING_SECONDS = 1.2e-9

# ---- when a program is compiled

# Seconds that library calls for a program must have taken, by estimate, before it is worth compiling.
COMPILE_SECONDS = 0.002

# Elements from which on a program that comes a second time is compiled, whatever library calls take: it comes often.
COMPILED_AGAIN = 100_000

# Seconds for preparing a schedule.
PREPARE_SECONDS = 0.0004

# Seconds of library calls up to which a statement of a captured function makes them each time: running a schedule takes
# as long.
CALLED_SECONDS = 0.00005

# Seconds of a library call for one element: per byte it moves, and in addition if it computes a function.
SECONDS_PER_BYTE, SECONDS_PER_FUNCTION = 0.12e-9, 2e-9

# The names of functions that generated code computes by polynomials; codegen/cpu/math.py enters them.
FUNCTIONS: set[str] = set()


def library_seconds(program: Program) -> float:
    """Estimate the seconds that the library's own functions take for one element of a program."""
    each: float = 0.0
    for step in program.steps:
        each += 3 * step.dtype.itemsize * SECONDS_PER_BYTE
        each += SECONDS_PER_FUNCTION * (step.op.name in FUNCTIONS)
    each += sum(reduction.dtype.itemsize for reduction in program.reductions) * SECONDS_PER_BYTE
    return each


# ---- generated code

# Values alive at once up to which vectors of two registers pay in a loop with functions. (With 22 they save a fifth of
# the time; the equation of state of sea water, with 37, takes a tenth more.)
ALIVE_TWICE = 28

# Cheap steps and results of the largest loops: code of more steps does not fit the processor's own caches, and memory
# that is written at more places at once takes up to four times as long.
LOOP_STEPS, LOOP_RESULTS = 2048, 32

# How often loops over columns may compute the steps of an expression, as values used in several loops are recomputed.
COLUMNS_AGAIN = 2

# Values of rows that later sums over all rows need are recomputed from up to so many arrays in memory, as writing and
# reading them moves as many bytes, by so many steps at most.
MADE_AGAIN, STEPS_AGAIN = 2, 16

# How many times as long steps of complex numbers and of float16 take, by kind and bytes.
SLOW_KINDS = {"c": 6, "f2": 8}

# The most steps of several statements that become one kernel.
MERGED_STEPS = 128

# So many values fit into registers at once, whatever the order of steps.
REGISTERS = 32

# Picoseconds in which vectorised code computes one byte of a step, with 4 and with 8 bytes an element: of costly
# operations, of other functions, and of all else. A reduction takes longer, as it waits for itself.
COSTS = {
    **dict.fromkeys(("exp", "exp2", "expm1"), (30, 40)),
    **dict.fromkeys(("sin", "cos"), (40, 52)),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), (40, 60)),
    "tanh": (60, 100),
    "pow": (90, 160),
    **dict.fromkeys(("divide", "sqrt", "reciprocal"), (10, 18)),
    **dict.fromkeys(("floor_divide", "remainder"), (27, 140)),
}
FUNCTION_COSTS, CHEAP_COSTS, REDUCING_COST = (70, 90), (2.5, 2.5), 10


# Bytes that one thread moves per second: to and from memory, and within the caches while all data fits there.
MEMORY_SPEED, CACHE_SPEED = 45e9, 100e9
CACHE_BYTES = 8 << 20

# Outputs of more bytes than this, which the last-level cache cannot hold, are written past the caches; but not rows of
# fewer bytes than the second number, as rows share cache lines where they meet, which go through the caches.
STREAM_BYTES, STREAM_ROW = 24 << 20, 1024

# How many bytes ahead of its reads a loop prefetches memory; where rows are not contiguous, so many rows ahead, in
# parts of at most so many bytes, if there are many rows. (A stencil over 10 million numbers takes 4 % less time than
# with whole rows and AHEAD bytes.)
AHEAD = 2048
AHEAD_ROWS, ROW_PART, MANY_ROWS = 4, 8192, 64

# How many bytes ahead each of many rows is prefetched while it is transposed or packed. (With AVX2 a 1x1 convolution of
# 64 channels of 56 x 56 takes .86 of the time, the gradient of its weights .74.)
ROWS_AHEAD = 512

# That of the products' panels, which follow each other: with weights that stay in a last-level cache only, Winograd's
# convolutions take .85 to .93 of the time on a Xeon.
PANELS_AHEAD = 2048

# Bytes of the parts in which large results are written from the last to the first. (Centring 10 million float32 by
# kernels takes 3 to 15 % less time.)
BACKWARDS = 2 << 20

# Elements of a strip of operands that are gathered across rows.
CROSS_STRIP = 512

# Bytes of a vector: if rows are shorter, and there are eight times as many as columns, loops go along columns; elements
# of a strip of columns, which stay in the cache until the next column. (60 000 points of three float32 minus their
# centre: 950 us by rows, 66 by columns; NumPy 585. Of four float64: 150 by rows, 240 by columns.)
SHORT_ROW, COLUMN_STRIP = 32, 4096

# The longest row, in bytes of one operand, that is worth taking through all kernels: it has to stay in the cache from
# stage to stage. Rows further ahead are prefetched if they are no longer than ROW_NEAR and all together than ROW_FAR:
# processors prefetch only within a row. (Layer norm of 10 000 x 1000 takes .85 of the time in float32, .53 in float64,
# softmax 1.02 and .9; with the next row alone .94, .7, 1.02 and .89. What fits the last-level cache takes longer.)
ROW_BYTES, ROW_NEAR, ROW_FAR = 256 * 1024, 16 * 1024, 24 << 20

# Columns run strip by strip from so many columns and elements on. Bytes of a strip's row if arrays come from memory
# (centring 10000 x 1000 float64 takes a quarter less time than by kernels; with strips of 128 and 512 bytes less is
# gained); of a strip if arrays lie in the caches, and of an array up to which they do.
COLUMNS_LEAST, COLUMNS_CELLS = 64, 32 * 1024
STRIP_BYTES, STRIP_NEAR_BYTES, COLUMNS_NEAR = 192, 256 * 1024, 4 << 20

# Bytes of an array from which columns pay although kernels go through it only twice, and of a strip on its way.
COLUMNS_FAR, STRIP_MOST = 48 << 20, 5 << 19

# Elements of a strip of accumulators, which stay in the first-level cache; partial results that one thread combines.
FOLD_STRIP, JOINED_ALONE = 4096, 1 << 16


def seconds_of(program: Program, size: int, traffic: int | None = None) -> float:
    """Estimate how long one thread takes for a program over so many elements.

    traffic: bytes that one element moves, None for those of packed operands.
    """
    return max(moving_seconds(size * (program.traffic if traffic is None else traffic)), size * program.seconds)


def moving_seconds(nbytes: int) -> float:
    """Estimate how long one thread takes to move so many bytes."""
    return nbytes / (CACHE_SPEED if nbytes <= CACHE_BYTES else MEMORY_SPEED)


def picoseconds(step: Step, known: Mapping[int, Any]) -> float:
    """Estimate the picoseconds of vectorised code for one element of a step; powers of known exponents are products."""
    is_product = step.op.name == "pow" and step.args[1] in known
    return picoseconds_of("multiply" if is_product else step.op.name, step.dtype.itemsize)


def picoseconds_of(name: str, size: int) -> float:
    """Estimate the picoseconds of vectorised code for one element of a step of this name. size: bytes of its result."""
    return size * COSTS.get(name, FUNCTION_COSTS if name in FUNCTIONS else CHEAP_COSTS)[size == 8]


def code_size(name: str) -> float:
    """Estimate the code size of a step of this name, in cheap steps."""
    return COSTS.get(name, FUNCTION_COSTS)[1] / CHEAP_COSTS[1] if name in FUNCTIONS else 1


# ---- small arrays in fused functions, in seconds

# What a captured call costs besides its schedule: for its look-up; for each tensor that it reads, result that it makes,
# and list, dict and object that it looks into, number that is an input, and value that it leaves elsewhere. (With 1000
# float64: 7 us where it writes in place, 10 and 13 with one result and two, 40 to 60 of a method that rebinds three
# things.)
REPLAY, ARGUMENT, RESULT, LOOKED = 3e-6, 1.2e-6, 2e-6, 5e-6

# Bytes of NumPy arrays, compared with their contents in earlier calls, that take as long as LOOKED.
COMPARED = 150_000

# The same for calls that machine code dispatches: for all but the kernels themselves; for each tensor and result.
DISPATCH, DISPATCHED = 0.7e-6, 0.1e-6

# What such a call saves where its work could be shared among threads, as only calls found in Python do. (With AVX2
# `x * 2 + y` of 100 000 float64 takes 43 us on one thread, and 110 found in Python on two; the mean of (x - y)**2 24
# and 90.)
DISPATCH_SAVES = 40e-6

# The overhead of a library function in a plain call, and if machine code calls it; the bytes of its results up to which
# machine code calls it, as these are copied to where later steps read them, in some 10 us.
LIBRARY, CALLBACK, CALLBACK_BYTES = 2e-6, 2.5e-6, 1 << 17

# The extra cost of a library call between two runs of kernels, and of copying a view at computed places over making it.
BETWEEN, SHOWN = 6e-6, 1e-5

# Calls of a kind of a captured function after which the machine code that dispatches calls is compiled, if it is not
# there yet: that takes 30 ms, and each call then saves 10 us.
EXCHANGED_AFTER = 1024

# Calls of a composition of a kind after which it runs as a captured function. (Step by step calls on small arrays take
# 25 to 150 us, and 300 more with a gradient; captured 3 to 30, and 100; preparing takes some 5 ms, 60 if machine code
# is not on the disk yet.)
PREPARED_AFTER = 64

# Bytes of operands up to which a composition runs as a captured function, at once: on more, what stands before and
# after it in the same kernels saves more than the planning of its steps costs, some 100 us.
COMPOSED_AT_ONCE = 2 << 20

# Bytes of operands up to which a convolution or a pool does so: code for larger ones goes on with steps that follow,
# or keeps its weights laid out.
SMALL_LAYER = 1 << 16

# The extra cost of a convolution and its kin outside of a schedule, in which nothing is checked and chosen. (Two of 2 x
# 12 x 10 x 11 by 3 x 3 with the steps between them: 137 us, 92 in a schedule.)
PREPARED = 2e-5

# The least cost of a plain gradient for each step of its tape besides its calls: for recording it, and for its way
# back. (Of 100 float64: 100 us in all for a sum of squares, 550 for each `u[1:-1] = 0.5 * (u[2:] + u[:-2])`.)
TAPED = 1e-5

# Rows of a map below which a plain gradient takes them one by one: that takes .3 ms each for a network of three
# functions, whereas watching the first one and repeating its steps over all takes 2.5 ms.
FEW_ROWS = 8

# Costs of small arrays in seconds. Library calls: for each (some take twice that), for reducing along axes, for a view
# of an argument, for a byte that an element moves within the cache, and for a function of 4 bytes (of 8, four times
# that). A schedule: for a run, for each kernel, for one that reduces other axes than the last, for a byte, and the
# fraction of `Program.seconds` that well compiled kernels take.
CALL, REDUCTION, VIEW, BYTE, FUNCTION = 0.9e-6, 3e-6, 1e-6, 0.015e-9, 0.45e-9
RUN, LAUNCH, FOLD, MOVED, PART = 1.8e-6, 0.3e-6, 0.5e-6, 0.01e-9, 1 / 3


def calls_seconds(plan: Plan, elements: int, calls: int, views: int) -> float:
    """Estimate the seconds of library calls on small arrays. views: the number of views of arguments in addition."""
    seconds = calls * CALL + views * VIEW
    for kernel in plan.kernels:
        for step in kernel.program.steps:
            seconds += CALL * (step.op.name in ("astype", "where"))
            size = step.dtype.itemsize
            each = 3 * size * BYTE + (step.op.name in FUNCTIONS) * FUNCTION * (size / 4) ** 2
            seconds += elements * each
        seconds += len(kernel.program.reductions) * REDUCTION
    return seconds


def kernels_seconds(plan: Plan, elements: int, values: Sequence[Any] | Mapping[int, Any]) -> float:
    """Estimate the seconds of a schedule's kernels on small arrays."""
    seconds = RUN
    for kernel in plan.kernels:
        last = len(values[kernel.domain].shape) - 1
        folds = bool(kernel.axes) and last not in kernel.axes
        each = kernel.program.traffic * MOVED + kernel.program.seconds * PART
        seconds += LAUNCH + folds * FOLD + elements * each
    return seconds


# ---- contractions

# Multiplications from which on the code of a contraction is worth compiling.
CONTRACTION_COMPILED = 1 << 23

# Calls of the same kind of a convolution after which code is compiled for fewer multiplications: they took the library
# and Python 100 us each and more, the code 20.
CALLS_COMPILED = 16

# Bytes of B that are packed at a time, by the bytes of a register: for half of a core's own cache of 1 MiB, or, where
# that is smaller, for the last-level one, from which B is read fast enough; A is packed again for each part of B.
PACKED_BYTES = {16: 640 * 1024, 32: 3 << 19, 64: 640 * 1024}

# CONTRACTION_COMPILED for integers, whose loops in NumPy take a nanosecond each; seconds of one in generated code.
INTEGERS_COMPILED, INTEGER_SECONDS = 1 << 20, 3e-11

# Elements of matrices below which the multiplications of their product are not even counted.
PRODUCT_LEAST = 1 << 10

# Multiplications from which on a contraction is recorded, to be joined with later steps: recording it and finding its
# plan takes 10 us, a fiftieth of the time of as many multiplications on two cores.
CONTRACTION_WAITS = 1 << 24

# Seconds of a multiplication in a matrix product on one thread, by the character of its dtype; the fraction by which
# ours takes longer than the library's, and the seconds for preparing it. (A bias and a rectifier with float32 products
# of 8192 x 128 x 512 take .88 of the time of the library's and a pass over its result, of 1024 x 1024 x 1024 1.02.)
PRODUCT_SECONDS, PRODUCT_SLOWER, PRODUCT_CALL = {"f": 1e-11, "d": 2e-11}, {"f": 0.05, "d": 0.08}, 60e-6

# Multiplications from which on attention runs in tiles. (On one thread 12 heads of 64 x 64 take .5 ms step by step.)
ATTENTION_TILED = 1 << 22

# Elements of a row up to which kernels for argmax and argmin take less time than the library, which vectorises rows.
SEARCHED_BELOW = 32

# Bytes up to which the library's own argmax and argmin along columns take less time than recording the six steps of
# their compositions, some 100 us.
SEARCHED_AT_ONCE = 1 << 20

# Multiplications from which on a sum of products becomes a matrix product: NumPy's loops over axes take ten times that.
EINSUM_MULTIPLIED = 1 << 16

# Columns up to which a product is computed along rows, and the terms, rows and multiplications from which on.
THIN_COLUMNS, THIN_DEPTH, THIN_ROWS, THIN_LEAST = 8, 32, 64, 1 << 18

# The longest side of the matrices of a stack whose product is compiled for their lengths, the multiplications from
# which on that pays, and those that are added for each matrix, as the library is called for each.
STACK_LARGEST, STACK_COMPILED, STACK_CALL = 64, 1 << 18, 256

# ---- convolutions

# Limits for convolutions by strips if channels come first: of channels or outputs, and of both in one of several
# groups. More outputs count as few if positions of a row fill so many times as much of a register.
FEW, GROUPED, FILLED = 4, 16, 1.4

# Registers, sums in them, and the most registers of outputs, by whether registers have 64 bytes. The most elements of a
# window whose sums the gradient has at a time, also if these share sets of the first-level cache, as they do at
# distances of multiples of WAY_BYTES. (Caches of processors with AVX-512 have 12 ways: 14 windows of 64 channels, and
# 12 of 1024 instead of 8, take .93 to .95 of the time of 12 and 8. With AVX2, 4 registers of outputs instead of 2: 3x3
# from 3 channels to 32, which come last, .79, 5x5 of 32 .93.)
REGISTERS_THERE, SUMS, OUTPUT_REGISTERS = (16, 32), (12, 28), (4, 3)
TERMS, WAYS, WAY_BYTES = (12, 14), (8, 12), 4096

# Bytes of outputs of a gradient's strip that are read for each block of a window, from the first-level cache. All sums
# are read and written for each strip. (With half as many, the gradient of 3x3 from 3 channels to 64 takes 1.2 times as
# long.)
NEAR_BYTES = 1 << 14

# For convolutions that read registers of positions in place: the most of these at a time, and the most positions that
# may be computed, relative to those that exist. (1x1 layers of 56 x 56 take .82 to .93 of the time of packed products;
# with AVX2 1.0, and of 14 x 14 1.3.)
IN_PLACE_REGISTERS, IN_PLACE_WASTE = 2, 1.2

# Bytes of input under a row of outputs, for channels that come last in thin groups, that stay in the first-level cache
# for the next row, by whether registers have 64 bytes; and of all channels in the next cache, for some rows.
CHANNELS_NEAR, CHANNELS_BAND = (28 * 1024, 44 * 1024), 1 << 18

# Bytes of their inputs and outputs from which on all channels of a row are computed at a time, with prefetched lines:
# for fewer bytes that takes 1.05 to 1.3 of the time, for more .5 to 1, the less the busier memory is.
CHANNELS_FETCHED = 1 << 24

# Additions to different sums that fit into the latency of one.
WAITING = 10

# The most elements from one column of y to the next.
FARTHEST = 8

# What a region of a convolution, whose windows have the same elements inside the input, costs besides its
# multiplications: along each axis as much as so many more outputs, and in all as so many more multiplications. An axis
# is divided, for windows of at most so many elements, where that leaves at most this part of the time: by outputs, and
# by elements, each of which copies its input again.
REGION_OUTPUTS, REGION_WORK, REGIONS_LARGEST, REGIONS_PAY = 2, 1 << 18, 16, (0.97, 0.85)

# Copying a strip's input takes as much time as computing so many outputs, and this part of that of a gradient of
# weights. The fewest positions of one of the lanes in which that is summed up: to set a lane to zero and add it to
# others takes as much time as some 150 positions.
COPIED_OUTPUTS, COPIED_AGAIN, LANE_POSITIONS = 1.0, 0.03, 1536

# Bytes of the rows under a strip that stay in the second-level cache with all else.
ROOM_BYTES = 1 << 18

# Elements of a window of few channels, which come first, from which on the gradient of weights transposes them, as it
# does many. (7x7 from 3 channels, stride 2, takes .83 of the time, 11x11 from one .5, 3x3 from 3, stride 2, 1.2.)
TRANSPOSED_ELEMENTS = 48

# Bytes of a gradient of weights from which on it is computed by matrix products: by whether registers have 64 bytes, if
# channels come first and last. (Compared to strips, with AVX2: 3x3 of 128 channels, stride 2, .75 of the time and .83;
# 1x1 from 64 channels to 256 .7 and 1.1, 7x7 of 3 channels .75 and 1.1.)
WEIGHT_BYTES = {False: (1 << 15, 1 << 19), True: (5 << 17, 5 << 17)}

# That number for windows of single elements at fewer positions than this. (From 672 channels to 112 on 1568 positions
# .7 of the time, from 400 to 120 on 64 positions .3.)
FEW_WEIGHT_BYTES, FEW_POSITIONS = 1 << 17, 2560

# Positions of a strip of single elements from which on packing the weights pays.
POSITIONS = 1 << 11

# Bytes of transformed inputs and products of a chunk of tiles of a Winograd convolution; but at least this part of the
# bytes of its weights, all of which are read for each chunk. (256 channels of 14 x 14, with 1/2 instead of 1/6: .68 of
# the time on a Xeon with own caches of 2 MB.)
WINOGRAD_CHUNK, WINOGRAD_OF_WEIGHTS = 768 * 1024, 1 / 2

# Seconds of one thread for each byte of a number multiplied, of windows packed, or read in rows of positions for few
# outputs, of tiles transformed to and fro, and of weights transformed.
MULTIPLIED, PACKED, READ_IN_ROWS, TRANSFORMED, WEIGHTS_TRANSFORMED = 2.3e-12, 40e-12, 12e-12, 33e-12, 127e-12

# Those for each byte of the transformed sums of a gradient, which are set to zero, added up and transformed back: fewer
# bytes than a number, and more. The fewest tiles of one of the lanes in which a gradient is summed up: its sums take as
# much time as some 50. (128 channels of 7 x 7, 8 images: one lane takes .23 of the time of 8.) Fewer where outputs are
# too few for threads to share them.
SUMS_NEAR, SUMS_TRANSFORMED, LANE_TILES = 8 << 20, (100e-12, 300e-12), (1 << 10, 192)


# Bytes of a result of a contraction up to which steps that follow are a kernel beside it, in the same call of machine
# code, rather than computed in its registers, which Python enters.
ENDED_APART = 1 << 18


def products_seconds(
    groups: int, channels: int, outputs: int, positions: int, window: int, itemsize: int, *, in_rows: bool = False
) -> float:
    """Estimate the seconds of one thread for a convolution as products; channels and outputs are those of a group.

    in_rows: whether channels come first; then kernels for few outputs go over rows of positions.
    """
    windows = groups * channels * window * positions * itemsize
    in_rows = in_rows and groups == 1 and outputs <= FEW
    return windows * (outputs * MULTIPLIED + (READ_IN_ROWS if in_rows else PACKED))


def winograd_seconds(
    groups: int, channels: int, outputs: int, tiles: int, elements: int, itemsize: int, *, gradient: bool = False
) -> float:
    """Estimate the seconds of one thread for a convolution by tiles, each of which has so many transformed elements, or
    for its gradient of weights.
    """
    lanes = 64 // itemsize
    channels, outputs = (-(-n // lanes) * lanes for n in (channels, outputs))
    each = groups * elements * itemsize
    products = tiles * (channels * outputs * MULTIPLIED + (channels + outputs) * TRANSFORMED)
    of_weights = SUMS_TRANSFORMED[each * channels * outputs > SUMS_NEAR] if gradient else WEIGHTS_TRANSFORMED
    return each * (products + channels * outputs * of_weights)
