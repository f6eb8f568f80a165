/* Statistics of the columns of tall arrays, in double precision and row by row, as numpy adds: included once per
 * precision of the rows. Called from the base library, where no product is fused with a sum. */

/* Most rows have a few columns: their number is a constant in a version of its own, and sums are in registers. */
#define BY_COLUMNS(kernel, ...)                    \
    if (width == 2)                                \
        kernel(count, 2, __VA_ARGS__);             \
    else                                           \
        kernel(count, width, __VA_ARGS__)

INLINE void NAME(column_sums_of)(int64_t count, int64_t width, const REAL *restrict x, double *restrict total) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++) total[j] += x[i * width + j];
}

void NAME(column_sums)(int64_t count, int64_t width, const REAL *restrict x, double *restrict total) {
    BY_COLUMNS(NAME(column_sums_of), x, total);
}

/* Squares of what differs from base, or from fallback where that is NaN or NULL. */
INLINE void NAME(column_squares_of)(int64_t count, int64_t width, const REAL *restrict x, const REAL *restrict base,
                                    const double *restrict fallback, double *restrict total) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++) {
            const double start = base ? base[i * width + j] : NAN;
            const double off = x[i * width + j] - (isnan(start) ? fallback[j] : start);
            total[j] += off * off;
        }
}

void NAME(column_squares)(int64_t count, int64_t width, const REAL *restrict x, const REAL *restrict base,
                          const double *restrict fallback, double *restrict total) {
    if (base) {
        BY_COLUMNS(NAME(column_squares_of), x, base, fallback, total);
    } else {
        BY_COLUMNS(NAME(column_squares_of), x, NULL, fallback, total);
    }
}

/* Smallest and largest number of each column; low and high start as the first row. */
INLINE void NAME(column_extremes_of)(int64_t count, int64_t width, const REAL *restrict x, double *restrict low,
                                     double *restrict high) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++) {
            const double value = x[i * width + j];
            low[j] = value < low[j] ? value : low[j];
            high[j] = value > high[j] ? value : high[j];
        }
}

void NAME(column_extremes)(int64_t count, int64_t width, const REAL *restrict x, double *restrict low,
                           double *restrict high) {
    BY_COLUMNS(NAME(column_extremes_of), x, low, high);
}

/* (x - base) / scale of rows first to last, in single or double precision: one of both outputs is NULL. */
void NAME(scale_differences)(int64_t first, int64_t last, int64_t width, const REAL *restrict x,
                             const REAL *restrict base, const double *restrict fallback, const double *restrict scale,
                             float *restrict single, double *restrict precise) {
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < width; j++) {
            const double start = base ? base[i * width + j] : NAN;
            const double scaled = (x[i * width + j] - (isnan(start) ? fallback[j] : start)) / scale[j];
            if (single)
                single[i * width + j] = (float)scaled;
            else
                precise[i * width + j] = scaled;
        }
}

/* Rows of x at some positions; NaN where the position is negative. */
void NAME(rows_or_nan)(int64_t count, int64_t width, const int64_t *restrict at, const REAL *restrict x,
                       REAL *restrict out) {
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++) out[i * width + j] = at[i] < 0 ? (REAL)NAN : x[at[i] * width + j];
}
#undef BY_COLUMNS
