/* Common neighbors of listed pairs at the snapshots where they are read, included once. Rows of neighbors are all that a
 * node ever has, in ascending order; the times of a pair are runs of consecutive snapshots (first time, total number of
 * times at the end), those of degrees entries (time, total). */

#define CACHED_ROWS 1024 /* rows whose recencies are cached at a time */

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

INLINE uint32_t hash_node(int64_t node) { return (uint32_t)node * 2654435761u; }

/* The neighbors of a source: a hash table of positions, and 16 bits for every place of it, which rule most nodes out. */
typedef struct {
    int32_t *places;
    uint64_t *bits;
    const int32_t *row;
    int shift;
} row_table;

static void fill_row_table(row_table *table, const int32_t *row, int64_t size) {
    int log_size = 2;
    while ((1 << log_size) < 4 * size) log_size++;
    const uint32_t mask = (1u << log_size) - 1;
    table->row = row;
    table->shift = 32 - log_size;
    memset(table->places, 0, sizeof(int32_t) << log_size);
    memset(table->bits, 0, sizeof(uint64_t) << (log_size - 2));
    for (int64_t p = 0; p < size; p++) {
        const uint32_t hash = hash_node(row[p]), bit = hash >> (table->shift - 4);
        uint32_t place = hash >> table->shift;
        table->bits[bit >> 6] |= 1ull << (bit & 63);
        while (table->places[place]) place = (place + 1) & mask;
        table->places[place] = (int32_t)p + 1;
    }
}

/* The position of a node in the row; -1 if it is absent. */
INLINE int64_t find_in_table(const row_table *table, int64_t node) {
    const uint32_t hash = hash_node(node), bit = hash >> (table->shift - 4);
    if (!(table->bits[bit >> 6] >> (bit & 63) & 1)) return -1;
    const uint32_t mask = (uint32_t)(1ull << (32 - table->shift)) - 1;
    for (uint32_t place = hash >> table->shift; table->places[place]; place = (place + 1) & mask)
        if (table->row[table->places[place] - 1] == node) return table->places[place] - 1;
    return -1;
}

static int64_t find_in_row(const int32_t *row, int64_t size, int64_t node) {
    int64_t low = 0;
    for (int64_t high = size; low < high;) {
        const int64_t middle = (low + high) >> 1;
        if (row[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < size && row[low] == node ? low : -1;
}

/* Recencies of rows, and weights 1 / log(1 + degree) of nodes, at one snapshot. */
typedef struct {
    double *room;
    int64_t capacity, used;
    int64_t rows[CACHED_ROWS], places[CACHED_ROWS], nodes[CACHED_ROWS];
    double weights[CACHED_ROWS];
} snapshot_cache;

static void clear_rows(snapshot_cache *cache) {
    cache->used = 0;
    for (int k = 0; k < CACHED_ROWS; k++) cache->rows[k] = -1;
}

static const double *cached_row(snapshot_cache *cache, const time_rows *rows, int64_t node, int64_t t) {
    const int64_t slot = node % CACHED_ROWS;
    if (cache->rows[slot] != node) {
        cache->rows[slot] = node;
        cache->places[slot] = cache->used;
        for (int64_t p = rows->ptr[node]; p < rows->ptr[node + 1]; p++)
            cache->room[cache->used++] = recency_of(rows, p, t);
    }
    return cache->room + cache->places[slot];
}

/* 1 / log(1 + degree) of a node; 0 of one with more than max_degree neighbors. */
INLINE double node_weight(snapshot_cache *cache, const time_rows *degrees, int64_t node, int64_t t, int64_t max_degree) {
    const int64_t slot = node % CACHED_ROWS;
    if (cache->nodes[slot] != node) {
        const int64_t at = count_times(degrees->times + degrees->begin[node], degrees->size[node], t) - 1;
        const int64_t degree = at < 0 ? 0 : degrees->totals[degrees->begin[node] + at];
        cache->nodes[slot] = node;
        cache->weights[slot] = degree < 1 || degree > max_degree ? 0.0 : 1.0 / log(1.0 + (double)degree);
    }
    return cache->weights[slot];
}

/* Adds up the features of the common neighbors of a source, which the table has, and a destination. */
static void sum_common(const time_rows *rows, const time_rows *degrees, const row_table *table, snapshot_cache *cache,
                       int64_t source, int64_t destination, int64_t t, int64_t max_degree, double *sums) {
    const int64_t of_source = rows->ptr[source + 1] - rows->ptr[source];
    const int64_t of_destination = rows->ptr[destination + 1] - rows->ptr[destination];
    const int search = of_destination > 8 * of_source, caches = of_source + of_destination <= cache->capacity;
    const int64_t outer = search ? source : destination, inner = search ? destination : source;
    const int32_t *row = rows->col + rows->ptr[outer], *other = rows->col + rows->ptr[inner];
    const double *of_outer = NULL, *of_inner = NULL;
    int64_t low = 0;
    for (int64_t q = 0; q < (search ? of_source : of_destination); q++) {
        int64_t p;
        if (search) {
            p = find_in_row(other + low, of_destination - low, row[q]);
            if (p >= 0) low = p += low;
        } else
            p = find_in_table(table, row[q]);
        if (p < 0) continue;
        if (caches && !of_outer) {
            if (cache->used + of_source + of_destination > cache->capacity) clear_rows(cache);
            of_outer = cached_row(cache, rows, outer, t);
            of_inner = cached_row(cache, rows, inner, t);
        }
        const double a = caches ? of_outer[q] : recency_of(rows, rows->ptr[outer] + q, t);
        const double b = caches ? of_inner[p] : recency_of(rows, rows->ptr[inner] + p, t);
        if (a == 0.0 || b == 0.0) continue;
        const double weight = node_weight(cache, degrees, row[q], t, max_degree);
        if (weight == 0.0) continue;
        sums[0] += 1.0;
        sums[1] += weight;
        sums[2] += a * b;
    }
}

/* Of pairs first to last those that have met or have a common neighbor: their positions, and three features each. Pairs
 * pair_ptr[k] to pair_ptr[k + 1] are read at snapshot times[k]. places has room for 4 and bits for 1 number per neighbor
 * of the longest row, times 2. Gives the number of pairs found. */
void find_related(int64_t first, int64_t last, int64_t num_times, const int64_t *times, const int64_t *pair_ptr,
                  const int64_t *src, const int64_t *dst, int64_t num_nodes, const int64_t *ptr, const int32_t *col,
                  const int64_t *begin, const int64_t *size, const int32_t *run_times, const int32_t *run_totals,
                  const int64_t *degree_begin, const int64_t *degree_size, const int32_t *degree_times,
                  const int32_t *degree_totals, int64_t max_degree, int32_t *places, uint64_t *bits, double *room,
                  int64_t capacity, int64_t *found, float *features, int64_t *count) {
    const time_rows rows = {ptr, col, begin, size, run_times, run_totals};
    const time_rows degrees = {NULL, NULL, degree_begin, degree_size, degree_times, degree_totals};
    snapshot_cache cache;
    row_table table = {places, bits, NULL, 0};
    cache.room = room;
    cache.capacity = capacity;
    int64_t source = -1, k = -1, number = 0, low = 0, high = num_times;
    while (low < high) { /* the last snapshot that begins at or before the first pair */
        const int64_t middle = (low + high) >> 1;
        if (pair_ptr[middle + 1] <= first)
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t i = first; i < last; i++) {
        while (i >= pair_ptr[low + 1]) low++;
        if (k != low) {
            k = low;
            clear_rows(&cache);
            for (int n = 0; n < CACHED_ROWS; n++) cache.nodes[n] = -1;
        }
        const int64_t s = src[i], d = dst[i], t = times[k];
        if (s >= num_nodes || d >= num_nodes || ptr[s] == ptr[s + 1] || ptr[d] == ptr[d + 1]) continue;
        if (s != source) fill_row_table(&table, col + ptr[s], ptr[s + 1] - ptr[s]);
        source = s;
        double sums[3] = {0.0, 0.0, 0.0};
        const int64_t p = find_in_table(&table, d);
        const int has_met = p >= 0 && run_times[begin[ptr[s] + p]] <= t;
        sum_common(&rows, &degrees, &table, &cache, s, d, t, max_degree, sums);
        if (!has_met && sums[0] == 0.0) continue;
        found[number] = i;
        features[3 * number] = (float)log1p(sums[0]);
        features[3 * number + 1] = (float)sums[1];
        features[3 * number + 2] = (float)sums[2];
        number++;
    }
    *count = number;
}
