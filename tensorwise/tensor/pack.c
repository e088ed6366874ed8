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

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops over a chunk scalar */
#endif

#define CHUNK 1024
#define INLINE static inline __attribute__((always_inline))

enum { BITS = 0, QUOTIENT = 1, REMAINDER = 2, INDEX = 3 };

typedef struct {
    const void *source;
    int64_t bytes;   /* of one element: 4 or 8 */
    int64_t kind;    /* BITS: (x >> a) & b; QUOTIENT: x / a; REMAINDER: x % a; INDEX: e, without a source */
    uint64_t a, b;
    uint64_t stride;
} tw_pack_term;

/* x / a by multiplication, exact for x < 2^32 and 1 < a < 2^32 (Lemire, Kaser and Kurz 2019) */
INLINE uint64_t quotient(uint64_t x, uint64_t a, uint64_t magic)
{
    return x >> 32 ? x / a : (uint64_t)(((unsigned __int128)magic * x) >> 64);
}

INLINE void term(const tw_pack_term *t, int64_t lo, int64_t n, int add, uint64_t *restrict out)
{
    const uint32_t *restrict s4 = t->bytes == 4 ? (const uint32_t *)t->source + lo : NULL;
    const uint64_t *restrict s8 = t->bytes == 8 ? (const uint64_t *)t->source + lo : NULL;
    const uint64_t a = t->a, b = t->b, stride = t->stride, magic = a ? UINT64_MAX / a + 1 : 0;
#define LOOP(x, value) for (int64_t e = 0; e < n; e++) { const uint64_t y = x, z = value; out[e] = add ? out[e] + z : z; }
#define EACH(value) if (s4) LOOP(s4[e], value) else LOOP(s8[e], value)
    if (t->kind == INDEX) LOOP((uint64_t)(lo + e), y * stride)
    else if (t->kind == QUOTIENT) { EACH(quotient(y, a, magic) * stride) }
    else if (t->kind == REMAINDER) { EACH((y - quotient(y, a, magic) * a) * stride) }
    else if (stride != 1) { EACH(((y >> a) & b) * stride) }
    else if (a || ~b) { EACH((y >> a) & b) }
    else { EACH(y) }
#undef EACH
#undef LOOP
}

static void form(const tw_pack_term *terms, int64_t count, int64_t lo, int64_t n, uint64_t *restrict out)
{
    if (count) term(terms, lo, n, 0, out);
    else memset(out, 0, (size_t)n * sizeof *out);
    for (int64_t t = 1; t < count; t++) term(terms + t, lo, n, 1, out);
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

/* The loop over entries has no branch: pos[p + 1] is where the last entry below p left off, and zero below
   empty parents until the last pass. */
INLINE int64_t compress(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                        int64_t parents, void *pos, int ib, void *crd, int cb, void *at)
{
    uint64_t p[CHUNK + 1], c[CHUNK + 1];
    int64_t stored = 0, total = 0;
    p[0] = c[0] = UINT64_MAX;
    memset(pos, 0, (size_t)(parents + 1) * (size_t)ib);
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        form(parent, parent_terms, lo, m, p + 1);
        form(coordinate, 1, lo, m, c + 1);
        if (!at) { /* the last level of all: each entry has a position of its own */
            for (int64_t e = 0; e < m; e++) put(crd, cb, lo + e, (int64_t)c[e + 1]);
            for (int64_t e = 0; e < m; e++) put(pos, ib, (int64_t)p[e + 1] + 1, lo + e + 1);
            stored = lo + m;
            continue;
        }
        const uint64_t last_p = p[m], last_c = c[m];
        for (int64_t e = 1; e <= m; e++) {
            const uint64_t parent_of_e = p[e];
            stored += (parent_of_e != p[e - 1]) | (c[e] != c[e - 1]);
            put(crd, cb, stored - 1, (int64_t)c[e]);
            put(pos, ib, (int64_t)parent_of_e + 1, stored);
            p[e - 1] = (uint64_t)stored - 1; /* no longer needed */
        }
        for (int64_t e = 0; e < m; e++) put(at, ib, lo + e, (int64_t)p[e]);
        p[0] = last_p;
        c[0] = last_c;
    }
    for (int64_t q = 1; q <= parents; q++) {
        const int64_t end = get(pos, ib, q);
        total = end > total ? end : total;
        put(pos, ib, q, total);
    }
    return stored;
}

/* Entries ascend by (parent, coordinate). Writes pos[parents + 1], crd and the position of each entry,
   NULL for the last level of a format; returns how many positions the level has. */
int64_t tw_pack_compress(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                         int64_t parents, void *pos, int64_t index_bytes, void *crd, int64_t crd_bytes, void *at)
{
#define CALL(ib, cb) return compress(n, parent, parent_terms, coordinate, parents, pos, ib, crd, cb, at)
    if (index_bytes == 4) { if (crd_bytes == 4) CALL(4, 4); CALL(4, 8); }
    if (crd_bytes == 4) CALL(8, 4);
    CALL(8, 8);
#undef CALL
}

/* ---- slots: the number of each entry within its row, and room for the longest row below each parent ---- */

/* at[e] = how many entries before e have the same key; count[keys] is zero before and the number of each key after. */
void tw_pack_rank(int64_t n, const tw_pack_term *key, void *count, int64_t index_bytes, void *at)
{
    uint64_t k[CHUNK];
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        form(key, 1, lo, m, k);
#define LOOP(ib) for (int64_t e = 0; e < m; e++) { \
        const int64_t before = get(count, ib, (int64_t)k[e]); \
        put(at, ib, lo + e, before); \
        put(count, ib, (int64_t)k[e], before + 1); }
        if (index_bytes == 4) LOOP(4) else LOOP(8)
#undef LOOP
    }
}

/* Writes pos[parents + 1], with as many positions below each parent as one more than its highest coordinate, and
   the position of each entry; entries come in any order. */
void tw_pack_slots(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                   int64_t parents, void *pos, int64_t index_bytes, void *at)
{
    uint64_t p[CHUNK], c[CHUNK];
    const int ib = (int)index_bytes;
    memset(pos, 0, (size_t)(parents + 1) * (size_t)ib);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t lo = 0; lo < n; lo += CHUNK) {
            const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
            form(parent, parent_terms, lo, m, p);
            form(coordinate, 1, lo, m, c);
            for (int64_t e = 0; e < m; e++) {
                const int64_t q = (int64_t)p[e] + 1 - pass, so_far = get(pos, ib, q);
                if (pass) put(at, ib, lo + e, so_far + (int64_t)c[e]);
                else if ((int64_t)c[e] >= so_far) put(pos, ib, q, (int64_t)c[e] + 1);
            }
        }
        if (!pass) {
            int64_t total = 0;
            for (int64_t q = 1; q <= parents; q++) put(pos, ib, q, total += get(pos, ib, q));
        }
    }
}

/* ---- grouping ---- */

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

#define FEW 128
#define FEW_BITS 7
typedef int32_t eight __attribute__((vector_size(32)));

/* out: x[0 .. n), n <= FEW distinct numbers, in ascending order: the rank of each is how many are smaller */
INLINE void sort_few(const int32_t *x, int64_t n, int32_t *out)
{
    for (int64_t at = 0; at < n; at += 8) {
        eight some, rank = {0, 0, 0, 0, 0, 0, 0, 0};
        memcpy(&some, x + at, sizeof some);
        for (int64_t i = 0; i < n; i++) {
            const int32_t y = x[i];
            const eight smaller = {y, y, y, y, y, y, y, y};
            rank -= smaller < some;
        }
        for (int64_t i = 0; i < 8 && at + i < n; i++) out[rank[i]] = some[i];
    }
}

/* A parent with few entries: sorts them, each with its number below the coordinate. at[e] is the coordinate of e and
   becomes its position. */
INLINE int64_t place_few(void *at, int ib, int64_t first, int64_t n, int32_t *crd, int64_t stored)
{
    int32_t keys[FEW + 8], sorted[FEW];
    int32_t last = -1;
    for (int64_t e = 0; e < n; e++) keys[e] = (int32_t)(get(at, ib, first + e) << FEW_BITS | e);
    for (int64_t e = n; e < n + 8; e++) keys[e] = 0;
    sort_few(keys, n, sorted);
    for (int64_t s = 0; s < n; s++) {
        const int32_t c = sorted[s] >> FEW_BITS;
        stored += c != last;
        crd[stored - 1] = last = c;
        put(at, ib, first + (sorted[s] & (FEW - 1)), stored - 1);
    }
    return stored;
}

/* A parent with many entries: numbers the distinct coordinates, sorts those, looks up each entry's.
   mark[c] <= start: c was not met below this parent yet; afterwards it is the position of c, plus one. */
INLINE int64_t place_many(void *at, int ib, int64_t first, int64_t n, int32_t *crd, int64_t start, void *mark,
                          bitset *set)
{
    int64_t stored = start, largest = -1;
    int ascending = 1;
    for (int64_t e = first; e < first + n; e++) {
        const int64_t x = get(at, ib, e), fresh = get(mark, ib, x) <= start;
        put(mark, ib, x, start + 1);
        crd[stored] = (int32_t)x;
        stored += fresh;
        ascending &= !fresh | (x > largest);
        largest = x > largest ? x : largest;
    }
    if (!ascending) {
        for (int64_t s = start; s < stored; s++) insert(set, (uint64_t)crd[s]);
        drain(set, set->height - 1, 0, crd + start);
    }
    for (int64_t s = start; s < stored; s++) put(mark, ib, crd[s], s + 1);
    for (int64_t e = first; e < first + n; e++) put(at, ib, e, get(mark, ib, get(at, ib, e)) - 1);
    return stored;
}

INLINE int64_t group(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                     int64_t parents, void *pos, int ib, int32_t *crd, void *at, int narrow, void *mark, bitset *set)
{
    uint64_t p[CHUNK], c[CHUNK], current = 0;
    int64_t stored = 0, filled = 1, first = 0;
    put(pos, ib, 0, 0);
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK, last = lo + m == n;
        form(parent, parent_terms, lo, m, p);
        form(coordinate, 1, lo, m, c);
        for (int64_t e = 0; e < m; e++) put(at, ib, lo + e, (int64_t)c[e]);
        for (int64_t e = 0; e < m + last; e++) {
            if (e < m && p[e] == current) continue;
            const int64_t here = lo + e - first;
            stored = narrow && here <= FEW ? place_few(at, ib, first, here, crd, stored)
                                           : place_many(at, ib, first, here, crd, stored, mark, set);
            first += here;
            if (e == m) break;
            current = p[e];
            while (filled <= (int64_t)current) put(pos, ib, filled++, stored);
        }
    }
    while (filled <= parents) put(pos, ib, filled++, stored);
    return stored;
}

/* As tw_pack_compress, for entries that ascend by parent only; extent < 2^31, crd is 32 bits wide and `at`
   is not NULL. Sorts the distinct coordinates below each parent instead of the entries. -1: no memory. */
int64_t tw_pack_group(int64_t n, const tw_pack_term *parent, int64_t parent_terms, const tw_pack_term *coordinate,
                      int64_t parents, int64_t extent, void *pos, int64_t index_bytes, void *crd, void *at)
{
    const int narrow = extent <= INT32_MAX >> FEW_BITS;
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
            ? group(n, parent, parent_terms, coordinate, parents, pos, 4, crd, at, narrow, mark, &set)
            : group(n, parent, parent_terms, coordinate, parents, pos, 8, crd, at, narrow, mark, &set);
    }
    free(words);
    free(mark);
    return stored;
}

/* ---- order ---- */

/* Digits of up to 10 bits when keys move alone, of 8 when an order moves too: what the first-level cache bears.
   Returns how many times keys and order changed sides. */
INLINE int sort(int64_t n, uint64_t *keys, uint64_t *keys2, void *order, void *order2, int known, int low, int high,
                int ib)
{
    const int bits = high - low, most = ib ? 8 : bits == 11 ? 11 : 10, passes = (bits + most - 1) / most;
    const int width = passes ? (bits + passes - 1) / passes : 0;
    if (ib && !known && !passes) for (int64_t e = 0; e < n; e++) put(order, ib, e, e);
    for (int d = 0; d < passes; d++) {
        const int shift = low + d * width, digit = high - shift < width ? high - shift : width;
        const uint64_t mask = ((uint64_t)1 << digit) - 1;
        int64_t next[1 << 11] = {0}, sum = 0;
        for (int64_t e = 0; e < n; e++) next[(keys[e] >> shift) & mask]++;
        for (uint64_t b = 0; b <= mask; b++) { const int64_t size = next[b]; next[b] = sum; sum += size; }
        for (int64_t e = 0; e < n; e++) {
            const uint64_t key = keys[e];
            const int64_t place = next[(key >> shift) & mask]++;
            keys2[place] = key;
            if (ib) put(order2, ib, place, known || d ? get(order, ib, e) : e);
        }
        uint64_t *keys_swap = keys; keys = keys2; keys2 = keys_swap;
        void *order_swap = order; order = order2; order2 = order_swap;
    }
    return passes;
}

/* Stable radix sort of keys by their bits [low, high). Unless index_bytes is 0, `order` moves along (known == 0:
   it starts as 0, 1, 2, ...). The result is in keys2 and order2 where the number returned is odd, otherwise in keys
   and order; the other two are overwritten. */
int tw_pack_sort(int64_t n, uint64_t *keys, uint64_t *keys2, void *order, void *order2, int64_t index_bytes, int known,
                 int low, int high)
{
    if (index_bytes == 0) return sort(n, keys, keys2, NULL, NULL, 0, low, high, 0);
    if (index_bytes == 4) return sort(n, keys, keys2, order, order2, known, low, high, 4);
    return sort(n, keys, keys2, order, order2, known, low, high, 8);
}

/* ---- values: items of 2, 4 or 8 bytes. `order` is one term, the entry that stands at e; `values` NULL stands for
   1, 2, 3, ... ---- */

#define BY_ITEM(body)                                                                      \
    if (item == 2) { const uint16_t *in = values; uint16_t *const res = out; body }        \
    else if (item == 4) { const uint32_t *in = values; uint32_t *const res = out; body }   \
    else { const uint64_t *in = values; uint64_t *const res = out; body }

/* out[e] = values[order(e)] */
void tw_pack_gather(int64_t n, const tw_pack_term *order, const void *values, int64_t item, void *out)
{
    uint64_t from[CHUNK];
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        form(order, 1, lo, m, from);
        BY_ITEM(
            if (in) for (int64_t e = 0; e < m; e++) res[lo + e] = in[from[e]];
            else for (int64_t e = 0; e < m; e++) res[lo + e] = from[e] + 1;
        )
    }
}

/* out[form(e)] = values[order(e)] */
void tw_pack_scatter(int64_t n, const tw_pack_term *terms, int64_t count, const tw_pack_term *order,
                     const void *values, int64_t item, void *out)
{
    uint64_t at[CHUNK], from[CHUNK];
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        form(terms, count, lo, m, at);
        form(order, 1, lo, m, from);
        BY_ITEM(
            if (in) for (int64_t e = 0; e < m; e++) res[at[e]] = in[from[e]];
            else for (int64_t e = 0; e < m; e++) res[at[e]] = from[e] + 1;
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
