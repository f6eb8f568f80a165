/* Stacks of LSTMs, included once per precision, after recurrent.h.
 *
 * A tile of nodes walks through its snapshots, in each through all layers: what one layer says is still in cache when
 * the next reads it. The first layer reads parts [C, widths[p]] as if they stood side by side, each other one the
 * states of the one below. A row of out has the states of all layers side by side, then extra columns that are only
 * copied there. Gates are side by side as torch has them: input, forget, candidate, output.
 *
 * Arrays of several layers, one after the other: states [S, H], cells [C, H] with every cell state, gates [C, 4H] with
 * the activated gates, or NULL where backward is to compute them again; weights [inputs + H, 4H], those of the inputs
 * first; bias [4H]. */

typedef struct {
    int64_t snapshots, tiles, rows, slots_max, cells, slots, layers, hidden, parts, out_row, extra;
} NAME(lstm_sizes);

#define LANES (VECTOR_BYTES / (int64_t)sizeof(REAL))

/* Columns that stand in several places. */
typedef struct {
    NAME(rows) rows;
    int64_t width;
} NAME(part);

/* New cell and hidden states of some columns of one row; pre holds the gates, LANES apart, activated afterwards. */
INLINE void NAME(lstm_activate)(int64_t lanes, REAL *restrict pre, const REAL *restrict c, REAL *restrict c_out,
                                REAL *restrict out) {
    SIMD for (int64_t j = 0; j < lanes; j++) {
        const REAL over_in = NAME(opposite)(pre[j]), over_forget = NAME(opposite)(pre[LANES + j]);
        const REAL over_gate = NAME(opposite)(pre[3 * LANES + j]);
        const REAL over_candidate = NAME(opposite)(-2 * pre[2 * LANES + j]);
        const REAL left = over_in * over_forget, right = over_gate * over_candidate, shared = (REAL)1 / (left * right);
        const REAL in = shared * right * over_forget, forget = shared * right * over_in;
        const REAL gate = shared * left * over_candidate, candidate = 1 - 2 * shared * left * over_gate;
        const REAL fresh = forget * c[j] + in * candidate;
        c_out[j] = fresh;
        out[j] = gate * NAME(tanh)(fresh);
        pre[j] = in;
        pre[LANES + j] = forget;
        pre[2 * LANES + j] = candidate;
        pre[3 * LANES + j] = gate;
    }
}

/* What the four gates of one vector of columns add up to in rows i and following, in registers until it is done. */
INLINE void NAME(lstm_sums)(int64_t rows, int64_t hidden, int64_t i, int64_t parts, const NAME(part) *in,
                            const REAL *restrict w, const REAL *restrict bias, REAL *restrict pre) {
    NAME(vec) sum[GATE_ROWS][4], right[4];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < 4; g++) sum[r][g] = *(const NAME(vec) *)(bias + g * hidden);
    for (int64_t p = 0; p < parts; p++) {
        const int64_t apart = in[p].rows.apart;
        const REAL *restrict from = in[p].rows.at + i * apart;
        for (int64_t k = 0; k < in[p].width; k++, w += 4 * hidden) {
            for (int64_t g = 0; g < 4; g++) right[g] = *(const NAME(vec) *)(w + g * hidden);
            for (int64_t r = 0; r < rows; r++) {
                const REAL left = from[r * apart + k];
                for (int64_t g = 0; g < 4; g++) sum[r][g] += left * right[g];
            }
        }
    }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < 4; g++) *(NAME(vec) *)(pre + (r * 4 + g) * LANES) = sum[r][g];
}

/* The same for the few columns that fill no vector, of one row. */
INLINE void NAME(lstm_sums_of_few)(int64_t lanes, int64_t hidden, int64_t i, int64_t parts, const NAME(part) *in,
                                   const REAL *w, const REAL *bias, REAL *restrict pre) {
    for (int64_t g = 0; g < 4; g++)
        for (int64_t j = 0; j < lanes; j++) pre[g * LANES + j] = bias[g * hidden + j];
    for (int64_t p = 0; p < parts; p++)
        for (int64_t k = 0; k < in[p].width; k++, w += 4 * hidden)
            for (int64_t g = 0; g < 4; g++)
                for (int64_t j = 0; j < lanes; j++)
                    pre[g * LANES + j] += in[p].rows.at[i * in[p].rows.apart + k] * w[g * hidden + j];
}

/* One step of a layer for n rows: in are its inputs and last its old hidden states, c the old cell states. gates may
 * be NULL. */
static void NAME(lstm_step)(int64_t n, int64_t hidden, int64_t parts, const NAME(part) *in, const REAL *w,
                            const REAL *bias, const REAL *c, REAL *c_out, REAL *out, int64_t out_row, REAL *gates) {
    REAL pre[GATE_ROWS * 4 * LANES] __attribute__((aligned(64)));
    int64_t j = 0, i;
#define ACTIVATE(count, lanes)                                                                                 \
    for (int64_t r = 0; r < count; r++) {                                                                      \
        const int64_t at = (i + r) * hidden + j;                                                               \
        REAL *done = pre + r * 4 * LANES;                                                                      \
        NAME(lstm_activate)(lanes, done, c + at, c_out + at, out + (i + r) * out_row + j);                     \
        if (gates)                                                                                             \
            for (int64_t g = 0; g < 4; g++)                                                                    \
                memcpy(gates + (i + r) * 4 * hidden + g * hidden + j, done + g * LANES, lanes * sizeof(REAL)); \
    }
#define BLOCK(count)                                                                         \
    NAME(lstm_sums)(count, hidden, i, parts, in, w + j, bias + j, pre);                      \
    ACTIVATE(count, LANES)
    for (; j + LANES <= hidden; j += LANES) {
        for (i = 0; i + GATE_ROWS <= n; i += GATE_ROWS) { BLOCK(GATE_ROWS) }
        for (; i < n; i++) { BLOCK(1) }
    }
    if (j == hidden) return;
    for (i = 0; i < n; i++) {
        NAME(lstm_sums_of_few)(hidden - j, hidden, i, parts, in, w + j, bias + j, pre);
        ACTIVATE(1, (size_t)(hidden - j))
    }
#undef BLOCK
#undef ACTIVATE
}

/* Gradients of the pre-activations, dg, from activated gates; dc becomes the gradient of the old cell state. */
INLINE void NAME(lstm_gates_backward)(int64_t n, int64_t hidden, const REAL *restrict g, const REAL *restrict c,
                                      const REAL *restrict c_out, const REAL *restrict d_out, int64_t d_out_row,
                                      const REAL *restrict dh, REAL *restrict dc, REAL *restrict dg,
                                      REAL *restrict bias) {
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict a = g + i * 4 * hidden;
        REAL *restrict d = dg + i * 4 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL in = a[j], forget = a[hidden + j], candidate = a[2 * hidden + j], gate = a[3 * hidden + j];
            const REAL squashed = NAME(tanh)(c_out[i * hidden + j]);
            const REAL up = dh[i * hidden + j] + d_out[i * d_out_row + j];
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

/* What a layer reads in the step whose cells begin at start, but for its state; says how many parts it is. */
INLINE int64_t NAME(lstm_inputs)(const NAME(lstm_sizes) *s, int64_t layer, int64_t start, const REAL *const *x,
                                 const int64_t *widths, const REAL *out, NAME(part) *in) {
    if (layer) {
        in[0] = (NAME(part)){{out + start * s->out_row + (layer - 1) * s->hidden, s->out_row}, s->hidden};
        return 1;
    }
    for (int64_t p = 0; p < s->parts; p++) in[p] = (NAME(part)){{x[p] + start * widths[p], widths[p]}, widths[p]};
    return s->parts;
}

/* Numbers before the weights of a layer: the first reads `width` columns, all others H. */
INLINE int64_t NAME(lstm_weights)(int64_t layer, int64_t width, int64_t hidden) {
    return layer ? (width + hidden + (layer - 1) * 2 * hidden) * 4 * hidden : 0;
}

INLINE int64_t NAME(lstm_width)(const NAME(lstm_sizes) *s, const int64_t *widths) {
    int64_t width = 0;
    for (int64_t p = 0; p < s->parts; p++) width += widths[p];
    return width;
}

/* work: rows x 2H for picked states. */
void NAME(lstm_forward)(int64_t first, int64_t last, const NAME(lstm_sizes) *s, const int64_t *edges,
                        const int64_t *bounds, const int64_t *slot, const REAL *const *x, const int64_t *widths,
                        const REAL *h_first, const REAL *c_first, const REAL *w, const REAL *bias,
                        const REAL *features, REAL *out, REAL *cells, REAL *gates, REAL *h_last, REAL *c_last,
                        REAL *work) {
    const int64_t hidden = s->hidden, wide = NAME(lstm_width)(s, widths);
    REAL *h_rows = work, *c_rows = work + s->rows * hidden;
    NAME(rows) h_now[s->layers], c_now[s->layers];
    NAME(part) in[s->parts + 2];
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        for (int64_t l = 0; l < s->layers; l++) {
            h_now[l] = (NAME(rows)){h_first + (l * s->slots + origin) * hidden, hidden};
            c_now[l] = (NAME(rows)){c_first + (l * s->slots + origin) * hidden, hidden};
        }
        for (int64_t t = 0; t < s->snapshots; t++) {
            const int64_t start = bounds[t * (s->tiles + 1) + tile];
            const int64_t n = bounds[t * (s->tiles + 1) + tile + 1] - start, *at = slot + start;
            if (!n) continue;
            for (int64_t l = 0; l < s->layers; l++) {
                const int64_t place = (l * s->slots + origin) * hidden;
                REAL *h_own = h_last + place, *c_own = c_last + place;
                REAL *c_out = cells + (l * s->cells + start) * hidden, *h_out = out + start * s->out_row + l * hidden;
                const int64_t parts = NAME(lstm_inputs)(s, l, start, x, widths, out, in);
                const NAME(rows) c = NAME(before)(n, slots, hidden, at, origin, &c_now[l], c_own, c_rows);
                in[parts].rows = NAME(before)(n, slots, hidden, at, origin, &h_now[l], h_own, h_rows);
                in[parts].width = hidden;
                NAME(lstm_step)(n, hidden, parts + 1, in, w + NAME(lstm_weights)(l, wide, hidden),
                                bias + l * 4 * hidden, c.at, c_out, h_out, s->out_row,
                                gates ? gates + (l * s->cells + start) * 4 * hidden : 0);
                NAME(after)(n, slots, hidden, at, origin, &h_now[l], h_own, (NAME(rows)){h_out, s->out_row});
                NAME(after)(n, slots, hidden, at, origin, &c_now[l], c_own, (NAME(rows)){c_out, hidden});
            }
            for (int64_t i = start; i < start + n; i++)
                for (int64_t j = 0; j < s->extra; j++)
                    out[i * s->out_row + s->layers * hidden + j] = features[i * s->extra + j];
        }
        for (int64_t l = 0; l < s->layers; l++) {
            REAL *h_own = h_last + (l * s->slots + origin) * hidden;
            REAL *c_own = c_last + (l * s->slots + origin) * hidden;
            if (h_now[l].at != h_own) NAME(gather)(slots, hidden, h_now[l], h_own);
            if (c_now[l].at != c_own) NAME(gather)(slots, hidden, c_now[l], c_own);
        }
    }
}

/* The way back through one layer's step. in and c are what the step read, dh and dc the gradients of its new states,
 * which become those of the old; d_in[p] receives the gradient of input p, or is NULL. plain is the layer's weight as
 * torch has it, [4H, inputs + H]; gradients of weights are added, transposed. */
INLINE void NAME(lstm_step_backward)(int64_t n, int64_t hidden, int64_t parts, const NAME(part) *in, const REAL *plain,
                                     const REAL *g, const REAL *c, const REAL *c_out, const REAL *d_out,
                                     int64_t d_out_row, REAL *dh, REAL *dc, REAL *dg, REAL *const *d_in, REAL *d_w,
                                     REAL *d_bias) {
    const int64_t all = 4 * hidden;
    int64_t wide = 0, done = 0;
    for (int64_t p = 0; p < parts; p++) wide += in[p].width;
    NAME(lstm_gates_backward)(n, hidden, g, c, c_out, d_out, d_out_row, dh, dc, dg, d_bias);
    for (int64_t p = 0; p < parts; p++) {
        const int64_t width = in[p].width;
        NAME(gemm)(width, all, n, in[p].rows.at, 1, in[p].rows.apart, dg, all, d_w, all, d_w, all);
        REAL *to = p + 1 == parts ? dh : d_in[p];
        if (to) NAME(gemm)(n, width, all, dg, all, 1, plain + done, wide, 0, 0, to, width);
        d_w += width * all;
        done += width;
    }
}

/* d_h and d_c [layers, S, H] hold the gradients of the last states and receive those of the first; d_x are places of
 * gradients of the parts, NULL where none is wanted. work: rows x 11H, slots x H, cells of one tile x 2H x layers;
 * olds: 2 x snapshots x layers places of rows. */
void NAME(lstm_backward)(int64_t first, int64_t last, const NAME(lstm_sizes) *s, const int64_t *edges,
                         const int64_t *bounds, const int64_t *slot, const REAL *const *x, const int64_t *widths,
                         const REAL *h_first, const REAL *c_first, const REAL *w, const REAL *plain, const REAL *bias,
                         const REAL *out, const REAL *cells, const REAL *gates, const REAL *d_out, REAL *d_h,
                         REAL *d_c, REAL *const *d_x, REAL *d_w, REAL *d_bias, NAME(rows) *olds, REAL *work) {
    const int64_t hidden = s->hidden, all = 4 * hidden, wide = NAME(lstm_width)(s, widths);
    REAL *g = work, *dg = g + s->rows * all, *h_rows = dg + s->rows * all, *c_rows = h_rows + s->rows * hidden;
    REAL *down = c_rows + s->rows * hidden, *own = down + s->rows * hidden, *spill = own + s->slots_max * hidden;
    REAL *const below[1] = {down};
    NAME(part) in[s->parts + 2];
    for (int64_t tile = first; tile < last; tile++) {
        const int64_t origin = edges[tile], slots = edges[tile + 1] - origin;
        REAL *free = spill;
        for (int64_t l = 0; l < s->layers; l++) {
            const NAME(rows) h_new = {out + l * hidden, s->out_row}, c_new = {cells + l * s->cells * hidden, hidden};
            const int64_t from = (l * s->slots + origin) * hidden;
            free = NAME(retrace)(s->snapshots, s->tiles, tile, slots, hidden, bounds, slot, origin, h_first + from,
                                 h_new, own, olds + 2 * l * s->snapshots, free);
            free = NAME(retrace)(s->snapshots, s->tiles, tile, slots, hidden, bounds, slot, origin, c_first + from,
                                 c_new, own, olds + (2 * l + 1) * s->snapshots, free);
        }
        for (int64_t t = s->snapshots - 1; t >= 0; t--) {
            const int64_t start = bounds[t * (s->tiles + 1) + tile];
            const int64_t n = bounds[t * (s->tiles + 1) + tile + 1] - start, *at = slot + start;
            REAL *d_in[s->parts + 1];
            for (int64_t p = 0; p < s->parts; p++) d_in[p] = d_x[p] ? d_x[p] + start * widths[p] : 0;
            if (!n) continue;
            for (int64_t l = s->layers - 1; l >= 0; l--) {
                const int64_t before = NAME(lstm_weights)(l, wide, hidden), cell = l * s->cells + start;
                REAL *run_h = d_h + (l * s->slots + origin) * hidden, *run_c = d_c + (l * s->slots + origin) * hidden;
                REAL *dh = n == slots ? run_h : h_rows, *dc = n == slots ? run_c : c_rows;
                const REAL *c = olds[(2 * l + 1) * s->snapshots + t].at, *here = gates ? gates + cell * all : g;
                const int64_t parts = NAME(lstm_inputs)(s, l, start, x, widths, out, in);
                in[parts] = (NAME(part)){olds[2 * l * s->snapshots + t], hidden};
                if (!gates) /* the new states computed again land where dg will be written */
                    NAME(lstm_step)(n, hidden, parts + 1, in, w + before, bias + l * all, c, dg, dg + n * hidden,
                                    hidden, g);
                if (n < slots) {
                    NAME(pick)(n, hidden, at, origin, run_h, h_rows);
                    NAME(pick)(n, hidden, at, origin, run_c, c_rows);
                }
                if (l + 1 < s->layers)
                    SIMD for (int64_t i = 0; i < n * hidden; i++) dh[i] += down[i];
                NAME(lstm_step_backward)(n, hidden, parts + 1, in, plain + before, here, c, cells + cell * hidden,
                                         d_out + start * s->out_row + l * hidden, s->out_row, dh, dc, dg,
                                         l ? below : d_in, d_w + before, d_bias + l * all);
                if (n < slots) {
                    NAME(put)(n, hidden, at, origin, (NAME(rows)){dh, hidden}, run_h);
                    NAME(put)(n, hidden, at, origin, (NAME(rows)){dc, hidden}, run_c);
                }
            }
        }
    }
}
#undef LANES
