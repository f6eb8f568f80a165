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

/* d_z must be zero where no example reads it, and no two examples may read one row. */
void NAME(readout_backward)(int64_t first, int64_t last, int64_t width, int64_t outputs, const int64_t *rows,
                            const REAL *z, const REAL *w, const REAL *d_y, REAL *restrict d_z, REAL *restrict d_w,
                            REAL *restrict d_bias) {
    for (int64_t i = first; i < last; i++) {
        const int64_t at = rows ? rows[i] : i;
        const REAL *restrict row = z + at * width;
        REAL *restrict grad = d_z + at * width;
        for (int64_t j = 0; j < width; j++) grad[j] = 0;
        for (int64_t k = 0; k < outputs; k++) {
            const REAL up = d_y[i * outputs + k];
            d_bias[k] += up;
            SIMD for (int64_t j = 0; j < width; j++) {
                const REAL positive = row[j] <= 0 ? (REAL)0 : (REAL)1;
                grad[j] += positive * up * w[k * width + j];
                d_w[k * width + j] += positive * up * row[j];
            }
        }
    }
}
