// Coordinates to bytes. The bytes are those of codec/index, whatever card or grid makes them.
//
// Coordinates are positions in a bucket, strictly increasing; `start` is where their universe begins there.

// What is left out before coordinate `i`.
__device__ __forceinline__ u32 gap_of(const u32 *positions, u32 start, u64 i) {
    return i == 0 ? positions[0] - start : positions[i] - positions[i - 1] - 1;
}

// Looks at every coordinate once: whether one is not above the one before it or not in the universe, in how many gaps
// each bit is set, and which is the last. The sum of all quotients follows from the bits for every Rice parameter.
extern "C" __global__ void survey_gaps(const u32 *positions, u32 start, u32 universe, u32 count, u64 *misplaced, u64 *last,
                                       u64 *set_bits) {
    __shared__ u32 counts[32];
    u32 lane = threadIdx.x & 31, mine = 0;
    if (threadIdx.x < 32) counts[threadIdx.x] = 0;
    __syncthreads();
    bool wrong = false;
    u64 step = (u64)gridDim.x * blockDim.x;
    // Whole warps go round together: all lanes vote.
    for (u64 first = (u64)blockIdx.x * blockDim.x + (threadIdx.x & ~31u); first < count; first += step) {
        u64 i = first + lane;
        u32 gap = 0;
        if (i < count) {
            // A position before the start wraps to one beyond the universe.
            u32 here = positions[i] - start;
            u32 before = i == 0 ? 0 : positions[i - 1] - start;
            wrong |= here >= universe || (i > 0 && before >= here);
            gap = i == 0 ? here : here - before - 1;
            if (i == count - 1) *last = here;
        }
        for (u32 bit = 0; __any_sync(FULL, gap != 0); bit++, gap >>= 1) {
            u32 set = __popc(__ballot_sync(FULL, gap & 1));
            if (lane == bit) mine += set;
        }
    }
    if (mine) atomicAdd(counts + lane, mine);
    if (wrong) atomicOr(misplaced, 1ull);
    __syncthreads();
    if (threadIdx.x < 32 && counts[threadIdx.x]) atomicAdd(set_bits + threadIdx.x, (u64)counts[threadIdx.x]);
}

// The list, for a universe that does not begin at 0.
extern "C" __global__ void write_list(const u32 *positions, u32 start, u32 count, u32 *out) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) out[i] = positions[i] - start;
}

// Sets one bit for each lane that `has` one, in a string of zeros. Bits grow with the lane, and lanes without come last.
// Lanes that meet in a word join first, so that memory is touched once for a word and not once for a bit.
__device__ __forceinline__ void set_bits_of_warp(u32 *words, u32 position, bool has) {
    u32 lane = threadIdx.x & 31;
    u32 word = has ? position >> 5 : FULL, bits = has ? 1u << (position & 31) : 0;
    for (u32 step = 1; step < 32; step *= 2) {
        u32 below = __shfl_up_sync(FULL, bits, step), place = __shfl_up_sync(FULL, word, step);
        if (lane >= step && place == word) bits |= below;
    }
    u32 next = __shfl_down_sync(FULL, word, 1);
    if (has && (lane == 31 || next != word)) atomicOr(words + word, bits);
}

// The bitmap, into zeros.
extern "C" __global__ void write_bitmap(const u32 *positions, u32 start, u32 count, u32 *words) {
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    bool has = i < count;
    set_bits_of_warp(words, has ? positions[i] - start : 0, has);
}

// Coordinates a block takes at a time: each of its eight warps 256 in a row.
#define TILE 2048
#define ROUNDS 8

// The sum of the quotients of each tile.
extern "C" __global__ void sum_quotients(const u32 *positions, u32 start, u32 count, u32 parameter, u64 *sums) {
    __shared__ u32 shared[32];
    u64 first = (u64)blockIdx.x * TILE;
    u32 sum = 0, total;
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = first + round * 256 + threadIdx.x;
        if (i < count) sum += gap_of(positions, start, i) >> parameter;
    }
    scan_block(sum, shared, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Turns sums into the sums of all before, and keeps the sum of all. One block of 1024.
extern "C" __global__ void scan_sums(u64 *sums, u32 count, u64 *total) {
    __shared__ u64 shared[32];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 base = 0;
    for (u32 first = 0; first < count; first += 1024) {
        u32 i = first + threadIdx.x;
        u64 value = i < count ? sums[i] : 0, sum = value;
        for (u32 step = 1; step < 32; step *= 2) {
            u64 below = __shfl_up_sync(FULL, sum, step);
            if (lane >= step) sum += below;
        }
        __syncthreads();
        if (lane == 31) shared[warp] = sum;
        __syncthreads();
        u64 before = 0, all = 0;
        for (u32 other = 0; other < 32; other++) {
            if (other < warp) before += shared[other];
            all += shared[other];
        }
        if (i < count) sums[i] = base + before + sum - value;
        base += all;
    }
    if (threadIdx.x == 0) *total = base;
}

// The parameter in the last byte of the first word, and from the second word on, in zeros, the quotients: the one of
// coordinate `i` stands after the zeros of all quotients up to its own and the `i` ones before. Bits are counted in
// 32 bits: there are no more of them than coordinates in the universe.
extern "C" __global__ void write_quotients(const u32 *positions, u32 start, u32 count, u32 parameter, const u64 *before,
                                           u32 *words) {
    __shared__ u32 sums[8];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    u64 first = (u64)blockIdx.x * TILE + warp * 256 + lane;
    u32 quotients[ROUNDS], sum = 0;
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = first + round * 32;
        quotients[round] = i < count ? gap_of(positions, start, i) >> parameter : 0;
        sum += quotients[round];
    }
    for (u32 step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    u32 base = (u32)before[blockIdx.x];
    for (u32 other = 0; other < warp; other++) base += sums[other];
    for (u32 round = 0; round < ROUNDS; round++) {
        u64 i = first + round * 32;
        u32 of_warp, ahead = scan_warp(quotients[round], of_warp);
        set_bits_of_warp(words + 1, base + ahead + quotients[round] + (u32)i, i < count);
        base += of_warp;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) words[0] = parameter << 24;
}

// The low bits, from bit `begin` of `words` on, a multiple of 8. Each thread makes one word of all fields that reach
// into it; the first word may begin with quotients, which stay. The parameter is 1 to 31.
extern "C" __global__ void write_low_bits(const u32 *positions, u32 start, u32 count, u32 parameter, u64 begin, u32 *words) {
    u64 word = begin / 32 + (u64)blockIdx.x * blockDim.x + threadIdx.x, low = word * 32;
    if (low >= begin + (u64)count * parameter) return;
    u64 i = low > begin ? (low - begin) / parameter : 0;
    u32 mask = (1u << parameter) - 1, made = 0;
    u32 before = i == 0 ? start - 1 : positions[i - 1];
    // Where field `i` begins in the word; the first may have begun before it.
    long long at = (long long)(begin + i * parameter) - (long long)low;
    for (; i < count && at < 32; i++, at += parameter) {
        u32 here = positions[i], field = (here - before - 1) & mask;
        made |= at >= 0 ? field << at : field >> -at;
        before = here;
    }
    words[word] = low < begin ? words[word] | made : made;
}
