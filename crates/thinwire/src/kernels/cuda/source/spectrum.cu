// The frequency side of a unit, in the layout of cuFFT: a block of B elements has B/2 + 1 complex bins, unscaled. A slot
// (see transform/fft.rs) is bin `s` of its block; slot 0 is the real parts of the first and the last. The same places
// hold the elements themselves before the transform in place and after its inverse, two for each bin.

struct Layout {
    u64 magic;       // ceil(2^64 / half); 0 for half = 1
    u32 half;        // slots of a full block
    u32 full;        // slots of all full blocks
    u32 slots;       // of everything
    float edge, inner, back;                 // scales: slot 0, the others, and the others on the way back
    float tail_edge, tail_inner, tail_back;  // of the last block
};

// Where a slot is: its block's first bin, its place in the block, and the block's number of slots.
struct Place {
    u64 first;
    u32 slot, half;
    float edge, inner, back;
};

__device__ __forceinline__ Place place_of(const Layout &layout, u32 slot) {
    if (slot >= layout.full) {
        u32 blocks = layout.magic ? (u32)__umul64hi(layout.magic, layout.full) : layout.full;
        return {(u64)layout.full + blocks,  slot - layout.full, layout.slots - layout.full,
                layout.tail_edge, layout.tail_inner, layout.tail_back};
    }
    u32 block = layout.magic ? (u32)__umul64hi(layout.magic, slot) : slot;
    return {(u64)block * ((u64)layout.half + 1), slot - block * layout.half, layout.half, layout.edge, layout.inner, layout.back};
}

// The two numbers of a slot.
__device__ __forceinline__ float2 read_slot(const float2 *bins, const Place &place) {
    float2 found = bins[place.first + place.slot];
    if (place.slot != 0) return make_float2(found.x * place.inner, found.y * place.inner);
    return make_float2(found.x * place.edge, bins[place.first + place.half].x * place.edge);
}

// Writes the two numbers of a slot for the way back: real numbers have no imaginary part.
__device__ __forceinline__ void write_slot(float2 *bins, const Place &place, float2 pair) {
    if (place.slot != 0) {
        bins[place.first + place.slot] = make_float2(pair.x * place.back, pair.y * place.back);
    } else {
        bins[place.first] = make_float2(pair.x * place.edge, 0.0f);
        bins[place.first + place.half] = make_float2(pair.y * place.edge, 0.0f);
    }
}

// Pair `i` of a message, whose values may begin at any float.
__device__ __forceinline__ float2 pair_of(const float *values, u64 i) { return make_float2(values[2 * i], values[2 * i + 1]); }

__device__ __forceinline__ u64 float_of_element(const Layout &layout, u64 element) {
    Place place = place_of(layout, (u32)(element >> 1));
    return 2 * (place.first + place.slot) + (element & 1);
}

__device__ __forceinline__ float round_to_half(float value) {
    return half_to_float(float_to_half(fminf(fmaxf(value, -65504.0f), 65504.0f)));
}

// A block of 256 threads takes 1024 of whatever is walked, each thread EACH of them: first it asks for all, then it uses
// them, so that memory always has enough to do.
#define EACH 4
#define MINE(k) ((u64)blockIdx.x * 1024 + (k) * 256 + threadIdx.x)

// Elements `at`, `at + 1`, … of the unit from `values`, then zeros up to `total`.
extern "C" __global__ void load_signal(const float *values, u64 count, u64 total, u64 at, u32 as_half, Layout layout, float *signal) {
    float found[EACH];
    for (u32 k = 0; k < EACH; k++) found[k] = MINE(k) < count ? values[MINE(k)] : 0.0f;
    for (u32 k = 0; k < EACH; k++) {
        if (MINE(k) < total) signal[float_of_element(layout, at + MINE(k))] = as_half ? round_to_half(found[k]) : found[k];
    }
}

// The magnitude of every slot; in f64, where neither huge nor tiny parts leave the range when squared.
extern "C" __global__ void measure_bins(const float2 *bins, Layout layout, float *magnitudes) {
    float2 pairs[EACH];
    for (u32 k = 0; k < EACH; k++) {
        if (MINE(k) < layout.slots) pairs[k] = read_slot(bins, place_of(layout, (u32)MINE(k)));
    }
    for (u32 k = 0; k < EACH; k++) {
        double re = pairs[k].x, im = pairs[k].y;
        if (MINE(k) < layout.slots) magnitudes[MINE(k)] = __double2float_rn(__dsqrt_rn(re * re + im * im));
    }
}

// Both numbers of each chosen slot.
extern "C" __global__ void gather_bins(const float2 *bins, Layout layout, const u32 *chosen, u32 count, float *values) {
    u32 slots[EACH];
    float2 pairs[EACH];
    for (u32 k = 0; k < EACH; k++) slots[k] = MINE(k) < count ? chosen[MINE(k)] : FULL;
    for (u32 k = 0; k < EACH; k++) {
        pairs[k] = slots[k] < layout.slots ? read_slot(bins, place_of(layout, slots[k])) : make_float2(0.0f, 0.0f);
    }
    for (u32 k = 0; k < EACH; k++) {
        if (MINE(k) >= count) continue;
        values[2 * MINE(k)] = pairs[k].x;
        values[2 * MINE(k) + 1] = pairs[k].y;
    }
}

// Slots a block fills at a time.
#define TILE 2048

// Where the chosen slots of each tile begin in their list; one more than there are tiles.
extern "C" __global__ void cut_chosen(const u32 *chosen, u32 count, u32 tiles, u32 *cuts) {
    u64 tile = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (tile > tiles) return;
    u64 slot = tile * TILE;
    u32 low = 0, high = count;
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (chosen[middle] < slot) low = middle + 1;
        else high = middle;
    }
    cuts[tile] = low;
}

// Makes a whole spectrum, ready for the way back, of chosen slots; all others are zero. Their values are those in
// `values` times `factor`, or (for `kept`) those the spectrum has now, less those in `values` if there are any.
extern "C" __global__ void place_bins(float2 *bins, Layout layout, const u32 *chosen, const u32 *cuts, const float *values,
                                      u32 kept, float factor) {
    __shared__ float2 tile[TILE];
    u32 first = blockIdx.x * TILE;
    for (u32 k = threadIdx.x; k < TILE; k += 256) tile[k] = make_float2(0.0f, 0.0f);
    __syncthreads();
    for (u64 i = (u64)cuts[blockIdx.x] + threadIdx.x; i < cuts[blockIdx.x + 1]; i += 256) {
        u32 slot = chosen[i];
        if (slot - first >= TILE || slot >= layout.slots) continue;
        float2 pair = values ? pair_of(values, i) : make_float2(0.0f, 0.0f);
        if (kept) {
            float2 now = read_slot(bins, place_of(layout, slot));
            pair = make_float2(now.x - pair.x, now.y - pair.y);
        } else {
            pair = make_float2(pair.x * factor, pair.y * factor);
        }
        tile[slot - first] = pair;
    }
    // What was to be read of these slots has been; no other block touches them.
    __syncthreads();
    for (u32 k = threadIdx.x; k < TILE; k += 256) {
        if (k >= layout.slots - first) return;
        write_slot(bins, place_of(layout, first + k), tile[k]);
    }
}

// Adds values times `factor`, each slot at most once; all slots in order where no chosen ones are given. `fresh`: there
// is nothing yet to add to, and all slots are given.
extern "C" __global__ void add_bins(float2 *bins, Layout layout, const u32 *chosen, u32 count, const float *values, u32 fresh,
                                    float factor) {
    for (u32 k = 0; k < EACH; k++) {
        u64 i = MINE(k);
        if (i >= count) return;
        u32 slot = chosen ? chosen[i] : (u32)i;
        if (slot >= layout.slots) continue;
        Place place = place_of(layout, slot);
        float2 given = pair_of(values, i), pair = make_float2(given.x * factor, given.y * factor);
        if (fresh) {
            write_slot(bins, place, pair);
        } else if (place.slot != 0) {
            float2 *bin = bins + place.first + place.slot, sum = *bin;
            *bin = make_float2(sum.x + pair.x * place.back, sum.y + pair.y * place.back);
        } else {
            bins[place.first].x += pair.x * place.edge;
            bins[place.first + place.half].x += pair.y * place.edge;
        }
    }
}

// What becomes of a value when its element comes back.
#define SUBTRACT 1
#define REPLACE 2

__device__ __forceinline__ float onto(u32 how, float now, float back) {
    return how == SUBTRACT ? now - back : back;
}

// Hands elements `at`, `at + 1`, … of the unit to `values`.
extern "C" __global__ void store_signal(const float *signal, Layout layout, u64 at, u64 count, u32 how, float *values) {
    float back[EACH], now[EACH];
    for (u32 k = 0; k < EACH; k++) {
        if (MINE(k) < count) back[k] = signal[float_of_element(layout, at + MINE(k))];
        now[k] = MINE(k) < count && how != REPLACE ? values[MINE(k)] : 0.0f;
    }
    for (u32 k = 0; k < EACH; k++) {
        if (MINE(k) < count) values[MINE(k)] = onto(how, now[k], back[k]);
    }
}

// The same for whole pairs of elements, where the addresses allow it.
extern "C" __global__ void store_pairs(const float2 *signal, Layout layout, u32 at, u32 count, u32 how, float2 *values) {
    float2 back[EACH], now[EACH];
    for (u32 k = 0; k < EACH; k++) {
        Place place = place_of(layout, at + (u32)MINE(k));
        if (MINE(k) < count) back[k] = signal[place.first + place.slot];
        now[k] = MINE(k) < count && how != REPLACE ? values[MINE(k)] : make_float2(0.0f, 0.0f);
    }
    for (u32 k = 0; k < EACH; k++) {
        if (MINE(k) < count) values[MINE(k)] = make_float2(onto(how, now[k].x, back[k].x), onto(how, now[k].y, back[k].y));
    }
}
