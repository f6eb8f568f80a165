/* Loops over the rows of sparse matrices that move entries and multiply nothing, included once. Row pointers are
 * int64, columns int32 and ascending in each row, weights double, or NULL where all are 1. */

/* Where the entries of rows first to last whose column is below a limit end. */
void row_ends(int64_t first, int64_t last, int64_t limit, const int64_t *row_ptr, const int32_t *col, int64_t *ends) {
    for (int64_t i = first; i < last; i++) {
        int64_t low = row_ptr[i], high = row_ptr[i + 1];
        if (low == high || col[high - 1] < limit) {
            ends[i] = high;
            continue;
        }
        while (low < high) {
            const int64_t middle = (low + high) >> 1;
            if (col[middle] < limit)
                low = middle + 1;
            else
                high = middle;
        }
        ends[i] = low;
    }
}

/* For new rows first to last, which are old rows[i]: how many entries get a column. */
void count_entries(int64_t first, int64_t last, const int64_t *row_ptr, const int32_t *col, const int64_t *rows,
                   const int32_t *columns, int64_t *counts) {
    for (int64_t i = first; i < last; i++) {
        int64_t count = 0;
        for (int64_t e = row_ptr[rows[i]]; e < row_ptr[rows[i] + 1]; e++) count += columns[col[e]] >= 0;
        counts[i] = count;
    }
}

typedef struct {
    int32_t col, at; /* where it stood in its row: of equal columns the order stays */
} entry;

static int by_column(const void *left, const void *right) {
    const entry *a = left, *b = right;
    return a->col != b->col ? (a->col > b->col) - (a->col < b->col) : (a->at > b->at) - (a->at < b->at);
}

/* For new rows first to last: columns of the entries that get one, ascending, and in at which entry of the old row each
 * is. found has room for the longest row. */
void fill_columns(int64_t first, int64_t last, const int64_t *row_ptr, const int32_t *col, const int64_t *rows,
                  const int32_t *columns, const int64_t *starts, int32_t *new_col, int32_t *new_at, entry *found) {
    for (int64_t i = first; i < last; i++) {
        const int64_t begin = row_ptr[rows[i]], end = row_ptr[rows[i] + 1];
        int64_t count = 0;
        for (int64_t e = begin; e < end; e++) {
            const entry fresh = {columns[col[e]], (int32_t)(e - begin)};
            if (fresh.col < 0) continue;
            int64_t k = count++;
            if (end - begin <= 48)
                for (; k > 0 && found[k - 1].col > fresh.col; k--) found[k] = found[k - 1];
            found[k] = fresh;
        }
        if (end - begin > 48) qsort(found, (size_t)count, sizeof *found, by_column);
        for (int64_t k = 0; k < count; k++) {
            new_col[starts[i] + k] = found[k].col;
            if (new_at) new_at[starts[i] + k] = found[k].at;
        }
    }
}

/* The matrix of a graph convolution. Pointers of rows with self-loops where there were none, and 1 / the root of every
 * row's degree, which sums absolute weights in the order of the row; 0 for 0. */
void gcn_degrees(int64_t rows, const int64_t *row_ptr, const int32_t *col, const double *weight, int64_t *new_ptr,
                 double *root) {
    new_ptr[0] = 0;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t begin = row_ptr[i], end = row_ptr[i + 1];
        int64_t e = begin;
        double degree = 0;
        for (; e < end && col[e] < i; e++) degree += weight ? fabs(weight[e]) : 1.0;
        const int missing = e == end || col[e] != i;
        if (missing) degree += 1.0;
        for (; e < end; e++) degree += weight ? fabs(weight[e]) : 1.0;
        new_ptr[i + 1] = new_ptr[i] + end - begin + missing;
        root[i] = degree > 0 ? 1.0 / sqrt(degree) : 0.0;
    }
}

/* Its entries in rows first to last: root of the reader, times weight, times root of the read. */
void gcn_entries(int64_t first, int64_t last, const int64_t *row_ptr, const int32_t *col, const double *weight,
                 const int64_t *new_ptr, const double *root, int32_t *new_col, double *value) {
    for (int64_t i = first; i < last; i++) {
        const int64_t end = row_ptr[i + 1];
        int64_t e = row_ptr[i], to = new_ptr[i];
        for (; e < end && col[e] < i; e++, to++) {
            new_col[to] = col[e];
            value[to] = (weight ? root[i] * weight[e] : root[i]) * root[col[e]];
        }
        if (e == end || col[e] != i) {
            new_col[to] = (int32_t)i;
            value[to] = root[i] * root[i];
            to++;
        }
        for (; e < end; e++, to++) {
            new_col[to] = col[e];
            value[to] = (weight ? root[i] * weight[e] : root[i]) * root[col[e]];
        }
    }
}

/* Where the items of each row begin, from 0, and the items in order of rows; a counting sort. ptr has one place more than
 * there are rows. */
void sort_by_row(int64_t size, const int32_t *row, int64_t num_rows, int64_t *ptr, int32_t *items) {
    memset(ptr, 0, sizeof(int64_t) * (size_t)(num_rows + 1));
    for (int64_t i = 0; i < size; i++) ptr[row[i]]++;
    for (int64_t r = 0, before = 0; r <= num_rows; r++) {
        const int64_t count = ptr[r];
        ptr[r] = before;
        before += count;
    }
    for (int64_t i = 0; i < size; i++) items[ptr[row[i]]++] = (int32_t)i;
    for (int64_t r = num_rows; r > 0; r--) ptr[r] = ptr[r - 1];
    ptr[0] = 0;
}

/* The distinct nodes of each list in the order in which they come, where they begin, and the position of every entry
 * among all of them. last has a place per node, -1. */
void distinct_nodes(int64_t num_lists, const int64_t *ptr, const int64_t *nodes, int32_t *last, int32_t *position,
                    int64_t *found, int64_t *starts) {
    int64_t size = 0;
    starts[0] = 0;
    for (int64_t k = 0; k < num_lists; k++) {
        const int64_t first = size;
        for (int64_t i = ptr[k]; i < ptr[k + 1]; i++) {
            const int64_t node = nodes[i];
            if (last[node] < first) {
                last[node] = (int32_t)size;
                found[size++] = node;
            }
            position[i] = last[node];
        }
        starts[k + 1] = size;
    }
}

/* Of pairs first to last the sum of the numbers of both ends. */
void sum_ends(int64_t first, int64_t last, const int32_t *row, const int32_t *column, const double *of_rows,
              const double *of_columns, double *out) {
    for (int64_t i = first; i < last; i++) out[i] = of_rows[row[i]] + of_columns[column[i]];
}
