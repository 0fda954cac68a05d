// Hand-written kernels, each a section that begins with its name. Types and whole numbers that a section speaks of but
// does not define are given by its launch; the blocks of cuda.cuh that it uses stand before it. `number` counts threads.
// Strides ("steps") are in elements where arrays have their type, in bytes where they are char.

// ---- prelude
struct Length { alignas(8) divisor by; };

// Splits a number into a place along a length, which is returned, and the rest, which stays.
__device__ index taken(index& number, Length length) {
  const index whole = over(number, length.by), place = number - whole * length.by.n;
  number = whole;
  return place;
}

// ---- gather
// y in C order: along one loop as indices say, or EACH element's own index, along the others as x lies. A wrong index
// leaves a mark.
struct Arguments {
  const char* x; T* y; int* wrong; i64 count;
  const i64* at[ARRAYS]; i64 length[ARRAYS], step[ARRAYS];
  Length loops[LOOPS]; i64 steps[LOOPS];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index rest = number;
  const char* from = a.x;
  bool wrong = false;
  #pragma unroll
  for (int loop = LOOPS - 1; loop >= 0; --loop) {
    const index i = loop ? taken(rest, a.loops[loop]) : rest;
    if (loop != ALONG) { from += (i64)i * a.steps[loop]; continue; }
    #pragma unroll
    for (int k = 0; k < ARRAYS; ++k) {
      const i64 given = a.at[k][EACH ? number : i], place = given < 0 ? given + a.length[k] : given;
      wrong = wrong || (u64)place >= (u64)a.length[k];
      from += place * a.step[k];
    }
  }
  if (wrong) atomicOr(a.wrong, 1);
  else a.y[number] = *(const T*)from;
}

// ---- check
// Whether indices are inside; of those that name one place of all, which comes last (LAST), or the number of the place
// that each names.
struct Arguments {
  int* wrong; int* last; i64* flat; i64 count;
  const i64* at[ARRAYS]; i64 length[ARRAYS];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  bool wrong = false;
  i64 flat = 0;
  for (int k = 0; k < ARRAYS; ++k) {
    const i64 given = a.at[k][number], place = given < 0 ? given + a.length[k] : given;
    wrong = wrong || (u64)place >= (u64)a.length[k];
    flat = flat * a.length[k] + place;
  }
  if (wrong) atomicOr(a.wrong, 1);
  else if (LAST) atomicMax(a.last + flat, (int)number);
  if (FLAT) a.flat[number] = wrong ? 0 : flat;
}

// ---- classes
// Whether integers are outside of a range from 0 on; one value can be let pass (IGNORED).
struct Arguments { int* wrong; const T* x; i64 count, classes, ignored; };
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  const i64 given = (i64)a.x[number];
  if ((u64)given >= (u64)a.classes && !(IGNORED && given == a.ignored)) atomicOr(a.wrong, 1);
}

// ---- scatter
// x as indices say along one loop, from y; where several name one place, what `last` says is written.
struct Arguments {
  char* x; const char* y; const int* last; i64 count;
  const i64* at[ARRAYS]; i64 length[ARRAYS], step[ARRAYS];
  Length loops[LOOPS]; i64 steps[LOOPS], given[LOOPS];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index rest = number;
  char* to = a.x;
  const char* from = a.y;
  bool is = true;
  #pragma unroll
  for (int loop = LOOPS - 1; loop >= 0; --loop) {
    const index i = loop ? taken(rest, a.loops[loop]) : rest;
    from += (i64)i * a.given[loop];
    if (loop != ALONG) { to += (i64)i * a.steps[loop]; continue; }
    i64 flat = 0;
    #pragma unroll
    for (int k = 0; k < ARRAYS; ++k) {
      const i64 given = a.at[k][i], place = given < 0 ? given + a.length[k] : given;
      flat = flat * a.length[k] + place;
      to += place * a.step[k];
    }
    if (REPEATS) is = a.last[flat] == (int)i;
  }
  if (is) *(T*)to = *(const T*)from;
}

// ---- add
// Rows of y added to the places of x that they name, those of one place in a fixed order: `order` puts the numbers of
// the places in order. A thread adds up one element of a chunk of rows; a place whose rows go on in later chunks is left
// to a second launch (JOINS), as are the sums at a chunk's beginning (heads) and end (tails).
struct Arguments {
  char* x; const T* y; const i64* flat; const i64* order; T* heads; T* tails; i64 rows, chunk, count;
  Length places[ARRAYS]; i64 step[ARRAYS];
  Length width, loops[LOOPS]; i64 steps[LOOPS];
};
__device__ T* place_in(const Arguments& a, i64 flat, index element) {
  char* to = a.x;
  index rest = (index)flat;
  for (int k = ARRAYS - 1; k >= 0; --k) to += (i64)taken(rest, a.places[k]) * a.step[k];
  for (int loop = LOOPS - 1; loop >= 0; --loop) to += (i64)taken(element, a.loops[loop]) * a.steps[loop];
  return (T*)to;
}
__device__ i64 key_of(const Arguments& a, i64 row) { return a.flat[a.order[row]]; }
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index chunk = number;
  const index element = taken(chunk, a.width);
  const i64 begin = chunk * a.chunk, end = begin + a.chunk < a.rows ? begin + a.chunk : a.rows;
  if (JOINS) {
    const i64 key = key_of(a, end - 1);
    if (end == a.rows || key_of(a, end) != key || (begin > 0 && key_of(a, begin - 1) == key)) return;
    T sum = a.tails[number];
    for (i64 next = end, other = number + a.width.by.n; next < a.rows && key_of(a, next) == key; next += a.chunk) {
      sum = sum + a.heads[other];
      other += a.width.by.n;
    }
    T* const to = place_in(a, key, element);
    *to = *to + sum;
    return;
  }
  i64 row = begin;
  while (row < end) {
    const i64 first = row, key = key_of(a, row);
    T sum = a.y[a.order[row] * a.width.by.n + element];
    for (++row; row < end && key_of(a, row) == key; ++row) sum = sum + a.y[a.order[row] * a.width.by.n + element];
    if (first == begin && begin > 0 && key_of(a, begin - 1) == key) {
      a.heads[number] = sum;
    } else if (row == end && end < a.rows && key_of(a, end) == key) {
      a.tails[number] = sum;
    } else {
      T* const to = place_in(a, key, element);
      *to = *to + sum;
    }
  }
}

// ---- mark
// How many elements of each block of 4096 are true.
struct Arguments { const u8* mask; i64* counts; i64 count; };
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  __shared__ int warps[8];
  const int thread = threadIdx.x;
  const i64 begin = (i64)blockIdx.x * 4096 + thread;
  int own = 0;
  #pragma unroll
  for (int k = 0; k < 16; ++k) own += begin + k * 256 < a.count && a.mask[begin + k * 256] != 0;
  #pragma unroll
  for (int d = 16; d > 0; d >>= 1) own += __shfl_down_sync(0xffffffffu, own, d);
  if (thread % 32 == 0) warps[thread / 32] = own;
  __syncthreads();
  if (thread) return;
  i64 total = 0;
  for (int w = 0; w < 8; ++w) total += warps[w];
  a.counts[blockIdx.x] = total;
}

// ---- select
// The true elements of each block of 4096, or where they are, behind those of the blocks before it.
struct Arguments { const u8* mask; const T* x; T* y; const i64* ends; i64 count; };
extern "C" __global__ void __launch_bounds__(256, 4) kernel(const Arguments a) {
  __shared__ int begins[16][8], totals[8];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const i64 begin = (i64)blockIdx.x * 4096 + thread;
  unsigned votes[16];
  #pragma unroll
  for (int k = 0; k < 16; ++k) {
    votes[k] = __ballot_sync(0xffffffffu, begin + k * 256 < a.count && a.mask[begin + k * 256] != 0);
    if (lane == 0) begins[k][warp] = __popc(votes[k]);
  }
  __syncthreads();
  const int own = thread < 128 ? begins[thread / 8][thread % 8] : 0;
  int upto = own;
  #pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const int other = __shfl_up_sync(0xffffffffu, upto, d);
    if (lane >= d) upto += other;
  }
  if (lane == 31) totals[warp] = upto;
  __syncthreads();
  for (int w = 0; w < warp; ++w) upto += totals[w];
  if (thread < 128) begins[thread / 8][thread % 8] = upto - own;
  __syncthreads();
  const i64 start = blockIdx.x ? a.ends[blockIdx.x - 1] : 0;
  #pragma unroll
  for (int k = 0; k < 16; ++k) {
    if (!(votes[k] >> lane & 1)) continue;
    const i64 to = start + begins[k][warp] + __popc(votes[k] & ((1u << lane) - 1));
    if (VALUES) a.y[to] = a.x[begin + k * 256];
    else ((i64*)a.y)[to] = begin + k * 256;
  }
}

// ---- scan rows
// Running results along rows: a block takes a row, 1024 elements at a time.
struct Arguments { const T* x; S* y; i64 length, pitch; };
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  __shared__ A warps[8];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const T* const x = a.x + (i64)blockIdx.x * a.length;
  S* const y = a.y + (i64)blockIdx.x * a.pitch + (a.pitch - a.length);
  if (thread == 0 && a.pitch != a.length) y[-1] = xt_start;
  A carry = xt_start;
  for (i64 begin = 0; begin < a.length; begin += 1024) {
    const i64 first = begin + 4 * thread;
    A own[4];
    #pragma unroll
    for (int k = 0; k < 4; ++k) {
      const A value = first + k < a.length ? xt_converted(x[first + k]) : xt_start;
      own[k] = k ? xt_join::of(own[k - 1], value) : value;
    }
    A upto = own[3];
    #pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const A other = xt_up(upto, d);
      if (lane >= d) upto = xt_join::of(other, upto);
    }
    if (lane == 31) warps[warp] = upto;
    A before = xt_up(upto, 1);
    __syncthreads();
    A total = carry;
    for (int w = 0; w < 8; ++w) {
      if (w == warp) before = lane ? xt_join::of(total, before) : total;
      total = xt_join::of(total, warps[w]);
    }
    carry = total;
    #pragma unroll
    for (int k = 0; k < 4; ++k) if (first + k < a.length) y[first + k] = xt_join::of(before, own[k]);
    __syncthreads();
  }
}

// ---- scan columns
// Running results along columns: a block takes 32 of them, of which 8 threads each take 8 elements at a time.
struct Arguments { const T* x; S* y; i64 length, pitch; Length columns, tiles; };
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  __shared__ A parts[8][32];
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32;
  index block = blockIdx.x;
  const i64 width = a.columns.by.n, column = (i64)taken(block, a.tiles) * 32 + lane;
  const bool is = column < width;
  const T* const x = a.x + (i64)block * a.length * width + column;
  S* const y = a.y + ((i64)block * a.pitch + (a.pitch - a.length)) * width + column;
  if (is && part == 0 && a.pitch != a.length) y[-width] = xt_start;
  A carry = xt_start;
  for (i64 begin = 0; begin < a.length; begin += 64) {
    const i64 first = begin + 8 * part;
    A own[8];
    #pragma unroll
    for (int k = 0; k < 8; ++k) {
      const A value = is && first + k < a.length ? xt_converted(x[(first + k) * width]) : xt_start;
      own[k] = k ? xt_join::of(own[k - 1], value) : value;
    }
    parts[part][lane] = own[7];
    __syncthreads();
    A before = carry;
    for (int p = 0; p < 8; ++p) {
      if (p == part) before = carry;
      carry = xt_join::of(carry, parts[p][lane]);
    }
    #pragma unroll
    for (int k = 0; k < 8; ++k) if (is && first + k < a.length) y[(first + k) * width] = xt_join::of(before, own[k]);
    __syncthreads();
  }
}

// ---- turn
// A copy where x lies along one axis and y along another: by tiles of 32 x 32 through shared memory.
struct Arguments {
  const char* x; char* y; i64 rows, columns;  // rows: along which x lies, columns: along which y does
  i64 x_rows, x_columns, y_rows, y_columns;
  Length row_tiles, column_tiles, loops[LOOPS]; i64 x_steps[LOOPS], y_steps[LOOPS];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  __shared__ T tile[32][33];
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  index rest = blockIdx.x;
  const i64 column = (i64)taken(rest, a.column_tiles) * 32, row = (i64)taken(rest, a.row_tiles) * 32;
  const char* x = a.x;
  char* y = a.y;
  #pragma unroll
  for (int loop = LOOPS - 1; loop >= 0; --loop) {
    const i64 i = taken(rest, a.loops[loop]);
    x += i * a.x_steps[loop];
    y += i * a.y_steps[loop];
  }
  #pragma unroll
  for (int k = line; k < 32; k += 8) {
    if (row + lane < a.rows && column + k < a.columns)
      tile[k][lane] = *(const T*)(x + (row + lane) * a.x_rows + (column + k) * a.x_columns);
  }
  __syncthreads();
  #pragma unroll
  for (int k = line; k < 32; k += 8) {
    if (row + k < a.rows && column + lane < a.columns)
      *(T*)(y + (row + k) * a.y_rows + (column + lane) * a.y_columns) = tile[lane][k];
  }
}

// ---- keys
// Numbers without sign in the order of the elements: all NaN alike behind infinity, zeros of both signs alike.
__device__ K key_of(T x) {
  if (x != x) return (K)-1;
  if (x == (T)0) x = (T)0;
  union { T value; K key; } bits;
  bits.key = 0;
  bits.value = x;
  const K sign = (K)1 << (8 * sizeof(T) - 1);
  if (FLOATS) return bits.key & sign ? (K)(~bits.key & (2 * sign - 1)) : (K)(bits.key | sign);
  return SIGNED ? (K)(bits.key ^ sign) : bits.key;
}

// ---- sort
// Rows in order by a bitonic network in shared memory, over (key, place): a block takes a row.
struct Arguments { const T* x; T* y; i64* order; i64 length, width; };
extern "C" __global__ void __launch_bounds__(1024) kernel(const Arguments a) {
  extern __shared__ u64 memory[];
  K* const keys = (K*)memory;
  u32* const places = (u32*)(keys + a.width);
  const int thread = threadIdx.x, length = (int)a.length, width = (int)a.width;
  const T* const x = a.x + (i64)blockIdx.x * a.length;
  for (int i = thread; i < width; i += blockDim.x) {
    keys[i] = i < length ? key_of(x[i]) : (K)-1;
    places[i] = i;
  }
  for (int size = 2; size <= width; size *= 2) {
    for (int apart = size / 2; apart > 0; apart /= 2) {
      __syncthreads();
      for (int pair = thread; pair < width / 2; pair += blockDim.x) {
        const int i = 2 * pair - (pair & (apart - 1)), j = i + apart;
        const K p = keys[i], q = keys[j];
        const u32 m = places[i], n = places[j];
        if ((p > q || (p == q && m > n)) == ((i & size) == 0)) {
          keys[i] = q; keys[j] = p;
          places[i] = n; places[j] = m;
        }
      }
    }
  }
  __syncthreads();
  for (int i = thread; i < length; i += blockDim.x) {
    const u32 place = places[i];
    if (ORDER) a.order[(i64)blockIdx.x * a.length + i] = place;
    else a.y[(i64)blockIdx.x * a.length + i] = x[place];
  }
}

// ---- number
// The key of each element behind the number of its row: what is sorted in one go where rows are long.
struct Arguments { const T* x; u64* y; i64 count; Length length; };
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number < a.count) a.y[number] = (u64)over(number, a.length.by) << 32 | key_of(a.x[number]);
}

// ---- windows
// What windows are, along an axis: lengths of the input and of the output, and where window o begins. K0, K1 and K2 are
// the lengths of the window.
struct Axis { i64 size; Length stride; i64 dilation, low; Length out; };

// The place of element k of window o, below 0 or beyond the size where that is outside.
__device__ offset place_of(const Axis& axis, offset o, int k) {
  return o * (offset)axis.stride.by.n + k * (offset)axis.dilation - (offset)axis.low;
}

__device__ bool inside(const Axis& axis, offset place) { return (index)place < (index)axis.size; }

__device__ offset along(const i64* steps, offset i, offset j, offset k) {
  return i * (offset)steps[0] + j * (offset)steps[1] + k * (offset)steps[2];
}

// The output whose element k lies at a place, -1 for none.
__device__ offset output_at(const Axis& axis, offset place, int k) {
  const offset from = place + (offset)axis.low - k * (offset)axis.dilation;
  if (from < 0) return -1;
  const index o = over((index)from, axis.stride.by);
  return o * axis.stride.by.n == (index)from && o < axis.out.by.n ? (offset)o : -1;
}

// ---- columns
// Windows of x (batch, groups, channels, three axes), laid out for matrix products: (batch, groups, channels, window,
// positions), or where LAST is 1 (batch, groups, positions, window, channels).
struct Arguments {
  const T* x; T* y; i64 count;
  Length groups, channels; i64 image, group, channel, steps[3];
  Axis axes[3];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index rest = number;
  offset o[3];
  const i64 positions = (i64)a.axes[0].out.by.n * a.axes[1].out.by.n * a.axes[2].out.by.n;
  index c = LAST ? taken(rest, a.channels) : 0;
  for (int axis = 2; axis >= 0; --axis) o[axis] = taken(rest, a.axes[axis].out);
  if (!LAST) c = taken(rest, a.channels);
  const i64 g = taken(rest, a.groups);
  const T* const x = a.x + (i64)rest * a.image + g * a.group + c * a.channel;
  // a thread writes one element of the window after the other, which lie a line of such threads apart
  const i64 step = LAST ? (i64)a.channels.by.n : positions, line = number / (index)step;
  T* y = a.y + line * step * (K0 * K1 * K2 - 1) + number;
  for (int k = 0; k < K0; ++k) {
    const offset i = place_of(a.axes[0], o[0], k);
    for (int l = 0; l < K1; ++l) {
      const offset j = place_of(a.axes[1], o[1], l);
      #pragma unroll 8
      for (int m = 0; m < K2; ++m, y += step) {
        const offset n = place_of(a.axes[2], o[2], m);
        const bool is = inside(a.axes[0], i) && inside(a.axes[1], j) && inside(a.axes[2], n);
        T value = T();
        if (is) value = x[along(a.steps, i, j, n)];
        *y = value;
      }
    }
  }
}

// ---- direct
// Convolution, a thread for each output (batch, groups, outputs, three axes; or channels last): for few channels.
struct Arguments {
  const T* x; const T* w; const T* bias; T* y; i64 count;
  Length groups, outputs; i64 channels, image, group, channel, steps[3];
  i64 y_image, y_group, y_output, y_steps[3];
  Axis axes[3];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index rest = number, f = 0, g = 0;
  offset o[3];
  if (LAST) { f = taken(rest, a.outputs); g = taken(rest, a.groups); }
  for (int axis = 2; axis >= 0; --axis) o[axis] = taken(rest, a.axes[axis].out);
  if (!LAST) { f = taken(rest, a.outputs); g = taken(rest, a.groups); }
  const i64 filter = (i64)g * a.outputs.by.n + f;
  const T* x = a.x + (i64)rest * a.image + (i64)g * a.group;
  const T* w = a.w + filter * a.channels * (K0 * K1 * K2);
  const offset h = place_of(a.axes[0], o[0], 0), i = place_of(a.axes[1], o[1], 0), j = place_of(a.axes[2], o[2], 0);
  const offset first = along(a.steps, h, i, j);
  T sum = 0;
  for (offset c = 0; c < (offset)a.channels; ++c, x += a.channel, w += K0 * K1 * K2) {
    #pragma unroll
    for (int k = 0; k < K0 * K1 * K2; ++k) {
      const offset p = k / (K1 * K2) * (offset)a.axes[0].dilation, q = k / K2 % K1 * (offset)a.axes[1].dilation;
      const offset r = k % K2 * (offset)a.axes[2].dilation;
      const bool is = inside(a.axes[0], h + p) && inside(a.axes[1], i + q) && inside(a.axes[2], j + r);
      const T value = x[is ? first + along(a.steps, p, q, r) : 0];
      sum = is ? sum + value * w[k] : sum;
    }
  }
  if (BIAS) sum += a.bias[filter];
  a.y[(i64)rest * a.y_image + (i64)g * a.y_group + f * a.y_output + along(a.y_steps, o[0], o[1], o[2])] = sum;
}

// ---- weights
// The gradient of weights (groups, outputs, channels, window) for few channels: a block adds up a part of the images
// and positions for one output and channel, and all elements of the window.
struct Arguments {
  const T* x; const T* y; T* parts; i64 count, piece;
  Length groups, outputs, channels; i64 image, group, channel, steps[3];
  i64 y_image, y_group, y_output, y_steps[3];
  Axis axes[3];
};
struct xt_plus { static __device__ T of(T a, T b) { return a + b; } };
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const int volume = K0 * K1 * K2;
  __shared__ T shared[volume][8];
  index rest = blockIdx.x;
  const i64 c = taken(rest, a.channels), f = taken(rest, a.outputs), g = taken(rest, a.groups);
  const T* const x = a.x + g * a.group + c * a.channel;
  const T* const y = a.y + g * a.y_group + f * a.y_output;
  const i64 begin = (i64)rest * a.piece, end = begin + a.piece < a.count ? begin + a.piece : a.count;
  T sums[volume];
  #pragma unroll
  for (int k = 0; k < volume; ++k) sums[k] = 0;
  for (i64 n = begin + threadIdx.x; n < end; n += 256) {
    index image = (index)n;
    offset o[3];
    for (int axis = 2; axis >= 0; --axis) o[axis] = taken(image, a.axes[axis].out);
    const T given = y[(i64)image * a.y_image + along(a.y_steps, o[0], o[1], o[2])];
    #pragma unroll
    for (int k = 0; k < volume; ++k) {
      const offset h = place_of(a.axes[0], o[0], k / (K1 * K2));
      const offset i = place_of(a.axes[1], o[1], k / K2 % K1), j = place_of(a.axes[2], o[2], k % K2);
      if (inside(a.axes[0], h) && inside(a.axes[1], i) && inside(a.axes[2], j))
        sums[k] += given * x[(i64)image * a.image + along(a.steps, h, i, j)];
    }
  }
  #pragma unroll
  for (int k = 0; k < volume; ++k) {
    const T total = xt_across<xt_plus>(sums[k], 8, shared[k]);
    if (threadIdx.x == 0) a.parts[(i64)blockIdx.x * volume + k] = total;
  }
}

// ---- pool
// The sum of each window of x (batch, channels, three axes; or channels last), its largest element, or the place of
// the first of those over the three axes, -1 for none.
struct Arguments {
  const T* x; S* y; i64 count;
  Length channels; i64 image, channel, steps[3], y_image, y_channel, y_steps[3];
  Axis axes[3];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index rest = number, c = 0;
  offset o[3];
  if (LAST) c = taken(rest, a.channels);
  for (int axis = 2; axis >= 0; --axis) o[axis] = taken(rest, a.axes[axis].out);
  if (!LAST) c = taken(rest, a.channels);
  const T* const x = a.x + (i64)rest * a.image + (i64)c * a.channel;
  T found = WANTED == SUM ? (T)0 : xt_least;
  i64 at = -1;
  for (int k = 0; k < K0; ++k) {
    const offset i = place_of(a.axes[0], o[0], k);
    for (int l = 0; l < K1; ++l) {
      const offset j = place_of(a.axes[1], o[1], l);
      #pragma unroll 8
      for (int m = 0; m < K2; ++m) {
        const offset n = place_of(a.axes[2], o[2], m);
        if (!inside(a.axes[0], i) || !inside(a.axes[1], j) || !inside(a.axes[2], n)) continue;
        const T value = x[along(a.steps, i, j, n)];
        if (WANTED == SUM) {
          found += value;
        } else if (at < 0 || (found == found && !(value <= found))) {
          found = value;
          at = ((i64)i * a.axes[1].size + j) * a.axes[2].size + n;
        }
      }
    }
  }
  S* const y = a.y + (i64)rest * a.y_image + (i64)c * a.y_channel + along(a.y_steps, o[0], o[1], o[2]);
  *y = WANTED == PLACE ? (S)at : (S)found;
}

// ---- spread
// What the elements of windows get, added up for each of x in the order of the window: all of them, or where `places`
// are given (as y lies) the one that is named, in the order of the outputs.
struct Arguments {
  const T* y; const S* places; T* x; i64 count;
  Length channels, lengths[3]; i64 image, channel, steps[3], y_image, y_channel, y_steps[3], p_image, p_channel, p_steps[3];
  Axis axes[3];
};
extern "C" __global__ void __launch_bounds__(256) kernel(const Arguments a) {
  const index number = (index)blockIdx.x * 256 + threadIdx.x;
  if (number >= a.count) return;
  index rest = number, c = 0;
  offset at[3];
  if (LAST) c = taken(rest, a.channels);
  for (int axis = 2; axis >= 0; --axis) at[axis] = taken(rest, a.lengths[axis]);
  if (!LAST) c = taken(rest, a.channels);
  const T* const y = a.y + (i64)rest * a.y_image + (i64)c * a.y_channel;
  const S* const places = a.places + (i64)rest * a.p_image + (i64)c * a.p_channel;
  const i64 own = ((i64)at[0] * a.axes[1].size + at[1]) * a.axes[2].size + at[2];
  T sum = 0;
  for (int k = 0; k < K0; ++k) {
    const offset i = output_at(a.axes[0], at[0], PLACED ? K0 - 1 - k : k);
    if (i < 0) continue;
    for (int l = 0; l < K1; ++l) {
      const offset j = output_at(a.axes[1], at[1], PLACED ? K1 - 1 - l : l);
      if (j < 0) continue;
      for (int m = 0; m < K2; ++m) {
        const offset n = output_at(a.axes[2], at[2], PLACED ? K2 - 1 - m : m);
        if (n < 0) continue;
        if (PLACED && (i64)places[along(a.p_steps, i, j, n)] != own) continue;
        sum += y[along(a.y_steps, i, j, n)];
      }
    }
  }
  a.x[(i64)rest * a.image + (i64)c * a.channel + along(a.steps, at[0], at[1], at[2])] = sum;
}
