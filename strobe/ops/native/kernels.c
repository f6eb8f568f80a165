/* Kernels for the CPU: sparse products, attention over edges, recurrent stages, readouts.
 *
 * Every function works on a part of the rows, on one core; Python shares parts out. All exist in single and double
 * precision (their headers are included twice), but for those that only move entries of sparse matrices. The file is
 * compiled once per instruction set, and the best library for the machine is loaded. Arrays are dense, row by row. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define BLOCK_ROWS 8
#define GATE_ROWS 6
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#define BLOCK_ROWS 6
#define GATE_ROWS 3
#else
#define VECTOR_BYTES 16
#define BLOCK_ROWS 4
#define GATE_ROWS 2
#endif
#define INLINE static inline __attribute__((always_inline))
#define SIMD _Pragma("omp simd")

int strobe_kernels_version(void) { return 16; }

/* e to the x by a polynomial, right to 1e-7 relative between e^-87 and e^87: a call to the library's expf, one
 * number at a time, would cost more than all the rest of a gate. */
INLINE float exp_single(float given) {
    float x = given > -87.0f ? given : -87.0f; /* also where given is not a number */
    x = x < 87.0f ? x : 87.0f;
    int32_t shifted = (int32_t)(x * 1.4426950408889634f + 128.5f); /* positive, so cutting is rounding down */
    float power = (float)(shifted - 128);
    float r = x - power * 0.693359375f + power * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = (shifted - 1) << 23; /* 2 to the power: the exponent field holds 127 for 0 */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return given == given ? p * scale : given;
}

#include "rows.h"
#include "related.h"
#include "logistic_pairs.h"
#include "negatives.h"

#define INDEX int32_t
#define NAME(base) base##_i32
#include "degrees.h"
#undef INDEX
#undef NAME

#define INDEX int64_t
#define NAME(base) base##_i64
#include "degrees.h"
#undef INDEX
#undef NAME

#define REAL float
#define NAME(base) base##_f32
#define EXP exp_single
#define LIMIT 20.0f
#include "edges.h"
#include "recurrent.h"
#include "lstm.h"
#include "readout.h"
#include "standardise.h"
#include "pairs.h"
#include "logistic.h"
#include "columns.h"
#undef REAL
#undef NAME
#undef EXP
#undef LIMIT

#define REAL double
#define NAME(base) base##_f64
#define EXP exp
#define LIMIT 150.0
#include "edges.h"
#include "recurrent.h"
#include "lstm.h"
#include "readout.h"
#include "standardise.h"
#include "pairs.h"
#include "logistic.h"
#include "columns.h"
