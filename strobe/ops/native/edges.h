/* Included once per precision, with REAL, NAME and EXP defined. */

/* ---- sparse product: out[i] = sum over entries of row i of weight * x[column], rows first to last ----
 * Row i has entries starts[i] to ends[i]: of a whole matrix starts and ends are the same array, one place apart. Where
 * reads and gives are there, entry (i, j) counts gives[i] * reads[j] times. */

typedef REAL NAME(row) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL))));
#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))
#define AHEAD 16 /* entries by which rows are asked for before they are read: they come from anywhere in memory */

typedef struct {
    const int64_t *starts, *ends;
    const int32_t *col;
    const REAL *weight, *reads, *gives, *x;
    REAL *out;
    int64_t width, all; /* columns of x, and entries of all rows of the call */
} NAME(product);

INLINE REAL NAME(coefficient)(const NAME(product) *p, int64_t e) {
    return (p->weight ? p->weight[e] : (REAL)1) * (p->reads ? p->reads[p->col[e]] : (REAL)1);
}

/* Columns from on of row i, a whole number of vectors, which stay in registers while the row adds up; vecs must be a
 * constant. */
INLINE void NAME(spmm_vectors)(int64_t vecs, const NAME(product) *p, int64_t i, int64_t from) {
    NAME(row) sum[8] = {{0}};
    const int64_t end = p->ends[i];
    for (int64_t e = p->starts[i]; e < end; e++) {
        const REAL w = NAME(coefficient)(p, e);
        const REAL *source = p->x + (int64_t)p->col[e] * p->width + from;
        if (e + AHEAD < p->all) {
            const REAL *later = p->x + (int64_t)p->col[e + AHEAD] * p->width + from;
            for (int64_t v = 0; v < vecs; v += 4) __builtin_prefetch(later + v * LANES);
        }
        for (int64_t v = 0; v < vecs; v++) sum[v] += w * *(const NAME(row) *)(source + v * LANES);
    }
    if (p->gives)
        for (int64_t v = 0; v < vecs; v++) sum[v] *= p->gives[i];
    for (int64_t v = 0; v < vecs; v++) *(NAME(row) *)(p->out + i * p->width + from + v * LANES) = sum[v];
}

/* The same of half a vector, of a quarter, and of one column. */
typedef REAL NAME(half) __attribute__((vector_size(VECTOR_BYTES / 2), aligned(sizeof(REAL))));
typedef REAL NAME(quarter)
    __attribute__((vector_size(VECTOR_BYTES / 4 > sizeof(REAL) ? VECTOR_BYTES / 4 : sizeof(REAL)),
                   aligned(sizeof(REAL))));

#define SPMM_PART(name, type)                                                                                          \
    INLINE void NAME(name)(const NAME(product) *p, int64_t i, int64_t from) {                                          \
        type sum = {0};                                                                                                \
        const int64_t end = p->ends[i];                                                                                \
        for (int64_t e = p->starts[i]; e < end; e++)                                                                   \
            sum += NAME(coefficient)(p, e) * *(const type *)(p->x + (int64_t)p->col[e] * p->width + from);             \
        if (p->gives) sum *= p->gives[i];                                                                              \
        *(type *)(p->out + i * p->width + from) = sum;                                                                 \
    }
SPMM_PART(spmm_half, NAME(half))
SPMM_PART(spmm_quarter, NAME(quarter))
SPMM_PART(spmm_column, REAL)
#undef SPMM_PART

void NAME(spmm)(int64_t first, int64_t last, int64_t width, const int64_t *starts, const int64_t *ends,
                const int32_t *restrict col, const REAL *restrict weight, const REAL *reads, const REAL *gives,
                const REAL *restrict x, REAL *restrict out) {
    const NAME(product) p = {starts, ends, col, weight, reads, gives, x, out, width, first < last ? ends[last - 1] : 0};
#define ALL_ROWS(vecs) \
    for (int64_t i = first; i < last; i++) NAME(spmm_vectors)(vecs, &p, i, 0)
    if (width == LANES) {
        ALL_ROWS(1);
    } else if (width == 2 * LANES) {
        ALL_ROWS(2);
    } else if (width == 4 * LANES) {
        ALL_ROWS(4);
    } else {
        for (int64_t i = first; i < last; i++) {
            int64_t from = 0;
            for (; width - from >= 8 * LANES; from += 8 * LANES) NAME(spmm_vectors)(8, &p, i, from);
            if (width - from >= 4 * LANES) NAME(spmm_vectors)(4, &p, i, from), from += 4 * LANES;
            if (width - from >= 2 * LANES) NAME(spmm_vectors)(2, &p, i, from), from += 2 * LANES;
            if (width - from >= LANES) NAME(spmm_vectors)(1, &p, i, from), from += LANES;
            if (width - from >= LANES / 2) NAME(spmm_half)(&p, i, from), from += LANES / 2;
            if (LANES >= 4 && width - from >= LANES / 4) NAME(spmm_quarter)(&p, i, from), from += LANES / 4;
            for (; from < width; from++) NAME(spmm_column)(&p, i, from);
        }
    }
#undef ALL_ROWS
}
#undef LANES
#undef AHEAD

/* out[rows[i]] += x[i] for rows first to last of x; a row comes once. */
void NAME(add_rows)(int64_t first, int64_t last, int64_t width, const int64_t *restrict rows, const REAL *restrict x,
                    REAL *restrict out) {
    for (int64_t i = first; i < last; i++) {
        REAL *restrict y = out + rows[i] * width;
        const REAL *restrict source = x + i * width;
        SIMD for (int64_t f = 0; f < width; f++) y[f] += source[f];
    }
}

/* ---- attention over edges ----
 * Entry (i, j) scores leaky(a_in[i] + a_out[j]) per head; row i gives the softmax-weighted sum of its v[j].
 * norm[i] is the logarithm of the sum of exponentials, all that backward needs to find the weights again. */

INLINE REAL NAME(leaky)(REAL x, REAL slope) { return x > 0 ? x : slope * x; }

void NAME(attend)(int64_t first, int64_t last, int64_t heads, int64_t depth, REAL slope,
                         const int64_t *restrict row_ptr, const int32_t *restrict col, const REAL *restrict a_in,
                         const REAL *restrict a_out, const REAL *restrict v, REAL *restrict out,
                         REAL *restrict norm) {
    const int64_t width = heads * depth;
    for (int64_t i = first; i < last; i++) {
        REAL *restrict y = out + i * width;
        for (int64_t f = 0; f < width; f++) y[f] = 0;
        for (int64_t k = 0; k < heads; k++) {
            REAL top = -INFINITY, sum = 0;
            for (int64_t e = row_ptr[i]; e < row_ptr[i + 1]; e++) {
                const REAL score = NAME(leaky)(a_in[i * heads + k] + a_out[(int64_t)col[e] * heads + k], slope);
                top = score > top ? score : top;
            }
            for (int64_t e = row_ptr[i]; e < row_ptr[i + 1]; e++) {
                const REAL *restrict source = v + (int64_t)col[e] * width + k * depth;
                const REAL score = NAME(leaky)(a_in[i * heads + k] + a_out[(int64_t)col[e] * heads + k], slope);
                const REAL w = EXP(score - top);
                sum += w;
                SIMD for (int64_t f = 0; f < depth; f++) y[k * depth + f] += w * source[f];
            }
            norm[i * heads + k] = sum > 0 ? top + log(sum) : 0;
            if (sum > 0) {
                SIMD for (int64_t f = 0; f < depth; f++) y[k * depth + f] /= sum;
            }
        }
    }
}

/* Gradient of a_in, by rows: d score = weight * (d out[i] . v[j] - d out[i] . out[i]). */
void NAME(attend_backward_in)(int64_t first, int64_t last, int64_t heads, int64_t depth, REAL slope,
                                     const int64_t *restrict row_ptr, const int32_t *restrict col,
                                     const REAL *restrict a_in, const REAL *restrict a_out, const REAL *restrict v,
                                     const REAL *restrict norm, const REAL *restrict d_out,
                                     const REAL *restrict kept, REAL *restrict d_in) {
    const int64_t width = heads * depth;
    for (int64_t i = first; i < last; i++) {
        for (int64_t k = 0; k < heads; k++) {
            const REAL *restrict dy = d_out + i * width + k * depth;
            REAL total = 0;
            for (int64_t e = row_ptr[i]; e < row_ptr[i + 1]; e++) {
                const REAL raw = a_in[i * heads + k] + a_out[(int64_t)col[e] * heads + k];
                const REAL *restrict source = v + (int64_t)col[e] * width + k * depth;
                REAL dot = 0;
                for (int64_t f = 0; f < depth; f++) dot += dy[f] * source[f];
                const REAL w = EXP(NAME(leaky)(raw, slope) - norm[i * heads + k]);
                total += w * (dot - kept[i * heads + k]) * (raw > 0 ? (REAL)1 : slope);
            }
            d_in[i * heads + k] = total;
        }
    }
}

/* Gradients of a_out and v, by rows of the transpose: row j lists the i that read it. */
void NAME(attend_backward_out)(int64_t first, int64_t last, int64_t heads, int64_t depth, REAL slope,
                                      const int64_t *restrict row_ptr, const int32_t *restrict col,
                                      const REAL *restrict a_in, const REAL *restrict a_out,
                                      const REAL *restrict v, const REAL *restrict norm,
                                      const REAL *restrict d_out, const REAL *restrict kept,
                                      REAL *restrict d_a_out, REAL *restrict d_v) {
    const int64_t width = heads * depth;
    for (int64_t j = first; j < last; j++) {
        for (int64_t k = 0; k < heads; k++) {
            const REAL *restrict source = v + j * width + k * depth;
            REAL *restrict dv = d_v + j * width + k * depth;
            REAL total = 0;
            for (int64_t f = 0; f < depth; f++) dv[f] = 0;
            for (int64_t e = row_ptr[j]; e < row_ptr[j + 1]; e++) {
                const int64_t i = col[e];
                const REAL raw = a_in[i * heads + k] + a_out[j * heads + k];
                const REAL *restrict dy = d_out + i * width + k * depth;
                REAL dot = 0;
                const REAL w = EXP(NAME(leaky)(raw, slope) - norm[i * heads + k]);
                for (int64_t f = 0; f < depth; f++) dot += dy[f] * source[f];
                SIMD for (int64_t f = 0; f < depth; f++) dv[f] += w * dy[f];
                total += w * (dot - kept[i * heads + k]) * (raw > 0 ? (REAL)1 : slope);
            }
            d_a_out[j * heads + k] = total;
        }
    }
}
