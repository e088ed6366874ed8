/* Packing primitives: stored entries -> the levels of a format. One core, any order of levels.
 *
 * Nothing here knows a format. A storage position or a sort key is a *linear form* over the entries,
 *     form(e) = sum over terms of stride * part(source[e]),
 * evaluated a chunk at a time into a buffer that stays in the first-level cache, so that a pass over
 * the entries reads each source once and writes only its result.
 *
 * Sources are arrays of 32 or 64-bit integers that are never negative. `index_bytes` (4 or 8) is the
 * width of positions: of `pos` arrays, of an order of entries, of the position of each entry.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK 1024
#define INLINE static inline __attribute__((always_inline))

enum { BITS = 0, QUOTIENT = 1, REMAINDER = 2 };

typedef struct {
    const void *source;
    int64_t bytes;   /* of one element: 4 or 8 */
    int64_t kind;    /* BITS: (x >> a) & b; QUOTIENT: x / a; REMAINDER: x % a */
    uint64_t a, b;
    uint64_t stride;
} tw_pack_term;

/* x / a by multiplication, exact for x < 2^32 and 1 < a < 2^32 (Lemire, Kaser and Kurz 2019) */
INLINE uint64_t quotient(uint64_t x, uint64_t a, uint64_t magic)
{
    return x >> 32 ? x / a : (uint64_t)(((unsigned __int128)magic * x) >> 64);
}

INLINE void add_term(const tw_pack_term *t, const uint32_t *s4, const uint64_t *s8, int64_t n, uint64_t *out)
{
#define EACH(expression)                                                            \
    if (s4) for (int64_t e = 0; e < n; e++) { uint64_t x = s4[e]; out[e] += expression; } \
    else for (int64_t e = 0; e < n; e++) { uint64_t x = s8[e]; out[e] += expression; }
    const uint64_t a = t->a, b = t->b, stride = t->stride;
    if (t->kind == BITS) {
        if (stride == 1) { EACH((x >> a) & b) } else { EACH(((x >> a) & b) * stride) }
    } else {
        const uint64_t magic = UINT64_MAX / a + 1;
        if (t->kind == QUOTIENT) { EACH(quotient(x, a, magic) * stride) }
        else { EACH((x - quotient(x, a, magic) * a) * stride) }
    }
#undef EACH
}

static void form(const tw_pack_term *terms, int64_t count, int64_t lo, int64_t n, uint64_t *out)
{
    memset(out, 0, (size_t)n * sizeof *out);
    for (const tw_pack_term *t = terms; t < terms + count; t++) {
        const int narrow = t->bytes == 4;
        add_term(t, narrow ? (const uint32_t *)t->source + lo : NULL,
                 narrow ? NULL : (const uint64_t *)t->source + lo, n, out);
    }
}

/* out[e] = form(e) for all n entries */
void tw_pack_form(int64_t n, const tw_pack_term *terms, int64_t count, uint64_t *out)
{
    for (int64_t lo = 0; lo < n; lo += CHUNK) form(terms, count, lo, n - lo < CHUNK ? n - lo : CHUNK, out + lo);
}

/* ---- a compressed level ---- */

INLINE void put(void *array, int bytes, int64_t at, int64_t value)
{
    if (bytes == 4) ((int32_t *)array)[at] = (int32_t)value; else ((int64_t *)array)[at] = value;
}

INLINE int64_t get(const void *array, int bytes, int64_t at)
{
    return bytes == 4 ? ((const int32_t *)array)[at] : ((const int64_t *)array)[at];
}

INLINE int64_t compress(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                        int64_t parents, void *pos, int ib, void *crd, int cb, void *at)
{
    uint64_t p[CHUNK], c[CHUNK], last_p = 0, last_c = 0;
    int64_t stored = 0, filled = 0;
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        form(parent, parent_terms, lo, m, p);
        form(coordinate, 1, lo, m, c);
        for (int64_t e = 0; e < m; e++) {
            const int fresh = (p[e] != last_p) | (c[e] != last_c) | (stored == 0);
            while (filled <= (int64_t)p[e]) put(pos, ib, filled++, stored);
            stored += fresh;
            put(crd, cb, stored - 1, (int64_t)c[e]);
            if (at) put(at, ib, lo + e, stored - 1);
            last_p = p[e];
            last_c = c[e];
        }
    }
    while (filled <= parents) put(pos, ib, filled++, stored);
    return stored;
}

/* Entries ascend by (parent, coordinate). Writes pos[parents + 1], crd and, unless NULL, the position of
   each entry; returns how many positions the level has. */
int64_t tw_pack_compress(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                         int64_t parents, void *pos, int64_t index_bytes, void *crd, int64_t crd_bytes, void *at)
{
#define CALL(ib, cb) return compress(n, parent, parent_terms, coordinate, parents, pos, ib, crd, cb, at)
    if (index_bytes == 4) { if (crd_bytes == 4) CALL(4, 4); CALL(4, 8); }
    if (crd_bytes == 4) CALL(8, 4);
    CALL(8, 8);
#undef CALL
}

/* A set of integers below an extent that hands them out in ascending order: a tree of 64-bit words. */
typedef struct { uint64_t *words[6]; int height; } bitset;

INLINE void insert(bitset *set, uint64_t x)
{
    for (int h = 0; h < set->height; h++, x >>= 6) set->words[h][x >> 6] |= (uint64_t)1 << (x & 63);
}

static int32_t *drain(bitset *set, int h, uint64_t at, int32_t *out)
{
    uint64_t word = set->words[h][at];
    set->words[h][at] = 0;
    for (; word; word &= word - 1) {
        const uint64_t child = at * 64 + (uint64_t)__builtin_ctzll(word);
        if (h) out = drain(set, h - 1, child, out); else *out++ = (int32_t)child;
    }
    return out;
}

static void sort_distinct(bitset *set, int32_t *x, int64_t n)
{
    if (n > 24) {
        for (int64_t i = 0; i < n; i++) insert(set, (uint64_t)x[i]);
        drain(set, set->height - 1, 0, x);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        const int32_t value = x[i];
        int64_t j = i;
        for (; j && x[j - 1] > value; j--) x[j] = x[j - 1];
        x[j] = value;
    }
}

/* mark[c] > start: c was met below the current parent, whose positions begin at start */
INLINE int64_t group(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                     int64_t parents, void *pos, int ib, int32_t *crd, void *at, void *mark, bitset *set)
{
    uint64_t p[CHUNK], c[CHUNK], current = 0;
    int64_t start = 0, stored = 0, filled = 1, first = 0;
    int ascending = 1;
    put(pos, ib, 0, 0);
    for (int64_t lo = 0; lo <= n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK, last = lo + m == n;
        form(parent, parent_terms, lo, m, p);
        form(coordinate, 1, lo, m, c);
        for (int64_t e = 0; e < m + last; e++) {
            if (e == m || p[e] != current) { /* the group is complete: sort its coordinates, place its entries */
                if (!ascending) sort_distinct(set, crd + start, stored - start);
                for (int64_t s = start; s < stored; s++) put(mark, ib, crd[s], s + 1);
                for (; first < lo + e; first++) put(at, ib, first, get(mark, ib, get(at, ib, first)) - 1);
                start = stored;
                ascending = 1;
                if (e == m) break;
                current = p[e];
                while (filled <= (int64_t)current) put(pos, ib, filled++, stored);
            }
            const int64_t x = (int64_t)c[e];
            put(at, ib, lo + e, x);
            if (get(mark, ib, x) <= start) {
                ascending &= stored == start || crd[stored - 1] < x;
                put(mark, ib, x, start + 1);
                crd[stored++] = (int32_t)x;
            }
        }
        if (last) break;
    }
    while (filled <= parents) put(pos, ib, filled++, stored);
    return stored;
}

/* As tw_pack_compress, for entries that ascend by parent only; extent < 2^31, crd is 32 bits wide and `at`
   is not NULL. Sorts the distinct coordinates below each parent instead of the entries. -1: no memory. */
int64_t tw_pack_group(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                      int64_t parents, int64_t extent, void *pos, int64_t index_bytes, void *crd, void *at)
{
    int64_t sizes[6], total = 0, stored = -1;
    bitset set = {{NULL}, 0};
    for (int64_t size = extent; set.height == 0 || size > 1;) {
        sizes[set.height++] = size = size / 64 + 1;
        total += size;
        if (size == 1) break;
    }
    uint64_t *words = calloc((size_t)total, sizeof *words);
    void *mark = calloc((size_t)extent + 1, (size_t)index_bytes);
    if (words && mark) {
        for (int64_t h = 0, begin = 0; h < set.height; begin += sizes[h++]) set.words[h] = words + begin;
        stored = index_bytes == 4
            ? group(n, parent, parent_terms, coordinate, parents, pos, 4, crd, at, mark, &set)
            : group(n, parent, parent_terms, coordinate, parents, pos, 8, crd, at, mark, &set);
    }
    free(words);
    free(mark);
    return stored;
}

/* ---- order ---- */

INLINE int sort(int64_t n, uint64_t *keys, void *order, int known, int low, int high, int ib)
{
    const int bits = high - low, passes = (bits + 9) / 10, width = passes ? (bits + passes - 1) / passes : 0;
    const size_t bins = (size_t)1 << width, room = (size_t)n + 1;
    uint64_t *keys2 = malloc(room * sizeof *keys), *from = keys, *to = keys2;
    void *order2 = malloc(room * (size_t)ib), *order_from = order, *order_to = order2;
    int64_t *counts = calloc(bins * (size_t)(passes + 1), sizeof *counts);
    if (!keys2 || !order2 || !counts) { free(keys2); free(order2); free(counts); return -1; }
    /* the last digit may be narrower: bits from `high` on do not count */
#define SHIFT(d) (low + (d) * width)
#define DIGIT(key, d) (((key) >> SHIFT(d)) & (((d) + 1 < passes ? bins : (size_t)1 << (high - SHIFT(d))) - 1))
    for (int64_t e = 0; e < n; e++)
        for (int d = 0; d < passes; d++) counts[(size_t)d * bins + DIGIT(keys[e], d)]++;
    if (!known && !passes) for (int64_t e = 0; e < n; e++) put(order, ib, e, e);
    for (int d = 0; d < passes; d++) {
        int64_t *next = counts + (size_t)d * bins, sum = 0;
        for (size_t b = 0; b < bins; b++) { const int64_t size = next[b]; next[b] = sum; sum += size; }
        for (int64_t e = 0; e < n; e++) {
            const int64_t place = next[DIGIT(from[e], d)]++;
            to[place] = from[e];
            put(order_to, ib, place, known || d ? get(order_from, ib, e) : e);
        }
        uint64_t *keys_swap = from; from = to; to = keys_swap;
        void *order_swap = order_from; order_from = order_to; order_to = order_swap;
    }
#undef DIGIT
#undef SHIFT
    if (from != keys) {
        memcpy(keys, from, (size_t)n * sizeof *keys);
        memcpy(order, order_from, (size_t)n * (size_t)ib);
    }
    free(keys2);
    free(order2);
    free(counts);
    return 0;
}

/* Stable radix sort of keys by their bits [low, high), in place; `order` moves along (known == 0: it starts
   as 0, 1, 2, ...). -1: no memory. */
int tw_pack_sort(int64_t n, uint64_t *keys, void *order, int64_t index_bytes, int known, int low, int high)
{
    return index_bytes == 4 ? sort(n, keys, order, known, low, high, 4) : sort(n, keys, order, known, low, high, 8);
}

/* ---- values: items of 4 or 8 bytes ---- */

#define ITEMS(T, body) { const T *in = values; T *const res = out; body }
#define BY_ITEM(body) if (item == 4) ITEMS(uint32_t, body) else ITEMS(uint64_t, body)

/* out[e] = values[order[e]] */
void tw_pack_gather(int64_t n, const void *order, int64_t index_bytes, const void *values, int64_t item, void *out)
{
    BY_ITEM(
        if (index_bytes == 4) for (int64_t e = 0; e < n; e++) res[e] = in[((const int32_t *)order)[e]];
        else for (int64_t e = 0; e < n; e++) res[e] = in[((const int64_t *)order)[e]];
    )
}

/* out[form(e)] = values[order[e]]; order NULL: values[e]; values NULL: the index itself plus one */
void tw_pack_scatter(int64_t n, const tw_pack_term *terms, int64_t count, const void *order, int64_t index_bytes,
                     const void *values, int64_t item, void *out)
{
    uint64_t at[CHUNK];
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        form(terms, count, lo, m, at);
        BY_ITEM(
            if (!order && in) for (int64_t e = 0; e < m; e++) res[at[e]] = in[lo + e];
            else for (int64_t e = 0; e < m; e++) {
                const int64_t from = order ? get(order, (int)index_bytes, lo + e) : lo + e;
                if (in) res[at[e]] = in[from]; else res[at[e]] = from + 1;
            }
        )
    }
}

/* out[p] = values[source[p] - 1], zero where source[p] is zero */
void tw_pack_refill(int64_t positions, const void *source, int64_t source_bytes, const void *values, int64_t item,
                    void *out)
{
    BY_ITEM(
        for (int64_t p = 0; p < positions; p++) {
            const int64_t from = get(source, (int)source_bytes, p);
            if (from) res[p] = in[from - 1]; else res[p] = 0;
        }
    )
}
