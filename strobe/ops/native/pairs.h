/* Scores of pairs from a row of each of two tables, and the gradients of both tables. */

/* Scores of pairs first to last: the product of their rows, plus a number of each end. */
void NAME(pair_scores)(int64_t first, int64_t last, int64_t width, const int32_t *row, const int32_t *column,
                       const REAL *query, const REAL *key, const REAL *of_rows, const REAL *of_columns, REAL *out) {
    for (int64_t i = first; i < last; i++) {
        const REAL *a = query + row[i] * width, *b = key + column[i] * width;
        if (i + 8 < last) {
            const char *next = (const char *)(key + column[i + 8] * width);
            for (int64_t k = 0; k < width * (int64_t)sizeof(REAL); k += 64) __builtin_prefetch(next + k);
        }
        REAL sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < width; j++) sum += a[j] * b[j];
        out[i] = sum + of_rows[row[i]] + of_columns[column[i]];
    }
}

/* For rows first to last of one table: the gradient of the row, from the rows of the other table that it was paired with,
 * and of its number. pairs[ptr[r]] to pairs[ptr[r + 1]] are the pairs of row r. */
void NAME(pair_gradient)(int64_t first, int64_t last, int64_t width, const int64_t *ptr, const int32_t *pairs,
                         const int32_t *other, const REAL *gradient, const REAL *table, REAL *of_row,
                         REAL *of_number) {
    for (int64_t r = first; r < last; r++) {
        REAL *out = of_row + r * width, total = 0;
        memset(out, 0, sizeof(REAL) * (size_t)width);
        for (int64_t e = ptr[r]; e < ptr[r + 1]; e++) {
            const int64_t i = pairs[e];
            const REAL g = gradient[i], *from = table + other[i] * width;
            if (e + 8 < ptr[last]) {
                const char *next = (const char *)(table + other[pairs[e + 8]] * width);
                for (int64_t k = 0; k < width * (int64_t)sizeof(REAL); k += 64) __builtin_prefetch(next + k);
            }
            total += g;
            SIMD for (int64_t j = 0; j < width; j++) out[j] += g * from[j];
        }
        of_number[r] = total;
    }
}
