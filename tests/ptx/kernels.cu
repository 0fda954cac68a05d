// Small kernels that together use what the interpreter knows. Compiled with --fmad=false.

#define KERNEL extern "C" __global__ void
#define INDEX blockIdx.x * blockDim.x + threadIdx.x
#define EACH(n) for (int i = INDEX; i < (n); i += gridDim.x * blockDim.x)

typedef signed char int8;
typedef short int16;
typedef int int32;
typedef long long int64;
typedef unsigned char uint8;
typedef unsigned short uint16;
typedef unsigned uint32;
typedef unsigned long long uint64;

// Arithmetic of integers; divisors are never 0, and shifts less than the width.
#define INTEGERS(T)                                                                                         \
    KERNEL integers_##T(const T* x, const T* y, const unsigned char* by, T* out, int n) {                   \
        EACH(n) {                                                                                           \
            T a = x[i], b = y[i], s = by[i] & (8 * sizeof(T) - 1);                                          \
            T d = b == 0 || b == (T)-1 ? 1 : b;                                                             \
            T all[] = {T(a + b), T(a - b), T(a * b), T(a / d), T(a % d), T(a & b), T(a | b), T(a ^ b),      \
                       T(~a), T(-a), T(a << s), T(a >> s), a < b ? a : b, a > b ? a : b,                    \
                       T(a == b), T(a != b), T(a < b), T(a <= b), T(a > b), T(a >= b)};                     \
            for (int k = 0; k < 20; k++) out[k * n + i] = all[k];                                           \
        }                                                                                                   \
    }
INTEGERS(int8)
INTEGERS(int16)
INTEGERS(int32)
INTEGERS(int64)
INTEGERS(uint8)
INTEGERS(uint16)
INTEGERS(uint32)
INTEGERS(uint64)

// Wide products, and what the hardware has for bits.
KERNEL bits(const long long* x, const long long* y, long long* out, int n) {
    EACH(n) {
        long long a = x[i], b = y[i];
        int c = (int)a, d = (int)b;
        unsigned __int128 wide = (unsigned __int128)(unsigned long long)a * (unsigned long long)b + a;
        unsigned __int128 less = wide - b;
        unsigned field = 0, place = 0, lop = 0, first = 0;
        int sign = 0;
        asm("bfe.u32 %0, %1, %2, %3;" : "=r"(field) : "r"(c), "r"(d & 31), "r"((d >> 8) & 31));
        asm("bfe.s32 %0, %1, %2, %3;" : "=r"(sign) : "r"(c), "r"(d & 31), "r"((d >> 8) & 31));
        asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(place) : "r"(c), "r"(d), "r"(d & 31), "r"((d >> 8) & 31));
        asm("lop3.b32 %0, %1, %2, %3, 0xB1;" : "=r"(lop) : "r"(c), "r"(d), "r"((int)(a >> 32)));
        asm("bfind.s32 %0, %1;" : "=r"(first) : "r"(c));
        long long all[] = {(long long)(wide >> 64), (long long)less, (long long)(less >> 64),
                           __mul64hi(a, b), (long long)__umul64hi(a, b), __mulhi(c, d), (long long)__umulhi(c, d),
                           __popcll(a), __popc(c), __clzll(a), __clz(c), (long long)__brevll(a), (long long)__brev(c),
                           __ffsll(a), __funnelshift_l(c, d, c), __funnelshift_r(c, d, c), __funnelshift_lc(c, d, d & 63),
                           __funnelshift_rc(c, d, d & 63), __byte_perm(c, d, (int)(a >> 20)), field, sign, place, lop,
                           first, __sad(c, d, 7u), (long long)((unsigned long long)a << (b & 127)), a >> (b & 63)};
        for (int k = 0; k < 27; k++) out[k * n + i] = all[k];
    }
}

// Arithmetic of floats, in all directions of rounding.
#define FLOATS(T, name, f, d)                                                                              \
    KERNEL floats_##name(const T* x, const T* y, const T* z, T* out, int n) {                               \
        EACH(n) {                                                                                           \
            T a = x[i], b = y[i], c = z[i];                                                                 \
            T all[] = {a + b, a - b, a * b, a / b, sqrt(a), -a, fabs(a), floor(a), ceil(a), trunc(a), rint(a), \
                       fmin(a, b), fmax(a, b), copysign(a, b), d##add_rz(a, b), d##add_rd(a, b),            \
                       d##add_ru(a, b), d##mul_rz(a, b), d##mul_rd(a, b), d##mul_ru(a, b),                  \
                       f##_rn(a, b, c), f##_rz(a, b, c), f##_rd(a, b, c), f##_ru(a, b, c)};                 \
            for (int k = 0; k < 24; k++) out[k * n + i] = all[k];                                           \
        }                                                                                                   \
    }
FLOATS(float, float32, __fmaf, __f)
FLOATS(double, float64, __fma, __d)

#define COMPARE(T, name)                                                                                    \
    KERNEL compare_##name(const T* x, const T* y, unsigned char* out, int n) {                              \
        EACH(n) {                                                                                           \
            T a = x[i], b = y[i];                                                                           \
            bool all[] = {a == b, a != b, a < b, a <= b, a > b, a >= b, !(a < b), !(a <= b), !(a > b),      \
                          !(a >= b), (bool)isnan(a), (bool)isinf(a), (bool)isfinite(a), (bool)signbit(a)};              \
            for (int k = 0; k < 14; k++) out[k * n + i] = all[k];                                           \
        }                                                                                                   \
    }
COMPARE(float, float32)
COMPARE(double, float64)

// Conversions: cvt saturates, which C++ leaves undefined, so the instructions are written out.
KERNEL to_integers(const double* x, int* narrow, long long* wide, int n) {
    EACH(n) {
        double a = x[i];
        float f = (float)a;
        int out[8];
        long long big[4];
        asm("cvt.rzi.s32.f64 %0, %1;" : "=r"(out[0]) : "d"(a));
        asm("cvt.rni.u32.f64 %0, %1;" : "=r"(out[1]) : "d"(a));
        asm("cvt.rmi.s32.f32 %0, %1;" : "=r"(out[2]) : "f"(f));
        asm("cvt.rpi.u32.f32 %0, %1;" : "=r"(out[3]) : "f"(f));
        asm("{.reg .b16 t; cvt.rzi.s16.f32 t, %1; cvt.s32.s16 %0, t;}" : "=r"(out[4]) : "f"(f));
        asm("{.reg .b32 t; cvt.rni.s32.f32 t, %1; cvt.sat.s8.s32 %0, t;}" : "=r"(out[5]) : "f"(f));
        asm("{.reg .b32 t; cvt.rni.s32.f32 t, %1; cvt.sat.u8.s32 %0, t;}" : "=r"(out[6]) : "f"(f));
        asm("{.reg .b16 t; cvt.rn.f16.f32 t, %1; cvt.u32.u16 %0, t;}" : "=r"(out[7]) : "f"(f));
        asm("cvt.rzi.s64.f64 %0, %1;" : "=l"(big[0]) : "d"(a));
        asm("cvt.rni.u64.f64 %0, %1;" : "=l"(big[1]) : "d"(a));
        asm("cvt.rmi.s64.f32 %0, %1;" : "=l"(big[2]) : "f"(f));
        asm("cvt.rpi.u64.f32 %0, %1;" : "=l"(big[3]) : "f"(f));
        for (int k = 0; k < 8; k++) narrow[k * n + i] = out[k];
        for (int k = 0; k < 4; k++) wide[k * n + i] = big[k];
    }
}

KERNEL to_floats(const long long* x, const double* y, float* single, double* full, int n) {
    EACH(n) {
        long long a = x[i];
        unsigned long long u = a;
        double d = y[i];
        float s[] = {(float)a, (float)u, __ll2float_rz(a), __ll2float_rd(a), __ull2float_ru(u), (float)(int)a,
                     __int2float_rz((int)a), (float)(short)a, __double2float_rn(d), __double2float_rz(d),
                     __double2float_rd(d), __double2float_ru(d), __saturatef((float)d)};
        double f[] = {(double)a, (double)u, __ll2double_rz(a), __ull2double_ru(u), (double)(int)a, (double)(float)d};
        for (int k = 0; k < 13; k++) single[k * n + i] = s[k];
        for (int k = 0; k < 6; k++) full[k * n + i] = f[k];
    }
}

KERNEL halves(const unsigned short* x, float* out, int n) {
    EACH(n) asm("cvt.f32.f16 %0, %1;" : "=f"(out[i]) : "h"(x[i]));
}

// Functions
#define FUNCTION(name)                                                                                      \
    KERNEL name##_float32(const float* x, float* y, int n) { EACH(n) y[i] = name##f(x[i]); }                \
    KERNEL name##_float64(const double* x, double* y, int n) { EACH(n) y[i] = name(x[i]); }
#define FUNCTION2(name)                                                                                     \
    KERNEL name##_float32(const float* x, const float* z, float* y, int n) { EACH(n) y[i] = name##f(x[i], z[i]); } \
    KERNEL name##_float64(const double* x, const double* z, double* y, int n) { EACH(n) y[i] = name(x[i], z[i]); }
FUNCTION(sin) FUNCTION(cos) FUNCTION(tan) FUNCTION(asin) FUNCTION(acos) FUNCTION(atan)
FUNCTION(sinh) FUNCTION(cosh) FUNCTION(tanh) FUNCTION(asinh) FUNCTION(acosh) FUNCTION(atanh)
FUNCTION(exp) FUNCTION(exp2) FUNCTION(expm1) FUNCTION(log) FUNCTION(log2) FUNCTION(log10) FUNCTION(log1p)
FUNCTION(cbrt) FUNCTION(erf) FUNCTION(erfc) FUNCTION(tgamma) FUNCTION(lgamma) FUNCTION(rsqrt)
FUNCTION2(pow) FUNCTION2(atan2) FUNCTION2(hypot) FUNCTION2(fmod) FUNCTION2(remainder) FUNCTION2(nextafter)

// Control
KERNEL collatz(const int* x, int* steps, int n) {
    EACH(n) {
        long long a = x[i];
        int count = 0;
        while (a != 1) {
            a = a & 1 ? 3 * a + 1 : a / 2;
            if (++count > 1000) return;
        }
        steps[i] = count;
    }
}

KERNEL choices(const int* x, int* y, int n) {
    EACH(n) {
        int total = 0;
        for (int k = 0; k < x[i]; k++) {
            if (k % 5 == 3) continue;
            switch (k % 8) {
                case 0: total += 7; break;
                case 1: total ^= k; break;
                case 2: total = total * 3 + 1;
                case 3: total -= x[(i + 1) % n]; break;
                case 4: total += total >> 2; break;
                case 5: for (int j = 0; j < k; j++) total += j ^ total; break;
                case 6: if (total > 100) total = -total; break;
            }
            if (total > 100000) break;
        }
        y[i] = total;
    }
}

// Columns of a strided matrix times a row that is broadcast.
KERNEL strided(const float* x, long long row, long long column, const double* w, double* y, int rows, int columns) {
    EACH(rows * columns) {
        int r = i / columns, c = i % columns;
        y[i] = x[r * row + c * column] * w[c];
    }
}

// Memory
struct Point { float where[3]; short kind; double weight[2]; };
__constant__ double constants[5] = {0.5, -1.5, 2.25, 1e300, -0.0};
__device__ float table[4] = {1, 2, 4, 8};

KERNEL by_value(const Point p, const char c, double* y, int n) {
    EACH(n) y[i] = p.where[i % 3] + p.kind * c + p.weight[i & 1] * constants[i % 5] + table[i & 3];
}

__device__ __noinline__ void split(double x, double* whole, float* rest) { *whole = floor(x); *rest = x - floor(x); }
__device__ __noinline__ long long deeper(int depth, long long x) { return depth ? deeper(depth - 1, x * 3 + depth) : x; }

KERNEL local_memory(const double* x, const int* order, double* y, long long* z, int n) {
    EACH(n) {
        double parts[9];
        float rest[9];
        for (int k = 0; k < 9; k++) split(x[i] * k, parts + order[(i + k) % 9], rest + order[(i + 2 * k) % 9]);
        double total = 0;
        for (int k = 0; k < 9; k++) total = total * 2 + parts[k] - rest[(k + i) % 9];
        y[i] = total;
        z[i] = deeper(order[i % 9], i);
    }
}

KERNEL vectors(const float4* x, const double2* y, const uchar4* c, float4* u, double2* v, uchar4* d) {
    int i = INDEX;
    float4 a = x[i];
    double2 b = y[i];
    uchar4 e = c[i];
    u[i] = make_float4(a.w, a.z, a.y, a.x);
    v[i] = make_double2(b.y, b.x);
    d[i] = make_uchar4(e.y, e.z, e.w, e.x);
}

// Blocks and warps
template <typename T> __device__ T block_sum(T value, T* parts) {
    for (int step = 16; step; step >>= 1) value += __shfl_down_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5] = value;
    __syncthreads();
    if (threadIdx.x < 32) {
        value = threadIdx.x < (blockDim.x + 31) / 32 ? parts[threadIdx.x] : T(0);
        for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    }
    return value;
}

KERNEL sums(const double* x, double* y, int n) {
    __shared__ double parts[32];
    double total = 0;
    EACH(n) total += x[i];
    total = block_sum(total, parts);
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}

KERNEL tree(const int* x, int* y, int n) {
    extern __shared__ int pool[];
    int i = INDEX;
    pool[threadIdx.x] = i < n ? x[i] : 0;
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) pool[threadIdx.x] += pool[threadIdx.x + half];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = pool[0];
}

KERNEL transposed(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[8][9];
    int r = blockIdx.y * 8 + threadIdx.y, c = blockIdx.x * 8 + threadIdx.x;
    if (r < rows && c < columns) tile[threadIdx.y][threadIdx.x] = x[r * columns + c];
    __syncthreads();
    r = blockIdx.y * 8 + threadIdx.x, c = blockIdx.x * 8 + threadIdx.y;
    if (r < rows && c < columns) y[c * rows + r] = tile[threadIdx.x][threadIdx.y];
}

KERNEL warps(const int* x, int* y, int n) {
    int i = INDEX, a = x[i], width = 8;
    int all[] = {__shfl_sync(0xffffffffu, a, 5), __shfl_sync(0xffffffffu, a, i * 3, width),
                 __shfl_up_sync(0xffffffffu, a, 3), __shfl_up_sync(0xffffffffu, a, 3, width),
                 __shfl_down_sync(0xffffffffu, a, 3), __shfl_down_sync(0xffffffffu, a, 3, width),
                 __shfl_xor_sync(0xffffffffu, a, 5), __shfl_xor_sync(0xffffffffu, a, 5, width),
                 (int)__ballot_sync(0xffffffffu, a > 0), __any_sync(0xffffffffu, a > 90), __all_sync(0xffffffffu, a > -90)};
    for (int k = 0; k < 11; k++) y[k * n + i] = all[k];
    y[11 * n + i] = i % 3 ? (int)__activemask() : 0;
    unsigned odd = __ballot_sync(0xffffffffu, a & 1);
    if (a & 1) y[12 * n + i] = __shfl_sync(odd, a, __ffs(odd) - 1);
#if __CUDA_ARCH__ >= 800
    y[13 * n + i] = __reduce_add_sync(0xffffffffu, a);
    y[14 * n + i] = __reduce_max_sync(0xffffffffu, a);
#endif
}

KERNEL atomics(const int* x, int* counts, unsigned long long* most, float* sum, int n) {
    __shared__ int here[4];
    if (threadIdx.x < 4) here[threadIdx.x] = 0;
    __syncthreads();
    EACH(n) {
        atomicAdd(here + (x[i] & 3), 1);
        atomicMax(most, (unsigned long long)x[i]);
        atomicAdd(sum, 0.5f);
    }
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(counts + threadIdx.x, here[threadIdx.x]);
}

// What a kernel must not do
KERNEL beyond(const float* x, float* y, int n) { EACH(n) y[i] = x[i + 1]; }
KERNEL writes_beyond(float* y, int n) { EACH(n) y[i - 1] = 1; }
KERNEL crooked(const char* x, float* y) { y[threadIdx.x] = *(const float*)(x + 2 * threadIdx.x); }
KERNEL no_barrier(const int* x, int* y) {
    __shared__ int all[64];
    all[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = all[63 - threadIdx.x];
}
KERNEL early_write(const int* x, int* y) {
    __shared__ int all[64];
    all[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    int a = all[63 - threadIdx.x];
    all[threadIdx.x] = a + 1;
    __syncthreads();
    y[threadIdx.x] = all[threadIdx.x ^ 1];
}
KERNEL same_place(int* y) {
    __shared__ int one;
    one = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = one;
}
KERNEL meeting(int* x) { x[threadIdx.x] = x[threadIdx.x + 1] + 1; }
KERNEL all_write(int* y) { y[threadIdx.x / 2] = 1; }
KERNEL through_memory(int* x, int* y) {
    x[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = x[blockDim.x - 1 - threadIdx.x];
}
KERNEL lonely(int* y) {
    if (threadIdx.x < 7) asm volatile("bar.sync 0;");
    else asm volatile("bar.sync 1;");
    y[threadIdx.x] = 1;
}
KERNEL missing_partner(const int* x, int* y) {
    int a = x[threadIdx.x];
    if (threadIdx.x < 16) y[threadIdx.x] = __shfl_sync(0x0000ffffu, a, 20);
}
KERNEL quotients(const int* x, const int* z, int* y) { y[threadIdx.x] = x[threadIdx.x] / z[threadIdx.x]; }
KERNEL endless(volatile int* y) { while (*y == 0) {} }
KERNEL shared_beyond(int* y, int k) {
    extern __shared__ int pool[];
    pool[threadIdx.x + k] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = pool[threadIdx.x];
}
KERNEL unknown(int* y) { asm volatile("nanosleep.u32 %0;" ::"r"(y[0])); }
