// Small things done to vectors and lists.

__device__ __forceinline__ float load(const void *values, u32 kind, u64 at) {
    if (kind == F32) return ((const float *)values)[at];
    u16 bits = ((const u16 *)values)[at];
    return kind == F16 ? half_to_float(bits) : bfloat_to_float(bits);
}

#define EACH(i, count) \
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (count); i += (u64)gridDim.x * blockDim.x)

// values[positions[i]] = 0
extern "C" __global__ void clear(const u32 *positions, u64 count, float *values) {
    EACH(i, count) values[positions[i]] = 0.0f;
}

// values[positions[i]] += what[i] * factor; positions differ, so that no order is needed among them.
extern "C" __global__ void scatter_add(const u32 *positions, const float *what, u64 count, float factor, float *values) {
    EACH(i, count) values[positions[i]] += what[i] * factor;
}

// out[i] = values[positions[i]]
extern "C" __global__ void gather(const u32 *positions, u64 count, const float *values, float *out) {
    EACH(i, count) out[i] = values[positions[i]];
}

// A dense section on top of what is there. Not added to a zero, so that a zero keeps its sign and one dense message
// comes back bit for bit.
extern "C" __global__ void add_all(const float *what, u64 count, float factor, float *values) {
    EACH(i, count) {
        float sum = values[i], value = what[i] * factor;
        values[i] = sum == 0.0f ? value : sum + value;
    }
}

// The same at positions that differ.
extern "C" __global__ void scatter_all(const u32 *positions, const float *what, u64 count, float factor, float *values) {
    EACH(i, count) {
        u32 at = positions[i];
        float sum = values[at], value = what[i] * factor;
        values[at] = sum == 0.0f ? value : sum + value;
    }
}

// out[i] = gradient[i] * scale
extern "C" __global__ void widen(const void *gradient, u32 kind, u64 count, float scale, float *out) {
    EACH(i, count) out[i] = load(gradient, kind, i) * scale;
}

// The way back, to the nearest number of that kind; what is too large for f16 becomes its largest.
extern "C" __global__ void narrow(const float *values, u64 count, u32 kind, void *gradient) {
    EACH(i, count) {
        float value = values[i];
        if (kind == F32) ((float *)gradient)[i] = value;
        else if (kind == F16) ((u16 *)gradient)[i] = float_to_half(fminf(fmaxf(value, -65504.0f), 65504.0f));
        else ((u16 *)gradient)[i] = float_to_bfloat(value);
    }
}

// Every `stride`-th score from position `first` on.
extern "C" __global__ void sample(const float *values, const float *weights, float guard, u32 side, u64 first,
                                  u64 stride, u64 count, float *out) {
    EACH(i, count) {
        u64 at = first + i * stride;
        float value = values[at], score = fabsf(value);
        if (side != 0 && (side == 2) != (__float_as_int(value) < 0)) score = 0;
        if (weights) {
            float weight = fabsf(weights[at]);
            score = score / (weight > guard ? weight : guard);
        }
        out[i] = score;
    }
}
