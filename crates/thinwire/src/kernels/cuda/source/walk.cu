// The one walk over memory: accumulate, measure, and mark what is large.
//
// Built for one kind of gradient, one update and one ranking:
//   GRADIENT  F32, F16 or BF16
//   UPDATE    KEEP (look at the gradient, change nothing), ADD, REPLACE, HEAVY_BALL or NESTEROV
//   RELATIVE  1 to rank by |u| / max(|w|, guard), 0 by |u|
//
// Sixteen lanes walk a piece of up to 4096 elements row by row, as the CPU's vector registers do, so that every sum
// is made in the same order and comes out the same, bit for bit. Two pieces share a warp.
#define KEEP 0
#define ADD 1
#define REPLACE 2
#define HEAVY_BALL 3
#define NESTEROV 4

#define HAS_RESIDUAL (UPDATE == ADD || UPDATE == HEAVY_BALL || UPDATE == NESTEROV)
#define HAS_MOMENTUM (UPDATE == HEAVY_BALL || UPDATE == NESTEROV)

// Rows that are read before the first of them is used: keeps the memory busy.
#ifndef ROWS
#define ROWS 8
#endif

struct Piece {
    u32 start, length;
};

#if GRADIENT == F32
typedef float Number;
#else
typedef u16 Number;
#endif

__device__ __forceinline__ float load(const Number *at) {
#if GRADIENT == F32
    return __ldcs(at);
#elif GRADIENT == F16
    return half_to_float(__ldcs(at));
#else
    return bfloat_to_float(__ldcs(at));
#endif
}

// Rare, and the end of the step. The first in order is reported; the gradient, if it is at fault.
__device__ __noinline__ void report(u64 *non_finite, u64 position, float own, float value) {
    atomicMin(non_finite, position << 32 | __float_as_uint(fabsf(own) < INFINITE ? value : own));
}

#ifndef LEAST_BLOCKS
#define LEAST_BLOCKS 4
#endif

extern "C" __global__ void __launch_bounds__(256, LEAST_BLOCKS)
walk(const Number *gradient, float *residual, float *momentum, const float *weights, const Piece *pieces, u32 count,
     float scale, float coefficient, float guard, u32 side, float floor_score, u16 *masks, u32 *hits, double *sums,
     float *extremes, u64 *non_finite) {
    u32 lane = threadIdx.x & 31, half = lane >> 4, column = lane & 15;
    u32 number = (blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5)) * 2 + half;
    bool there = number < count;
    Piece piece = there ? pieces[number] : Piece{0, 0};
    int own_rows = (piece.length + 15) >> 4;
    int rows = max(own_rows, __shfl_xor_sync(FULL, own_rows, 16));
    // The vectors from this lane's first element on, and how many elements are left there.
    u64 start = (u64)piece.start + column;
    int left = (int)piece.length - (int)column;
    gradient += start;
    residual += start;
    momentum += start;
    weights += start;
    masks += (u64)number * 256 + column;

    float sum = 0, magnitudes = 0, squares = 0, highest = 0, lowest = 0;
    u32 marked = 0;
#pragma unroll 1
    for (int first = 0; first < rows; first += ROWS) {
        float g[ROWS];
#if HAS_RESIDUAL
        float r[ROWS];
#endif
#if HAS_MOMENTUM
        float m[ROWS];
#endif
#if RELATIVE
        float w[ROWS];
#endif
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            bool inside = row * 16 < left;
            g[row] = inside ? load(gradient + row * 16) : 0.0f;
#if HAS_RESIDUAL
            r[row] = inside ? __ldcs(residual + row * 16) : 0.0f;
#endif
#if HAS_MOMENTUM
            m[row] = inside ? __ldcs(momentum + row * 16) : 0.0f;
#endif
#if RELATIVE
            w[row] = inside ? __ldcs(weights + row * 16) : 1.0f;
#endif
        }
        u32 word = 0;
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            bool inside = row * 16 < left;
#if UPDATE == KEEP
            float value = g[row];
#elif UPDATE == ADD
            float value = r[row] + g[row] * scale;
#elif UPDATE == REPLACE
            float value = g[row] * scale;
#elif UPDATE == HEAVY_BALL
            float moment = m[row] * coefficient + g[row] * scale;
            float value = r[row] + moment;
#else
            float own = g[row] * scale;
            float moment = (m[row] + own) * coefficient;
            float value = r[row] + (moment + own);
#endif
            float magnitude = fabsf(value);
            sum += value;
            magnitudes += magnitude;
            squares += value * value;
            highest = fmaxf(highest, value);
            lowest = fminf(lowest, value);
#if RELATIVE
            float weight = fabsf(w[row]);
            float score = magnitude / (weight > guard ? weight : guard);
#else
            float score = magnitude;
#endif
            bool finite = magnitude < INFINITE;
            bool right_side = side == 0 || (side == 2) == (__float_as_int(value) < 0);
            u32 ballot = __ballot_sync(FULL, finite && !(score < floor_score) && right_side);
            if (column == row) word = ballot;
            marked += __popc(half ? ballot >> 16 : ballot & 0xffffu);
            if (!finite) report(non_finite, start + (u64)(first + row) * 16, g[row], value);
#if UPDATE != KEEP
            if (finite && inside) {
                __stcs(residual + row * 16, value);
#if HAS_MOMENTUM
                __stcs(momentum + row * 16, moment);
#endif
            }
#endif
        }
        if (column < ROWS && first + (int)column < own_rows) masks[first] = (u16)(word >> (16 * half));
        gradient += ROWS * 16;
        residual += ROWS * 16;
        momentum += ROWS * 16;
        weights += ROWS * 16;
        left -= ROWS * 16;
    }

    // From here on in 64 bits: the lanes of a piece one after the other.
    double total = 0, total_magnitudes = 0, total_squares = 0;
#pragma unroll 4
    for (u32 other = 0; other < 16; other++) {
        u32 from = half * 16 + other;
        total += (double)__shfl_sync(FULL, sum, from);
        total_magnitudes += (double)__shfl_sync(FULL, magnitudes, from);
        total_squares += (double)__shfl_sync(FULL, squares, from);
    }
    for (u32 step = 8; step > 0; step /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
        lowest = fminf(lowest, __shfl_xor_sync(FULL, lowest, step));
    }
    if (there && column == 0) {
        hits[number] = marked;
        sums[3 * (u64)number] = total;
        sums[3 * (u64)number + 1] = total_magnitudes;
        sums[3 * (u64)number + 2] = total_squares;
        extremes[2 * (u64)number] = highest;
        extremes[2 * (u64)number + 1] = lowest;
    }
}
