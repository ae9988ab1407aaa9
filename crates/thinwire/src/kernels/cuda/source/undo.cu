// Takes a gradient back out of the memory. GRADIENT and UPDATE as in the walk.
#define ADD 1
#define REPLACE 2
#define HEAVY_BALL 3
#define NESTEROV 4

extern "C" __global__ void undo(const void *gradient, float *residual, float *momentum, u64 start, u64 count,
                                float scale, float coefficient) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (u64)gridDim.x * blockDim.x) {
        u64 at = start + i;
#if GRADIENT == F32
        float own = ((const float *)gradient)[at];
#elif GRADIENT == F16
        float own = half_to_float(((const u16 *)gradient)[at]);
#else
        float own = bfloat_to_float(((const u16 *)gradient)[at]);
#endif
        own = own * scale;
        float r = residual[at];
        // What is not finite was never stored: it would not be now. (A stored one of more than 1e38 may be taken for such.)
#if UPDATE == ADD
        if (fabsf(r + own) < INFINITE) residual[at] = r - own;
#elif UPDATE == REPLACE
        residual[at] = 0.0f;
#else
        float m = momentum[at];
#if UPDATE == HEAVY_BALL
        if (!(fabsf(r + (m * coefficient + own)) < INFINITE)) continue;
        residual[at] = r - m;
        momentum[at] = coefficient == 0.0f ? 0.0f : (m - own) / coefficient;
#else
        if (!(fabsf(r + ((m + own) * coefficient + own)) < INFINITE)) continue;
        residual[at] = r - (m + own);
        momentum[at] = coefficient == 0.0f ? 0.0f : m / coefficient - own;
#endif
#endif
    }
}
