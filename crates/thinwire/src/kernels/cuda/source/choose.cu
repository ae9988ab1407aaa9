// Which of the candidates are kept: the exact best k, or those in a band of scores. The candidates are in order of
// position, and so are those that are kept; ties go to the lower position.
//
// The k-th best score is found digit by digit (11, 10 and 10 bits): scores are never negative, so their bits order
// as they do.
struct Piece {
    u32 start, length;
};

// The head of a choice, read by the host: see choose.rs.
#define PREFIX 0
#define NEED 1
#define KEPT 2
#define BINS 2048
// Candidates that a thread looks at in one go when they are written.
#define EACH 8

__device__ __forceinline__ u32 shift_of(u32 pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }

// What has been found of the k-th best score: its first digits, and how many of those that share them are to be kept.
struct Digits {
    u32 prefix, need;
};

// The next digit, from the counts of all. Every thread of the block gets the answer. With fewer than k in all, that is
// everything: no digits, and nothing needed.
__device__ Digits next_digit(const volatile u32 *bins, u32 pass, Digits digits) {
    __shared__ u32 shared[32];
    __shared__ Digits found;
    u32 each = BINS / blockDim.x, sum = 0, all, top = BINS - 1 - threadIdx.x * each;
    // From the highest bin down.
    for (u32 i = 0; i < each; i++) sum += bins[top - i];
    u32 above = scan_block(sum, shared, all);
    if (threadIdx.x == 0 && all < digits.need) found = Digits{0, 0};
    if (all >= digits.need && above < digits.need && digits.need <= above + sum) {
        for (u32 i = 0; i < each; i++) {
            u32 here = bins[top - i];
            if (digits.need <= above + here) {
                found = Digits{digits.prefix | (top - i) << shift_of(pass), digits.need - above};
                break;
            }
            above += here;
        }
    }
    __syncthreads();
    return found;
}

// Counts a score, if it has the digits found so far. In the first pass over candidates most fall into a few bins: with
// `together` those of a warp are counted as one.
__device__ __forceinline__ void add_to(u32 *own, u32 bits, u32 pass, u32 prefix, bool together) {
    u32 shift = shift_of(pass), width = pass == 0 ? 11 : 10;
    if (pass == 0 && together) {
        u32 bin = bits >> shift, alike = __match_any_sync(__activemask(), bin);
        if (__ffs(alike) - 1 == (threadIdx.x & 31)) atomicAdd(own + bin, (u32)__popc(alike));
    } else if (pass == 0 || bits >> (shift + width) == prefix >> (shift + width)) {
        atomicAdd(own + (bits >> shift & ((1u << width) - 1)), 1u);
    }
}

// One pass over a whole vector, piece by piece: for when too few candidates are at hand.
extern "C" __global__ void __launch_bounds__(256)
digits_of_all(const float *values, const float *weights, float guard, u32 side, const Piece *pieces, u32 count,
              u32 *bins, u32 *ticket, u64 *head, u32 pass, u32 k) {
    __shared__ u32 own[BINS];
    for (u32 bin = threadIdx.x; bin < BINS; bin += 256) own[bin] = 0;
    __syncthreads();
    Digits digits = pass == 0 ? Digits{0, k} : Digits{(u32)head[PREFIX], (u32)head[NEED]};
    for (u32 number = blockIdx.x; number < count; number += gridDim.x) {
        Piece piece = pieces[number];
        for (u32 i = threadIdx.x; i < piece.length; i += 256) {
            u64 at = (u64)piece.start + i;
            float value = values[at], score = fabsf(value);
            if (side != 0 && (side == 2) != (__float_as_int(value) < 0)) score = 0;
            if (weights) {
                float weight = fabsf(weights[at]);
                score = score / (weight > guard ? weight : guard);
            }
            add_to(own, __float_as_uint(score), pass, digits.prefix, false);
        }
    }
    __syncthreads();
    for (u32 bin = threadIdx.x; bin < BINS; bin += 256)
        if (own[bin]) atomicAdd(bins + bin, own[bin]);
    if (!is_last(ticket)) return;
    digits = next_digit(bins, pass, digits);
    for (u32 bin = threadIdx.x; bin < BINS; bin += 256) bins[bin] = 0;
    if (threadIdx.x == 0) {
        head[PREFIX] = digits.prefix;
        head[NEED] = digits.need;
        *ticket = 0;
    }
}

// What is kept: scores above `upper`; and of those above `lower`, in order of position, the `room` from `first` on.
struct Cut {
    float upper, lower;
    u32 first, room;
};

// Waits until all blocks of a cooperative launch have come as far. `round` counts from one.
__device__ void meet(u32 *arrived, u32 round) {
    if (gridDim.x == 1) return __syncthreads();
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile u32 *)arrived < round * gridDim.x) {}
    }
    __syncthreads();
    __threadfence();
}

// The sum over all threads of a block.
__device__ u32 sum_block(u32 value, u32 *shared) {
    u32 all;
    scan_block(value, shared, all);
    return all;
}

// The whole choice, by blocks that work in step: each has a part of the list. A short list is for one large block, which
// has nobody to wait for. `exact` finds the best k, otherwise the
// cut says what is kept. `bins` (three times BINS) and `meeting` (two words) are zero before and after.
extern "C" __global__ void __launch_bounds__(1024)
choose(const u32 *positions, const float *values, const float *scores, const u64 *found, u32 capacity, Cut cut,
       u32 exact, u32 k, u32 *bins, u32 *meeting, u32 *blocks_above, u32 *blocks_band, u64 *head, u32 room,
       u32 *kept_positions, float *kept_values) {
    __shared__ u32 own[BINS], shared[32];
    u32 candidates = (u32)min(*found, (u64)capacity), round = 0;
    u32 part = ((candidates + gridDim.x - 1) / gridDim.x + EACH - 1) / EACH * EACH;
    u32 begin = min(candidates, blockIdx.x * part), end = min(candidates, begin + part);
    Digits digits = {0, k};
    bool alone = gridDim.x == 1;
    if (exact) {
        for (u32 pass = 0; pass < 3 && digits.need; pass++) {
            for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x) own[bin] = 0;
            __syncthreads();
            u32 i = begin + threadIdx.x;
            for (; i + 3 * blockDim.x < end; i += 4 * blockDim.x) {
                // Four are under way before the first is looked at.
                u32 bits[4];
#pragma unroll
                for (u32 j = 0; j < 4; j++) bits[j] = __float_as_uint(__ldcg(scores + i + j * blockDim.x));
#pragma unroll
                for (u32 j = 0; j < 4; j++) add_to(own, bits[j], pass, digits.prefix, true);
            }
            for (; i < end; i += blockDim.x) add_to(own, __float_as_uint(scores[i]), pass, digits.prefix, true);
            __syncthreads();
            if (alone) {
                digits = next_digit(own, pass, digits);
                continue;
            }
            for (u32 bin = threadIdx.x; bin < BINS; bin += blockDim.x)
                if (own[bin]) atomicAdd(bins + pass * BINS + bin, own[bin]);
            meet(meeting, ++round);
            digits = next_digit(bins + pass * BINS, pass, digits);
        }
        // All above the k-th best score, and the first of those that equal it; or everything.
        float score = __uint_as_float(digits.prefix);
        cut = digits.need ? Cut{score, digits.prefix ? __uint_as_float(digits.prefix - 1) : 0.0f, 0, digits.need}
                          : Cut{0.0f, 0.0f, 0, 0};
    }

    u32 above = 0, band = 0;
#pragma unroll 4
    for (u32 i = begin + threadIdx.x; i < end; i += blockDim.x) {
        float score = __ldcg(scores + i);
        above += score > cut.upper;
        band += score > cut.lower && !(score > cut.upper);
    }
    above = sum_block(above, shared);
    band = sum_block(band, shared);
    if (threadIdx.x == 0) {
        blocks_above[blockIdx.x] = above;
        blocks_band[blockIdx.x] = band;
    }
    meet(meeting, ++round);

    // Those of the blocks before, and of all.
    u32 before_above = 0, before_band = 0;
    above = band = 0;
    for (u32 block = threadIdx.x; block < gridDim.x; block += blockDim.x) {
        u32 its_above = __ldcg(blocks_above + block), its_band = __ldcg(blocks_band + block);
        above += its_above;
        band += its_band;
        if (block < blockIdx.x) {
            before_above += its_above;
            before_band += its_band;
        }
    }
    before_above = sum_block(before_above, shared);
    before_band = sum_block(before_band, shared);
    above = sum_block(above, shared);
    band = sum_block(band, shared);

    for (u32 first = begin; first < end; first += blockDim.x * EACH) {
        u32 at = first + threadIdx.x * EACH, packed = 0, all;
        float score[EACH];
#pragma unroll
        for (u32 i = 0; i < EACH; i++) score[i] = at + i < end ? scores[at + i] : 0.0f;
#pragma unroll
        for (u32 i = 0; i < EACH; i++)
            packed += at + i >= end ? 0 : score[i] > cut.upper ? 1u : score[i] > cut.lower ? 1u << 16 : 0u;
        u32 before = scan_block(packed, shared, all);
        u32 rank_above = before_above + (before & 0xffffu), rank_band = before_band + (before >> 16);
#pragma unroll
        for (u32 i = 0; i < EACH; i++) {
            if (at + i >= end) break;
            bool is_above = score[i] > cut.upper, is_band = !is_above && score[i] > cut.lower;
            u32 chosen = rank_band > cut.first ? min(rank_band - cut.first, cut.room) : 0;
            u32 to = rank_above + chosen;
            if ((is_above || (is_band && rank_band >= cut.first && rank_band - cut.first < cut.room)) && to < room) {
                kept_positions[to] = positions[at + i];
                kept_values[to] = values[at + i];
            }
            rank_above += is_above;
            rank_band += is_band;
        }
        before_above += all & 0xffffu;
        before_band += all >> 16;
    }

    // Zeros for the next choice. Everybody has seen the bins, and left the last meeting when it comes to `meeting`.
    if (!alone)
        for (u32 bin = blockIdx.x * blockDim.x + threadIdx.x; bin < 3 * BINS; bin += gridDim.x * blockDim.x) bins[bin] = 0;
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) {
            head[PREFIX] = digits.prefix;
            head[NEED] = digits.need;
            head[KEPT] = above + (band > cut.first ? min(band - cut.first, cut.room) : 0);
        }
        if (!alone && atomicAdd(meeting + 1, 1u) == gridDim.x - 1) meeting[0] = meeting[1] = 0;
    }
}

// How many scores are above a threshold.
extern "C" __global__ void __launch_bounds__(256)
count_above(const float *scores, const u64 *found, u32 capacity, float threshold, u32 *result) {
    u32 candidates = (u32)min(*found, (u64)capacity), own = 0;
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < candidates; i += gridDim.x * blockDim.x)
        own += scores[i] > threshold;
    for (u32 step = 16; step > 0; step /= 2) own += __shfl_xor_sync(FULL, own, step);
    if ((threadIdx.x & 31) == 0 && own) atomicAdd(result, own);
}
