/* Included once per precision, with REAL, NAME and EXP defined. */

INLINE REAL NAME(sigmoid)(REAL x) { return (REAL)1 / ((REAL)1 + EXP(-x)); }
INLINE REAL NAME(tanh)(REAL x) { return (REAL)1 - (REAL)2 / (EXP((REAL)2 * x) + (REAL)1); }

/* ---- sparse product: out[i] = sum over entries of row i of weight * x[column], rows first to last ---- */

KERNEL void NAME(spmm)(int64_t first, int64_t last, int64_t width, const int64_t *restrict row_ptr,
                       const int32_t *restrict col, const REAL *restrict weight, const REAL *restrict x,
                       REAL *restrict out) {
    for (int64_t i = first; i < last; i++) {
        REAL *restrict y = out + i * width;
        for (int64_t f = 0; f < width; f++) y[f] = 0;
        for (int64_t e = row_ptr[i]; e < row_ptr[i + 1]; e++) {
            const REAL w = weight ? weight[e] : (REAL)1;
            const REAL *restrict source = x + (int64_t)col[e] * width;
            SIMD for (int64_t f = 0; f < width; f++) y[f] += w * source[f];
        }
    }
}

/* ---- attention over edges ----
 * Entry (i, j) scores leaky(a_in[i] + a_out[j]) per head; row i gives the softmax-weighted sum of its v[j].
 * norm[i] is the logarithm of the sum of exponentials, all that backward needs to find the weights again. */

INLINE REAL NAME(leaky)(REAL x, REAL slope) { return x > 0 ? x : slope * x; }

KERNEL void NAME(attend)(int64_t first, int64_t last, int64_t heads, int64_t depth, REAL slope,
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
KERNEL void NAME(attend_backward_in)(int64_t first, int64_t last, int64_t heads, int64_t depth, REAL slope,
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
KERNEL void NAME(attend_backward_out)(int64_t first, int64_t last, int64_t heads, int64_t depth, REAL slope,
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

/* ---- gates of recurrent cells on a tile of n rows ----
 * Pre-activations stand side by side as torch has them: reset, update, candidate (GRU); input, forget, candidate,
 * output (LSTM). Backward kernels add the columns of what they compute into the bias gradient. */

/* GRU whose reset gate acts on the projected state: gx and gh are the projections of input and state, [n, 3H]. */
KERNEL void NAME(gru)(int64_t n, int64_t hidden, const REAL *restrict gx, const REAL *restrict gh,
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
KERNEL void NAME(gru_backward)(int64_t n, int64_t hidden, REAL *restrict gx, REAL *restrict gh,
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
KERNEL void NAME(gru_reset)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict h,
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
KERNEL void NAME(gru_update)(int64_t n, int64_t hidden, const REAL *restrict g, const REAL *restrict h,
                             REAL *restrict out) {
    for (int64_t i = 0; i < n; i++) {
        const REAL *restrict a = g + i * 3 * hidden;
        SIMD for (int64_t j = 0; j < hidden; j++) {
            const REAL c = NAME(tanh)(a[2 * hidden + j]);
            out[i * hidden + j] = c + a[hidden + j] * (h[i * hidden + j] - c);
        }
    }
}

/* Backward through the second half: g holds gradients of update and candidate afterwards, the reset gate as it was. */
KERNEL void NAME(gru_update_backward)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict h,
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
KERNEL void NAME(gru_reset_backward)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict h,
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
KERNEL void NAME(lstm)(int64_t n, int64_t hidden, REAL *restrict g, const REAL *restrict c, REAL *restrict c_out,
                       REAL *restrict out) {
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
KERNEL void NAME(lstm_backward)(int64_t n, int64_t hidden, const REAL *restrict g, const REAL *restrict c,
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
