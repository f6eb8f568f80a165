/* A linear map of what is positive in each row, included once per precision, with REAL and NAME defined.
 * rows says which row of z example i reads, or is NULL for row i. */

void NAME(readout)(int64_t first, int64_t last, int64_t width, int64_t outputs, const int64_t *rows, const REAL *z,
                   const REAL *w, const REAL *bias, REAL *restrict y) {
    for (int64_t i = first; i < last; i++) {
        const REAL *restrict row = z + (rows ? rows[i] : i) * width;
        for (int64_t k = 0; k < outputs; k++) {
            REAL sum = 0;
            _Pragma("omp simd reduction(+ : sum)")
            for (int64_t j = 0; j < width; j++) sum += (row[j] <= 0 ? 0 : row[j]) * w[k * width + j];
            y[i * outputs + k] = bias[k] + sum;
        }
    }
}

typedef REAL NAME(lanes) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL))));
#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))

/* Some vectors of columns of rows on the way back; vecs, at most 4, and outputs, at most 2, must be constants where
 * this is called: then weights and sums stay in registers. */
INLINE void NAME(readout_vectors)(int64_t vecs, int64_t outputs, int64_t first, int64_t last, int64_t width,
                                  const int64_t *rows, const REAL *restrict z, const REAL *restrict w,
                                  const REAL *restrict d_y, REAL *restrict d_z, REAL *restrict d_w) {
    NAME(lanes) sums[2][4], weights[2][4];
    for (int64_t k = 0; k < outputs; k++)
        for (int64_t v = 0; v < vecs; v++) {
            sums[k][v] = *(const NAME(lanes) *)(d_w + k * width + v * LANES);
            weights[k][v] = *(const NAME(lanes) *)(w + k * width + v * LANES);
        }
    for (int64_t i = first; i < last; i++) {
        const int64_t at = (rows ? rows[i] : i) * width;
        for (int64_t v = 0; v < vecs; v++) {
            const NAME(lanes) row = *(const NAME(lanes) *)(z + at + v * LANES);
            const __typeof__(row <= 0) none = row <= 0; /* all bits set, or none */
            const NAME(lanes) value = (NAME(lanes))(~none & (__typeof__(none))row);
            NAME(lanes) sum = {0};
            for (int64_t k = 0; k < outputs; k++) {
                sum += d_y[i * outputs + k] * weights[k][v];
                sums[k][v] += d_y[i * outputs + k] * value;
            }
            *(NAME(lanes) *)(d_z + at + v * LANES) = (NAME(lanes))(~none & (__typeof__(none))sum);
        }
    }
    for (int64_t k = 0; k < outputs; k++)
        for (int64_t v = 0; v < vecs; v++) *(NAME(lanes) *)(d_w + k * width + v * LANES) = sums[k][v];
}

/* The same for one column. */
INLINE void NAME(readout_column)(int64_t outputs, int64_t first, int64_t last, int64_t width, const int64_t *rows,
                                 const REAL *restrict z, const REAL *restrict w, const REAL *restrict d_y,
                                 REAL *restrict d_z, REAL *restrict d_w) {
    REAL sums[2];
    for (int64_t k = 0; k < outputs; k++) sums[k] = d_w[k * width];
    for (int64_t i = first; i < last; i++) {
        const int64_t at = (rows ? rows[i] : i) * width;
        const REAL value = z[at] <= 0 ? (REAL)0 : z[at];
        REAL sum = 0;
        for (int64_t k = 0; k < outputs; k++) {
            sum += d_y[i * outputs + k] * w[k * width];
            sums[k] += d_y[i * outputs + k] * value;
        }
        d_z[at] = z[at] <= 0 ? (REAL)0 : sum;
    }
    for (int64_t k = 0; k < outputs; k++) d_w[k * width] = sums[k];
}

/* All columns, for any number of outputs. */
INLINE void NAME(readout_columns)(int64_t outputs, int64_t first, int64_t last, int64_t width,
                                  const int64_t *rows, const REAL *restrict z, const REAL *restrict w,
                                  const REAL *restrict d_y, REAL *restrict d_z, REAL *restrict d_w) {
    for (int64_t i = first; i < last; i++) {
        const int64_t at = (rows ? rows[i] : i) * width;
        const REAL *restrict row = z + at;
        REAL *restrict grad = d_z + at;
        for (int64_t j = 0; j < width; j++) grad[j] = 0;
        for (int64_t k = 0; k < outputs; k++) {
            const REAL up = d_y[i * outputs + k];
            SIMD for (int64_t j = 0; j < width; j++) {
                const REAL positive = row[j] <= 0 ? (REAL)0 : (REAL)1;
                grad[j] += positive * up * w[k * width + j];
                d_w[k * width + j] += positive * up * row[j];
            }
        }
    }
}

/* d_z must be zero where no example reads it, and no two examples may read one row. */
void NAME(readout_backward)(int64_t first, int64_t last, int64_t width, int64_t outputs, const int64_t *rows,
                            const REAL *z, const REAL *w, const REAL *d_y, REAL *restrict d_z, REAL *restrict d_w,
                            REAL *restrict d_bias) {
    for (int64_t i = first; i < last; i++)
        for (int64_t k = 0; k < outputs; k++) d_bias[k] += d_y[i * outputs + k];
    for (int64_t from = first; from < last; from += 64) { /* rows that stay in the first cache */
        const int64_t to = from + 64 < last ? from + 64 : last;
        int64_t j = 0;
#define PLACES from, to, width, rows, z + j, w + j, d_y, d_z + j, d_w + j
#define WALK(kernel, columns, ...)                         \
    for (; j + columns <= width; j += columns) {           \
        if (outputs == 1)                                  \
            NAME(kernel)(__VA_ARGS__ 1, PLACES);           \
        else                                               \
            NAME(kernel)(__VA_ARGS__ 2, PLACES);           \
    }
        if (outputs > 2) {
            NAME(readout_columns)(outputs, PLACES);
            continue;
        }
        WALK(readout_vectors, 4 * LANES, 4, )
        WALK(readout_vectors, 2 * LANES, 2, )
        WALK(readout_vectors, LANES, 1, )
        WALK(readout_column, 1, )
#undef WALK
#undef PLACES
    }
}
#undef LANES
