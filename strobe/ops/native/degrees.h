/* Degrees of cells and positions of nodes, included once per width of integers, with INDEX and NAME defined. */

void NAME(count_occurrences)(int64_t entries, const INDEX *restrict col, INDEX *restrict counts) {
    for (int64_t e = 0; e < entries; e++) counts[col[e]]++;
}

/* The largest in-degree or out-degree. */
void NAME(max_degree)(int64_t cells, const INDEX *restrict row_ptr, const INDEX *restrict out_degree,
                      int64_t *restrict largest) {
    INDEX most = 0;
    for (int64_t i = 0; i < cells; i++) {
        const INDEX in = row_ptr[i + 1] - row_ptr[i];
        most = in > most ? in : most;
        most = out_degree[i] > most ? out_degree[i] : most;
    }
    *largest = most;
}

/* Rows of two numbers: that of the in-degree, that of the out-degree. */
void NAME(lookup_by_degree)(int64_t cells, const INDEX *restrict row_ptr, const INDEX *restrict out_degree,
                            const float *restrict table, float *restrict rows) {
    for (int64_t i = 0; i < cells; i++) {
        rows[2 * i] = table[2 * (int64_t)(row_ptr[i + 1] - row_ptr[i])];
        rows[2 * i + 1] = table[2 * (int64_t)out_degree[i] + 1];
    }
}

/* Sources of ascending edge keys, destination times size plus source; adds to the degrees, counts self-loops. */
void NAME(decode_edge_keys)(int64_t entries, int64_t size, const int64_t *restrict key, INDEX *restrict degree,
                            INDEX *restrict col, int64_t *restrict loops) {
    int64_t row = 0, first = 0, found = 0;
    for (int64_t k = 0; k < entries; k++) {
        if (key[k] - first >= size) {
            row = key[k] / size;
            first = row * size;
        }
        col[k] = (INDEX)(key[k] - first);
        degree[row]++;
        found += key[k] - first == row;
    }
    *loops = found;
}

/* Where each query is among the nodes, which ascend; -1 if it is absent. A query that is larger than the one before is
 * looked for from there, in steps that double, so that ascending queries cost little more than a merge. */
void NAME(find_positions)(int64_t queries, int64_t count, const INDEX *restrict query, const INDEX *restrict nodes,
                          int64_t *restrict at) {
    int64_t low = 0;
    for (int64_t i = 0; i < queries; i++) {
        const INDEX wanted = query[i];
        if (i && wanted < query[i - 1]) low = 0;
        int64_t step = 1, high = low;
        while (high < count && nodes[high] < wanted) {
            low = high + 1;
            high += step;
            step *= 2;
        }
        if (high > count) high = count;
        while (low < high) {
            const int64_t middle = (low + high) >> 1;
            if (nodes[middle] < wanted)
                low = middle + 1;
            else
                high = middle;
        }
        at[i] = low < count && nodes[low] == wanted ? low : -1;
    }
}
