/* Logistic regression: rows x of any precision, sums in double precision. */

/* Adds up over rows first to last: the gradient of the log-likelihood, [width], and the upper triangle of its negative
 * Hessian, [width, width]. */
void NAME(logistic_sums)(int64_t first, int64_t last, int64_t width, const REAL *x, const uint8_t *labels,
                         const double *beta, double *gradient, double *hessian) {
    for (int64_t i = first; i < last; i++) {
        const REAL *row = x + i * width;
        double z = 0;
#pragma omp simd reduction(+ : z)
        for (int64_t j = 0; j < width; j++) z += row[j] * beta[j];
        const double chance = 1.0 / (1.0 + exp(-z)), weight = chance * (1.0 - chance), error = labels[i] - chance;
        for (int64_t j = 0; j < width; j++) {
            if (row[j] == 0) continue;
            const double scaled = weight * row[j];
            gradient[j] += error * row[j];
            SIMD for (int64_t k = j; k < width; k++) hessian[j * width + k] += scaled * row[k];
        }
    }
}
