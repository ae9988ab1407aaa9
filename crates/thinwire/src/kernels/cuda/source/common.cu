// What all kernels share. Compiled by NVRTC without any header.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define FULL 0xffffffffu
#define INFINITE __int_as_float(0x7f800000)

// Numbers a gradient can be made of (see memory.rs).
#define F32 0
#define F16 1
#define BF16 2

// The head of a survey, read by the host (see walk.rs): what was measured and found, and behind it a choice.
#define SUM 0
#define EXTREMES 3
#define FOUND 4
#define NON_FINITE 5
#define CHOICE 6
#define HEAD 9

// What is wanted of a unit that is walked together with others (see batch.rs): candidates from this score on, at most so
// many and from there on; the best k of them, and where these go.
struct Selection {
    float floor_score;
    u32 base, capacity, k, positions, values;
};

__device__ __forceinline__ float half_to_float(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ u16 float_to_half(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float bfloat_to_float(u16 bits) { return __uint_as_float((u32)bits << 16); }

// To the nearest, ties to even; of a finite value.
__device__ __forceinline__ u16 float_to_bfloat(float value) {
    u32 bits = __float_as_uint(value);
    return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The sum over the lanes below this one, and over all of them.
__device__ __forceinline__ u32 scan_warp(u32 value, u32 &total) {
    u32 lane = threadIdx.x & 31, sum = value;
    for (u32 step = 1; step < 32; step *= 2) {
        u32 below = __shfl_up_sync(FULL, sum, step);
        if (lane >= step) sum += below;
    }
    total = __shfl_sync(FULL, sum, 31);
    return sum - value;
}

// The same over all threads of a block of up to 1024; `shared` has room for 32 words.
__device__ __forceinline__ u32 scan_block(u32 value, u32 *shared, u32 &total) {
    u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5, of_warp;
    u32 before = scan_warp(value, of_warp);
    __syncthreads();
    if (lane == 0) shared[warp] = of_warp;
    __syncthreads();
    u32 sum = lane < warps ? shared[lane] : 0, all;
    u32 warps_before = scan_warp(sum, all);
    total = all;
    return before + __shfl_sync(FULL, warps_before, warp);
}

// True in all threads of the block that ends last. What all blocks have written before is then to be seen.
__device__ __forceinline__ bool is_last(u32 *ticket) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    __syncthreads();
    __threadfence();
    return last;
}
