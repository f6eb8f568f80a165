/* Recurrent stages, included once per precision, with REAL, NAME and EXP defined.
 *
 * A tile of nodes walks through all its snapshots while its state stays in cache. Cells are numbered snapshot by
 * snapshot and in each by slot, so that tile i has rows bounds[t][i] to bounds[t][i + 1] of snapshot t and slots
 * edges[i] to edges[i + 1]. slot is NULL where everybody is always present. Weights come transposed, [inputs, gates],
 * gates side by side as torch has them: reset, update, candidate (GRU); input, forget, candidate, output (LSTM). */

INLINE REAL NAME(sigmoid)(REAL x) { return (REAL)1 / ((REAL)1 + EXP(-x)); }
INLINE REAL NAME(tanh)(REAL x) { return (REAL)1 - (REAL)2 / (EXP((REAL)2 * x) + (REAL)1); }

/* ---- C += A B, for matrices that fit into cache ----
 * A is read through two strides, so that it can be a transpose; rows of B and C are dense. */

typedef REAL NAME(vec) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL))));
#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))

/* One block of the result, at most BLOCK_ROWS x 2 vectors, in registers while it adds up. */
INLINE void NAME(gemm_block)(int64_t rows, int64_t vecs, int64_t inner, const REAL *restrict a, int64_t a_row,
                             int64_t a_in, const REAL *restrict b, int64_t b_row, REAL *restrict c, int64_t c_row) {
    NAME(vec) sum[BLOCK_ROWS][2], right[2];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t v = 0; v < vecs; v++) sum[i][v] = *(const NAME(vec) *)(c + i * c_row + v * LANES);
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
                              int64_t a_in, const REAL *restrict b, int64_t b_row, REAL *restrict c, int64_t c_row) {
    int64_t i = 0;
    for (; i + BLOCK_ROWS <= rows; i += BLOCK_ROWS)
        NAME(gemm_block)(BLOCK_ROWS, vecs, inner, a + i * a_row, a_row, a_in, b, b_row, c + i * c_row, c_row);
    for (; i + 2 <= rows; i += 2)
        NAME(gemm_block)(2, vecs, inner, a + i * a_row, a_row, a_in, b, b_row, c + i * c_row, c_row);
    if (i < rows) NAME(gemm_block)(1, vecs, inner, a + i * a_row, a_row, a_in, b, b_row, c + i * c_row, c_row);
}

static void NAME(gemm)(int64_t rows, int64_t cols, int64_t inner, const REAL *restrict a, int64_t a_row, int64_t a_in,
                       const REAL *restrict b, int64_t b_row, REAL *restrict c, int64_t c_row) {
    int64_t j = 0;
    for (; j + 2 * LANES <= cols; j += 2 * LANES)
        NAME(gemm_column)(2, rows, inner, a, a_row, a_in, b + j, b_row, c + j, c_row);
    for (; j + LANES <= cols; j += LANES)
        NAME(gemm_column)(1, rows, inner, a, a_row, a_in, b + j, b_row, c + j, c_row);
    if (j == cols) return;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < inner; k++) {
            const REAL left = a[i * a_row + k * a_in];
            for (int64_t l = j; l < cols; l++) c[i * c_row + l] += left * b[k * b_row + l];
        }
}

/* ---- rows of a tile ---- */

INLINE void NAME(fill)(int64_t n, int64_t cols, const REAL *restrict row, REAL *restrict out) {
    for (int64_t i = 0; i < n; i++) memcpy(out + i * cols, row, (size_t)cols * sizeof(REAL));
}

/* The rows of a tile's state that belong to n cells: the state itself where everybody is present. */
INLINE const REAL *NAME(pick)(int64_t n, int64_t hidden, const int64_t *slot, int64_t origin, const REAL *state,
                              REAL *restrict rows) {
    if (!slot) return state;
    for (int64_t i = 0; i < n; i++)
        memcpy(rows + i * hidden, state + (slot[i] - origin) * hidden, (size_t)hidden * sizeof(REAL));
    return rows;
}

INLINE void NAME(put)(int64_t n, int64_t hidden, const int64_t *slot, int64_t origin, const REAL *rows,
                      REAL *restrict state) {
    if (!slot) {
        memcpy(state, rows, (size_t)(n * hidden) * sizeof(REAL));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(state + (slot[i] - origin) * hidden, rows + i * hidden, (size_t)hidden * sizeof(REAL));
}

/* ---- gates ---- */

/* GRU whose reset gate acts on the projected state: gx and gh are the projections of input and state, [n, 3H]. */
INLINE void NAME(gru_gates)(int64_t n, int64_t hidden, const REAL *restrict gx, const REAL *restrict gh,
                            const REAL *restrict h, REAL *restrict out) {
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict a = gx + i * 3 * hidden, *restrict b = gh + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL r = NAME(sigmoid)(a[j] + b[j]);
            const REAL z = NAME(sigmoid)(a[hidden + j] + b[hidden + j]);
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
            const REAL r = NAME(sigmoid)(a[j] + b[j]);
            const REAL z = NAME(sigmoid)(a[hidden + j] + b[hidden + j]);
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
            const REAL r = NAME(sigmoid)(a[j]);
            a[j] = r;
            a[hidden + j] = NAME(sigmoid)(a[hidden + j]);
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

/* LSTM: new cell and hidden state; g [n, 4H] holds the activated gates afterwards. */
INLINE void NAME(lstm_gates)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict c,
                             REAL *restrict c_out, REAL *restrict out) {
    for (int64_t i = 0; i < n; i++) {
        REAL *restrict a = g + i * 4 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL in = NAME(sigmoid)(a[j]);
            const REAL forget = NAME(sigmoid)(a[hidden + j]);
            const REAL candidate = NAME(tanh)(a[2 * hidden + j]);
            const REAL gate = NAME(sigmoid)(a[3 * hidden + j]);
            const REAL fresh = forget * c[i * hidden + j] + in * candidate;
            c_out[i * hidden + j] = fresh;
            out[i * hidden + j] = gate * NAME(tanh)(fresh);
            a[j] = in;
            a[hidden + j] = forget;
            a[2 * hidden + j] = candidate;
            a[3 * hidden + j] = gate;
        }
    }
}

/* Gradients of the pre-activations, dg, from activated gates; dc becomes the gradient of the old cell state. */
INLINE void NAME(lstm_gates_backward)(int64_t n, int64_t hidden, const REAL *restrict g, const REAL *restrict c,
                                      const REAL *restrict c_out, const REAL *restrict dh, REAL *restrict dc,
                                      REAL *restrict dg, REAL *restrict bias) {
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict a = g + i * 4 * hidden;
        REAL *restrict d = dg + i * 4 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL in = a[j], forget = a[hidden + j], candidate = a[2 * hidden + j], gate = a[3 * hidden + j];
            const REAL squashed = NAME(tanh)(c_out[i * hidden + j]);
            const REAL up = dh[i * hidden + j];
            const REAL fresh = dc[i * hidden + j] + up * gate * (1 - squashed * squashed);
            d[j] = fresh * candidate * in * (1 - in);
            d[hidden + j] = fresh * c[i * hidden + j] * forget * (1 - forget);
            d[2 * hidden + j] = fresh * in * (1 - candidate * candidate);
            d[3 * hidden + j] = up * squashed * gate * (1 - gate);
            dc[i * hidden + j] = fresh * forget;
        }
        SIMD for (int64_t j = 0; j < 4 * hidden; j++) bias[j] += d[j];
    }
}

/* ---- walks of GRU tiles ----
 * work: rows x 8H numbers for gates and picked rows, then slots x H (forward) or slots x 2H (backward) for states,
 * then, backward only, cells x H for the states before every step of one tile. */

/* Projections of n rows: with reset on the state gx ends as activated gates, their candidate not yet squashed, and
 * gh[0:n*H] as r h; else gx and gh are the plain projections of input and state. */
INLINE void NAME(gru_project)(int64_t n, int64_t width, int64_t hidden, int64_t reset_state, const REAL *x,
                              const REAL *h, const REAL *w_ih, const REAL *w_hh, const REAL *b_ih,
                              const REAL *b_hh, REAL *gx, REAL *gh) {
    const int64_t all = 3 * hidden, two = 2 * hidden;
    NAME(fill)(n, all, b_ih, gx);
    NAME(gemm)(n, all, width, x, width, 1, w_ih, all, gx, all);
    if (reset_state) {
        NAME(gemm)(n, two, hidden, h, hidden, 1, w_hh, all, gx, all);
        NAME(gru_reset)(n, hidden, gx, h, gh);
        NAME(gemm)(n, hidden, hidden, gh, hidden, 1, w_hh + two, all, gx + two, all);
    } else {
        NAME(fill)(n, all, b_hh, gh);
        NAME(gemm)(n, all, hidden, h, hidden, 1, w_hh, all, gh, all);
    }
}

void NAME(gru_forward)(int64_t first, int64_t last, int64_t snapshots, int64_t tiles, int64_t rows,
                              int64_t width, int64_t hidden, int64_t reset_state, const int64_t *edges,
                              const int64_t *bounds, const int64_t *slot, const REAL *x, const REAL *h_first,
                              const REAL *w_ih, const REAL *w_hh, const REAL *b_ih, const REAL *b_hh, REAL *out,
                              REAL *h_last, REAL *work) {
    REAL *gx = work, *gh = gx + rows * 3 * hidden, *picked = gh + rows * 3 * hidden;
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        REAL *state = h_last + origin * hidden;
        memcpy(state, h_first + origin * hidden, (size_t)(slots * hidden) * sizeof(REAL));
        for (int64_t t = 0; t < snapshots; t++) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const int64_t *at = n < slots ? slot + start : 0;
            if (!n) continue;
            const REAL *h = NAME(pick)(n, hidden, at, origin, state, picked);
            NAME(gru_project)(n, width, hidden, reset_state, x + start * width, h, w_ih, w_hh, b_ih, b_hh, gx, gh);
            if (reset_state)
                NAME(gru_update)(n, hidden, gx, h, out + start * hidden);
            else
                NAME(gru_gates)(n, hidden, gx, gh, h, out + start * hidden);
            NAME(put)(n, hidden, at, origin, out + start * hidden, state);
        }
    }
}

/* d_state [S, H] holds the gradient of the last states and receives that of the first. d_x may be NULL. Gradients of
 * weights are added, transposed like the weights; plain_hh is the state's weight as torch has it, [3H, H], plain_ih
 * the input's, [3H, F]. */
void NAME(gru_backward)(int64_t first, int64_t last, int64_t snapshots, int64_t tiles, int64_t rows,
                               int64_t slots_max, int64_t width, int64_t hidden, int64_t reset_state,
                               const int64_t *edges, const int64_t *bounds, const int64_t *slot, const REAL *x,
                               const REAL *h_first, const REAL *w_ih, const REAL *w_hh, const REAL *plain_ih,
                               const REAL *plain_hh, const REAL *b_ih, const REAL *b_hh, const REAL *out,
                               const REAL *d_out, REAL *d_state, REAL *d_x, REAL *d_w_ih, REAL *d_w_hh,
                               REAL *d_b_ih, REAL *d_b_hh, REAL *work) {
    const int64_t all = 3 * hidden, two = 2 * hidden;
    REAL *gx = work, *gh = gx + rows * all, *dh = gh + rows * all, *drh = dh + rows * hidden;
    REAL *state = drh + rows * hidden, *olds = state + slots_max * hidden;
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        REAL *running = d_state + origin * hidden, *old = olds;
        memcpy(state, h_first + origin * hidden, (size_t)(slots * hidden) * sizeof(REAL));
        for (int64_t t = 0; t < snapshots; t++) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const int64_t *at = n < slots ? slot + start : 0;
            if (NAME(pick)(n, hidden, at, origin, state, old) == state)
                memcpy(old, state, (size_t)(n * hidden) * sizeof(REAL));
            NAME(put)(n, hidden, at, origin, out + start * hidden, state);
            old += n * hidden;
        }
        for (int64_t t = snapshots - 1; t >= 0; t--) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const int64_t *at = n < slots ? slot + start : 0;
            if (!n) continue;
            old -= n * hidden;
            const REAL *in = x + start * width;
            if (NAME(pick)(n, hidden, at, origin, running, dh) == running)
                memcpy(dh, running, (size_t)(n * hidden) * sizeof(REAL));
            SIMD for (int64_t i = 0; i < n * hidden; i++) dh[i] += d_out[start * hidden + i];
            NAME(gru_project)(n, width, hidden, reset_state, in, old, w_ih, w_hh, b_ih, b_hh, gx, gh);
            if (reset_state) {
                NAME(gru_update_backward)(n, hidden, gx, old, dh);
                NAME(gemm)(hidden, hidden, n, gh, 1, hidden, gx + two, all, d_w_hh + two, all);
                memset(drh, 0, (size_t)(n * hidden) * sizeof(REAL));
                NAME(gemm)(n, hidden, hidden, gx + two, all, 1, plain_hh + two * hidden, hidden, drh, hidden);
                NAME(gru_reset_backward)(n, hidden, gx, old, drh, dh, d_b_ih);
                NAME(gemm)(hidden, two, n, old, 1, hidden, gx, all, d_w_hh, all);
                NAME(gemm)(n, hidden, two, gx, all, 1, plain_hh, hidden, dh, hidden);
            } else {
                NAME(gru_gates_backward)(n, hidden, gx, gh, old, dh, d_b_ih, d_b_hh);
                NAME(gemm)(hidden, all, n, old, 1, hidden, gh, all, d_w_hh, all);
                NAME(gemm)(n, hidden, all, gh, all, 1, plain_hh, hidden, dh, hidden);
            }
            NAME(gemm)(width, all, n, in, 1, width, gx, all, d_w_ih, all);
            if (d_x) {
                memset(d_x + start * width, 0, (size_t)(n * width) * sizeof(REAL));
                NAME(gemm)(n, width, all, gx, all, 1, plain_ih, width, d_x + start * width, width);
            }
            NAME(put)(n, hidden, at, origin, dh, running);
        }
    }
}

/* ---- walks of LSTM tiles ----
 * work: rows x 4H for gates, rows x 2H picked; backward rows x (8H + 4H) and slots x 2H, then cells x 2H for the
 * states before every step. cells [C, H] keeps every cell state; gates [C, 4H] the activated gates, or is NULL. */

INLINE void NAME(lstm_project)(int64_t n, int64_t width, int64_t hidden, const REAL *x, const REAL *h,
                               const REAL *w_ih, const REAL *w_hh, const REAL *bias, REAL *g) {
    const int64_t all = 4 * hidden;
    NAME(fill)(n, all, bias, g);
    NAME(gemm)(n, all, width, x, width, 1, w_ih, all, g, all);
    NAME(gemm)(n, all, hidden, h, hidden, 1, w_hh, all, g, all);
}

void NAME(lstm_forward)(int64_t first, int64_t last, int64_t snapshots, int64_t tiles, int64_t rows,
                               int64_t width, int64_t hidden, const int64_t *edges, const int64_t *bounds,
                               const int64_t *slot, const REAL *x, const REAL *h_first, const REAL *c_first,
                               const REAL *w_ih, const REAL *w_hh, const REAL *bias, REAL *out, REAL *cells,
                               REAL *gates, REAL *h_last, REAL *c_last, REAL *work) {
    REAL *g = work, *h_rows = g + rows * 4 * hidden, *c_rows = h_rows + rows * hidden;
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        REAL *h_state = h_last + origin * hidden, *c_state = c_last + origin * hidden;
        memcpy(h_state, h_first + origin * hidden, (size_t)(slots * hidden) * sizeof(REAL));
        memcpy(c_state, c_first + origin * hidden, (size_t)(slots * hidden) * sizeof(REAL));
        for (int64_t t = 0; t < snapshots; t++) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const int64_t *at = n < slots ? slot + start : 0;
            if (!n) continue;
            REAL *here = gates ? gates + start * 4 * hidden : g;
            const REAL *h = NAME(pick)(n, hidden, at, origin, h_state, h_rows);
            const REAL *c = NAME(pick)(n, hidden, at, origin, c_state, c_rows);
            NAME(lstm_project)(n, width, hidden, x + start * width, h, w_ih, w_hh, bias, here);
            NAME(lstm_gates)(n, hidden, here, c, cells + start * hidden, out + start * hidden);
            NAME(put)(n, hidden, at, origin, out + start * hidden, h_state);
            NAME(put)(n, hidden, at, origin, cells + start * hidden, c_state);
        }
    }
}

void NAME(lstm_backward)(int64_t first, int64_t last, int64_t snapshots, int64_t tiles, int64_t rows,
                                int64_t slots_max, int64_t width, int64_t hidden, const int64_t *edges,
                                const int64_t *bounds, const int64_t *slot, const REAL *x, const REAL *h_first,
                                const REAL *c_first, const REAL *w_ih, const REAL *w_hh, const REAL *plain_ih,
                                const REAL *plain_hh, const REAL *bias, const REAL *out, const REAL *cells,
                                const REAL *gates, const REAL *d_out, REAL *d_h, REAL *d_c, REAL *d_x,
                                REAL *d_w_ih, REAL *d_w_hh, REAL *d_bias, REAL *work) {
    const int64_t all = 4 * hidden;
    REAL *g = work, *dg = g + rows * all, *dh = dg + rows * all, *dc = dh + rows * hidden;
    REAL *h_state = dc + rows * hidden, *c_state = h_state + slots_max * hidden, *olds = c_state + slots_max * hidden;
    REAL *unused = g + rows * all; /* new states computed again land where dg will be written */
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        REAL *run_h = d_h + origin * hidden, *run_c = d_c + origin * hidden, *old = olds;
        memcpy(h_state, h_first + origin * hidden, (size_t)(slots * hidden) * sizeof(REAL));
        memcpy(c_state, c_first + origin * hidden, (size_t)(slots * hidden) * sizeof(REAL));
        for (int64_t t = 0; t < snapshots; t++) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const int64_t *at = n < slots ? slot + start : 0;
            if (NAME(pick)(n, hidden, at, origin, h_state, old) == h_state)
                memcpy(old, h_state, (size_t)(n * hidden) * sizeof(REAL));
            old += n * hidden;
            if (NAME(pick)(n, hidden, at, origin, c_state, old) == c_state)
                memcpy(old, c_state, (size_t)(n * hidden) * sizeof(REAL));
            old += n * hidden;
            NAME(put)(n, hidden, at, origin, out + start * hidden, h_state);
            NAME(put)(n, hidden, at, origin, cells + start * hidden, c_state);
        }
        for (int64_t t = snapshots - 1; t >= 0; t--) {
            const int64_t start = bounds[t * (tiles + 1) + tile], n = bounds[t * (tiles + 1) + tile + 1] - start;
            const int64_t *at = n < slots ? slot + start : 0;
            if (!n) continue;
            old -= 2 * n * hidden;
            const REAL *in = x + start * width, *h = old, *c = old + n * hidden;
            const REAL *here = gates ? gates + start * all : g;
            if (!gates) {
                NAME(lstm_project)(n, width, hidden, in, h, w_ih, w_hh, bias, g);
                NAME(lstm_gates)(n, hidden, g, c, unused, unused + n * hidden);
            }
            if (NAME(pick)(n, hidden, at, origin, run_h, dh) == run_h)
                memcpy(dh, run_h, (size_t)(n * hidden) * sizeof(REAL));
            if (NAME(pick)(n, hidden, at, origin, run_c, dc) == run_c)
                memcpy(dc, run_c, (size_t)(n * hidden) * sizeof(REAL));
            SIMD for (int64_t i = 0; i < n * hidden; i++) dh[i] += d_out[start * hidden + i];
            NAME(lstm_gates_backward)(n, hidden, here, c, cells + start * hidden, dh, dc, dg, d_bias);
            NAME(gemm)(width, all, n, in, 1, width, dg, all, d_w_ih, all);
            NAME(gemm)(hidden, all, n, h, 1, hidden, dg, all, d_w_hh, all);
            memset(dh, 0, (size_t)(n * hidden) * sizeof(REAL));
            NAME(gemm)(n, hidden, all, dg, all, 1, plain_hh, hidden, dh, hidden);
            if (d_x) {
                memset(d_x + start * width, 0, (size_t)(n * width) * sizeof(REAL));
                NAME(gemm)(n, width, all, dg, all, 1, plain_ih, width, d_x + start * width, width);
            }
            NAME(put)(n, hidden, at, origin, dh, run_h);
            NAME(put)(n, hidden, at, origin, dc, run_c);
        }
    }
}
#undef LANES
