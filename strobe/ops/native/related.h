/* Common neighbors of listed pairs at the snapshots where they are read, included once. Rows of neighbors are all that a
 * node ever has, in ascending order; the times of a pair are runs of consecutive snapshots (first time, total number of
 * times at the end), those of degrees entries (time, total). */

#define NODE_SLOTS 4096 /* nodes whose weights are cached at a time */
#define LOOKUPS 16 /* nodes that are looked up at a time */

typedef struct {
    const int64_t *ptr;
    const int32_t *col;
    const int64_t *begin, *size;
    const int32_t *times, *totals;
} time_rows;

/* How many of some ascending times are at most t. */
INLINE int64_t count_times(const int32_t *times, int64_t size, int64_t t) {
    int64_t low = 0;
    while (size > 0) {
        const int64_t half = size >> 1, above = times[low + half] <= t;
        low += above ? half + 1 : 0;
        size = above ? size - half - 1 : half;
    }
    return low;
}

/* 1 / sqrt(1 + snapshots since the last edge) of pair p at snapshot t; 0 before its first. */
static double recency_of(const time_rows *rows, int64_t p, int64_t t) {
    const int32_t *times = rows->times + rows->begin[p], *totals = rows->totals + rows->begin[p];
    const int64_t at = count_times(times, rows->size[p], t) - 1;
    if (at < 0) return 0.0;
    const int64_t end = times[at] + totals[at] - (at ? totals[at - 1] : 0) - 1;
    return 1.0 / sqrt(1.0 + (double)(end < t ? t - end : 0));
}

/* The number of times up to t in the runs first to last. */
static int64_t count_run_times(const int32_t *times, const int32_t *totals, int64_t first, int64_t last, int64_t t) {
    const int64_t number = count_times(times + first, last - first, t), at = first + number - 1;
    if (number == 0) return 0;
    const int64_t count = (number > 1 ? totals[at - 1] : 0) + t - times[at] + 1;
    return count < totals[at] ? count : totals[at];
}

#define MAX_TABLED 1024 /* numbers whose logarithms are in a table */

/* Numbers of snapshots in which edges are counted, and log(1 + count) of counts, 0 where it has not been computed. */
typedef struct {
    int64_t num_scales;
    const int64_t *scales;
    float logs[MAX_TABLED];
} count_features;

static void clear_logs(count_features *counts, int64_t num_scales, const int64_t *scales) {
    counts->num_scales = num_scales;
    counts->scales = scales;
    memset(counts->logs, 0, sizeof counts->logs);
}

INLINE float log_count(count_features *counts, int64_t count) {
    if (count < 0 || count >= MAX_TABLED) return (float)log1p((double)count);
    if (count && counts->logs[count] == 0.0f) counts->logs[count] = (float)log1p((double)count);
    return counts->logs[count];
}

/* The features of the meetings of pair p at snapshot t; none are written before its first. */
static void write_meetings(const time_rows *rows, int64_t p, int64_t t, count_features *counts, float *out) {
    const int32_t *times = rows->times, *totals = rows->totals;
    const int64_t start = rows->begin[p], end = start + count_times(times + start, rows->size[p], t), at = end - 1;
    if (end == start) return;
    const int64_t count = count_run_times(times, totals, start, end, t);
    const int64_t last = times[at] + totals[at] - (at > start ? totals[at - 1] : 0) - 1, since = last < t ? t - last : 0;
    const int64_t num_scales = counts->num_scales;
    out[0] = since == 0;
    out[1] = (float)(1.0 / (1.0 + (double)since));
    for (int64_t k = 0; k < num_scales; k++)
        out[2 + k] = log_count(counts, count - count_run_times(times, totals, start, end, t - counts->scales[k]));
    out[2 + num_scales] = log_count(counts, count);
}

/* The first position in a row whose node is not less than the given one. */
INLINE int64_t find_in_row(const int32_t *row, int64_t size, int64_t node) {
    int64_t low = 0;
    while (size > 0) {
        const int64_t half = size >> 1, below = row[low + half] < node;
        low += below ? half + 1 : 0;
        size = below ? size - half - 1 : half;
    }
    return low;
}

/* The meetings of the arc from a source to a destination, if there is one. */
static void write_arc_meetings(const time_rows *arcs, int64_t source, int64_t destination, int64_t t,
                               count_features *counts, float *out) {
    const int64_t begin = arcs->ptr[source], size = arcs->ptr[source + 1] - begin;
    const int64_t p = find_in_row(arcs->col + begin, size, destination);
    if (p < size && arcs->col[begin + p] == destination) write_meetings(arcs, begin + p, t, counts, out);
}

/* Of pairs first to last the features of their meetings at snapshots at, from column on. */
void fill_meetings(int64_t first, int64_t last, const int64_t *src, const int64_t *dst, const int32_t *at,
                   int64_t num_nodes, const int64_t *ptr, const int32_t *col, const int64_t *begin, const int64_t *size,
                   const int32_t *times, const int32_t *totals, int64_t num_scales, const int64_t *scales, float *out,
                   int64_t width, int64_t column) {
    const time_rows arcs = {ptr, col, begin, size, times, totals};
    count_features counts;
    clear_logs(&counts, num_scales, scales);
    for (int64_t i = first; i < last; i++)
        if (src[i] < num_nodes) write_arc_meetings(&arcs, src[i], dst[i], at[i], &counts, out + i * width + column);
}

/* Of nodes first to last the features of their arcs at snapshots at, from column on. */
void node_activity(int64_t first, int64_t last, const int64_t *nodes, const int32_t *at, int64_t num_nodes,
                   const int64_t *begin, const int64_t *size, const int32_t *all_times, const int32_t *all_totals,
                   int64_t num_scales, const int64_t *scales, float *all, int64_t width, int64_t column) {
    count_features counts;
    clear_logs(&counts, num_scales, scales);
    for (int64_t i = first; i < last; i++) {
        const int64_t node = nodes[i], t = at[i];
        if (node >= num_nodes) continue;
        const int32_t *times = all_times + begin[node], *totals = all_totals + begin[node];
        const int64_t number = count_times(times, size[node], t);
        if (number == 0) continue;
        float *out = all + i * width + column;
        const int64_t count = totals[number - 1];
        for (int64_t k = -1; k < num_scales; k++) {
            const int64_t before = count_times(times, number, t - (k < 0 ? 1 : scales[k]));
            out[k + 1] = log_count(&counts, count - (before ? totals[before - 1] : 0));
        }
        out[1 + num_scales] = log_count(&counts, count);
        out[2 + num_scales] = (float)(1.0 / (1.0 + (double)(t - times[number - 1])));
    }
}

INLINE uint32_t hash_node(int64_t node) { return (uint32_t)node * 2654435761u; }

/* The recencies of pairs first to last at snapshot t. */
void recencies_at(int64_t first, int64_t last, int64_t t, const int64_t *begin, const int64_t *size,
                  const int32_t *times, const int32_t *totals, double *out) {
    const time_rows rows = {NULL, NULL, begin, size, times, totals};
    for (int64_t p = first; p < last; p++) out[p] = recency_of(&rows, p, t);
}

/* The neighbors of a source, and at least 32 bits for each of them, which rule most other nodes out. Recencies at a
 * snapshot are those of all rows, if they are known; else they are computed when they are first read, and negative ones
 * are unknown. */
typedef struct {
    const time_rows *rows;
    const double *known;
    int64_t source, t, size;
    const int32_t *row;
    uint32_t *bits;
    int shift;
    double *recencies;
} source_row;

static void read_source(source_row *now, int64_t source, int64_t t) {
    const time_rows *rows = now->rows;
    if (source == now->source && t == now->t) return;
    if (source != now->source) {
        int log_size = 0;
        now->row = rows->col + rows->ptr[source];
        now->size = rows->ptr[source + 1] - rows->ptr[source];
        while ((1 << log_size) < now->size) log_size++;
        now->shift = 27 - log_size;
        memset(now->bits, 0, sizeof(uint32_t) << log_size);
        for (int64_t p = 0; p < now->size; p++) {
            const uint32_t bit = hash_node(now->row[p]) >> now->shift;
            now->bits[bit >> 5] |= 1u << (bit & 31);
        }
    }
    if (!now->known)
        for (int64_t p = 0; p < now->size; p++) now->recencies[p] = -1.0;
    now->source = source;
    now->t = t;
}

INLINE int may_be_neighbor(const source_row *now, int64_t node) {
    const uint32_t bit = hash_node(node) >> now->shift;
    return now->bits[bit >> 5] >> (bit & 31) & 1;
}

/* Which of LOOKUPS nodes may be neighbors of the source: a bit of each. */
INLINE uint32_t may_be_neighbors(const source_row *now, const int32_t *nodes) {
    const uint32_t *bits = now->bits;
    const int shift = now->shift;
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int k = 0; k < LOOKUPS; k++) {
        const uint32_t bit = ((uint32_t)nodes[k] * 2654435761u) >> shift;
        found |= (bits[bit >> 5] >> (bit & 31) & 1u) << k;
    }
    return found;
}

/* 1 / log(1 + degree) by degree, and of nodes at the snapshots where they were last read. */
typedef struct {
    const time_rows *degrees;
    int64_t max_degree;
    double of_degree[MAX_TABLED];
    struct {
        int32_t node, t;
        double weight;
    } slots[NODE_SLOTS];
} node_weights;

static double weight_of_degree(int64_t degree) { return 1.0 / log(1.0 + (double)degree); }

static void clear_weights(node_weights *weights, const time_rows *degrees, int64_t max_degree) {
    weights->degrees = degrees;
    weights->max_degree = max_degree;
    for (int64_t k = 1; k < MAX_TABLED && k <= max_degree; k++) weights->of_degree[k] = weight_of_degree(k);
    memset(weights->slots, 0xff, sizeof weights->slots); /* node -1 */
}

INLINE double limited_weight(const node_weights *weights, int64_t degree) {
    if (degree < 1 || degree > weights->max_degree) return 0.0;
    return degree < MAX_TABLED ? weights->of_degree[degree] : weight_of_degree(degree);
}

/* 1 / log(1 + degree) of a node; 0 of one with more than max_degree neighbors. */
INLINE double node_weight(node_weights *weights, int64_t node, int64_t t) {
    const int64_t slot = node % NODE_SLOTS;
    if (weights->slots[slot].node != node || weights->slots[slot].t != t) {
        const time_rows *degrees = weights->degrees;
        const int64_t at = count_times(degrees->times + degrees->begin[node], degrees->size[node], t) - 1;
        const int64_t degree = at < 0 ? 0 : degrees->totals[degrees->begin[node] + at];
        weights->slots[slot].node = (int32_t)node;
        weights->slots[slot].t = (int32_t)t;
        weights->slots[slot].weight = limited_weight(weights, degree);
    }
    return weights->slots[slot].weight;
}

/* Adds the features of a common neighbor: neighbor p of the source, and q of the destination. */
INLINE void add_common(const source_row *now, node_weights *weights, int64_t p, int64_t q, double *sums) {
    const int64_t node = now->row[p], at = now->rows->ptr[now->source] + p;
    double weight, a, b;
    if (now->known) {
        weight = limited_weight(weights, now->rows->ptr[node + 1] - now->rows->ptr[node]);
        if (weight == 0.0) return;
        a = now->known[at];
        b = now->known[q];
    } else {
        weight = node_weight(weights, node, now->t);
        if (weight == 0.0) return;
        if (now->recencies[p] < 0.0) now->recencies[p] = recency_of(now->rows, at, now->t);
        a = now->recencies[p];
        b = a == 0.0 ? 0.0 : recency_of(now->rows, q, now->t);
        if (b == 0.0) return;
    }
    sums[0] += 1.0;
    sums[1] += weight;
    sums[2] += a * b;
}

/* Adds up the features of the common neighbors of the source and a destination, in order of neighbors. */
static void sum_common(const source_row *now, node_weights *weights, int64_t destination, double *sums) {
    const int64_t begin = now->rows->ptr[destination], size = now->rows->ptr[destination + 1] - begin;
    const int32_t *other = now->rows->col + begin;
    if (size > 8 * now->size) {
        int64_t low = 0;
        for (int64_t p = 0; p < now->size && low < size; p++) {
            low += find_in_row(other + low, size - low, now->row[p]);
            if (low < size && other[low] == now->row[p]) add_common(now, weights, p, begin + low++, sums);
        }
        return;
    }
    for (int64_t first = 0; first < size; first += LOOKUPS) {
        uint32_t found = 0;
        if (first + LOOKUPS <= size)
            found = may_be_neighbors(now, other + first);
        else
            for (int64_t q = first; q < size; q++) found |= (uint32_t)may_be_neighbor(now, other[q]) << (q - first);
        for (; found; found &= found - 1) {
            const int64_t q = first + __builtin_ctz(found), p = find_in_row(now->row, now->size, other[q]);
            if (p < now->size && now->row[p] == other[q]) add_common(now, weights, p, begin + q, sums);
        }
    }
}

/* Of pairs order[first] to order[last] those that have met or have a common neighbor: their positions, and their
 * features, which are 0: of arcs, of arcs in the other direction where there are reverse ones, and of common neighbors.
 * Pairs pair_ptr[k] to pair_ptr[k + 1] are read at snapshot times[k]; those of a snapshot and source are best in a row.
 * bits and recencies have room for 2 numbers per neighbor of the longest row. Where the recencies of all neighbors at
 * their only snapshot are known, rows have the neighbors up to it alone. Gives the number of pairs found. */
void find_related(int64_t first, int64_t last, const double *known, const int32_t *order, int64_t num_times, const int64_t *times,
                  const int64_t *pair_ptr, const int64_t *src, const int64_t *dst, int64_t num_nodes,
                  const int64_t *ptr, const int32_t *col, const int64_t *begin, const int64_t *size,
                  const int32_t *run_times, const int32_t *run_totals, const int64_t *arc_ptr, const int32_t *arc_col,
                  const int64_t *arc_begin, const int64_t *arc_size, const int32_t *arc_times,
                  const int32_t *arc_totals, const int64_t *degree_begin, const int64_t *degree_size,
                  const int32_t *degree_times, const int32_t *degree_totals, int64_t max_degree, int64_t num_scales,
                  const int64_t *scales, uint32_t *bits, double *recencies, int64_t width, int64_t *found,
                  float *features, int64_t *count) {
    const time_rows rows = {ptr, col, begin, size, run_times, run_totals};
    const time_rows arcs = {arc_ptr, arc_col, arc_begin, arc_size, arc_times, arc_totals};
    const time_rows degrees = {NULL, NULL, degree_begin, degree_size, degree_times, degree_totals};
    node_weights weights;
    count_features counts;
    source_row now = {&rows, known, -1, -1, 0, NULL, bits, 0, recencies};
    int64_t number = 0, low = 0, high = first < last ? num_times : 0;
    clear_weights(&weights, &degrees, max_degree);
    clear_logs(&counts, num_scales, scales);
    while (low < high) { /* the last snapshot that begins at or before the first pair */
        const int64_t middle = (low + high) >> 1;
        if (pair_ptr[middle + 1] <= order[first])
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t e = first; e < last; e++) {
        const int64_t i = order[e], s = src[i], d = dst[i];
        if (e + 24 < last && dst[order[e + 24]] < num_nodes) __builtin_prefetch(ptr + dst[order[e + 24]]);
        if (e + 8 < last && dst[order[e + 8]] < num_nodes) __builtin_prefetch(col + ptr[dst[order[e + 8]]]);
        while (i >= pair_ptr[low + 1]) low++;
        if (s >= num_nodes || d >= num_nodes || ptr[s] == ptr[s + 1] || ptr[d] == ptr[d + 1]) continue;
        read_source(&now, s, times[low]);
        double sums[3] = {0.0, 0.0, 0.0};
        const int64_t p = may_be_neighbor(&now, d) ? find_in_row(now.row, now.size, d) : now.size;
        const int has_met = p < now.size && now.row[p] == d && (known || run_times[begin[ptr[s] + p]] <= now.t);
        sum_common(&now, &weights, d, sums);
        if (!has_met && sums[0] == 0.0) continue;
        float *out = features + number * width;
        if (has_met && arc_ptr == ptr)
            write_meetings(&arcs, ptr[s] + p, now.t, &counts, out);
        else if (has_met) {
            write_arc_meetings(&arcs, s, d, now.t, &counts, out);
            if (width > 6 + num_scales) write_arc_meetings(&arcs, d, s, now.t, &counts, out + 3 + num_scales);
        }
        out += width - 3;
        out[0] = (float)log1p(sums[0]);
        out[1] = (float)sums[1];
        out[2] = (float)sums[2];
        found[number++] = i;
    }
    *count = number;
}
