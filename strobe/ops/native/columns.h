/* Copies columns between rows of different widths, included once per precision, with REAL and NAME defined. */

void NAME(copy_columns)(int64_t first, int64_t last, int64_t width, int64_t from_row, const REAL *restrict from,
                        int64_t to_row, REAL *restrict to) {
    for (int64_t i = first; i < last; i++)
        SIMD for (int64_t j = 0; j < width; j++) to[i * to_row + j] = from[i * from_row + j];
}
