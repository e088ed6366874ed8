/* Slices of the rows of a compressed matrix, as the formats (i:length512,k) -> U(i1) P(k#) U(i0:4) S(k) and, in the rows' own
 * order, (i,k) -> U(i1) P(k#) U(i0:8) S(k) store them: some rows lie beside each other, entry by entry, and shorter ones are
 * padded with zeros.
 *
 * The general packing of tensor/pack.c makes any format of any tensor. This is one format of one kind of matrix, for arrays
 * whose products have taken milliseconds so far: it takes a tenth of the time, and no module has to be imported. */
#include "../toolchain/prelude.h"

#include <string.h>

#define WINDOW 512     /* rows that are ordered together */
#define MOST_LENGTH 1023 /* longer rows are not told apart */

static int64_t pointer(const void *indptr, int64_t wide, int64_t row)
{
    return wide ? ((const int64_t *)indptr)[row] : ((const int32_t *)indptr)[row];
}

/* Write the order of rows, longest first in each window of rows (NULL: they keep their own), and where slices of `height` rows
 * begin: positions[slices + 1]. Returns how many slots a row of a slice has in all; -1: more than int32 can count. */
int64_t tw_slice_rows(const void *indptr, int64_t wide, int64_t rows, int64_t height, int32_t *order, int32_t *positions)
{
    int32_t next[MOST_LENGTH + 2];
    int64_t slots = 0;
    for (int64_t first = 0; order && first < rows; first += WINDOW) {
        const int64_t end = first + WINDOW < rows ? first + WINDOW : rows;
        memset(next, 0, sizeof next);
#define PLACE(row) (MOST_LENGTH - tw_min_i64(pointer(indptr, wide, (row) + 1) - pointer(indptr, wide, row), MOST_LENGTH))
        for (int64_t row = first; row < end; row++) next[PLACE(row) + 1]++;
        for (int64_t place = 1; place <= MOST_LENGTH; place++) next[place] += next[place - 1];
        for (int64_t row = first; row < end; row++) order[first + next[PLACE(row)]++] = (int32_t)row;
#undef PLACE
    }
    for (int64_t slice = 0; slice * height < rows; slice++) {
        int64_t longest = 0;
        for (int64_t place = slice * height; place < tw_min_i64((slice + 1) * height, rows); place++) {
            const int64_t row = order ? order[place] : place;
            longest = tw_max_i64(longest, pointer(indptr, wide, row + 1) - pointer(indptr, wide, row));
        }
        positions[slice] = (int32_t)slots;
        slots += longest;
        if (slots > INT32_MAX / height) return -1;
    }
    positions[(rows + height - 1) / height] = (int32_t)slots;
    return slots;
}

typedef struct {
    const void *indptr, *from;
    const int32_t *numbers, *order, *positions;
    void *to;
    int64_t wide, bytes, rows, height;
} filling;

/* Fill the slots of slices: `read` is what of an entry e. */
#define FILL(type, read) \
    for (int64_t slice = lo; slice < hi; slice++) { \
        const int64_t slots = f->positions[slice + 1] - f->positions[slice]; \
        type *const to = (type *)f->to + f->positions[slice] * f->height; \
        for (int64_t in = 0; in < f->height; in++) { \
            const int64_t place = slice * f->height + in; \
            const int64_t row = place >= f->rows ? -1 : f->order ? f->order[place] : place; \
            const int64_t begin = row < 0 ? 0 : pointer(f->indptr, f->wide, row); \
            const int64_t length = row < 0 ? 0 : pointer(f->indptr, f->wide, row + 1) - begin; \
            for (int64_t s = 0; s < length; s++) { const int64_t e = begin + s; to[s * f->height + in] = (type)(read); } \
            for (int64_t s = length; s < slots; s++) to[s * f->height + in] = 0; \
        } \
    }

static void fill_columns(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const filling *f = context;
    (void)thread;
#define EACH(type) \
    if (f->wide) FILL(type, ((const int64_t *)f->from)[e]) else FILL(type, ((const int32_t *)f->from)[e])
    if (f->bytes == 2) { EACH(uint16_t) } else { EACH(int32_t) }
#undef EACH
}

static void fill_values(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const filling *f = context;
    (void)thread;
#define EACH(type) \
    if (f->numbers) FILL(type, ((const type *)f->from)[f->numbers[e]]) else FILL(type, ((const type *)f->from)[e])
    if (f->bytes == 8) { EACH(double) } else { EACH(float) }
#undef EACH
}

static void fill_numbers(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const filling *f = context;
    (void)thread;
    if (f->numbers) FILL(int32_t, f->numbers[e] + 1) else FILL(int32_t, e + 1)
}

typedef struct {
    const void *numbers;
    const void *from;
    void *to;
    int64_t wide; /* whether numbers are int64 */
    int64_t bytes;
} gathering;

/* A third less time where the loop is vectorized, which gcc does not do by -O2, and only if nothing overlaps. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC push_options
#pragma GCC optimize("O3")
#endif
#define GATHER(name, index, type) \
    static void name(const index *restrict numbers, const type *restrict from, type *restrict to, int64_t count) \
    { \
        for (int64_t p = 0; p < count; p++) to[p] = numbers[p] ? from[numbers[p] - 1] : 0; \
    }
GATHER(gather_double, int32_t, double)
GATHER(gather_float, int32_t, float)
GATHER(gather_double_wide, int64_t, double)
GATHER(gather_float_wide, int64_t, float)
#undef GATHER
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif

static void gather_values(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const gathering *g = context;
    char *const to = (char *)g->to + lo * g->bytes;
    (void)thread;
    if (!g->numbers) memcpy(to, (const char *)g->from + lo * g->bytes, (size_t)((hi - lo) * g->bytes));
    else if (g->wide) {
        const int64_t *numbers = (const int64_t *)g->numbers + lo;
        if (g->bytes == 8) gather_double_wide(numbers, g->from, (double *)to, hi - lo);
        else gather_float_wide(numbers, g->from, (float *)to, hi - lo);
    } else {
        const int32_t *numbers = (const int32_t *)g->numbers + lo;
        if (g->bytes == 8) gather_double(numbers, g->from, (double *)to, hi - lo);
        else gather_float(numbers, g->from, (float *)to, hi - lo);
    }
}

/* Write the column of each entry, of `bytes` bytes, 0 for padding. */
void tw_slice_columns(tw_driver driver, int64_t threads, const void *indptr, const void *indices, int64_t wide, int64_t rows,
                      int64_t height, const int32_t *order, const int32_t *positions, int64_t bytes, void *to)
{
    filling f = {indptr, indices, NULL, order, positions, to, wide, bytes, rows, height};
    driver(fill_columns, &f, 0, (rows + height - 1) / height, threads, 0, NULL, 0);
}

/* Write values of `bytes` bytes, 0 for padding: of entry e the given one of number numbers[e]; NULL: of number e. */
void tw_slice_values(tw_driver driver, int64_t threads, const void *indptr, int64_t wide, int64_t rows, int64_t height,
                     const int32_t *order, const int32_t *positions, const int32_t *numbers, const void *values, int64_t bytes,
                     void *to)
{
    filling f = {indptr, values, numbers, order, positions, to, wide, bytes, rows, height};
    driver(fill_values, &f, 0, (rows + height - 1) / height, threads, 0, NULL, 0);
}

/* Write for each slot the number of the given value that belongs there, from 1; 0 for padding. See tw_slice_values. */
void tw_slice_numbers(tw_driver driver, int64_t threads, const void *indptr, int64_t wide, int64_t rows, int64_t height,
                      const int32_t *order, const int32_t *positions, const int32_t *numbers, int32_t *to)
{
    filling f = {indptr, NULL, numbers, order, positions, to, wide, 4, rows, height};
    driver(fill_numbers, &f, 0, (rows + height - 1) / height, threads, 0, NULL, 0);
}

/* Write values of `bytes` bytes: to each of n places the one of its number, from 1, or 0; numbers NULL: each where it is given. */
void tw_update(tw_driver driver, int64_t threads, int64_t n, const void *numbers, int64_t wide, const void *values, int64_t bytes,
               void *to)
{
    gathering g = {numbers, values, to, wide, bytes};
    driver(gather_values, &g, 0, n, threads, 0, NULL, 0);
}
