// What a walk has measured and marked, brought together: statistics in the CPU's order, and the marked elements as
// one list in order of position.
struct Piece {
    u32 start, length;
};

#define WARPS 8
#define MOST 65

// One block: all tiles of a unit, in order.
__device__ void total(u32 count, const u32 *tile_hits, const double *tile_sums, const float *tile_extremes,
                      u32 *tile_offsets, const u64 *non_finite, u64 *head) {
    __shared__ u32 shared[32];
    __shared__ double parts[3][256];
    __shared__ float extremes[2][WARPS];
    double sum = 0;
    float highest = 0, lowest = 0;
    u32 marked = 0;
    for (u32 first = 0; first < count; first += 256) {
        u32 tile = first + threadIdx.x, all;
        bool inside = tile < count;
        u32 before = scan_block(inside ? __ldcg(tile_hits + tile) : 0, shared, all);
        if (inside) {
            tile_offsets[tile] = marked + before;
            for (u32 which = 0; which < 3; which++) parts[which][threadIdx.x] = __ldcg(tile_sums + 3 * (u64)tile + which);
            highest = fmaxf(highest, __ldcg(tile_extremes + 2 * tile));
            lowest = fminf(lowest, __ldcg(tile_extremes + 2 * tile + 1));
        }
        marked += all;
        __syncthreads();
        if (threadIdx.x < 3)
#pragma unroll 8
            for (u32 other = 0; other < min(256u, count - first); other++) sum += parts[threadIdx.x][other];
        __syncthreads();
    }
    for (u32 step = 16; step > 0; step /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
        lowest = fminf(lowest, __shfl_xor_sync(FULL, lowest, step));
    }
    if ((threadIdx.x & 31) == 0) {
        extremes[0][threadIdx.x >> 5] = highest;
        extremes[1][threadIdx.x >> 5] = lowest;
    }
    __syncthreads();
    if (threadIdx.x < 3) head[SUM + threadIdx.x] = (u64)__double_as_longlong(sum);
    if (threadIdx.x == 0) {
        for (u32 warp = 0; warp < WARPS; warp++) {
            highest = fmaxf(highest, extremes[0][warp]);
            lowest = fminf(lowest, extremes[1][warp]);
        }
        head[EXTREMES] = (u64)__float_as_uint(lowest) << 32 | __float_as_uint(highest);
        head[FOUND] = marked;
        head[NON_FINITE] = *non_finite;
    }
}

// A warp for each tile of up to 65 pieces: sums in order, and where the marked elements of each piece begin.
__device__ void measure_tiles(const u32 *tile_starts, u32 count, const u32 *hits, const double *sums,
                              const float *extremes, u32 *offsets, u32 *tile_hits, double *tile_sums,
                              float *tile_extremes) {
    __shared__ double parts[WARPS][3][MOST];
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, tile = blockIdx.x * WARPS + warp;
    if (tile < count) {
        u32 begin = tile_starts[tile], pieces = tile_starts[tile + 1] - begin, marked = 0;
        float highest = 0, lowest = 0;
        for (u32 i = lane; i < 3 * pieces; i += 32) parts[warp][i % 3][i / 3] = sums[3 * (u64)begin + i];
        for (u32 first = 0; first < pieces; first += 32) {
            u32 piece = begin + first + lane;
            bool inside = first + lane < pieces;
            u32 own = inside ? hits[piece] : 0, all;
            u32 before = scan_warp(own, all);
            if (inside) {
                offsets[piece] = marked + before;
                highest = fmaxf(highest, extremes[2 * (u64)piece]);
                lowest = fminf(lowest, extremes[2 * (u64)piece + 1]);
            }
            marked += all;
        }
        for (u32 step = 16; step > 0; step /= 2) {
            highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
            lowest = fminf(lowest, __shfl_xor_sync(FULL, lowest, step));
        }
        __syncwarp();
        if (lane < 3) {
            double total = 0;
#pragma unroll 8
            for (u32 i = 0; i < pieces; i++) total += parts[warp][lane][i];
            tile_sums[3 * (u64)tile + lane] = total;
        }
        if (lane == 0) {
            tile_hits[tile] = marked;
            tile_extremes[2 * tile] = highest;
            tile_extremes[2 * tile + 1] = lowest;
        }
    }
}

// The tiles of a unit; the block that ends last brings all of them together, and leaves ticket and finder of what is not
// finite as the next walk wants them.
extern "C" __global__ void __launch_bounds__(256)
tiles(const u32 *tile_starts, u32 count, const u32 *hits, const double *sums, const float *extremes, u32 *offsets,
      u32 *tile_hits, double *tile_sums, float *tile_extremes, u32 *tile_offsets, u64 *non_finite, u32 *ticket,
      u64 *head) {
    measure_tiles(tile_starts, count, hits, sums, extremes, offsets, tile_hits, tile_sums, tile_extremes);
    if (!is_last(ticket)) return;
    total(count, tile_hits, tile_sums, tile_extremes, tile_offsets, non_finite, head);
    if (threadIdx.x == 0) {
        *non_finite = ~0ull;
        *ticket = 0;
    }
}

// The same for several units, in two steps.
extern "C" __global__ void __launch_bounds__(256)
tiles_of_units(const u32 *tile_starts, u32 count, const u32 *hits, const double *sums, const float *extremes,
               u32 *offsets, u32 *tile_hits, double *tile_sums, float *tile_extremes) {
    measure_tiles(tile_starts, count, hits, sums, extremes, offsets, tile_hits, tile_sums, tile_extremes);
}

// A block for each unit, whose tiles begin at `unit_tiles`.
extern "C" __global__ void __launch_bounds__(256)
totals_of_units(const u32 *unit_tiles, const u32 *tile_hits, const double *tile_sums, const float *tile_extremes,
                u32 *tile_offsets, const u64 *non_finite, u64 *heads) {
    u32 first = unit_tiles[blockIdx.x], count = unit_tiles[blockIdx.x + 1] - first;
    total(count, tile_hits + first, tile_sums + 3 * (u64)first, tile_extremes + 2 * (u64)first, tile_offsets + first,
          non_finite, heads + (u64)HEAD * blockIdx.x);
}

// One candidate. Without weights, weight and guard are one, and dividing by one changes nothing.
__device__ __forceinline__ void write(u32 to, u32 at, float value, float weight, float guard, u32 *positions,
                                      float *candidates, float *scores) {
    weight = fabsf(weight);
    positions[to] = at;
    candidates[to] = value;
    scores[to] = fabsf(value) / (weight > guard ? weight : guard);
}

// Marked elements of a piece from which on it is taken row by row.
#define DENSE 512

// A warp for each piece: its marked elements go to their place in the list; with `units`, in the list of its unit, and the
// finder of what is not finite is left as the next walk wants it.
extern "C" __global__ void collect(const Piece *pieces, u32 count, const u32 *piece_tiles, const u32 *tile_offsets,
                                   const u32 *offsets, const u32 *hits, const u32 *masks, const float *values,
                                   const float *weights, float guard, u32 capacity, u32 *positions,
                                   float *candidates, float *scores, const u32 *units,
                                   const Selection *selections, u64 *non_finite) {
    u32 lane = threadIdx.x & 31, number = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (number >= count) return;
    // All that is needed is asked for before any of it is looked at.
    uint4 bits = ((const uint4 *)(masks + (u64)number * 128))[lane];
    Piece piece = pieces[number];
    if (units) {
        Selection selection = selections[units[number]];
        positions += selection.base;
        candidates += selection.base;
        scores += selection.base;
        capacity = selection.capacity;
        if (number == 0 && lane == 0) *non_finite = ~0ull;
    }
    u32 start = tile_offsets[piece_tiles[number]] + offsets[number];
    if (hits[number] == 0) return;
    u32 rows = (piece.length + 31) >> 5;
    u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
    u32 own = 0;
    for (u32 word = 0; word < 4; word++) {
        // Rows beyond the piece hold whatever was there before.
        if (lane * 4 + word >= rows) words[word] = 0;
        own += __popc(words[word]);
    }
    if (hits[number] > DENSE) {
        // Row by row, four under way at a time: what a warp reads and writes lies side by side.
        for (u32 four = 0; four * 4 < rows; four++) {
            u32 row[4], at = piece.start + four * 128 + lane;
            float value[4], weight[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                row[i] = __shfl_sync(FULL, words[i], four);
                bool here = row[i] >> lane & 1;
                value[i] = here ? values[at + i * 32] : 0.0f;
                weight[i] = here && weights ? weights[at + i * 32] : 1.0f;
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                u32 to = start + __popc(row[i] & ((1u << lane) - 1));
                if ((row[i] >> lane & 1) && to < capacity)
                    write(to, at + i * 32, value[i], weight[i], guard, positions, candidates, scores);
                start += __popc(row[i]);
            }
        }
        return;
    }
    u32 all, to = scan_warp(own, all) + start;
    for (u32 word = 0; word < 4; word++) {
        for (u32 left = words[word]; left != 0; left &= left - 1, to++) {
            if (to >= capacity) return;
            u32 at = piece.start + lane * 128 + word * 32 + __ffs(left) - 1;
            write(to, at, values[at], weights ? weights[at] : 1.0f, guard, positions, candidates, scores);
        }
    }
}
