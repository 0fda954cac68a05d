"""What work is estimated to cost, and from which sizes on which way pays: every such figure stands here.

They were measured on two cores of an AVX-512 machine; the benchmarks print what they lead to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .program import Plan, Program, Step

# ---- which way a call goes, by the bytes of its widest operand

# Up to this many bytes on the CPU the library's own function at once is cheaper than recording: a recorded step costs
# some 6 us, of a fresh view 17, and NumPy's 10. From here on NumPy computes into temporaries of its own expressions,
# which it cannot see in ours.
DIRECT_BELOW = 256 * 1024

# The same of functions that NumPy computes about as fast as generated code does, as the C library keeps memory of its
# results for the next ones (storage/pool.py). (With 64 000 float64 one thread takes for x + y 34 us so and 92 recorded,
# for x * 2 + y 52 and 111, for (x - y) * z + y) * 2 - x 157 and 138. A function like exp takes 340 and 135.)
CHEAP_BELOW = 512 * 1024
CHEAP = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "negative", "positive", "abs", "square", "sqrt", "reciprocal"),
        *("minimum", "maximum", "less", "less_equal", "greater", "greater_equal", "equal", "not_equal"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "logical_and", "logical_or", "logical_xor"),
        *("logical_not", "isnan", "isinf", "isfinite", "signbit", "floor", "ceil", "trunc", "conj"),
        *("sum", "prod", "max", "min", "any", "all", "mean"),
    )
)
# The same for whoever asks, of those functions and of others: lists of one element, by which tests let every array
# count as a large one.
cheap_below, costly_below = [CHEAP_BELOW], [DIRECT_BELOW]

# Operators and indexings after which tensors get machine code for them: it is loaded in 60 ms, less where kernels have
# been compiled, and saves half a microsecond of each. Not by a thread aside: in a loop of small calls that would wait
# for the interpreter's lock for seconds.
THIN_CALLS = 20_000

# Up to this many bytes NumPy's own function costs less than the calls that a composition under its name is made of:
# where generated code computes faster, where both go over memory alike, and where NumPy does so once and a composition
# twice. (With 30 000 float64 nanmean takes 34 us so and 63 composed, pad 11 and 25, insert 8 and 20; sinc 521 and 194,
# kron 267 and 87. With a million nanmax takes 90 and 210.)
COMPOSED_BELOW = 32 * 1024
LIBRARY_BELOW = 256 * 1024
TWICE_BELOW = 1 << 24

# Pending work on arrays of at most so many bytes costs less when each step is called at once than when it is planned.
DIRECT_BYTES = 32 * 1024

# Up to this many bytes on another device than the CPU a call is launched at once: to record and to plan it costs the
# host as much as several launches, of some 10 us each, and to move three such arrays takes the device less than that.
LAUNCHED_BELOW = 4 << 20

# Bytes from which on a launch takes less time than the library for what cannot wait, for cheap functions of that, and
# for fast reductions and cheap functions in place. (The launch of a sum of 200 000 float64 takes 25 us besides the 70
# that NumPy and it need.)
LAUNCH_PAYS, CHEAP_LAUNCH_PAYS, FAST_LAUNCH_PAYS = 512 * 1024, 2 << 20, 4 << 20

# Bytes from which on the lines of a Fourier transform are shared out, which costs 60 to 90 us an axis.
SHARED_TRANSFORM = 1 << 20

# In-place work on more bytes goes through the engine in one pass: of cheap functions, where nothing is pending, from
# FAST_LAUNCH_PAYS on. (`z += c` on 160 000 and 320 000 float64 takes NumPy 40 and 80 us, and 110 and 160 so.) On less,
# what is pending is computed aside, in half the time that a pass into given memory takes to be planned, where it would
# be planned each time.
LARGE_UPDATE = 1 << 20

# ---- what may stay pending

# The part of free memory that pending work alone may keep alive. What is free is asked each time so many bytes have
# come: 0.2 milliseconds, in which NumPy computes a hundredth of them.
FREE_PART, ASK_BYTES = 0.5, 128 << 20

# Steps that a fused function may have: what it computes is planned once.
CAPTURED_STEPS = 4096

# Steps that are taken down of a fused function from its first call on, and seconds that one takes, some hundred times
# of what it takes plainly where arrays are small: who calls a function once is not to wait for what only more calls
# repay. (A loop of 1700 statements on 24 x 24 float64: .3 ms each, where plain ones take 4 us.)
FIRST_STEPS, CAPTURING = 128, 5e-4

# Multiplications up to which a product of matrices is called by machine code, between kernels: of more, Python's part,
# some 40 us with the kernels before and after it, does not count. Of a matrix with a vector, each of which reads memory
# once, it counts up to more; and how many products of a stack are called so.
NATIVE_PRODUCT, NATIVE_VECTOR, NATIVE_PRODUCTS = 1 << 20, 1 << 24, 64

# Rows, and right sides, up to which factorisations are called so, and how many of a stack; what one costs more by the
# library's function than so. (4 x 4: 12 us, 1 so.)
NATIVE_FACTOR, NATIVE_FACTORS, FACTORED = 64, 64, 1e-5

# Bytes of elements at indices up to which machine code moves them, and seconds of the library's call. Indices up to
# which single elements are moved so, and elements of each index from which on any number of rows are. (20 000 elements
# take .6 of NumPy's time, 100 000 twice that; 500 rows of 500 the same.)
NATIVE_INDEXED, INDEXED = 1 << 22, 3e-6
NATIVE_INDICES, INDEXED_ROWS = 1 << 14, 16

# Seconds of one element of a running sum, each of which waits for the one before.
RUNNING_SECONDS = 1.2e-9

# ---- when a program is compiled

# Seconds that library calls must be expected to have taken for a program before it is worth compiling.
COMPILE_SECONDS = 0.002

# Elements from which on what comes a second time is compiled, whatever library calls take: it will come more often.
COMPILED_AGAIN = 100_000

# Seconds in which a schedule is prepared.
PREPARE_SECONDS = 0.0004

# Seconds of library calls up to which they are made for a statement of a function that is captured, each time it comes:
# to run a schedule takes as long.
CALLED_SECONDS = 0.00005

# What a library call spends on one element: per byte it moves, and more where it computes a function.
SECONDS_PER_BYTE, SECONDS_PER_FUNCTION = 0.12e-9, 2e-9

# The names of functions that generated code computes by polynomials; codegen/cpu/math.py enters them.
FUNCTIONS: set[str] = set()


def library_seconds(program: Program) -> float:
    """Estimate what the library's own functions take for one element of a program."""
    each: float = 0.0
    for step in program.steps:
        each += 3 * step.dtype.itemsize * SECONDS_PER_BYTE
        each += SECONDS_PER_FUNCTION * (step.op.name in FUNCTIONS)
    each += sum(reduction.dtype.itemsize for reduction in program.reductions) * SECONDS_PER_BYTE
    return each


# ---- generated code

# Values needed at once up to which vectors of two registers pay, as a loop with functions has them. (With 22 it takes a
# fifth less time; the equation of state of sea water, with 37, a tenth more.)
ALIVE_TWICE = 28

# Cheap steps and results of the largest loops: code of more steps does not fit the processor's own caches, and memory
# that is written at more places at once takes up to four times as long.
LOOP_STEPS, LOOP_RESULTS = 2048, 32

# How often a loop over columns may make the steps of its expression: what is used in several loops is made in each.
COLUMNS_AGAIN = 2

# What sums over all rows take of the rows that were computed before is made again of up to so many arrays in memory, as
# to write and read it moves as many bytes, by so many steps at most.
MADE_AGAIN, STEPS_AGAIN = 2, 16

# Steps of several statements up to which they are one kernel.
MERGED_STEPS = 128

# So many values are at hand at once, whatever the order of steps.
REGISTERS = 32

# Picoseconds in which vectorised code computes one byte of a step, with 4 and with 8 bytes an element: of what costs
# more than an addition, of other functions, and of all else. A reduction takes longer, as it waits for itself.
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


# What one thread moves per second: to and from memory, and within the caches while all of it fits there.
MEMORY_SPEED, CACHE_SPEED = 45e9, 100e9
CACHE_BYTES = 8 << 20

# Outputs of more bytes than the last-level cache holds are written past the caches; rows of fewer bytes are not: the
# lines where they meet are shared, and go through the caches.
STREAM_BYTES, STREAM_ROW = 24 << 20, 1024

# Bytes between what a loop reads from memory and what it has fetched for later; where rows do not follow each other in
# memory, so many rows of parts of at most so many bytes, where there are many. (A stencil over 10 million numbers takes
# 4 % less time than with whole rows and bytes.)
AHEAD = 2048
AHEAD_ROWS, ROW_PART, MANY_ROWS = 4, 8192, 64

# Bytes between what is turned or packed and what is fetched for later, of each of many rows. (With AVX2 a 1x1
# convolution of 64 channels of 56 x 56 takes .86 of the time, the gradient of its weights .74.)
ROWS_AHEAD = 512

# Bytes of the pieces in which large results are written from the last to the first. (Centring
# 10 million float32 by kernels takes 3 to 15 % less time.)
BACKWARDS = 2 << 20

# Elements of a strip of operands gathered crosswise.
CROSS_STRIP = 512

# Bytes of vectors: where rows are shorter than one, and there are eight times as many, loops go along columns; elements
# of a strip of these, which stay in the cache until the next column is taken. (60 000 points of three float32 less
# their centre: 950 us by rows, 66 by columns; NumPy 585. Of four float64: 150 by rows, 240 by columns.)
SHORT_ROW, COLUMN_STRIP = 32, 4096

# The longest row, in bytes of one operand, that is worth taking through all kernels: it has to stay in the cache from
# stage to stage. Rows further on are fetched where they are shorter, and all of them are more bytes: processors look
# ahead within a row and no further. (Layer norm of 10 000 x 1000 takes .85 of the time in float32, .53 in float64,
# softmax 1.02 and .9; with the next row alone .94, .7, 1.02 and .89. What fits the last-level cache takes longer.)
ROW_BYTES, ROW_NEAR, ROW_FAR = 256 * 1024, 16 * 1024, 24 << 20

# Columns run strip by strip from so many columns and elements on. Bytes of a strip's row where arrays come from memory
# (centring 10000 x 1000 float64 takes a quarter less time than by kernels; with strips of 128 and 512 bytes less is
# gained); of a strip where arrays lie in the caches, and of an array up to which it does.
COLUMNS_LEAST, COLUMNS_CELLS = 64, 32 * 1024
STRIP_BYTES, STRIP_NEAR_BYTES, COLUMNS_NEAR = 192, 256 * 1024, 4 << 20

# Bytes of an array from which columns pay although kernels go through it only twice, and of a strip on its way.
COLUMNS_FAR, STRIP_MOST = 48 << 20, 5 << 19

# Elements of a strip of accumulators, which stay in the first-level cache; partial results that one thread joins.
FOLD_STRIP, JOINED_ALONE = 4096, 1 << 16


def seconds_of(program: Program, size: int, traffic: int | None = None) -> float:
    """Estimate how long one thread takes for a program over so many elements.

    traffic: bytes that one element moves, where that is not what its operands would move if they were packed.
    """
    return max(moving_seconds(size * (program.traffic if traffic is None else traffic)), size * program.seconds)


def moving_seconds(nbytes: int) -> float:
    """Estimate how long one thread takes to move so many bytes."""
    return nbytes / (CACHE_SPEED if nbytes <= CACHE_BYTES else MEMORY_SPEED)


def picoseconds(step: Step, known: Mapping[int, Any]) -> float:
    """Estimate how long vectorised code computes one element of a step; powers of known exponents are products."""
    costs = COSTS.get(step.op.name, FUNCTION_COSTS if step.op.name in FUNCTIONS else CHEAP_COSTS)
    if step.op.name == "pow" and step.args[1] in known:
        costs = CHEAP_COSTS
    size: int = step.dtype.itemsize
    return size * costs[size == 8]


def code_size(name: str) -> float:
    """Estimate how many cheap steps have as much code as a step of this name."""
    return COSTS.get(name, FUNCTION_COSTS)[1] / CHEAP_COSTS[1] if name in FUNCTIONS else 1


# ---- small arrays in fused functions, in seconds

# What a captured call costs besides its schedule: to tell that it is one; for each tensor that it reads, result that it
# makes, and list, dict and object that it looks into, number that it is told, and thing that it leaves elsewhere. (With
# 1000 float64: 7 us where it writes in place, 10 and 13 with one result and two, 40 to 60 of a method that rebinds
# three things.)
REPLAY, ARGUMENT, RESULT, LOOKED = 3e-6, 1.2e-6, 2e-6, 5e-6

# Bytes of NumPy arrays, compared with their contents in earlier calls, that take as long as LOOKED.
COMPARED = 150_000

# The same of calls that machine code dispatches, of all besides the kernels themselves; of each tensor and result.
DISPATCH, DISPATCHED = 0.7e-6, 0.1e-6

# What such a call saves where its work could be shared among threads, as only calls found in Python do. (With AVX2
# `x * 2 + y` of 100 000 float64 takes 43 us on one thread, and 110 found in Python on two; the mean of (x - y)**2 24
# and 90.)
DISPATCH_SAVES = 40e-6

# What a library's function costs besides itself where it is called plainly, and by machine code; the bytes of what it
# makes up to which machine code calls it: they are copied to where others look for them, in some 10 us.
LIBRARY, CALLBACK, CALLBACK_BYTES = 2e-6, 2.5e-6, 1 << 17

# What a call of the library between two runs of kernels costs more than by itself, and to copy a view at computed
# places more than to make it.
BETWEEN, SHOWN = 6e-6, 1e-5

# Calls of a composition with small arrays of a kind after which its steps become a schedule: each takes 25 to 150 us
# step by step and 10 to 20 so; preparing takes some 5 ms, 60 where machine code is not on the disk yet.
PREPARED_AFTER = 64

# What a convolution and its kin cost more by themselves than in a schedule, where nothing is checked and chosen. (Two
# of 2 x 12 x 10 x 11 by 3 x 3 with what is between them: 137 us, 92 in a schedule.)
PREPARED = 2e-5

# What a plain gradient costs for each step of its tape besides its calls: to record the step, and to go back through
# it, at least. (Of 100 float64: 100 us in all for a sum of squares, 550 for each `u[1:-1] = 0.5 * (u[2:] + u[:-2])`.)
TAPED = 1e-5

# Rows of a map below which a plain gradient takes them one by one: .3 ms each of a network of three functions, where to
# watch the first of them and to take its steps over all takes 2.5 ms.
FEW_ROWS = 8

# What small arrays cost in seconds. Library calls: each (some twice that), for reducing along axes, for a view of an
# argument, for a byte that an element moves within the cache, and for a function of 4 bytes (of 8, four times that).
# A schedule: a run of it, each kernel, one that reduces other axes than the last, for a byte, and the part of
# `Program.seconds` that kernels take when they are compiled well.
CALL, REDUCTION, VIEW, BYTE, FUNCTION = 0.9e-6, 3e-6, 1e-6, 0.015e-9, 0.45e-9
RUN, LAUNCH, FOLD, MOVED, PART = 1.8e-6, 0.3e-6, 0.5e-6, 0.01e-9, 1 / 3


def calls_seconds(plan: Plan, elements: int, calls: int, views: int) -> float:
    """Estimate what library calls on small arrays take. views: of what is there, which come besides."""
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
    """Estimate what a schedule's kernels on small arrays take."""
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

# Calls of the same kind of a convolution before code is compiled for less: they took the library and Python 100 us each
# and more, the code 20.
CALLS_COMPILED = 16

# Bytes of B that are packed at a time, by the bytes of a register: for half of a core's own cache of 1 MiB, or, where
# that is smaller, for the last one, from which B comes fast enough; A is packed again for each time.
PACKED_BYTES = {16: 640 * 1024, 32: 3 << 19, 64: 640 * 1024}

# The same of integers, for which NumPy has loops that take a nanosecond each; seconds of one in generated code.
INTEGERS_COMPILED, INTEGER_SECONDS = 1 << 20, 3e-11

# Elements of matrices below which the multiplications of their product are not even counted.
PRODUCT_LEAST = 1 << 10

# Multiplications from which on a contraction waits for what follows it: to record it and find its plan takes 10 us, a
# fiftieth of what as many take on two cores.
CONTRACTION_WAITS = 1 << 24

# Seconds of a multiplication in a product of matrices on one thread, by the character of its dtype; the part by which
# ours takes longer than the library's, and what preparing ours takes. (A bias and a rectifier with float32 products of
# 8192 x 128 x 512 take .88 of the time of the library's and a pass over its result, with 1024 x 1024 x 1024 1.02.)
PRODUCT_SECONDS, PRODUCT_SLOWER, PRODUCT_CALL = {"f": 1e-11, "d": 2e-11}, {"f": 0.05, "d": 0.08}, 60e-6

# Multiplications from which on attention runs in tiles: of fewer, all scores stay in the second cache.
ATTENTION_TILED = 1 << 25

# Elements of a row up to which argmax and argmin by kernels take less than the library's, which has vectors for rows.
SEARCHED_BELOW = 32

# Bytes up to which the library's own argmax and argmin along columns take less than recording the six steps that they
# are composed of, some 100 us.
SEARCHED_AT_ONCE = 1 << 20

# Multiplications from which on a sum of products is one of matrices: NumPy's loops over any axes take ten times that.
EINSUM_MULTIPLIED = 1 << 16

# Columns up to which a product is one along rows, and the terms, rows and multiplications from which on.
THIN_COLUMNS, THIN_DEPTH, THIN_ROWS, THIN_LEAST = 8, 32, 64, 1 << 18

# The longest side of the matrices of a stack whose product is compiled for their lengths, the multiplications from
# which on that pays, and those that are counted for each of them besides: the library is called for each.
STACK_LARGEST, STACK_COMPILED, STACK_CALL = 64, 1 << 18, 256

# ---- convolutions

# Of convolutions by strips. Where channels come first there may be so many of them, or of outputs; in one of several
# groups so many of both.
FEW, GROUPED = 4, 16

# Registers, sums in them, and the most registers of outputs, by whether these are of 64 bytes. The most elements of a
# window whose sums the gradient has at a time, and windows whose elements share places of the nearest cache, which are
# so many bytes apart. (Caches of processors with AVX-512 have 12 such places: 14 windows of 64 channels, and 12 of 1024
# instead of 8, take .93 to .95 of the time of 12 and 8. With AVX2, 4 registers of outputs instead of 2: 3x3 from 3
# channels to 32, which come last, .79, 5x5 of 32 .93.)
REGISTERS_THERE, SUMS, OUTPUT_REGISTERS = (16, 32), (12, 28), (4, 3)
TERMS, WAYS, WAY_BYTES = (12, 14), (8, 12), 4096

# Bytes of outputs of a gradient's strip that are read for each block of a window, from the nearest cache.
NEAR_BYTES = 1 << 13

# Of convolutions that read registers of positions where they lie: the most of these at a time, and how many times as
# many positions as there are may be computed. (1x1 layers of 56 x 56 take .82 to .93 of the time of packed products;
# with AVX2 1.0, and of 14 x 14 1.3.)
IN_PLACE_REGISTERS, IN_PLACE_WASTE = 2, 1.2

# Bytes under a row of outputs, of channels that come last in thin groups, that stay in the nearest cache for the next
# row, by whether registers are of 64 bytes; and in the next cache, of all channels, for some rows.
CHANNELS_NEAR, CHANNELS_BAND = (28 * 1024, 44 * 1024), 1 << 18

# Bytes of their inputs and outputs from which on all channels of a row are made at a time, with lines fetched ahead: of
# fewer that takes 1.05 to 1.3 of the time, of more .5 to 1, the less the busier memory is.
CHANNELS_FETCHED = 1 << 24

# Sums that are added to in the time that one of them takes.
WAITING = 10

# The most elements from one column of y to the next.
FARTHEST = 8

# Bytes of the rows under a strip that stay in the second cache with all else.
ROOM_BYTES = 1 << 18

# Bytes of a gradient of weights from which on it is made by products of matrices: by whether registers are of 64 bytes,
# where channels come first and last. (Beside strips, with AVX2: 3x3 of 128 channels, stride 2, .75 of the time and .83;
# 1x1 from 64 channels to 256 .7 and 1.1, 7x7 of 3 channels .75 and 1.1.)
WEIGHT_BYTES = {False: (1 << 15, 1 << 19), True: (5 << 17, 5 << 17)}

# Positions of a strip of single elements that are worth packing the weights for.
POSITIONS = 1 << 11

# Bytes of transformed inputs and products of a chunk of tiles of a Winograd convolution, more where weights do not stay
# in a core's own cache.
WINOGRAD_CHUNK = 768 * 1024

# Seconds of one thread for each byte of a number multiplied, of windows packed, of tiles transformed to and fro, and of
# weights transformed.
MULTIPLIED, PACKED, TRANSFORMED, WEIGHTS_TRANSFORMED = 2.3e-12, 40e-12, 33e-12, 127e-12


def products_seconds(groups: int, channels: int, outputs: int, positions: int, window: int, itemsize: int) -> float:
    """Estimate what one thread takes for a convolution as products; channels and outputs are those of a group."""
    windows = groups * channels * window * positions * itemsize
    return windows * (outputs * MULTIPLIED + PACKED)


def winograd_seconds(groups: int, channels: int, outputs: int, tiles: int, elements: int, itemsize: int) -> float:
    """Estimate what one thread takes for a convolution by tiles, each of which has so many elements transformed."""
    lanes = 64 // itemsize
    channels, outputs = (-(-n // lanes) * lanes for n in (channels, outputs))
    each = groups * elements * itemsize
    products = tiles * (channels * outputs * MULTIPLIED + (channels + outputs) * TRANSFORMED)
    return each * (products + channels * outputs * WEIGHTS_TRANSFORMED)
