// Which of the candidates are kept: the exact best k, or those in a band of scores. The candidates are in order of
// position, and so are those that are kept; ties go to the lower position.
//
// The k-th best score is found digit by digit (11, 10 and 10 bits): scores are never negative, so their bits order
// as they do. Whichever block of a pass ends last looks for the digit.
struct Piece {
    u32 start, length;
};

// The head of a choice, read by the host: see choose.rs.
#define PREFIX 0
#define NEED 1
#define KEPT 2
#define BINS 2048

__device__ __forceinline__ u32 shift_of(u32 pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }

// True in all threads of the block that ends last. What all blocks have written before is then to be seen.
__device__ bool is_last(u32 *ticket) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}

// Adds a block's own counts to everybody's, and lets the last block find the digit of the k-th best.
__device__ void end_pass(u32 *own, u32 *bins, u32 *ticket, u64 *head, u32 pass, u32 k) {
    __shared__ u32 shared[32];
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        if (own[bin]) atomicAdd(bins + bin, own[bin]);
    if (!is_last(ticket)) return;
    u32 each = BINS / blockDim.x, sum = 0, all, need = pass == 0 ? k : (u32)head[NEED];
    u32 prefix = pass == 0 ? 0 : (u32)head[PREFIX];
    // From the highest bin down.
    u32 top = BINS - 1 - threadIdx.x * each;
    for (u32 i = 0; i < each; i++) sum += __ldcg(bins + top - i);
    u32 above = scan_block(sum, shared, all);
    __syncthreads();
    if (all < need) {
        // Fewer than k: all of them, down to the least score there is.
        if (threadIdx.x == 0) {
            head[PREFIX] = 0;
            head[NEED] = 0;
        }
        return;
    }
    if (above < need && need <= above + sum) {
        for (u32 i = 0; i < each; i++) {
            u32 here = __ldcg(bins + top - i);
            if (need <= above + here) {
                head[PREFIX] = prefix | (top - i) << shift_of(pass);
                head[NEED] = need - above;
                break;
            }
            above += here;
        }
    }
}

__device__ __forceinline__ void add_to(u32 *own, u32 bits, u32 pass, u32 prefix) {
    u32 shift = shift_of(pass), width = pass == 0 ? 11 : 10;
    if (pass == 0 || bits >> (shift + width) == prefix >> (shift + width))
        atomicAdd(own + (bits >> shift & ((1u << width) - 1)), 1u);
}

// One pass over the candidates.
extern "C" __global__ void __launch_bounds__(256)
digits(const float *scores, const u64 *found, u32 capacity, u32 *bins, u32 *ticket, u64 *head, u32 pass, u32 k) {
    __shared__ u32 own[BINS];
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    u32 count = min((u32)*found, capacity), prefix = pass == 0 ? 0 : (u32)head[PREFIX];
    // A choice that has taken everything stays as it is.
    if (pass == 0 || head[NEED] != 0)
        for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
            add_to(own, __float_as_uint(scores[i]), pass, prefix);
    if (pass != 0 && head[NEED] == 0) return;
    end_pass(own, bins, ticket, head, pass, k);
}

// One pass over a whole vector, piece by piece: for when too few candidates are at hand.
extern "C" __global__ void __launch_bounds__(256)
digits_of_all(const float *values, const float *weights, float guard, u32 side, const Piece *pieces, u32 pieces_count,
              u32 *bins, u32 *ticket, u64 *head, u32 pass, u32 k) {
    __shared__ u32 own[BINS];
    for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) own[bin] = 0;
    __syncthreads();
    u32 prefix = pass == 0 ? 0 : (u32)head[PREFIX];
    for (u32 number = blockIdx.x; number < pieces_count; number += gridDim.x) {
        Piece piece = pieces[number];
        for (u32 i = threadIdx.x; i < piece.length; i += blockDim.x) {
            u64 at = (u64)piece.start + i;
            float value = values[at], score = fabsf(value);
            if (side != 0 && (side == 2) != (__float_as_int(value) < 0)) score = 0;
            if (weights) {
                float weight = fabsf(weights[at]);
                score = score / (weight > guard ? weight : guard);
            }
            add_to(own, __float_as_uint(score), pass, prefix);
        }
    }
    end_pass(own, bins, ticket, head, pass, k);
}

// What is kept: scores above `upper`; and of those above `lower`, in order of position, the `room` from `first` on.
struct Cut {
    float upper, lower;
    u32 first, room;
};

// The exact choice, as a cut: all above the k-th best score, and the first of those that equal it.
__device__ __forceinline__ Cut resolve(Cut cut, const u64 *head, u32 exact) {
    if (!exact) return cut;
    u32 score = (u32)head[PREFIX], need = (u32)head[NEED];
    if (need == 0) return Cut{0.0f, 0.0f, 0, 0};
    return Cut{__uint_as_float(score), score == 0 ? 0.0f : __uint_as_float(score - 1), 0, need};
}

#define CHUNK 2048

// How many of each chunk are above and in the band; the last block sums them up.
extern "C" __global__ void __launch_bounds__(256)
count(const float *scores, const u64 *found, u32 capacity, Cut cut, u32 exact, u32 *chunks_above, u32 *chunks_band,
      u32 *ticket, u64 *head) {
    __shared__ u32 shared[32];
    cut = resolve(cut, head, exact);
    u32 candidates = min((u32)*found, capacity), chunks = (candidates + CHUNK - 1) / CHUNK;
    for (u32 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        u32 packed = 0, all;
        for (u32 i = threadIdx.x; i < CHUNK; i += blockDim.x) {
            u32 at = chunk * CHUNK + i;
            if (at >= candidates) break;
            float score = scores[at];
            packed += score > cut.upper ? 1 : score > cut.lower ? 1u << 16 : 0;
        }
        scan_block(packed, shared, all);
        if (threadIdx.x == 0) {
            chunks_above[chunk] = all & 0xffffu;
            chunks_band[chunk] = all >> 16;
        }
    }
    if (!is_last(ticket)) return;
    u32 above = 0, band = 0;
    for (u32 first = 0; first < chunks; first += blockDim.x) {
        u32 chunk = first + threadIdx.x, all_above, all_band;
        u32 own_above = chunk < chunks ? __ldcg(chunks_above + chunk) : 0;
        u32 own_band = chunk < chunks ? __ldcg(chunks_band + chunk) : 0;
        u32 before_above = scan_block(own_above, shared, all_above);
        __syncthreads();
        u32 before_band = scan_block(own_band, shared, all_band);
        __syncthreads();
        if (chunk < chunks) {
            chunks_above[chunk] = above + before_above;
            chunks_band[chunk] = band + before_band;
        }
        above += all_above;
        band += all_band;
    }
    if (threadIdx.x == 0) head[KEPT] = above + (band > cut.first ? min(band - cut.first, cut.room) : 0);
}

// Writes what is kept, in order.
extern "C" __global__ void __launch_bounds__(256)
keep(const u32 *positions, const float *values, const float *scores, const u64 *found, u32 capacity, Cut cut,
     u32 exact, const u32 *chunks_above, const u32 *chunks_band, const u64 *head, u32 room, u32 *kept_positions,
     float *kept_values) {
    __shared__ u32 shared[32];
    cut = resolve(cut, head, exact);
    u32 candidates = min((u32)*found, capacity), chunks = (candidates + CHUNK - 1) / CHUNK;
    for (u32 chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        u32 above = chunks_above[chunk], band = chunks_band[chunk];
        for (u32 row = 0; row < CHUNK; row += blockDim.x) {
            u32 at = chunk * CHUNK + row + threadIdx.x, all;
            float score = at < candidates ? scores[at] : 0.0f;
            bool is_above = at < candidates && score > cut.upper;
            bool is_band = at < candidates && !is_above && score > cut.lower;
            u32 packed = scan_block(is_above ? 1u : is_band ? 1u << 16 : 0u, shared, all);
            u32 rank = band + (packed >> 16);
            u32 bands_before = rank > cut.first ? min(rank - cut.first, cut.room) : 0;
            u32 to = above + (packed & 0xffffu) + bands_before;
            if ((is_above || (is_band && rank >= cut.first && rank - cut.first < cut.room)) && to < room) {
                kept_positions[to] = positions[at];
                kept_values[to] = values[at];
            }
            above += all & 0xffffu;
            band += all >> 16;
            __syncthreads();
        }
    }
}

// How many scores are above a threshold.
extern "C" __global__ void __launch_bounds__(256)
count_above(const float *scores, const u64 *found, u32 capacity, float threshold, u32 *result) {
    u32 candidates = min((u32)*found, capacity), own = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < candidates; i += gridDim.x * blockDim.x)
        own += scores[i] > threshold;
    for (u32 step = 16; step > 0; step /= 2) own += __shfl_xor_sync(FULL, own, step);
    if ((threadIdx.x & 31) == 0 && own) atomicAdd(result, own);
}
