// Which of the candidates are kept: the exact best k, or those in a band of scores. The candidates are in order of
// position, and so are those that are kept; ties go to the lower position.
//
// The k-th best score is found digit by digit (11, 10 and 10 bits): scores are never negative, so their bits order
// as they do.
struct Piece {
    u32 start, length;
};

// The head of a choice, which stands behind that of a survey: see choose.rs.
#define PREFIX 0
#define NEED 1
#define KEPT 2
#define BINS 2048
#define THREADS 256
#define WARPS (THREADS / 32)

__device__ __forceinline__ u32 shift_of(u32 pass) { return pass == 0 ? 20 : pass == 1 ? 10 : 0; }

// What has been found of the k-th best score: its first digits, and how many of those that share them are to be kept.
struct Digits {
    u32 prefix, need;
};

// The next digit, from the counts of all, which other blocks may have written or, if `OWN`, this one in its shared memory.
// Every thread of the block gets the answer. With fewer than k in all, that is everything: no digits, and nothing needed.
template <bool OWN>
__device__ Digits next_digit(const u32 *bins, u32 pass, Digits digits) {
    __shared__ u32 shared[32];
    __shared__ Digits found;
    u32 sum = 0, all, top = BINS - 1 - threadIdx.x * (BINS / THREADS), own[BINS / THREADS];
#pragma unroll
    for (u32 i = 0; i < BINS / THREADS; i++) own[i] = OWN ? bins[top - i] : __ldcg(bins + top - i);
#pragma unroll
    for (u32 i = 0; i < BINS / THREADS; i++) sum += own[i];
    // From the highest bin down.
    u32 above = scan_block(sum, shared, all);
    if (threadIdx.x == 0 && all < digits.need) found = Digits{0, 0};
    if (all >= digits.need && above < digits.need && digits.need <= above + sum) {
        bool open = true;
#pragma unroll
        for (u32 i = 0; i < BINS / THREADS; i++) {
            if (open && digits.need <= above + own[i]) {
                found = Digits{digits.prefix | (top - i) << shift_of(pass), digits.need - above};
                open = false;
            }
            above += own[i];
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
extern "C" __global__ void __launch_bounds__(THREADS)
digits_of_all(const float *values, const float *weights, float guard, u32 side, const Piece *pieces, u32 count,
              u32 *bins, u32 *ticket, u64 *head, u32 pass, u32 k) {
    __shared__ u32 own[BINS];
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) own[bin] = 0;
    __syncthreads();
    Digits digits = pass == 0 ? Digits{0, k} : Digits{(u32)head[PREFIX], (u32)head[NEED]};
    for (u32 number = blockIdx.x; number < count; number += gridDim.x) {
        Piece piece = pieces[number];
        for (u32 i = threadIdx.x; i < piece.length; i += THREADS) {
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
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS)
        if (own[bin]) atomicAdd(bins + bin, own[bin]);
    if (!is_last(ticket)) return;
    digits = next_digit<false>(bins, pass, digits);
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) bins[bin] = 0;
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
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile u32 *)arrived < round * gridDim.x) {}
    }
    __syncthreads();
    __threadfence();
}

// How many are above, and how many in the band.
struct Counts {
    u32 above, band;
};

// The sum over all lanes of a warp.
__device__ __forceinline__ u32 sum_warp(u32 value) {
    for (u32 step = 16; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    return value;
}

// Counts the next digit of the scores of a warp's part, in shared memory.
__device__ void count_digits(const float *scores, u32 begin, u32 end, u32 *own, u32 pass, u32 prefix) {
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) own[bin] = 0;
    __syncthreads();
    u32 i = begin + (threadIdx.x & 31);
    for (; i + 96 < end; i += 128) {
        // Four are under way before the first is looked at.
        u32 bits[4];
#pragma unroll
        for (u32 j = 0; j < 4; j++) bits[j] = __float_as_uint(__ldcg(scores + i + 32 * j));
#pragma unroll
        for (u32 j = 0; j < 4; j++) add_to(own, bits[j], pass, prefix, true);
    }
    for (; i < end; i += 32) add_to(own, __float_as_uint(scores[i]), pass, prefix, true);
    __syncthreads();
}

// All above the k-th best score, and the first of those that equal it; or everything.
__device__ Cut cut_of(Digits digits) {
    float score = __uint_as_float(digits.prefix);
    return digits.need ? Cut{score, digits.prefix ? __uint_as_float(digits.prefix - 1) : 0.0f, 0, digits.need}
                       : Cut{0.0f, 0.0f, 0, 0};
}

// How many of a warp's part are kept. Every warp of the block finds its own in `of_warps`.
__device__ void count_kept(const float *scores, u32 begin, u32 end, Cut cut, Counts *of_warps) {
    u32 lane = threadIdx.x & 31;
    Counts mine = {0, 0};
#pragma unroll 4
    for (u32 i = begin + lane; i < end; i += 32) {
        float score = __ldcg(scores + i);
        mine.above += score > cut.upper;
        mine.band += score > cut.lower && !(score > cut.upper);
    }
    mine = Counts{sum_warp(mine.above), sum_warp(mine.band)};
    if (lane == 0) of_warps[threadIdx.x >> 5] = mine;
    __syncthreads();
}

// The sum over the first warps of a block.
__device__ Counts sum_warps(const Counts *of_warps, u32 count) {
    Counts sum = {0, 0};
    for (u32 warp = 0; warp < count; warp++) {
        sum.above += of_warps[warp].above;
        sum.band += of_warps[warp].band;
    }
    return sum;
}

// How many are kept of so many.
__device__ __forceinline__ u32 kept_of(Counts all, Cut cut) {
    return all.above + (all.band > cut.first ? min(all.band - cut.first, cut.room) : 0);
}

// Writes what is kept of a warp's part; `rank` counts those in the parts before.
__device__ void write_kept(const u32 *positions, const float *values, const float *scores, u32 begin, u32 end, Cut cut,
                           Counts rank, u32 room, u32 *kept_positions, float *kept_values) {
    u32 lane = threadIdx.x & 31, lower_lanes = (1u << lane) - 1;
    for (u32 first = begin; first < end; first += 32) {
        u32 at = first + lane;
        float score = at < end ? scores[at] : 0.0f;
        bool is_above = at < end && score > cut.upper, is_band = at < end && !is_above && score > cut.lower;
        u32 above = __ballot_sync(FULL, is_above), band = __ballot_sync(FULL, is_band);
        u32 band_rank = rank.band + __popc(band & lower_lanes);
        u32 to = kept_of(Counts{rank.above + __popc(above & lower_lanes), band_rank}, cut);
        bool is_kept = is_above || (is_band && band_rank >= cut.first && band_rank - cut.first < cut.room);
        if (is_kept && to < room) {
            kept_positions[to] = positions[at];
            kept_values[to] = values[at];
        }
        rank.above += __popc(above);
        rank.band += __popc(band);
    }
}

// The whole choice, by blocks that work in step: each has a part of the list, and each of its warps a part of that.
// `exact` finds the best k, otherwise the cut says what is kept. `bins` (three times BINS) and `meeting` (two words)
// are zero before and after.
extern "C" __global__ void __launch_bounds__(THREADS, 4)
choose(const u32 *positions, const float *values, const float *scores, const u64 *found, u32 capacity, Cut cut,
       u32 exact, u32 k, u32 *bins, u32 *meeting, Counts *of_blocks, u64 *head, u32 room, u32 *kept_positions,
       float *kept_values) {
    __shared__ u32 own[BINS];
    __shared__ Counts of_warps[WARPS], before_block, of_all;
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, round = 0;
    u32 candidates = (u32)min(*found, (u64)capacity);
    // Whole rows of 32 for each warp.
    u32 warps = gridDim.x * WARPS, part = ((candidates + 31) / 32 + warps - 1) / warps * 32;
    u32 begin = min(candidates, (blockIdx.x * WARPS + warp) * part), end = min(candidates, begin + part);
    Digits digits = {0, k};
    if (exact) {
        for (u32 pass = 0; pass < 3 && digits.need; pass++) {
            count_digits(scores, begin, end, own, pass, digits.prefix);
            for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS)
                if (own[bin]) atomicAdd(bins + pass * BINS + bin, own[bin]);
            meet(meeting, ++round);
            digits = next_digit<false>(bins + pass * BINS, pass, digits);
        }
        cut = cut_of(digits);
    }

    count_kept(scores, begin, end, cut, of_warps);
    if (threadIdx.x == 0) of_blocks[blockIdx.x] = sum_warps(of_warps, WARPS);
    meet(meeting, ++round);

    // Those of the blocks before, and of all: the first warp adds them up.
    if (warp == 0) {
        Counts before = {0, 0}, all = {0, 0};
        for (u32 block = lane; block < gridDim.x; block += 32) {
            Counts its = {__ldcg(&of_blocks[block].above), __ldcg(&of_blocks[block].band)};
            all.above += its.above;
            all.band += its.band;
            if (block < blockIdx.x) {
                before.above += its.above;
                before.band += its.band;
            }
        }
        before = Counts{sum_warp(before.above), sum_warp(before.band)};
        all = Counts{sum_warp(all.above), sum_warp(all.band)};
        if (lane == 0) {
            before_block = before;
            of_all = all;
        }
    }
    __syncthreads();
    Counts rank = sum_warps(of_warps, warp);
    rank.above += before_block.above;
    rank.band += before_block.band;
    write_kept(positions, values, scores, begin, end, cut, rank, room, kept_positions, kept_values);

    // Zeros for the next choice. Everybody has seen the bins, and left the last meeting when it comes to `meeting`.
    for (u32 bin = blockIdx.x * THREADS + threadIdx.x; bin < 3 * BINS; bin += gridDim.x * THREADS) bins[bin] = 0;
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) {
            head[PREFIX] = digits.prefix;
            head[NEED] = digits.need;
            head[KEPT] = kept_of(of_all, cut);
        }
        if (atomicAdd(meeting + 1, 1u) == gridDim.x - 1) meeting[0] = meeting[1] = 0;
    }
}

// The best of each of several units, a block for each: as many as its selection says, to where it says.
extern "C" __global__ void __launch_bounds__(THREADS)
choose_each(const u32 *positions, const float *values, const float *scores, const Selection *selections, u64 *heads,
            u32 *kept_positions, float *kept_values) {
    __shared__ u32 own[BINS];
    __shared__ Counts of_warps[WARPS];
    Selection unit = selections[blockIdx.x];
    u64 *head = heads + (u64)HEAD * blockIdx.x;
    positions += unit.base;
    values += unit.base;
    scores += unit.base;
    u32 warp = threadIdx.x >> 5, candidates = (u32)min(head[FOUND], (u64)unit.capacity);
    u32 part = ((candidates + 31) / 32 + WARPS - 1) / WARPS * 32;
    u32 begin = min(candidates, warp * part), end = min(candidates, begin + part);
    Digits digits = {0, unit.k};
    for (u32 pass = 0; pass < 3 && digits.need; pass++) {
        count_digits(scores, begin, end, own, pass, digits.prefix);
        digits = next_digit<true>(own, pass, digits);
    }
    Cut cut = cut_of(digits);
    count_kept(scores, begin, end, cut, of_warps);
    write_kept(positions, values, scores, begin, end, cut, sum_warps(of_warps, warp), unit.k,
               kept_positions + unit.positions, kept_values + unit.values);
    if (threadIdx.x == 0) {
        head[CHOICE + PREFIX] = digits.prefix;
        head[CHOICE + NEED] = digits.need;
        head[CHOICE + KEPT] = kept_of(sum_warps(of_warps, WARPS), cut);
    }
}

// How many scores are above a threshold.
extern "C" __global__ void __launch_bounds__(THREADS)
count_above(const float *scores, const u64 *found, u32 capacity, float threshold, u32 *result) {
    u32 candidates = (u32)min(*found, (u64)capacity), own = 0;
    for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < candidates; i += gridDim.x * THREADS)
        own += scores[i] > threshold;
    for (u32 step = 16; step > 0; step /= 2) own += __shfl_xor_sync(FULL, own, step);
    if ((threadIdx.x & 31) == 0 && own) atomicAdd(result, own);
}
