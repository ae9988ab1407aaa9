// What a walk has measured and marked, brought together: statistics in the CPU's order, and the marked elements as
// one list in order of position.
struct Piece {
    u32 start, length;
};

// The head of a survey, read by the host: see survey.rs.
#define SUM 0
#define MAGNITUDES 1
#define SQUARES 2
#define EXTREMES 3
#define FOUND 4
#define NON_FINITE 5

// A warp for each tile of up to 65 pieces: sums in order, and where the marked elements of each piece begin.
extern "C" __global__ void tiles(const u32 *tile_starts, u32 count, const u32 *hits, const double *sums,
                                 const float *extremes, u32 *offsets, u32 *tile_hits, double *tile_sums,
                                 float *tile_extremes) {
    u32 lane = threadIdx.x & 31, tile = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (tile >= count) return;
    u32 begin = tile_starts[tile], end = tile_starts[tile + 1], marked = 0;
    double total[3] = {0, 0, 0};
    float highest = 0, lowest = 0;
    for (u32 first = begin; first < end; first += 32) {
        u32 piece = first + lane;
        bool inside = piece < end;
        u32 own = inside ? hits[piece] : 0, all;
        u32 before = scan_warp(own, all);
        if (inside) offsets[piece] = marked + before;
        marked += all;
#pragma unroll
        for (u32 which = 0; which < 3; which++) {
            double part = inside ? sums[3 * (u64)piece + which] : 0;
            for (u32 other = 0; other < min(32u, end - first); other++) total[which] += __shfl_sync(FULL, part, other);
        }
        if (inside) {
            highest = fmaxf(highest, extremes[2 * (u64)piece]);
            lowest = fminf(lowest, extremes[2 * (u64)piece + 1]);
        }
    }
    for (u32 step = 16; step > 0; step /= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(FULL, highest, step));
        lowest = fminf(lowest, __shfl_xor_sync(FULL, lowest, step));
    }
    if (lane == 0) {
        tile_hits[tile] = marked;
        for (u32 which = 0; which < 3; which++) tile_sums[3 * (u64)tile + which] = total[which];
        tile_extremes[2 * tile] = highest;
        tile_extremes[2 * tile + 1] = lowest;
    }
}

// One block: all tiles, in order.
extern "C" __global__ void __launch_bounds__(1024)
total(u32 count, const u32 *tile_hits, const double *tile_sums, const float *tile_extremes, u32 *tile_offsets,
      u64 *head) {
    __shared__ u32 shared[32];
    __shared__ double parts[3][1024];
    __shared__ float extremes[2][32];
    double sum = 0;
    float highest = 0, lowest = 0;
    u32 marked = 0;
    for (u32 first = 0; first < count; first += 1024) {
        u32 tile = first + threadIdx.x, all;
        bool inside = tile < count;
        u32 before = scan_block(inside ? tile_hits[tile] : 0, shared, all);
        if (inside) {
            tile_offsets[tile] = marked + before;
            for (u32 which = 0; which < 3; which++) parts[which][threadIdx.x] = tile_sums[3 * (u64)tile + which];
            highest = fmaxf(highest, tile_extremes[2 * tile]);
            lowest = fminf(lowest, tile_extremes[2 * tile + 1]);
        }
        marked += all;
        __syncthreads();
        if (threadIdx.x < 3)
            for (u32 other = 0; other < min(1024u, count - first); other++) sum += parts[threadIdx.x][other];
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
        for (u32 warp = 0; warp < 32; warp++) {
            highest = fmaxf(highest, extremes[0][warp]);
            lowest = fminf(lowest, extremes[1][warp]);
        }
        head[EXTREMES] = (u64)__float_as_uint(lowest) << 32 | __float_as_uint(highest);
        head[FOUND] = marked;
    }
}

// A warp for each piece: its marked elements go to their place in the list.
extern "C" __global__ void collect(const Piece *pieces, u32 count, const u32 *piece_tiles, const u32 *tile_offsets,
                                   const u32 *offsets, const u32 *hits, const u16 *masks, const float *values,
                                   const float *weights, float guard, u32 capacity, u32 *positions,
                                   float *candidates, float *scores) {
    u32 lane = threadIdx.x & 31, number = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5);
    if (number >= count || hits[number] == 0) return;
    Piece piece = pieces[number];
    u32 rows = (piece.length + 15) >> 4;
    uint4 bits = ((const uint4 *)(masks + (u64)number * 256))[lane];
    u32 words[4] = {bits.x, bits.y, bits.z, bits.w};
    u32 own = 0;
    for (u32 word = 0; word < 4; word++) {
        // Rows beyond the piece hold whatever was there before.
        u32 row = lane * 8 + word * 2;
        if (row >= rows) words[word] = 0;
        else if (row + 1 >= rows) words[word] &= 0xffffu;
        own += __popc(words[word]);
    }
    u32 all, to = scan_warp(own, all) + tile_offsets[piece_tiles[number]] + offsets[number];
    for (u32 word = 0; word < 4; word++) {
        for (u32 left = words[word]; left != 0; left &= left - 1, to++) {
            if (to >= capacity) return;
            u32 at = piece.start + lane * 128 + word * 32 + __ffs(left) - 1;
            float value = values[at], score = fabsf(value);
            if (weights) {
                float weight = fabsf(weights[at]);
                score = score / (weight > guard ? weight : guard);
            }
            positions[to] = at;
            candidates[to] = value;
            scores[to] = score;
        }
    }
}
