/* Negatives of sources: candidates that are not among their successors, and the ranks of positives; included once. Arcs
 * are ascending keys source * stride + destination. */

INLINE int64_t first_at_least(const int64_t *keys, int64_t low, int64_t high, int64_t wanted) {
    int64_t size = high - low;
    while (size > 0) {
        const int64_t half = size >> 1, below = keys[low + half] < wanted;
        low += below ? half + 1 : 0;
        size = below ? size - half - 1 : half;
    }
    return low;
}

/* Where the successors of sources first to last begin and end among arcs, and the candidates besides them and the source
 * itself, which is candidate own, or none if that is negative. */
void count_free(int64_t first, int64_t last, int64_t stride, int64_t num_arcs, const int64_t *arcs, const int64_t *src,
                const int64_t *own, int64_t num_candidates, int64_t *successors, int64_t *free) {
    for (int64_t i = first; i < last; i++) {
        if (i > first && src[i] == src[i - 1]) {
            successors[2 * i] = successors[2 * i - 2];
            successors[2 * i + 1] = successors[2 * i - 1];
            free[i] = free[i - 1];
            continue;
        }
        const int64_t begin = first_at_least(arcs, 0, num_arcs, src[i] * stride);
        int64_t end = begin;
        while (end < num_arcs && end < begin + 16 && arcs[end] < (src[i] + 1) * stride) end++;
        if (end == begin + 16) end = first_at_least(arcs, end, num_arcs, (src[i] + 1) * stride);
        successors[2 * i] = begin;
        successors[2 * i + 1] = end;
        free[i] = num_candidates - (end - begin) - (own[i] >= 0);
    }
}

/* Replaces numbers r by the positions of the r-th candidates that are neither successors nor the source. */
void skip_successors(int64_t first, int64_t last, int64_t count, int64_t stride, const int64_t *arcs, const int64_t *src,
                     const int64_t *own, const int64_t *successors, int64_t *sampled) {
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = successors[2 * i], size = successors[2 * i + 1] - begin, base = src[i] * stride;
        const int64_t *row = arcs + begin;
        const int64_t before = first_at_least(row, 0, size, base + (own[i] > 0 ? own[i] : 0));
        for (int64_t k = 0; k < count; k++) {
            int64_t r = sampled[i * count + k], low = 0, left = size;
            if (own[i] >= 0 && r >= own[i] - before) r++; /* the source itself is no successor */
            /* A successor's position less the successors before it: the other candidates before it. */
            while (left > 0) {
                const int64_t half = left >> 1, middle = low + half, below = row[middle] - base - middle <= r;
                low += below ? half + 1 : 0;
                left = below ? left - half - 1 : half;
            }
            sampled[i * count + k] = r + low;
        }
    }
}

/* Of groups first to last, which begin with a positive, its rank: 1 + higher + equal / 2 others; NaN where a score is. */
void rank_groups(int64_t first, int64_t last, const double *score, const int64_t *starts, const int64_t *ends,
                 double *rank) {
    for (int64_t group = first; group < last; group++) {
        const double own = score[starts[group]];
        int64_t twice = 0, undefined = own != own;
        for (int64_t i = starts[group] + 1; i < ends[group]; i++) {
            twice += (score[i] > own) + (score[i] >= own);
            undefined |= score[i] != score[i];
        }
        rank[group] = undefined ? NAN : 1.0 + (double)twice / 2.0;
    }
}
