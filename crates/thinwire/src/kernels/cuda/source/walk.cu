// The one walk over memory: accumulate, measure, and mark what is large.
//
// Built for one kind of gradient, one update and one ranking:
//   GRADIENT  F32, F16 or BF16
//   UPDATE    KEEP (look at the gradient, change nothing), ADD, REPLACE, HEAVY_BALL or NESTEROV
//   RELATIVE  1 to rank by |u| / max(|w|, guard), 0 by |u|
//
// A warp walks a piece of up to 4096 elements, 32 at a time. Sums are made as the CPU's vector registers of sixteen
// lanes make them, so that they come out the same, bit for bit: the lower lanes of the warp add their own element, and
// then that of the upper ones.
#define KEEP 0
#define ADD 1
#define REPLACE 2
#define HEAVY_BALL 3
#define NESTEROV 4

#define HAS_RESIDUAL (UPDATE == ADD || UPDATE == HEAVY_BALL || UPDATE == NESTEROV)
#define HAS_MOMENTUM (UPDATE == HEAVY_BALL || UPDATE == NESTEROV)

// Rows that are read before the first of them is used, which keeps the memory busy; with this many, four blocks share a
// multiprocessor.
#define ROWS 16

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

extern "C" __global__ void __launch_bounds__(256, 4)
walk(const Number *gradient, float *residual, float *momentum, const float *weights, const Piece *pieces, u32 count,
     float scale, float coefficient, float guard, u32 side, float floor_score, u32 *masks, u32 *hits, double *sums,
     float *extremes, u64 *non_finite, const u32 *units, const Selection *selections) {
    u32 lane = threadIdx.x & 31, number = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (number >= count) return;
    Piece piece = pieces[number];
    // The pieces of several units have a floor for each unit.
    if (units) floor_score = selections[units[number]].floor_score;
    int rows = (piece.length + 31) >> 5;
    // The vectors from this lane's first element on, and how many elements are left there.
    u64 start = (u64)piece.start + lane;
    int left = (int)piece.length - (int)lane;
    gradient += start;
    residual += start;
    momentum += start;
    weights += start;
    masks += (u64)number * 128 + lane;

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
            bool inside = row * 32 < left;
            g[row] = inside ? load(gradient + row * 32) : 0.0f;
#if HAS_RESIDUAL
            r[row] = inside ? __ldcs(residual + row * 32) : 0.0f;
#endif
#if HAS_MOMENTUM
            m[row] = inside ? __ldcs(momentum + row * 32) : 0.0f;
#endif
#if RELATIVE
            w[row] = inside ? __ldcs(weights + row * 32) : 1.0f;
#endif
        }
        u32 word = 0;
#pragma unroll
        for (int row = 0; row < ROWS; row++) {
            bool inside = row * 32 < left;
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
            float upper = __shfl_down_sync(FULL, value, 16);
            sum += value;
            sum += upper;
            magnitudes += magnitude;
            magnitudes += fabsf(upper);
            squares += value * value;
            squares += upper * upper;
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
            if (lane == row) word = ballot;
            marked += __popc(ballot);
            if (!finite) report(non_finite, start + (u64)(first + row) * 32, g[row], value);
#if UPDATE != KEEP
            if (finite && inside) {
                __stcs(residual + row * 32, value);
#if HAS_MOMENTUM
                __stcs(momentum + row * 32, moment);
#endif
            }
#endif
        }
        if (lane < ROWS && first + (int)lane < rows) masks[first] = word;
        gradient += ROWS * 32;
        residual += ROWS * 32;
        momentum += ROWS * 32;
        weights += ROWS * 32;
        left -= ROWS * 32;
    }

    // From here on in 64 bits: one lane after the other.
    double total = 0, total_magnitudes = 0, total_squares = 0;
#pragma unroll 4
    for (u32 other = 0; other < 16; other++) {
        total += (double)__shfl_sync(FULL, sum, other);
        total_magnitudes += (double)__shfl_sync(FULL, magnitudes, other);
        total_squares += (double)__shfl_sync(FULL, squares, other);
    }
    for (u32 step = 16; step > 0; step /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
        lowest = fminf(lowest, __shfl_xor_sync(FULL, lowest, step));
    }
    if (lane == 0) {
        hits[number] = marked;
        sums[3 * (u64)number] = total;
        sums[3 * (u64)number + 1] = total_magnitudes;
        sums[3 * (u64)number + 2] = total_squares;
        extremes[2 * (u64)number] = highest;
        extremes[2 * (u64)number + 1] = lowest;
    }
}
