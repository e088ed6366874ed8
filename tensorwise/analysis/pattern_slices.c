/* Slots of slices of rows (SELL-C-sigma), for tensorwise/analysis. See pattern.c. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SHORT 1024 /* lengths below this are counted, longer ones are listed */
#define HEIGHTS 5  /* slices of 4, 8, 16, 32 and 64 rows */
#define WINDOW 12  /* log2 of the rows that are sorted together */

static int longest_first(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

/* Lines of `length` after `rank` longer ones: adds the slices that begin with one of them. */
static inline void heads(int64_t length, int64_t rank, int64_t lines, int64_t *out)
{
    for (int h = 0; h < HEIGHTS; h++) {
        const int64_t shift = h + 2, up = ((int64_t)1 << shift) - 1;
        out[h] += length * (((rank + lines + up) >> shift) - ((rank + up) >> shift)) << shift;
    }
}

/* Slots of slices of 4, 8, 16, 32 and 64 rows, each as wide as its longest row: own[h] with rows as they come, sorted[h]
   with each 2^WINDOW rows sorted by length. `rows` have entries, their ids ascend; overwrites `id` and `length`. */
void tw_pattern_slices(int64_t rows, uint32_t *id, uint32_t *length, int64_t *own, int64_t *sorted)
{
    uint32_t brief[SHORT], lengthy[1 << WINDOW];
    for (int64_t first = 0, end; first < rows; first = end) {
        int64_t listed = 0, rank = 0;
        uint32_t longest = 0;
        for (end = first; end < rows && id[end] >> WINDOW == id[first] >> WINDOW; end++)
            longest = length[end] > longest ? length[end] : longest;
        const uint32_t top = longest < SHORT ? longest + 1 : SHORT;
        memset(brief, 0, top * sizeof *brief);
        for (int64_t q = first; q < end; q++)
            if (length[q] < SHORT) brief[length[q]]++; else lengthy[listed++] = length[q];
        if (listed) qsort(lengthy, (size_t)listed, sizeof *lengthy, longest_first);
        for (; rank < listed; rank++) heads(lengthy[rank], rank, 1, sorted);
        for (uint32_t l = top - 1; l; l--)
            if (brief[l]) { heads(l, rank, brief[l], sorted); rank += brief[l]; }
    }
    for (int h = 0; h < HEIGHTS; h++) { /* slices twice as high, from the longest rows of those before */
        const int shift = h ? 1 : 2;
        int64_t at = -1, total = 0;
        uint32_t last = UINT32_MAX, longest = 0;
        for (int64_t q = 0; q < rows; q++) { /* no branches: where slices begin cannot be foreseen */
            const uint32_t slice = id[q] >> shift, fresh = slice != last, l = length[q], held = longest & (fresh - 1);
            at += fresh;
            longest = l > held ? l : held;
            last = id[at] = slice;
            length[at] = longest;
        }
        rows = at + 1;
        for (int64_t q = 0; q < rows; q++) total += length[q];
        own[h] = total << (h + 2);
    }
}
