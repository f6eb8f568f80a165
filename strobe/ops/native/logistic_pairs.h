/* Logistic regression on pairs whose columns are 1, features of the row, of the column, and of some pairs: sums over the
 * pairs of each row and column, so that products with features of nodes are computed once per node. Included once. */

/* Pairs whose hash has only zeros at a mask; all for mask 0. */
INLINE int in_sample(int64_t i, uint32_t mask) { return ((((uint32_t)i + 1) * 2654435761u) >> 16 & mask) == 0; }

/* Adds up over pairs first to last of the sample the weights p (1 - p) and the errors y - p of each row and column, the
 * weighted features of the columns and of the pairs of each row, [.., k + q], and in products those of a column and a
 * pair, [k, q], those of two features of a pair, [q, q], and the errors of pairs, [q]. place has the features of each pair,
 * or -1; the last of them is 1, and is not in memory. */
void logistic_pairs(int64_t first, int64_t last, uint64_t mask, const int32_t *row, const int32_t *column,
                    const int32_t *place, const uint8_t *labels, int64_t k, int64_t q, const float *of_columns,
                    const float *of_pairs, const double *row_odds, const double *column_odds, const double *beta,
                    double *row_sums, double *column_sums, double *of_rows, double *products) {
    double x[64];
    for (int64_t i = first; i < last; i++) {
        if (!in_sample(i, (uint32_t)mask)) continue;
        const int64_t r = row[i], c = column[i], p = place[i];
        double z = row_odds[r] + column_odds[c];
        if (p >= 0) {
            for (int64_t j = 0; j < q - 1; j++) x[j] = of_pairs[p * (q - 1) + j];
            x[q - 1] = 1.0;
            for (int64_t j = 0; j < q; j++) z += x[j] * beta[j];
        }
        const double chance = 1.0 / (1.0 + exp(-z)), weight = chance * (1.0 - chance), error = labels[i] - chance;
        const float *features = of_columns + c * k;
        double *sums = of_rows + r * (k + q);
        row_sums[2 * r] += weight;
        row_sums[2 * r + 1] += error;
        column_sums[2 * c] += weight;
        column_sums[2 * c + 1] += error;
        SIMD for (int64_t j = 0; j < k; j++) sums[j] += weight * features[j];
        if (p < 0) continue;
        SIMD for (int64_t j = 0; j < q; j++) sums[k + j] += weight * x[j];
        for (int64_t m = 0; m < k; m++) {
            const double scaled = weight * features[m];
            SIMD for (int64_t j = 0; j < q; j++) products[m * q + j] += scaled * x[j];
        }
        for (int64_t m = 0; m < q; m++) {
            const double scaled = weight * x[m];
            SIMD for (int64_t j = 0; j < q; j++) products[(k + m) * q + j] += scaled * x[j];
        }
        SIMD for (int64_t j = 0; j < q; j++) products[(k + q) * q + j] += error * x[j];
    }
}
