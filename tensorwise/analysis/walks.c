/* Walks along the entries of a matrix as processors take its tiles, for tensorwise/analysis/walks.py, in 32 bits.
 *
 * Of each stream of accesses to rows of dense operands it counts how many other accesses lie between two to the same row: in
 * classes whose bounds are the powers of the root of two.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define CLASSES 48

/* What is counted of one stream: accesses to rows that were never met, gaps by class (of unmarked and marked accesses), and the
 * sums of all gaps of a class. */
typedef struct { int64_t fresh, gaps[2][CLASSES], sums[CLASSES]; } counts;
typedef struct { uint32_t *last, clock; counts *found; } stream; /* last: when a row was met, 0: never */

INLINE uint32_t class_of(uint64_t gap)
{
    const uint32_t power = 63 - (uint32_t)__builtin_clzll(gap);
    return 2 * power + (gap > UINT64_C(1) << power) + (gap * gap > UINT64_C(2) << 2 * power);
}

INLINE void meet(stream *s, int64_t row, int marked)
{
    const uint32_t before = s->last[row], gap = ++s->clock - before;
    s->last[row] = s->clock;
    if (!before) {
        s->found->fresh++;
        return;
    }
    const uint32_t kind = class_of(gap);
    if (kind < CLASSES) {
        s->found->gaps[marked][kind]++;
        s->found->sums[kind] += gap;
    }
}

typedef struct { const int32_t *row, *column; const uint8_t *begins; int64_t columns; stream alone, both; } walk;

/* An entry: before the first one of a row, the row of the output is fetched. */
INLINE void visit(walk *w, int64_t at)
{
    const int32_t column = w->column[at];
    meet(&w->alone, column, 0);
    if (w->begins[at]) meet(&w->both, w->columns + w->row[at], 1);
    meet(&w->both, column, 0);
}

/* Order entries by coordinate / size, those of one part as they were. ends: parts + 1 numbers, scratch. */
static void by_part(int64_t n, const int32_t *key, int64_t size, int64_t parts, const int32_t *row, const int32_t *column,
                    int32_t *to_row, int32_t *to_column, int64_t *ends)
{
    memset(ends, 0, (size_t)(parts + 1) * sizeof *ends);
    for (int64_t e = 0; e < n; e++) ends[key[e] / size + 1]++;
    for (int64_t p = 0; p < parts; p++) ends[p + 1] += ends[p];
    for (int64_t e = 0; e < n; e++) {
        const int64_t to = ends[key[e] / size]++;
        to_row[to] = row[e];
        to_column[to] = column[e];
    }
}

/* row, column: of n entries, row by row. high, wide: row and column panels of extents i and j. columns_first: column panels are
 * the outer ones, and all `lanes` processors finish one before the next begins. sharers: for each of `kinds` caches the
 * processors behind it. most: entries, begun rows and tiles of the processor that has most. found: alone and both for each
 * kind. Returns how many rows are begun, -1 without memory. */
int64_t tw_walk_tiles(int64_t n, const int32_t *row, const int32_t *column, int64_t rows, int64_t columns, int64_t i, int64_t j,
                      int64_t high, int64_t wide, int64_t columns_first, int64_t lanes, int64_t kinds, const int64_t *sharers,
                      int64_t *most, counts *found)
{
    int64_t begun = -1, runs = 0, parts = high > wide ? high : wide, width = 1;
    for (int64_t k = 0; k < kinds; k++) width = sharers[k] > width ? sharers[k] : width;
    if (width > n) width = n;
    int32_t *moved = wide > 1 ? malloc((size_t)n * 4 * sizeof *moved) : NULL;
    int64_t *ends = malloc((size_t)(parts + 1) * sizeof *ends), *starts = malloc((size_t)(n + 1) * sizeof *starts);
    int64_t *cursor = malloc((size_t)width * 2 * sizeof *cursor), *lane = calloc((size_t)lanes * 4, sizeof *lane);
    uint8_t *begins = malloc((size_t)n);
    uint32_t *last = malloc((size_t)(2 * columns + rows) * sizeof *last);
    if (!ends || !starts || !cursor || !lane || !begins || !last || (wide > 1 && !moved)) goto done;
    if (wide > 1) {
        by_part(n, column, j, wide, row, column, moved, moved + n, ends);
        row = moved, column = moved + n;
        if (!columns_first) {
            by_part(n, row, i, high, row, column, moved + 2 * n, moved + 3 * n, ends);
            row = moved + 2 * n, column = moved + 3 * n;
        }
    }

    /* lane: three counters for each processor, and the turn in which they were last set to 0; the largest go to most. */
    int64_t before_panel = -1, before_part = -1, turn = 0, largest[3] = {0};
    begun = 0;
    most[0] = most[1] = most[2] = 0;
    for (int64_t e = 0; e < n; e++) {
        const int64_t panel = row[e] / i, part = column[e] / j;
        if (!e || (columns_first && part != before_part)) {
            for (int k = 0; k < 3; k++) most[k] += largest[k], largest[k] = 0;
            turn++;
        }
        const int first = panel != before_panel || part != before_part;
        begins[e] = first || row[e] != row[e - 1];
        if (panel != before_panel || (columns_first && first)) starts[runs++] = e;
        int64_t *mine = lane + 4 * (panel % lanes);
        if (mine[3] != turn) mine[0] = mine[1] = mine[2] = 0, mine[3] = turn;
        mine[0]++;
        mine[1] += begins[e];
        mine[2] += first;
        for (int k = 0; k < 3; k++) largest[k] = mine[k] > largest[k] ? mine[k] : largest[k];
        begun += begins[e];
        before_panel = panel, before_part = part;
    }
    for (int k = 0; k < 3; k++) most[k] += largest[k];
    starts[runs] = n;

    for (int64_t kind = 0; kind < kinds; kind++) {
        walk w = {row, column, begins, columns, {last, 0, found + 2 * kind}, {last + columns, 0, found + 2 * kind + 1}};
        memset(last, 0, (size_t)(2 * columns + rows) * sizeof *last);
        memset(w.alone.found, 0, 2 * sizeof *found);
        if (sharers[kind] == 1) {
            for (int64_t e = 0; e < n; e++) visit(&w, e);
            continue;
        }
        for (int64_t from = 0, to; from < runs; from = to) { /* side by side: an entry of each panel of a group in turn */
            const int64_t group = row[starts[from]] / i / sharers[kind], part = columns_first ? column[starts[from]] / j : 0;
            int64_t active = 0;
            for (to = from; to < runs; to++) {
                const int64_t e = starts[to];
                if (row[e] / i / sharers[kind] != group || (columns_first && column[e] / j != part)) break;
                cursor[2 * active] = e;
                cursor[2 * active++ + 1] = starts[to + 1];
            }
            while (active) {
                int64_t left = 0;
                for (int64_t k = 0; k < active; k++) {
                    const int64_t e = cursor[2 * k], end = cursor[2 * k + 1];
                    visit(&w, e);
                    if (e + 1 < end) cursor[2 * left] = e + 1, cursor[2 * left++ + 1] = end;
                }
                active = left;
            }
        }
    }
done:
    free(moved), free(ends), free(starts), free(cursor), free(lane), free(begins), free(last);
    return begun;
}
