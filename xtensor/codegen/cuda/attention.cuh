// Attention in tiles, as library.cuh has its sections.

// ---- tiles
// Tiles of 64 rows in shared memory, of which 4 floats are taken at a time: a row is filled up with zeros to 16, 32, 64 or
// 128 floats, and 4 more set rows on other banks. Of products of two tiles each of 128 threads has 8 rows next to each
// other and each 16th column; of products with what rows hold, each 16th group of up to 4 floats.
// DEPTH, OUT: floats of a query and of a value. VECTOR: whether all rows begin at multiples of 16 bytes.
#define INFINITE __int_as_float(0x7f800000)
typedef vector<float, 4> Four;
const int TILE = 64, ACROSS = TILE + 4, WORKERS = 128;

__host__ __device__ constexpr int share_of(int width) { return width <= 16 ? 1 : width <= 32 ? 2 : width <= 64 ? 4 : 8; }
__host__ __device__ constexpr int pitch_of(int width) { return 16 * share_of(width) + 4; }
__host__ __device__ constexpr int group_of(int width) { return share_of(width) < 4 ? share_of(width) : 4; }

// The rows from `first` on of those that lie `step` floats apart.
template <int WIDTH> __device__ void fetched(float* tile, const float* x, i64 step, i64 first, i64 count) {
  const int chunks = 4 * share_of(WIDTH);
  #pragma unroll 4
  for (int n = threadIdx.x; n < TILE * chunks; n += WORKERS) {
    const int row = n / chunks, at = n % chunks * 4;
    const float* const from = x + (first + row) * step + at;
    const bool is = first + row < count;
    Four found;
    for (int c = 0; c < 4; ++c) found.v[c] = 0;
    if (VECTOR) { if (is && at < WIDTH) found = *(const Four*)from; }
    else for (int c = 0; c < 4; ++c) if (is && at + c < WIDTH) found.v[c] = from[c];
    *(Four*)(tile + row * pitch_of(WIDTH) + at) = found;
  }
}

// Products of a thread's rows with its columns.
template <int WIDTH> __device__ void multiplied(float (&sums)[8][4], const float* rows, const float* columns) {
  const int pitch = pitch_of(WIDTH);
  for (int r = 0; r < 8; ++r) for (int k = 0; k < 4; ++k) sums[r][k] = 0;
  #pragma unroll 2
  for (int d = 0; d < WIDTH; d += 4) {
    Four across[4];
    #pragma unroll
    for (int k = 0; k < 4; ++k) across[k] = *(const Four*)(columns + 16 * k * pitch + d);
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
      const Four own = *(const Four*)(rows + r * pitch + d);
      #pragma unroll
      for (int c = 0; c < 4; ++c)
        #pragma unroll
        for (int k = 0; k < 4; ++k) sums[r][k] += own.v[c] * across[k].v[c];
    }
  }
}

// Writes a thread's part of a tile across: a row for each column.
__device__ void turned(float* tile, const float (&x)[8][4]) {
  #pragma unroll
  for (int k = 0; k < 4; ++k)
    #pragma unroll
    for (int r = 0; r < 8; r += 4) {
      Four four;
      for (int c = 0; c < 4; ++c) four.v[c] = x[r + c][k];
      *(Four*)(tile + (threadIdx.x % 16 + 16 * k) * ACROSS + threadIdx.x / 16 * 8 + r) = four;
    }
}

// Adds the products of a tile across with what its columns' rows hold.
template <int WIDTH>
__device__ void added(float (&sums)[8][share_of(WIDTH)], const float* across, const float* values) {
  const int group = group_of(WIDTH);
  across += threadIdx.x / 16 * 8;
  values += threadIdx.x % 16 * group;
  #pragma unroll 4
  for (int j = 0; j < TILE; ++j) {
    const Four low = *(const Four*)(across + j * ACROSS), high = *(const Four*)(across + j * ACROSS + 4);
    #pragma unroll
    for (int g = 0; g < share_of(WIDTH) / group; ++g) {
      const vector<float, group> value = *(const vector<float, group>*)(values + j * pitch_of(WIDTH) + 64 * g);
      #pragma unroll
      for (int c = 0; c < group; ++c)
        #pragma unroll
        for (int r = 0; r < 8; ++r) sums[r][group * g + c] += (r < 4 ? low.v[r % 4] : high.v[r % 4]) * value.v[c];
    }
  }
}

// Which of a row's floats is a thread's.
template <int WIDTH> __device__ int float_of(int c) {
  return c / group_of(WIDTH) * 64 + threadIdx.x % 16 * group_of(WIDTH) + c % group_of(WIDTH);
}

// Adds what weights of 0 make of rows whose tiles are left out: NaN of what is not finite. logs: of queries that the rows
// are, whose weights are NaN where they are, or null.
template <int WIDTH>
__device__ void left_out(
    float (&sums)[8][share_of(WIDTH)], float* scratch, const float* x, i64 step, i64 first, i64 end, const float* logs) {
  __syncthreads();
  const int part = threadIdx.x / 16;
  #pragma unroll
  for (int c = 0; c < share_of(WIDTH); ++c) {
    const int at = float_of<WIDTH>(c);
    float sum = 0;
    #pragma unroll 8
    for (i64 row = first + part; row < end; row += WORKERS / 16)
      if (at < WIDTH) sum += (logs && logs[row] != logs[row] ? logs[row] : 0) * x[row * step + at];
    scratch[part * pitch_of(WIDTH) + at] = sum;
  }
  __syncthreads();
  for (int c = 0; c < share_of(WIDTH); ++c)
    for (int p = 0; p < WORKERS / 16; ++p)
      for (int r = 0; r < 8; ++r) sums[r][c] += scratch[p * pitch_of(WIDTH) + float_of<WIDTH>(c)];
}

template <int WIDTH>
__device__ void kept(float* y, const float (&sums)[8][share_of(WIDTH)], i64 first, i64 count) {
  for (int r = 0; r < 8; ++r)
    for (int c = 0; c < share_of(WIDTH); ++c) {
      const i64 row = first + threadIdx.x / 16 * 8 + r;
      const int at = float_of<WIDTH>(c);
      if (row < count && at < WIDTH) y[row * WIDTH + at] = sums[r][c];
    }
}

// What makes scores of products. MASK: 0 none, 1 flags, 2 added numbers; steps in bytes.
struct Scores { i64 scale, by_query, by_key; };

__device__ float scale_of(const Scores& scores) { return __int_as_float((int)scores.scale); }

// The score of a product at a place of the mask, and whether the query may look there: what does not is -inf.
__device__ float score_of(float product, const Scores& scores, const char* at, bool& may) {
  float score = product * scale_of(scores);
  if (MASK == 1 && may) may = *at != 0;
  if (MASK == 2 && may) score += *(const float*)at;
  return may ? score : -INFINITE;
}

// So many, of at most a tile.
__device__ int at_most(i64 count) { return count < TILE ? (int)count : TILE; }

// ---- attention
// A block has 64 queries of one matrix and goes over tiles of keys: the largest score yet, the sum of powers and the sums
// of values are set right where a larger score comes. y in C order, logs: the logarithms of the sums of powers.
struct Arguments {
  const float* q; const float* k; const float* v; const char* mask; float* y; float* logs;
  i64 queries, keys, q_step, k_step, v_step;
  Scores scores;
  Length tiles, loops[LOOPS]; i64 q_steps[LOOPS], k_steps[LOOPS], v_steps[LOOPS], mask_steps[LOOPS];
};
extern "C" __global__ void __launch_bounds__(128) kernel(const Arguments a) {
  extern __shared__ u64 memory[];
  float* const own = (float*)memory;
  float* const keys = own + TILE * pitch_of(DEPTH);  // and the weights, across
  float* const values = keys + TILE * (pitch_of(DEPTH) > ACROSS ? pitch_of(DEPTH) : ACROSS);
  const int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16;
  index rest = blockIdx.x;
  const i64 first = (i64)(a.tiles.by.n - 1 - taken(rest, a.tiles)) * TILE;  // those that look at most come first
  const i64 matrix = rest;
  const float *q = a.q, *k = a.k, *v = a.v;
  const char* mask = a.mask;
  #pragma unroll
  for (int loop = LOOPS - 1; loop >= 0; --loop) {
    const i64 i = taken(rest, a.loops[loop]);
    q += i * a.q_steps[loop]; k += i * a.k_steps[loop]; v += i * a.v_steps[loop]; mask += i * a.mask_steps[loop];
  }
  const int here = at_most(a.queries - first) - row;
  fetched<DEPTH>(own, q, a.q_step, first, a.queries);
  float most[8], total[8], sums[8][share_of(OUT)];
  for (int r = 0; r < 8; ++r) {
    most[r] = -INFINITE; total[r] = 0;
    for (int c = 0; c < share_of(OUT); ++c) sums[r][c] = 0;
  }
  const i64 end = CAUSAL && first + TILE < a.keys ? first + TILE : a.keys;
  for (i64 begin = 0; begin < end; begin += TILE) {
    __syncthreads();
    fetched<DEPTH>(keys, k, a.k_step, begin, a.keys);
    fetched<OUT>(values, v, a.v_step, begin, a.keys);
    __syncthreads();
    float s[8][4];
    multiplied<DEPTH>(s, own + row * pitch_of(DEPTH), keys + column * pitch_of(DEPTH));
    const int there = at_most(a.keys - begin) - column, ahead = at_most(first - begin) + row - column;
    const char* const at = mask + (first + row) * a.scores.by_query + (begin + column) * a.scores.by_key;
    #pragma unroll
    for (int r = 0; r < 8; ++r) {
      float large = most[r];
      #pragma unroll
      for (int n = 0; n < 4; ++n) {
        bool may = r < here && 16 * n < there && (!CAUSAL || 16 * n <= ahead + r);
        s[r][n] = score_of(s[r][n], a.scores, at + r * a.scores.by_query + 16 * n * a.scores.by_key, may);
        large = fmaxf(large, s[r][n]);
      }
      #pragma unroll
      for (int d = 8; d > 0; d >>= 1) large = fmaxf(large, __shfl_xor_sync(0xffffffffu, large, d));
      const float shift = large == -INFINITE ? 0 : large, factor = expf(most[r] - shift);
      most[r] = large;
      total[r] *= factor;
      #pragma unroll
      for (int c = 0; c < share_of(OUT); ++c) sums[r][c] *= factor;
      #pragma unroll
      for (int n = 0; n < 4; ++n) { s[r][n] = expf(s[r][n] - shift); total[r] += s[r][n]; }
    }
    __syncthreads();
    turned(keys, s);
    __syncthreads();
    added<OUT>(sums, keys, values);
  }
  if (CAUSAL) left_out<OUT>(sums, values, v, a.v_step, end, a.keys, nullptr);
  #pragma unroll
  for (int r = 0; r < 8; ++r) {
    #pragma unroll
    for (int d = 8; d > 0; d >>= 1) total[r] += __shfl_xor_sync(0xffffffffu, total[r], d);
    for (int c = 0; c < share_of(OUT); ++c) sums[r][c] /= total[r] == 0 ? 1 : total[r];
    const i64 query = first + row + r;
    if (column == 0 && query < a.queries)
      a.logs[matrix * a.queries + query] = total[r] == 0 ? INFINITE : most[r] + logf(total[r]);
  }
  kept<OUT>(a.y + matrix * a.queries * OUT, sums, first, a.queries);
}

// ---- attention back
// Cotangents of keys and values (BY_KEY) or of queries: a block has 64 of them and goes over tiles of the others. x, z:
// keys and values, or queries and the cotangents g of the result; u, w: the other two. means: by query, the sum of g times
// the result.
struct Arguments {
  const float* x; const float* z; const float* u; const float* w; const char* mask; const float* logs; const float* means;
  float* by_x; float* by_z;
  i64 rows, columns, x_step, z_step, u_step, w_step;
  Scores scores;
  Length tiles, loops[LOOPS];
  i64 x_steps[LOOPS], z_steps[LOOPS], u_steps[LOOPS], w_steps[LOOPS], mask_steps[LOOPS];
};
extern "C" __global__ void __launch_bounds__(128) kernel(const Arguments a) {
  extern __shared__ u64 memory[];
  float* const tile_x = (float*)memory;
  float* const tile_z = tile_x + TILE * pitch_of(DEPTH);
  float* const tile_u = tile_z + TILE * pitch_of(OUT);
  float* const tile_w = tile_u + TILE * pitch_of(DEPTH);
  float* const across = tile_w + TILE * pitch_of(OUT);
  const int row = threadIdx.x / 16 * 8, column = threadIdx.x % 16;
  index rest = blockIdx.x;
  const index tile = taken(rest, a.tiles);
  const i64 first = (i64)(BY_KEY ? tile : a.tiles.by.n - 1 - tile) * TILE, matrix = rest;
  const float *x = a.x, *z = a.z, *u = a.u, *w = a.w;
  const char* mask = a.mask;
  #pragma unroll
  for (int loop = LOOPS - 1; loop >= 0; --loop) {
    const i64 i = taken(rest, a.loops[loop]);
    x += i * a.x_steps[loop]; z += i * a.z_steps[loop]; u += i * a.u_steps[loop]; w += i * a.w_steps[loop];
    mask += i * a.mask_steps[loop];
  }
  const i64 queries = BY_KEY ? a.columns : a.rows;
  const float* const logs = a.logs + matrix * queries;
  const float* const means = a.means + matrix * queries;
  const int here = at_most(a.rows - first) - row;
  fetched<DEPTH>(tile_x, x, a.x_step, first, a.rows);
  fetched<OUT>(tile_z, z, a.z_step, first, a.rows);
  float by_x[8][share_of(DEPTH)], by_z[8][share_of(OUT)];
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < share_of(DEPTH); ++c) by_x[r][c] = 0;
    for (int c = 0; c < share_of(OUT); ++c) by_z[r][c] = 0;
  }
  const i64 start = CAUSAL && BY_KEY ? first : 0;
  const i64 end = CAUSAL && !BY_KEY && first + TILE < a.columns ? first + TILE : a.columns;
  for (i64 begin = start; begin < end; begin += TILE) {
    __syncthreads();
    fetched<DEPTH>(tile_u, u, a.u_step, begin, a.columns);
    fetched<OUT>(tile_w, w, a.w_step, begin, a.columns);
    __syncthreads();
    float s[8][4], t[8][4];
    unsigned seen = 0;
    multiplied<DEPTH>(s, tile_x + row * pitch_of(DEPTH), tile_u + column * pitch_of(DEPTH));
    const int there = at_most(a.columns - begin) - column;
    const int ahead = (BY_KEY ? at_most(begin - first) : at_most(first - begin)) + (BY_KEY ? column - row : row - column);
    const i64 by_row = BY_KEY ? a.scores.by_key : a.scores.by_query, by_column = BY_KEY ? a.scores.by_query : a.scores.by_key;
    const char* const at = mask + (first + row) * by_row + (begin + column) * by_column;
    const i64 query = BY_KEY ? begin + column : first + row;
    #pragma unroll
    for (int r = 0; r < 8; ++r)
      #pragma unroll
      for (int n = 0; n < 4; ++n) {
        const bool is = r < here && 16 * n < there;
        bool may = is && (!CAUSAL || (BY_KEY ? r <= ahead + 16 * n : 16 * n <= ahead + r));
        const float score = score_of(s[r][n], a.scores, at + r * by_row + 16 * n * by_column, may);
        s[r][n] = is ? expf(score - logs[query + (BY_KEY ? 16 * n : r)]) : 0;
        seen |= (unsigned)may << (4 * r + n);
      }
    if (BY_KEY) {
      turned(across, s);
      __syncthreads();
      added<OUT>(by_z, across, tile_w);
      __syncthreads();
    }
    multiplied<OUT>(t, tile_z + row * pitch_of(OUT), tile_w + column * pitch_of(OUT));
    #pragma unroll
    for (int r = 0; r < 8; ++r)
      #pragma unroll
      for (int n = 0; n < 4; ++n) {
        const bool may = seen >> (4 * r + n) & 1;
        const float mean = may ? means[query + (BY_KEY ? 16 * n : r)] : 0;
        s[r][n] = may ? s[r][n] * (t[r][n] - mean) * scale_of(a.scores) : 0;
      }
    turned(across, s);
    __syncthreads();
    added<DEPTH>(by_x, across, tile_u);
  }
  if (CAUSAL) {
    const i64 before = start < a.columns ? start : a.columns;
    left_out<DEPTH>(by_x, across, u, a.u_step, BY_KEY ? 0 : end, BY_KEY ? before : a.columns, nullptr);
    if (BY_KEY) left_out<OUT>(by_z, across, w, a.w_step, 0, before, logs);
  }
  kept<DEPTH>(a.by_x + matrix * a.rows * DEPTH, by_x, first, a.rows);
  if (BY_KEY) kept<OUT>(a.by_z + matrix * a.rows * OUT, by_z, first, a.rows);
}
