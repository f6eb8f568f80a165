/* Recurrent stages, included once per precision, with REAL, NAME and EXP defined.
 *
 * A tile of nodes walks through all its snapshots while its state stays in cache. Cells are numbered snapshot by
 * snapshot and in each by slot, so that tile i has rows bounds[t][i] to bounds[t][i + 1] of snapshot t and slots
 * edges[i] to edges[i + 1]. slot is NULL where everybody is always present. Weights come transposed, [inputs, gates],
 * gates side by side as torch has them: reset, update, candidate (GRU). */

INLINE REAL NAME(tanh)(REAL x) { return (REAL)1 - (REAL)2 / (EXP((REAL)2 * x) + (REAL)1); }

/* x between limits beyond which gates are 0 or 1 to the last bit that counts; what is no number stays none. */
INLINE REAL NAME(bounded)(REAL x, REAL limit) { return x > limit ? limit : x < -limit ? -limit : x; }

/* 1 + e to the -x: a sigmoid's inverse. Division is what gates cost most, so several share one, by the inverse of
 * the product of theirs; LIMIT keeps a product of four finite. */
INLINE REAL NAME(opposite)(REAL x) { return (REAL)1 + EXP(-NAME(bounded)(x, LIMIT)); }

/* ---- C = start + A B, for matrices that fit into cache ----
 * A is read through two strides, so that it can be a transpose; rows of B and C are dense. Rows of start are start_row
 * apart: C itself to add to it, 0 for one row that is a bias, and no start at all (NULL) for zeros. */

typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL))));
#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))

/* One block of the result, at most BLOCK_ROWS x 2 vectors, in registers while it adds up. */
INLINE void NAME(gemm_block)(int64_t rows, int64_t vecs, int64_t inner, const REAL *restrict a, int64_t a_row,
                             int64_t a_in, const REAL *restrict b, int64_t b_row, const REAL *start,
                             int64_t start_row, REAL *c, int64_t c_row) {
    NAME(vec) sum[BLOCK_ROWS][2], right[2];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < vecs; v++)
            sum[i][v] = start ? *(const NAME(vec) *)(start + i * start_row + v * LANES) : (NAME(vec)){0};
    for (int64_t k = 0; k < inner; k++) {
        for (int64_t v = 0; v < vecs; v++) right[v] = *(const NAME(vec) *)(b + k * b_row + v * LANES);
        for (int64_t i = 0; i < rows; i++) {
            const REAL left = a[i * a_row + k * a_in];
            for (int64_t v = 0; v < vecs; v++) sum[i][v] += left * right[v];
        }
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < vecs; v++) *(NAME(vec) *)(c + i * c_row + v * LANES) = sum[i][v];
}

/* A column of blocks: sizes must be constants where this is called, or sums would not stay in registers. */
INLINE void NAME(gemm_column)(int64_t vecs, int64_t rows, int64_t inner, const REAL *restrict a, int64_t a_row,
                              int64_t a_in, const REAL *restrict b, int64_t b_row, const REAL *start,
                              int64_t start_row, REAL *c, int64_t c_row) {
    int64_t i = 0;
#define BLOCK(count)                                                                                    \
    NAME(gemm_block)(count, vecs, inner, a + i * a_row, a_row, a_in, b, b_row, start ? start + i * start_row : 0, \
                     start_row, c + i * c_row, c_row)
    for (; i + BLOCK_ROWS <= rows; i += BLOCK_ROWS) BLOCK(BLOCK_ROWS);
#if BLOCK_ROWS > 4
    if (i + 4 <= rows) {
        BLOCK(4);
        i += 4;
    }
#endif
    for (; i + 2 <= rows; i += 2) BLOCK(2);
    if (i < rows) BLOCK(1);
#undef BLOCK
}

static void NAME(gemm)(int64_t rows, int64_t cols, int64_t inner, const REAL *restrict a, int64_t a_row, int64_t a_in,
                       const REAL *restrict b, int64_t b_row, const REAL *start, int64_t start_row, REAL *c,
                       int64_t c_row) {
    int64_t j = 0;
#define FROM (start ? start + j : 0)
    for (; j + 2 * LANES <= cols; j += 2 * LANES)
        NAME(gemm_column)(2, rows, inner, a, a_row, a_in, b + j, b_row, FROM, start_row, c + j, c_row);
    for (; j + LANES <= cols; j += LANES)
        NAME(gemm_column)(1, rows, inner, a, a_row, a_in, b + j, b_row, FROM, start_row, c + j, c_row);
#undef FROM
    for (; j < cols; j++)
        for (int64_t i = 0; i < rows; i++) {
            REAL sum = start ? start[i * start_row + j] : 0;
            for (int64_t k = 0; k < inner; k++) sum += a[i * a_row + k * a_in] * b[k * b_row + j];
            c[i * c_row + j] = sum;
        }
}

/* ---- the state of a tile ----
 * While everybody is present the state is simply the rows just written; only when somebody is missing does it need
 * memory of its own, into which rows are put by slot. */

typedef struct {
    const REAL *at;
    int64_t apart;
} NAME(rows);

/* The rows of a state that belong to n cells. */
INLINE void NAME(pick)(int64_t n, int64_t hidden, const int64_t *slot, int64_t origin, const REAL *restrict state,
                       REAL *restrict rows) {
    for (int64_t i = 0; i < n; i++)
        memcpy(rows + i * hidden, state + (slot[i] - origin) * hidden, (size_t)hidden * sizeof(REAL));
}

INLINE void NAME(put)(int64_t n, int64_t hidden, const int64_t *slot, int64_t origin, NAME(rows) rows,
                      REAL *restrict state) {
    for (int64_t i = 0; i < n; i++)
        memcpy(state + (slot[i] - origin) * hidden, rows.at + i * rows.apart, (size_t)hidden * sizeof(REAL));
}

/* Copies n rows close together. */
INLINE void NAME(gather)(int64_t n, int64_t hidden, NAME(rows) rows, REAL *to) {
    for (int64_t i = 0; i < n; i++) memcpy(to + i * hidden, rows.at + i * rows.apart, (size_t)hidden * sizeof(REAL));
}

/* The old state of n cells at the beginning of a step; now is the tile's whole state, own its memory. */
INLINE NAME(rows) NAME(before)(int64_t n, int64_t slots, int64_t hidden, const int64_t *slot, int64_t origin,
                               NAME(rows) *now, REAL *own, REAL *picked) {
    if (n == slots) return *now;
    if (now->at != own) NAME(gather)(slots, hidden, *now, own);
    *now = (NAME(rows)){own, hidden};
    NAME(pick)(n, hidden, slot, origin, own, picked);
    return (NAME(rows)){picked, hidden};
}

/* Makes the new rows of n cells part of the state. */
INLINE void NAME(after)(int64_t n, int64_t slots, int64_t hidden, const int64_t *slot, int64_t origin,
                        NAME(rows) *now, REAL *own, NAME(rows) fresh) {
    if (n == slots)
        *now = fresh;
    else
        NAME(put)(n, hidden, slot, origin, fresh, own);
}

/* The old states of every step of a tile, for the way back: where they stay as they are they stand in out, copies of
 * those that do not in spill. Gives the end of what it spilled. */
INLINE REAL *NAME(retrace)(int64_t snapshots, int64_t tiles, int64_t tile, int64_t slots, int64_t hidden,
                           const int64_t *bounds, const int64_t *slot, int64_t origin, const REAL *first,
                           NAME(rows) out, REAL *own, NAME(rows) *olds, REAL *spill) {
    NAME(rows) now = {first, hidden};
    for (int64_t t = 0; t < snapshots; t++) {
        const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
        if (!n) continue;
        olds[t] = NAME(before)(n, slots, hidden, slot + start, origin, &now, own, spill);
        if (olds[t].at == own) {
            memcpy(spill, own, (size_t)(n * hidden) * sizeof(REAL));
            olds[t].at = spill;
        }
        if (olds[t].at == spill) spill += n * hidden;
        NAME(after)(n, slots, hidden, slot + start, origin, &now, own,
                    (NAME(rows)){out.at + start * out.apart, out.apart});
    }
    return spill;
}

/* ---- gates ---- */

/* GRU whose reset gate acts on the projected state: gx and gh are the projections of input and state, [n, 3H]. */
INLINE void NAME(gru_gates)(int64_t n, int64_t hidden, const REAL *restrict gx, const REAL *restrict gh,
                            const REAL *restrict h, REAL *restrict out) {
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict a = gx + i * 3 * hidden, *restrict b = gh + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL over_r = NAME(opposite)(a[j] + b[j]), over_z = NAME(opposite)(a[hidden + j] + b[hidden + j]);
            const REAL shared = (REAL)1 / (over_r * over_z), r = shared * over_z, z = shared * over_r;
            const REAL c = NAME(tanh)(a[2 * hidden + j] + r * b[2 * hidden + j]);
            out[i * hidden + j] = c + z * (h[i * hidden + j] - c);
        }
    }
}

/* Replaces gx and gh by their gradients, dh by what reaches the old state past the gates. */
INLINE void NAME(gru_gates_backward)(int64_t n, int64_t hidden, REAL *restrict gx, REAL *restrict gh,
                                     const REAL *restrict h, REAL *restrict dh, REAL *restrict bias_x,
                                     REAL *restrict bias_h) {
    for (int64_t i = 0; i < n; i++) {
        REAL *restrict a = gx + i * 3 * hidden, *restrict b = gh + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL over_r = NAME(opposite)(a[j] + b[j]), over_z = NAME(opposite)(a[hidden + j] + b[hidden + j]);
            const REAL shared = (REAL)1 / (over_r * over_z), r = shared * over_z, z = shared * over_r;
            const REAL c = NAME(tanh)(a[2 * hidden + j] + r * b[2 * hidden + j]);
            const REAL d = dh[i * hidden + j];
            const REAL dc = d * (1 - z) * (1 - c * c);
            const REAL dz = d * (h[i * hidden + j] - c) * z * (1 - z);
            const REAL dr = dc * b[2 * hidden + j] * r * (1 - r);
            a[j] = b[j] = dr;
            a[hidden + j] = b[hidden + j] = dz;
            a[2 * hidden + j] = dc;
            b[2 * hidden + j] = dc * r;
            dh[i * hidden + j] = d * z;
        }
        SIMD for (int64_t j = 0; j < 3 * hidden; j++) {
            bias_x[j] += a[j];
            bias_h[j] += b[j];
        }
    }
}

/* GRU whose reset gate acts on the state itself, first half: activates reset and update in g [n, 3H], rh = r h. */
INLINE void NAME(gru_reset)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict h,
                            REAL *restrict rh) {
    for (int64_t i = 0; i < n; i++) {
        REAL *restrict a = g + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL over_r = NAME(opposite)(a[j]), over_z = NAME(opposite)(a[hidden + j]);
            const REAL shared = (REAL)1 / (over_r * over_z), r = shared * over_z;
            a[j] = r;
            a[hidden + j] = shared * over_r;
            rh[i * hidden + j] = r * h[i * hidden + j];
        }
    }
}

/* Second half: the new state, once the projection of rh has been added to the candidate. */
INLINE void NAME(gru_update)(int64_t n, int64_t hidden, const REAL *restrict g, const REAL *restrict h,
                             REAL *restrict out) {
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict a = g + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL c = NAME(tanh)(a[2 * hidden + j]);
            out[i * hidden + j] = c + a[hidden + j] * (h[i * hidden + j] - c);
        }
    }
}

/* Backward through the second half: g holds gradients of update and candidate afterwards, reset as it was. */
INLINE void NAME(gru_update_backward)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict h,
                                      REAL *restrict dh) {
    for (int64_t i = 0; i < n; i++) {
        REAL *restrict a = g + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL z = a[hidden + j];
            const REAL c = NAME(tanh)(a[2 * hidden + j]);
            const REAL d = dh[i * hidden + j];
            a[hidden + j] = d * (h[i * hidden + j] - c) * z * (1 - z);
            a[2 * hidden + j] = d * (1 - z) * (1 - c * c);
            dh[i * hidden + j] = d * z;
        }
    }
}

/* Backward through the first half, from the gradient of rh. */
INLINE void NAME(gru_reset_backward)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict h,
                                     const REAL *restrict drh, REAL *restrict dh, REAL *restrict bias) {
    for (int64_t i = 0; i < n; i++) {
        REAL *restrict a = g + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL r = a[j], d = drh[i * hidden + j];
            a[j] = d * h[i * hidden + j] * r * (1 - r);
            dh[i * hidden + j] += d * r;
        }
        SIMD for (int64_t j = 0; j < 3 * hidden; j++) bias[j] += a[j];
    }
}

/* ---- walks of GRU tiles ----
 * work: rows x 7H numbers for gates and picked rows; backward has 8H, then slots x H for the state, cells x H for old
 * states of one tile, and snapshots places of rows. */

/* Projections of n rows: with reset on the state gx ends as activated gates, their candidate not yet squashed, and
 * gh[0:n*H] as r h; else gx and gh are the plain projections of input and state. */
INLINE void NAME(gru_project)(int64_t n, int64_t width, int64_t hidden, int64_t reset_state, const REAL *x,
                              const REAL *h, const REAL *w_ih, const REAL *w_hh, const REAL *b_ih,
                              const REAL *b_hh, REAL *gx, REAL *gh) {
    const int64_t all = 3 * hidden, two = 2 * hidden;
    NAME(gemm)(n, all, width, x, width, 1, w_ih, all, b_ih, 0, gx, all);
    if (reset_state) {
        NAME(gemm)(n, two, hidden, h, hidden, 1, w_hh, all, gx, all, gx, all);
        NAME(gru_reset)(n, hidden, gx, h, gh);
        NAME(gemm)(n, hidden, hidden, gh, hidden, 1, w_hh + two, all, gx + two, all, gx + two, all);
    } else {
        NAME(gemm)(n, all, hidden, h, hidden, 1, w_hh, all, b_hh, 0, gh, all);
    }
}

void NAME(gru_forward)(int64_t first, int64_t last, int64_t snapshots, int64_t tiles, int64_t rows, int64_t width,
                       int64_t hidden, int64_t reset_state, const int64_t *edges, const int64_t *bounds,
                       const int64_t *slot, const REAL *x, const REAL *h_first, const REAL *w_ih, const REAL *w_hh,
                       const REAL *b_ih, const REAL *b_hh, REAL *out, REAL *h_last, REAL *work) {
    REAL *gx = work, *gh = gx + rows * 3 * hidden, *picked = gh + rows * 3 * hidden;
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        NAME(rows) now = {h_first + origin * hidden, hidden};
        REAL *own = h_last + origin * hidden;
        for (int64_t t = 0; t < snapshots; t++) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            REAL *new = out + start * hidden;
            if (!n) continue;
            const REAL *h = NAME(before)(n, slots, hidden, slot + start, origin, &now, own, picked).at;
            NAME(gru_project)(n, width, hidden, reset_state, x + start * width, h, w_ih, w_hh, b_ih, b_hh, gx, gh);
            if (reset_state)
                NAME(gru_update)(n, hidden, gx, h, new);
            else
                NAME(gru_gates)(n, hidden, gx, gh, h, new);
            NAME(after)(n, slots, hidden, slot + start, origin, &now, own, (NAME(rows)){new, hidden});
        }
        if (now.at != own) NAME(gather)(slots, hidden, now, own);
    }
}

/* d_state [S, H] holds the gradient of the last states and receives that of the first. d_x may be NULL. Gradients of
 * weights are added, transposed like the weights; plain_hh is the state's weight as torch has it, [3H, H], plain_ih
 * the input's, [3H, F]. */
void NAME(gru_backward)(int64_t first, int64_t last, int64_t snapshots, int64_t tiles, int64_t rows, int64_t slots_max,
                        int64_t width, int64_t hidden, int64_t reset_state, const int64_t *edges,
                        const int64_t *bounds, const int64_t *slot, const REAL *x, const REAL *h_first,
                        const REAL *w_ih, const REAL *w_hh, const REAL *plain_ih, const REAL *plain_hh,
                        const REAL *b_ih, const REAL *b_hh, const REAL *out, const REAL *d_out, REAL *d_state,
                        REAL *d_x, REAL *d_w_ih, REAL *d_w_hh, REAL *d_b_ih, REAL *d_b_hh, REAL *work) {
    const int64_t all = 3 * hidden, two = 2 * hidden;
    NAME(rows) *olds = (NAME(rows) *)work;
    REAL *gx = (REAL *)(olds + snapshots), *gh = gx + rows * all, *picked = gh + rows * all;
    REAL *drh = picked + rows * hidden, *own = drh + rows * hidden, *spill = own + slots_max * hidden;
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        REAL *running = d_state + origin * hidden;
        NAME(retrace)(snapshots, tiles, tile, slots, hidden, bounds, slot, origin, h_first + origin * hidden,
                      (NAME(rows)){out, hidden}, own, olds, spill);
        for (int64_t t = snapshots - 1; t >= 0; t--) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const REAL *in = x + start * width, *old = olds[t].at;
            REAL *dh = n == slots ? running : picked;
            if (!n) continue;
            if (n < slots) NAME(pick)(n, hidden, slot + start, origin, running, picked);
            SIMD for (int64_t i = 0; i < n * hidden; i++) dh[i] += d_out[start * hidden + i];
            NAME(gru_project)(n, width, hidden, reset_state, in, old, w_ih, w_hh, b_ih, b_hh, gx, gh);
            if (reset_state) {
                NAME(gru_update_backward)(n, hidden, gx, old, dh);
                NAME(gemm)(hidden, hidden, n, gh, 1, hidden, gx + two, all, d_w_hh + two, all, d_w_hh + two, all);
                NAME(gemm)(n, hidden, hidden, gx + two, all, 1, plain_hh + two * hidden, hidden, 0, 0, drh, hidden);
                NAME(gru_reset_backward)(n, hidden, gx, old, drh, dh, d_b_ih);
                NAME(gemm)(hidden, two, n, old, 1, hidden, gx, all, d_w_hh, all, d_w_hh, all);
                NAME(gemm)(n, hidden, two, gx, all, 1, plain_hh, hidden, dh, hidden, dh, hidden);
            } else {
                NAME(gru_gates_backward)(n, hidden, gx, gh, old, dh, d_b_ih, d_b_hh);
                NAME(gemm)(hidden, all, n, old, 1, hidden, gh, all, d_w_hh, all, d_w_hh, all);
                NAME(gemm)(n, hidden, all, gh, all, 1, plain_hh, hidden, dh, hidden, dh, hidden);
            }
            NAME(gemm)(width, all, n, in, 1, width, gx, all, d_w_ih, all, d_w_ih, all);
            if (d_x) NAME(gemm)(n, width, all, gx, all, 1, plain_ih, width, 0, 0, d_x + start * width, width);
            if (n < slots) NAME(put)(n, hidden, slot + start, origin, (NAME(rows)){dh, hidden}, running);
        }
    }
}
#undef LANES
