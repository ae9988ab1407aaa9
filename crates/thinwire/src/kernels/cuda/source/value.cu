// Values to bytes and back, with the arithmetic of codec/value.

// Forms that lose something, by their numbers on the wire (F16 and BF16 are those of common.cu).
#define RANGE 3
#define SAME_SIGN 4

#define INFINITY_BITS 0x7f800000u
#define SIGN_BIT 0x80000000u

// Elements whose sums are made by one block, and the threads of it.
#define PIECE 8192
#define THREADS 256

// Largest magnitude and signs of all values; sum and sum of squares of each piece, in an order that no card changes.
extern "C" __global__ void measure(const float *values, u64 count, double *sums, u64 *largest, u64 *signs) {
    __shared__ double shared[2][THREADS / 32];
    u64 first = (u64)blockIdx.x * PIECE;
    // Minus zero adds nothing to any number, itself included.
    double sum = -0.0, squares = 0.0;
    u32 most = 0, found = 0;
#pragma unroll 8
    for (u32 k = threadIdx.x; k < PIECE; k += THREADS) {
        float value = first + k < count ? values[first + k] : -0.0f;
        most = max(most, __float_as_uint(value) & ~SIGN_BIT);
        found |= (value > 0.0f ? 1 : 0) | (value < 0.0f ? 2 : 0);
        sum += (double)value;
        squares += (double)value * (double)value;
    }
    for (u32 step = 16; step > 0; step /= 2) {
        sum += __shfl_down_sync(FULL, sum, step);
        squares += __shfl_down_sync(FULL, squares, step);
        most = max(most, __shfl_down_sync(FULL, most, step));
        found |= __shfl_down_sync(FULL, found, step);
    }
    if ((threadIdx.x & 31) == 0) {
        shared[0][threadIdx.x >> 5] = sum;
        shared[1][threadIdx.x >> 5] = squares;
        if (most) atomicMax(largest, (u64)most);
        if (found) atomicOr(signs, (u64)found);
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 warp = 1; warp < THREADS / 32; warp++) {
        sum += shared[0][warp];
        squares += shared[1][warp];
    }
    sums[2 * (u64)blockIdx.x] = sum;
    sums[2 * (u64)blockIdx.x + 1] = squares;
}

// Adds the pieces up. One block of 1024.
extern "C" __global__ void fold(const double *sums, u32 pieces, double *sum, double *squares) {
    __shared__ double shared[2][1024];
    double a = -0.0, b = 0.0;
    for (u64 i = threadIdx.x; i < pieces; i += 1024) {
        a += sums[2 * i];
        b += sums[2 * i + 1];
    }
    shared[0][threadIdx.x] = a;
    shared[1][threadIdx.x] = b;
    for (u32 step = 512; step > 0; step /= 2) {
        __syncthreads();
        if (threadIdx.x < step) {
            shared[0][threadIdx.x] += shared[0][threadIdx.x + step];
            shared[1][threadIdx.x] += shared[1][threadIdx.x + step];
        }
    }
    if (threadIdx.x != 0) return;
    *sum = shared[0][0];
    *squares = shared[1][0];
}

// A range-based float (see range_float.rs), its bounds as bits.
struct Range {
    u32 bits, shift, half, eps, most_positive, most_negative, base, positive, negative;
};

__device__ __forceinline__ u32 code_of(const Range &range, float value, bool &clipped) {
    u32 bits = __float_as_uint(value), magnitude = bits & ~SIGN_BIT;
    bool is_negative = bits & SIGN_BIT;
    u32 limit = is_negative ? range.most_negative : range.most_positive;
    u32 last = is_negative ? range.negative : range.positive;
    clipped = magnitude > limit;
    // Below eps the subtraction wraps; that code is not used.
    u32 step = min(((min(magnitude, limit) + range.half) >> range.shift) - range.base + 1, last);
    return magnitude < range.eps ? 0 : (is_negative ? range.positive : 0) + step;
}

__device__ __forceinline__ float value_of(const Range &range, u32 code) {
    if (code == 0) return 0.0f;
    u32 is_negative = code > range.positive, step = code - is_negative * range.positive;
    return __uint_as_float(((step + range.base - 1) << range.shift) | is_negative << 31);
}

__device__ __forceinline__ float largest_of(u32 form) {
    return form == F16 ? 65504.0f : __uint_as_float(0x7f7f0000u);
}

__device__ __forceinline__ u16 half_of(u32 form, float value) {
    float most = largest_of(form), inside = fminf(fmaxf(value, -most), most);
    return form == F16 ? float_to_half(inside) : float_to_bfloat(inside);
}

__device__ __forceinline__ float float_of(u32 form, u16 half) {
    return form == F16 ? half_to_float(half) : bfloat_to_float(half);
}

// Adds what the threads of a warp have counted; all of them come here.
__device__ __forceinline__ void count_up(u64 *counter, u32 counted) {
    for (u32 step = 16; step > 0; step /= 2) counted += __shfl_xor_sync(FULL, counted, step);
    if ((threadIdx.x & 31) == 0 && counted) atomicAdd(counter, (u64)counted);
}

// 16-bit floats, two in a word.
extern "C" __global__ void write_halves(const float *values, u64 count, u32 form, u32 *words, u64 *clipped) {
    u64 i = 2 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    u32 word = 0, over = 0;
    for (u32 k = 0; k < 2; k++) {
        if (i + k >= count) break;
        float value = values[i + k];
        over += fabsf(value) > largest_of(form);
        word |= (u32)half_of(form, value) << (16 * k);
    }
    if (i < count) words[i / 2] = word;
    __syncwarp();
    count_up(clipped, over);
}

// Range-based floats. Each thread makes one word of all codes that reach into it; a clipped value counts where its code
// begins. Thirty-two codes fill as many words as a code has bits.
extern "C" __global__ void write_codes(const float *values, u64 count, Range range, u64 words_there, u32 *words, u64 *clipped) {
    u64 word = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 over = 0;
    if (word < words_there) {
        u32 group = (u32)word / range.bits, bit = 32 * ((u32)word - group * range.bits), first = bit / range.bits;
        u64 i = (u64)group * 32 + first;
        u32 made = 0;
        for (int at = (int)(first * range.bits) - (int)bit; at < 32 && i < count; at += range.bits, i++) {
            bool is_over;
            u32 code = code_of(range, values[i], is_over);
            made |= at >= 0 ? code << at : code >> -at;
            over += is_over && at >= 0;
        }
        words[word] = made;
    }
    __syncwarp();
    count_up(clipped, over);
}

// One number, the mean of all.
extern "C" __global__ void write_mean(float mean, float *out) { *out = mean; }

// Values become what receivers will not see of them. A block of 256 threads takes 1024.
extern "C" __global__ void keep_loss(float *values, u64 count, u32 form, Range range, const float *mean) {
    u64 first = (u64)blockIdx.x * 1024 + threadIdx.x;
    float found[4];
    for (u32 k = 0; k < 4; k++) found[k] = first + k * 256 < count ? values[first + k * 256] : 0.0f;
    for (u32 k = 0; k < 4; k++) {
        float seen;
        bool clipped;
        if (form == RANGE) seen = value_of(range, code_of(range, found[k], clipped));
        else if (form == SAME_SIGN) seen = *mean;
        else seen = float_of(form, half_of(form, found[k]));
        if (first + k * 256 < count) values[first + k * 256] = found[k] - seen;
    }
}

extern "C" __global__ void read_halves(const u16 *halves, u64 count, u32 form, float *out, u64 *wrong) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float value = float_of(form, halves[i]);
    if ((__float_as_uint(value) & ~SIGN_BIT) >= INFINITY_BITS) atomicOr(wrong, 1ull);
    out[i] = value;
}

// A code that no value has is read as the last there is, and told.
extern "C" __global__ void read_codes(const u32 *words, u64 count, Range range, float *out, u64 *wrong) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    u64 at = i * range.bits, word = at / 32;
    u32 shift = (u32)at & 31;
    u64 found = words[word];
    if (shift + range.bits > 32) found |= (u64)words[word + 1] << 32;
    u32 code = (u32)(found >> shift) & ((1u << range.bits) - 1), last = range.positive + range.negative;
    if (code > last) atomicOr(wrong, 1ull);
    out[i] = value_of(range, min(code, last));
}

extern "C" __global__ void read_mean(float mean, u64 count, float *out) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = mean;
}
