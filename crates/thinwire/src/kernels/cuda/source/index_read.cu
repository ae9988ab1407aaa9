// Bytes to coordinates. Nothing from the wire is trusted: whatever the bits are, no kernel here reads or writes outside
// the memory it was given, and what is wrong shows in the counts and sums it leaves.

// Words a block takes at a time: each of 256 threads four in a row.
#define WORDS 1024
// Coordinates a block takes at a time, as in index_write.cu.
#define TILE 2048
#define ROUNDS 8

// A word of a string of `bits` bits; what follows the string is not part of it.
__device__ __forceinline__ u32 word_of(const u32 *words, u64 word, u64 bits) {
    u64 first = word * 32;
    if (first >= bits) return 0;
    u32 found = words[word];
    return bits - first < 32 ? found & ((1u << (bits - first)) - 1) : found;
}

// The ones in each tile of a bit string.
extern "C" __global__ void count_ones(const u32 *words, u64 bits, u64 *sums) {
    __shared__ u32 shared[32];
    u32 ones = 0, total;
    for (u32 k = 0; k < 4; k++) ones += __popc(word_of(words, (u64)blockIdx.x * WORDS + k * 256 + threadIdx.x, bits));
    scan_block(ones, shared, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Where the first `count` ones stand, or (for `zeros`) how many zeros come before each; the last one's also in 64 bits.
extern "C" __global__ void find_ones(const u32 *words, u64 bits, const u64 *before, u32 count, u32 zeros, u32 *out, u64 *last) {
    __shared__ u32 shared[32];
    u64 first = (u64)blockIdx.x * WORDS + threadIdx.x * 4;
    u32 found[4], ones = 0, total;
    for (u32 k = 0; k < 4; k++) {
        found[k] = word_of(words, first + k, bits);
        ones += __popc(found[k]);
    }
    u64 i = before[blockIdx.x] + scan_block(ones, shared, total);
    for (u32 k = 0; k < 4; k++) {
        for (u32 word = found[k]; word != 0; word &= word - 1, i++) {
            if (i >= count) return;
            u64 position = (first + k) * 32 + (__ffs(word) - 1);
            if (zeros) position -= i;
            out[i] = (u32)position;
            if (i == count - 1) *last = position;
        }
    }
}

// Field `i` of `parameter` bits of the string that begins at bit `begin`.
__device__ __forceinline__ u32 field_of(const u32 *words, u64 begin, u32 parameter, u64 i) {
    if (parameter == 0) return 0;
    u64 at = begin + i * parameter, word = at / 32;
    u32 shift = (u32)at & 31;
    u64 found = words[word];
    if (shift + parameter > 32) found |= (u64)words[word + 1] << 32;
    return (u32)(found >> shift) & ((1u << parameter) - 1);
}

// The sum of the low bits of each tile, in 64 bits: those of a hostile message may be anything.
extern "C" __global__ void sum_low_bits(const u32 *words, u64 begin, u32 parameter, u32 count, u64 *sums) {
    __shared__ u64 shared[8];
    u64 sum = 0;
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = (u64)blockIdx.x * TILE + round * 256 + threadIdx.x;
        if (i < count) sum += field_of(words, begin, parameter, i);
    }
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (u32 other = 1; other < 8; other++) sum += shared[other];
    sums[blockIdx.x] = sum;
}

// Makes coordinates of the zeros before each: the quotients so far with the low bits so far and one for each before.
// In 32 bits: the host has the last one in 64, and it is the largest.
extern "C" __global__ void join_deltas(const u32 *words, u64 begin, u32 parameter, u32 count, const u64 *before, u32 *out) {
    __shared__ u32 sums[8];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 first = (u64)blockIdx.x * TILE + warp * 256 + lane;
    u32 fields[ROUNDS], sum = 0;
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = first + round * 32;
        fields[round] = i < count ? field_of(words, begin, parameter, i) : 0;
        sum += fields[round];
    }
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    u32 base = (u32)before[blockIdx.x];
    for (u32 other = 0; other < warp; other++) base += sums[other];
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = first + round * 32;
        u32 of_warp, ahead = scan_warp(fields[round], of_warp);
        if (i < count) out[i] = (out[i] << parameter) + base + ahead + fields[round] + (u32)i;
        base += of_warp;
    }
}
