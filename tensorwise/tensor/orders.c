/* Reverse Cuthill-McKee (1969) on the graph of a matrix, for tensorwise/tensor/orders.py.
 *
 * Every choice is by (degree, index), so the order depends on the pattern alone: not on a library's sort, and not on the
 * instructions of the processor. Vertices are numbered in 32 bits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* first[k] is where the things of key k begin among all, ascending; keys are below `size`, first has size + 1 places */
static void starts(int64_t count, const int32_t *key, int64_t size, int64_t *first)
{
    memset(first, 0, (size_t)(size + 1) * sizeof *first);
    for (int64_t e = 0; e < count; e++) first[key[e] + 1]++;
    for (int64_t k = 0; k < size; k++) first[k + 1] += first[k];
}

/* Order the vertices of an undirected graph. Neighbours of v are to[first[v] .. first[v + 1]), v itself may be among them.
 * by_degree has as many places as `to`, `at` vertices + 1, the others one a vertex. */
static void order_graph(int64_t vertices, const int64_t *first, const int32_t *to, int32_t *degree, int32_t *ranked,
                        int64_t *at, int32_t *by_degree, uint8_t *seen, int32_t *order)
{
    for (int64_t v = 0; v < vertices; v++) {
        degree[v] = 0;
        for (int64_t e = first[v]; e < first[v + 1]; e++) degree[v] += to[e] != v;
    }
    /* ranked: vertices by (degree, index) */
    starts(vertices, degree, vertices, at);
    for (int64_t v = 0; v < vertices; v++) ranked[at[degree[v]]++] = (int32_t)v;
    /* by_degree: neighbours of each vertex by (degree, index); each vertex in turn goes to the lists of its neighbours */
    memcpy(at, first, (size_t)vertices * sizeof *at);
    for (int64_t r = 0; r < vertices; r++) {
        const int32_t v = ranked[r];
        for (int64_t e = first[v]; e < first[v + 1]; e++)
            if (to[e] != v) by_degree[at[to[e]]++] = v;
    }
    memset(seen, 0, (size_t)vertices);
    int64_t begin = 0, end = 0;
    for (int64_t r = 0; r < vertices; r++) {
        if (seen[ranked[r]]) continue;
        seen[ranked[r]] = 1;
        order[end++] = ranked[r];
        while (begin < end) {
            const int32_t v = order[begin++];
            for (int64_t e = first[v]; e < at[v]; e++) {
                const int32_t u = by_degree[e];
                if (!seen[u]) seen[u] = 1, order[end++] = u;
            }
        }
    }
    for (int64_t low = 0, high = vertices - 1; low < high; low++, high--) {
        const int32_t v = order[low];
        order[low] = order[high];
        order[high] = v;
    }
}

/* Order the rows and columns of a matrix, whose entries ascend by (row, column). Rows are vertices, and columns too unless
 * the pattern is symmetric; column c is vertex rows + c then. order has rows + columns places. Returns the number of vertices,
 * or -1 where there is no memory. */
int64_t tw_order_reverse_cuthill_mckee(int64_t rows, int64_t columns, int64_t count, const int32_t *row, const int32_t *column,
                                       int32_t *order)
{
    const int64_t most = rows + columns;
    int64_t *first = malloc((size_t)(most + 1) * sizeof *first), *at = malloc((size_t)(most + 1) * sizeof *at);
    int32_t *to = malloc((size_t)(2 * count + 1) * sizeof *to), *by_degree = malloc((size_t)(2 * count + 1) * sizeof *to);
    int32_t *degree = malloc((size_t)(most + 1) * sizeof *degree), *ranked = malloc((size_t)(most + 1) * sizeof *ranked);
    uint8_t *seen = malloc((size_t)most + 1);
    int64_t vertices = -1;
    if (first && at && to && by_degree && degree && ranked && seen) {
        int64_t *of_columns = first + rows;
        int32_t *behind = to + count; /* the rows of each column, ascending */
        starts(count, row, rows, first);
        starts(count, column, columns, of_columns); /* begins where the rows' starts end */
        memcpy(at, of_columns, (size_t)columns * sizeof *at);
        for (int64_t e = 0; e < count; e++) behind[at[column[e]]++] = row[e];
        if (rows == columns && !memcmp(first, of_columns, (size_t)rows * sizeof *first) &&
            !memcmp(behind, column, (size_t)count * sizeof *column)) {
            vertices = rows;
            first[rows] = count;
            memcpy(to, column, (size_t)count * sizeof *to);
        } else {
            vertices = most;
            for (int64_t c = 0; c <= columns; c++) of_columns[c] += count;
            for (int64_t e = 0; e < count; e++) to[e] = column[e] + (int32_t)rows;
        }
        order_graph(vertices, first, to, degree, ranked, at, by_degree, seen, order);
    }
    free(first), free(at), free(to), free(by_degree), free(degree), free(ranked), free(seen);
    return vertices;
}
