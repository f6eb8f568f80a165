/* Rows of each snapshot by their moments, included once per precision, with REAL and NAME defined.
 *
 * Rows are cut into chunks that fit into a core's cache: chunk k has rows starts[k] to starts[k + 1] of snapshot
 * which[k]. Sums are per chunk, [chunks, width]; moments and factors per snapshot. */

#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))
/* Widths of whole vectors are constants in a version of their own: no loop within a row. */
#define BY_WIDTH(kernel, ...)                                                        \
    if (width == LANES)                                                              \
        kernel(first, last, LANES, __VA_ARGS__);                                     \
    else if (width == 2 * LANES)                                                     \
        kernel(first, last, 2 * LANES, __VA_ARGS__);                                 \
    else if (width == 4 * LANES)                                                     \
        kernel(first, last, 4 * LANES, __VA_ARGS__);                                 \
    else                                                                             \
        kernel(first, last, width, __VA_ARGS__)

/* The mean of every chunk's columns, and the squares of what differs from it, added up. */
INLINE void NAME(chunk_moments_of)(int64_t first, int64_t last, int64_t width, const int64_t *starts, const REAL *x,
                                   REAL *means, REAL *squares) {
    for (int64_t k = first; k < last; k++) {
        REAL *restrict mean = means + k * width, *restrict square = squares + k * width;
        for (int64_t j = 0; j < width; j++) mean[j] = square[j] = 0;
        for (int64_t i = starts[k]; i < starts[k + 1]; i++)
            SIMD for (int64_t j = 0; j < width; j++) mean[j] += x[i * width + j];
        for (int64_t j = 0; j < width; j++) mean[j] /= (REAL)(starts[k + 1] - starts[k]);
        for (int64_t i = starts[k]; i < starts[k + 1]; i++)
            SIMD for (int64_t j = 0; j < width; j++) {
                const REAL off = x[i * width + j] - mean[j];
                square[j] += off * off;
            }
    }
}

void NAME(chunk_moments)(int64_t first, int64_t last, int64_t width, const int64_t *starts, const REAL *x, REAL *means,
                         REAL *squares) {
    BY_WIDTH(NAME(chunk_moments_of), starts, x, means, squares);
}

/* out = (x - mean) factor + shift; shift is one row for all. */
INLINE void NAME(chunk_standardise_of)(int64_t first, int64_t last, int64_t width, const int64_t *starts,
                                       const int64_t *which, const REAL *restrict x, const REAL *means,
                                       const REAL *factors, const REAL *restrict shift, REAL *restrict out) {
    for (int64_t k = first; k < last; k++) {
        const REAL *restrict mean = means + which[k] * width, *restrict factor = factors + which[k] * width;
        for (int64_t i = starts[k]; i < starts[k + 1]; i++)
            SIMD for (int64_t j = 0; j < width; j++)
                out[i * width + j] = (x[i * width + j] - mean[j]) * factor[j] + shift[j];
    }
}

void NAME(chunk_standardise)(int64_t first, int64_t last, int64_t width, const int64_t *starts, const int64_t *which,
                             const REAL *restrict x, const REAL *means, const REAL *factors,
                             const REAL *restrict shift, REAL *restrict out) {
    BY_WIDTH(NAME(chunk_standardise_of), starts, which, x, means, factors, shift, out);
}

/* Sums of a chunk's gradients, and of their products with x - mean. */
INLINE void NAME(chunk_products_of)(int64_t first, int64_t last, int64_t width, const int64_t *starts,
                                    const int64_t *which, const REAL *restrict x, const REAL *means,
                                    const REAL *restrict grad, REAL *sums, REAL *products) {
    for (int64_t k = first; k < last; k++) {
        const REAL *restrict mean = means + which[k] * width;
        REAL *restrict sum = sums + k * width, *restrict product = products + k * width;
        for (int64_t j = 0; j < width; j++) sum[j] = product[j] = 0;
        for (int64_t i = starts[k]; i < starts[k + 1]; i++)
            SIMD for (int64_t j = 0; j < width; j++) {
                sum[j] += grad[i * width + j];
                product[j] += grad[i * width + j] * (x[i * width + j] - mean[j]);
            }
    }
}

void NAME(chunk_products)(int64_t first, int64_t last, int64_t width, const int64_t *starts, const int64_t *which,
                          const REAL *restrict x, const REAL *means, const REAL *restrict grad, REAL *sums,
                          REAL *products) {
    BY_WIDTH(NAME(chunk_products_of), starts, which, x, means, grad, sums, products);
}

/* d_x = (grad - mean of grad - (x - mean) slope) factor. */
INLINE void NAME(chunk_standardise_backward_of)(int64_t first, int64_t last, int64_t width, const int64_t *starts,
                                                const int64_t *which, const REAL *restrict x, const REAL *means,
                                                const REAL *factors, const REAL *mean_grads, const REAL *slopes,
                                                const REAL *restrict grad, REAL *restrict d_x) {
    for (int64_t k = first; k < last; k++) {
        const int64_t of = which[k] * width;
        const REAL *restrict mean = means + of, *restrict factor = factors + of, *restrict slope = slopes + of;
        const REAL *restrict mean_grad = mean_grads + of;
        for (int64_t i = starts[k]; i < starts[k + 1]; i++)
            SIMD for (int64_t j = 0; j < width; j++) {
                const REAL left = grad[i * width + j] - mean_grad[j] - (x[i * width + j] - mean[j]) * slope[j];
                d_x[i * width + j] = left * factor[j];
            }
    }
}

void NAME(chunk_standardise_backward)(int64_t first, int64_t last, int64_t width, const int64_t *starts,
                                      const int64_t *which, const REAL *restrict x, const REAL *means,
                                      const REAL *factors, const REAL *mean_grads, const REAL *slopes,
                                      const REAL *restrict grad, REAL *restrict d_x) {
    BY_WIDTH(NAME(chunk_standardise_backward_of), starts, which, x, means, factors, mean_grads, slopes, grad, d_x);
}
#undef BY_WIDTH
#undef LANES
