/* What is counted in sparsity patterns, for tensorwise/features. One core; entries are sorted row-major, sizes and the
 * number of entries are below 2^31.
 *
 * Nothing here knows a feature. An entry *meets* a slot (a column, a group of columns, a diagonal) at a time (its row,
 * or its number). Two times lie in the same window of 2^a exactly when their exclusive or is below 2^a. So how many
 * meetings have `time ^ last time of the slot` of at least 2^a says, for every a at once, how many pairs of a window
 * and a slot there are: nonempty blocks of all heights, and distinct operands gathered by windows of all sizes.
 *
 * Work goes a chunk at a time, through simple loops that the compiler can vectorise or overlap. features/plain.py does
 * the same in NumPy, to the same integers.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* gcc's -O2 leaves the loops over a chunk scalar */
#endif

#define CHUNK 1024
#define INLINE static inline __attribute__((always_inline))
#define LEVELS 15     /* numbers are compared with 2^0, 2^1, ... 2^14 */
#define NEVER (1 << 30) /* how far back a slot was met that was not met before */
#define SIDE 256      /* cells of the finest grid in a row */
#define GRIDS 6       /* grids of 256, 128, 64, 32, 16 and 8 cells in a row */
#define KEPT 64       /* cells of the grid in a row that is kept */
#define SHORT 1024    /* lengths below this are counted, longer ones are listed */
#define HEIGHTS 5     /* slices of 4, 8, 16, 32 and 64 rows */
#define PANEL 6       /* log2 of the rows of a panel, in which blocks are counted or not */
#define GROUP 3       /* log2 of the rows that share dense columns */
#define MOST 4        /* rows of a group that a column may meet before it counts as dense */
#define NARROW 3      /* groups of 2, 4 and 8 columns are met in panels */
#define MIRRORED 1024 /* entries whose mirror image is looked for */
#define LINE 4        /* log2 of the columns that share a cache line, as floats do */

/* Zeros; NULL: no memory. Large tables, which are accessed at random, lie in large pages where the system has them. */
static void *zeroed(int64_t count, size_t item)
{
#if defined(MADV_HUGEPAGE)
    const size_t page = (size_t)1 << 21, bytes = ((size_t)count * item + page - 1) / page * page;
    if (bytes >= 4 * page) {
        void *table = aligned_alloc(page, bytes);
        if (!table) return NULL;
        madvise(table, bytes, MADV_HUGEPAGE);
        return memset(table, 0, bytes);
    }
#endif
    return calloc((size_t)count, item);
}

/* ---- levels ---- */

typedef uint8_t bytes __attribute__((vector_size(32)));

/* out[a] += how many of x, which are not negative, are at least 2^a. A float's exponent is the bit length, exact below
   2^24; as bytes, many fit in a vector. Overwrites x from m to the end of the chunk. */
static void count_levels(int32_t *x, int64_t m, int64_t *out)
{
    uint8_t length[CHUNK];
    for (int64_t e = m; e < CHUNK; e++) x[e] = 0;
    for (int64_t e = 0; e < CHUNK; e++) {
        const union { float number; int32_t word; } as = {.number = (float)x[e]};
        length[e] = (uint8_t)(as.word >> 23); /* 127 for 1, 128 for 2 and 3, ... */
    }
    for (int a = 0; a < LEVELS; a++) {
        const bytes least = (bytes){0} + (uint8_t)(127 + a);
        bytes reached = {0};
        uint8_t lanes[32];
        int64_t total = 0;
        for (int64_t e = 0; e < CHUNK; e += 32) {
            bytes some;
            memcpy(&some, length + e, sizeof some);
            reached -= (bytes)(some >= least);
        }
        memcpy(lanes, &reached, sizeof lanes);
        for (int l = 0; l < 32; l++) total += lanes[l];
        out[a] += total;
    }
}

/* ---- slots ---- */

/* Keys divided by 2^shift. Where more than 2^fold are left, they are told apart by a hash of `fold` bits only. */
typedef struct { int shift, fold, hashed; int64_t count; } slots;

static slots slots_for(int64_t keys, int shift, int64_t fold)
{
    const int64_t groups = ((keys - 1) >> shift) + 1;
    const int hashed = groups > (int64_t)1 << fold;
    return (slots){shift, (int)fold, hashed, hashed ? (int64_t)1 << fold : groups};
}

INLINE uint32_t hash(uint64_t key, int bits) { return (uint32_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits)); }

static void place(slots s, const uint32_t *restrict key, int64_t m, uint32_t *restrict out)
{
    if (s.hashed) for (int64_t e = 0; e < m; e++) out[e] = hash(key[e] >> s.shift, s.fold);
    else for (int64_t e = 0; e < m; e++) out[e] = key[e] >> s.shift;
}

/* ---- meetings. A slot keeps the stamp of the last one, which is its time plus one; zero: never met ---- */

/* From what the slots kept: how far back they were met, by exclusive or; counts the levels. */
static void look_back(uint32_t *restrict kept, const uint32_t *restrict stamp, int64_t m, int64_t *levels)
{
    for (int64_t e = 0; e < m; e++) {
        const uint32_t back = (stamp[e] - 1) ^ (kept[e] - 1);
        kept[e] = back < NEVER ? back : NEVER;
    }
    count_levels((int32_t *)kept, m, levels);
}

static void meet(const uint32_t *restrict slot, const uint32_t *restrict stamp, int64_t m, uint32_t *restrict last,
                 int64_t *levels)
{
    uint32_t kept[CHUNK];
    for (int64_t e = 0; e < m; e++) {
        kept[e] = last[slot[e]];
        last[slot[e]] = stamp[e];
    }
    look_back(kept, stamp, m, levels);
}

/* The same, with the number of meetings in the upper half. Returns how many were of a slot met one time before. */
static int64_t meet_and_count(const uint32_t *restrict slot, const uint32_t *restrict stamp, int64_t m,
                              uint64_t *restrict state, int64_t *levels)
{
    uint32_t kept[CHUNK];
    int32_t adjacent = 0;
    for (int64_t e = 0; e < m; e++) {
        __builtin_prefetch(&state[slot[e + 24 < m ? e + 24 : m - 1]], 1); /* wide matrices do not fit the caches */
        const uint64_t s = state[slot[e]];
        kept[e] = (uint32_t)s;
        state[slot[e]] = (s >> 32 << 32) + ((uint64_t)1 << 32 | stamp[e]);
    }
    for (int64_t e = 0; e < m; e++) adjacent += (kept[e] + 1 == stamp[e]) & (kept[e] != 0);
    look_back(kept, stamp, m, levels);
    return adjacent;
}

/* Meetings of slots that are met more than MOST times by a group of rows. A slot keeps the number of the group, plus
   one, and in three bits how often that group met it. */
static int64_t meet_in_groups(const uint32_t *restrict slot, const uint32_t *restrict row, int64_t m,
                              uint32_t *restrict state)
{
    uint32_t met[CHUNK];
    int32_t dense = 0;
    for (int64_t e = 0; e < m; e++) {
        const uint32_t s = state[slot[e]], group = ((row[e] >> GROUP) + 1) << 3;
        const uint32_t now = (s & ~7u) == group ? s + ((s & 7) < MOST + 2) : group + 1;
        met[e] = now & 7;
        state[slot[e]] = now;
    }
    for (int64_t e = 0; e < m; e++) dense += met[e] == MOST + 1 ? MOST + 1 : met[e] > MOST;
    return dense;
}

/* ---- how long lines are ---- */

typedef struct {
    int64_t brief[SHORT]; /* how many lines have each length; those without entries are left out */
    int64_t listed;       /* how many are longer */
    int64_t *lengthy;     /* the lengths of those; there is room for n / SHORT + 1 */
} tw_pattern_spectrum;

/* `wide`: the lengths are the upper halves of 64 bits, and most may be zero */
INLINE void spectrum(const void *lengths, int wide, int64_t count, tw_pattern_spectrum *out)
{
    const uint64_t *upper = lengths;
    int64_t ways[4][SHORT] = {{0}}; /* in turn: an increment would wait for the one before it */
    for (int64_t lo = 0, hi; lo < count; lo = hi) {
        uint64_t any = 1;
        hi = count - lo < 16 ? count : lo + 16;
        if (wide && hi == lo + 16) {
            any = 0;
            for (int64_t s = lo; s < lo + 16; s++) any |= upper[s];
        }
        for (int64_t s = lo; any && s < hi; s++) {
            const uint32_t l = wide ? (uint32_t)(upper[s] >> 32) : ((const uint32_t *)lengths)[s];
            if (l < SHORT) ways[s & 3][l]++; else out->lengthy[out->listed++] = l;
        }
    }
    for (int w = 0; w < 4; w++) for (int l = 1; l < SHORT; l++) out->brief[l] += ways[w][l];
}

/* The rows that have entries, ascending, and their lengths; returns how many they are. `pointers` may be NULL. */
static int64_t nonempty(int64_t n, const uint32_t *row, const uint32_t *pointers, int64_t rows, uint32_t *id,
                        uint32_t *length)
{
    int64_t at = 0;
    if (pointers) {
        for (int64_t q = 0; q < rows && at < n; q++) {
            id[at] = (uint32_t)q;
            length[at] = pointers[q + 1] - pointers[q];
            at += length[at] != 0;
        }
        return at;
    }
    for (int64_t e = 0; e < n; e++) {
        at += e && row[e] != row[e - 1];
        id[at] = row[e];
        length[at] = (uint32_t)e + 1; /* where it ends, for now */
    }
    for (int64_t q = at; q > 0; q--) length[q] -= length[q - 1];
    return at + 1;
}

/* ---- matrices ---- */

void tw_pattern_slices(int64_t rows, uint32_t *id, uint32_t *length, int64_t *own, int64_t *sorted); /* pattern_slices.c */

typedef struct {
    int64_t own[HEIGHTS], sorted[HEIGHTS]; /* see tw_pattern_slices */
    int64_t crossings[LEVELS];  /* entries whose column ^ the column before it in the row is at least 2^b */
    int64_t offsets[LEVELS];    /* entries whose |row - column| is at least 2^a */
    int64_t columns[LEVELS], lines[LEVELS]; /* meetings of columns, and of cache lines of columns */
    int64_t blocks[NARROW][LEVELS];         /* meetings of groups of 2, 4 and 8 columns, in the sampled panels */
    int64_t pieces[LEVELS];     /* meetings of diagonals, there, too */
    int64_t sampled, dense;     /* entries in the sampled panels, and of these see meet_in_groups */
    int64_t span, runs;         /* sum of column - column before it in the row, and how many of these are 1 */
    int64_t below, above;       /* largest row - column and column - row */
    int64_t distance;           /* sum of |row - column| */
    int64_t adjacent;           /* entries whose column is in the row before, too */
    int64_t mirrored;           /* of MIRRORED entries (or all) those whose mirror image is an entry, too */
    tw_pattern_spectrum row_lengths, column_lengths, diagonal_lengths;
    int64_t filled[GRIDS];      /* how many cells of each grid have entries */
    int64_t grid[KEPT * KEPT];  /* entries in each cell of one grid */
} tw_pattern_counts;

typedef struct { int64_t n, rows, columns, fold, skip; const uint32_t *row, *column; } matrix;

static void neighbours(const uint32_t *r, const uint32_t *c, int64_t m, int first, tw_pattern_counts *out)
{
    uint32_t crossing[CHUNK];
    int64_t span = 0;
    int32_t runs = 0;
    crossing[0] = 0;
    for (int64_t e = first; e < m; e++) { /* the first of all has none before it */
        const uint32_t same = r[e] == r[e - 1] ? UINT32_MAX : 0, gap = (c[e] - c[e - 1]) & same;
        crossing[e] = (c[e] ^ c[e - 1]) & same;
        runs += gap == 1;
        span += gap;
    }
    count_levels((int32_t *)crossing, m, out->crossings);
    out->span += span;
    out->runs += runs;
}

static void distances(const uint32_t *r, const uint32_t *c, int64_t m, tw_pattern_counts *out)
{
    int32_t below = INT32_MIN, above = INT32_MIN, far[CHUNK];
    int64_t total = 0;
    for (int64_t e = 0; e < m; e++) {
        const int32_t x = (int32_t)(c[e] - r[e]);
        above = x > above ? x : above;
        below = -x > below ? -x : below;
        far[e] = x < 0 ? -x : x;
    }
    for (int64_t e = 0; e < m; e++) total += far[e];
    count_levels(far, m, out->offsets);
    out->distance += total;
    out->above = above > out->above ? above : out->above;
    out->below = below > out->below ? below : out->below;
}

/* The cell that the middle of a key lies in, for keys shortened to 20 bits. */
typedef struct { int shift; float factor; } scale;

static scale scale_for(int64_t keys)
{
    int shift = 0;
    while ((keys - 1) >> shift >= 1 << 20) shift++;
    return (scale){shift, (float)SIDE / (float)(((keys - 1) >> shift) + 1)};
}

INLINE int32_t cell(scale s, uint32_t key) { return (int32_t)(((float)(int32_t)(key >> s.shift) + 0.5f) * s.factor); }

/* Counts the filled cells of the finest grid and those of which one covers four of the one before; overwrites cells. */
static void coarsen(uint32_t *cells, tw_pattern_counts *out)
{
    for (int g = 0, side = SIDE; g < GRIDS; g++, side /= 2) {
        int32_t filled = 0;
        for (int at = 0; at < side * side; at++) filled += cells[at] != 0;
        out->filled[g] = filled;
        if (side == KEPT) for (int at = 0; at < KEPT * KEPT; at++) out->grid[at] = cells[at];
        for (int r = 0; r < side / 2; r++) {
            const uint32_t *here = cells + 2 * r * side, *below = here + side;
            for (int c = 0; c < side / 2; c++)
                cells[r * (side / 2) + c] = here[2 * c] + here[2 * c + 1] + below[2 * c] + below[2 * c + 1];
        }
    }
}

static int all_entries(const matrix *a, tw_pattern_counts *out)
{
    const slots single = slots_for(a->columns, 0, a->fold), lines = slots_for(a->columns, LINE, a->fold);
    const scale tall = scale_for(a->rows), wide = scale_for(a->columns);
    uint64_t *by_column = zeroed(single.count, sizeof *by_column);
    uint32_t *by_line = zeroed(lines.count, sizeof *by_line);
    uint32_t *cells = calloc(2 * SIDE * SIDE, sizeof *cells); /* in turn, as in `spectrum` */
    const int able = by_column && by_line && cells;
    for (int64_t lo = 0; able && lo < a->n; lo += CHUNK) {
        const int64_t m = a->n - lo < CHUNK ? a->n - lo : CHUNK;
        const uint32_t *r = a->row + lo, *c = a->column + lo;
        uint32_t slot[CHUNK], stamp[CHUNK];
        neighbours(r, c, m, lo == 0, out);
        distances(r, c, m, out);
        for (int64_t e = 0; e < m; e++) stamp[e] = r[e] + 1;
        place(single, c, m, slot);
        out->adjacent += meet_and_count(slot, stamp, m, by_column, out->columns);
        place(lines, c, m, slot);
        meet(slot, stamp, m, by_line, out->lines);
        for (int64_t e = 0; e < m; e++) slot[e] = (uint32_t)(cell(tall, r[e]) * SIDE + cell(wide, c[e]));
        for (int64_t e = 0; e < m; e++) cells[(e & 1) * SIDE * SIDE + slot[e]]++;
    }
    if (able) {
        spectrum(by_column, 1, single.count, &out->column_lengths);
        for (int64_t g = 0; g < SIDE * SIDE; g++) cells[g] += cells[SIDE * SIDE + g];
        coarsen(cells, out);
    }
    free(by_column);
    free(by_line);
    free(cells);
    return able;
}

/* Of each `skip` panels one, drawn by a hash of their number. */
static int is_sampled(const matrix *a, uint32_t panel)
{
    const int64_t panels = ((a->rows - 1) >> PANEL) + 1, first = panel / a->skip * a->skip;
    const int64_t among = panels - first < a->skip ? panels - first : a->skip;
    return panel == first + hash((uint64_t)(first / a->skip), 16) % among;
}

/* Gathers the entries of sampled panels, so that chunks are full, and counts in them. */
typedef struct {
    slots groups[NARROW + 1], diagonals;
    uint32_t *state[NARROW + 1], row[CHUNK], column[CHUNK];
    uint64_t *by_diagonal;
    int64_t m;
} sample;

static void count_sample(const matrix *a, sample *s, tw_pattern_counts *out)
{
    uint32_t slot[CHUNK], stamp[CHUNK], diagonal[CHUNK];
    place(s->groups[0], s->column, s->m, slot);
    out->dense += meet_in_groups(slot, s->row, s->m, s->state[0]);
    for (int64_t e = 0; e < s->m; e++) stamp[e] = s->row[e] + 1;
    for (int b = 1; b <= NARROW; b++) {
        place(s->groups[b], s->column, s->m, slot);
        meet(slot, stamp, s->m, s->state[b], out->blocks[b - 1]);
    }
    for (int64_t e = 0; e < s->m; e++) diagonal[e] = s->column[e] - s->row[e] + (uint32_t)(a->rows - 1);
    place(s->diagonals, diagonal, s->m, slot);
    meet_and_count(slot, stamp, s->m, s->by_diagonal, out->pieces);
    out->sampled += s->m;
    s->m = 0;
}

static int some_panels(const matrix *a, int64_t rows, const uint32_t *id, const uint32_t *length,
                       tw_pattern_counts *out)
{
    sample s = {.diagonals = slots_for(a->rows + a->columns - 1, 0, a->fold), .m = 0};
    int able = (s.by_diagonal = zeroed(s.diagonals.count, sizeof *s.by_diagonal)) != NULL;
    for (int b = 0; b <= NARROW; b++) {
        s.groups[b] = slots_for(a->columns, b, a->fold);
        able &= (s.state[b] = zeroed(s.groups[b].count, sizeof **s.state)) != NULL;
    }
    for (int64_t q = 0, e = 0, end = 0; able && q < rows; e = end) {
        const uint32_t panel = id[q] >> PANEL;
        for (; q < rows && id[q] >> PANEL == panel; q++) end += length[q];
        if (!is_sampled(a, panel)) continue;
        for (int64_t some; e < end; e += some) {
            some = end - e < CHUNK - s.m ? end - e : CHUNK - s.m;
            memcpy(s.row + s.m, a->row + e, (size_t)some * sizeof *s.row);
            memcpy(s.column + s.m, a->column + e, (size_t)some * sizeof *s.column);
            s.m += some;
            if (s.m == CHUNK) count_sample(a, &s, out);
        }
    }
    if (able) {
        count_sample(a, &s, out);
        spectrum(s.by_diagonal, 1, s.diagonals.count, &out->diagonal_lengths);
    }
    free(s.by_diagonal);
    for (int b = 0; b <= NARROW; b++) free(s.state[b]);
    return able;
}

static int64_t mirrored(const matrix *a)
{
    const int64_t looked = a->n < MIRRORED ? a->n : MIRRORED;
    int64_t found = 0;
    for (int64_t s = 0; s < looked; s++) {
        const int64_t e = s * a->n / looked;
        const uint64_t image = (uint64_t)a->column[e] << 32 | a->row[e];
        int64_t low = 0, high = a->n; /* the image is in [low, high), or nowhere */
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            const int right = ((uint64_t)a->row[middle] << 32 | a->column[middle]) <= image;
            low = right ? middle : low;
            high = right ? high : middle;
        }
        found += ((uint64_t)a->row[low] << 32 | a->column[low]) == image;
    }
    return found;
}

/* Counts in n > 0 entries of a rows x columns matrix; `pointers` may be NULL, blocks are counted in one of `skip` panels,
   `out` is zero but for its addresses. Returns 0, or -1: no memory. */
int64_t tw_pattern_matrix(int64_t n, const uint32_t *row, const uint32_t *column, const uint32_t *pointers, int64_t rows,
                      int64_t columns, int64_t fold, int64_t skip, tw_pattern_counts *out)
{
    const matrix a = {n, rows, columns, fold, skip, row, column};
    const size_t most = (size_t)(rows < n ? rows : n) + 1;
    uint32_t *id = malloc(most * sizeof *id), *length = malloc(most * sizeof *length);
    int able = id && length;
    if (able) {
        const int64_t filled = nonempty(n, row, pointers, rows, id, length);
        spectrum(length, 0, filled, &out->row_lengths);
        out->below = out->above = INT32_MIN;
        able = some_panels(&a, filled, id, length, out) && all_entries(&a, out);
        out->mirrored = mirrored(&a);
        tw_pattern_slices(filled, id, length, out->own, out->sorted);
    }
    free(id);
    free(length);
    return able ? 0 : -1;
}

/* ---- tensors ---- */

/* One mode of n > 0 entries: jumps are |coordinate - the one before|, times the numbers of the entries. -1: no memory */
int64_t tw_pattern_mode(int64_t n, const uint32_t *coordinate, int64_t size, int64_t fold, int64_t *jumps, int64_t *meetings,
                    tw_pattern_spectrum *out)
{
    const slots single = slots_for(size, 0, fold);
    uint64_t *state = zeroed(single.count, sizeof *state);
    for (int64_t lo = 0; state && lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        const uint32_t *c = coordinate + lo;
        uint32_t slot[CHUNK], stamp[CHUNK];
        int32_t jump[CHUNK];
        jump[0] = 0;
        for (int64_t e = lo == 0; e < m; e++) {
            const int32_t x = (int32_t)(c[e] - c[e - 1]);
            jump[e] = x < 0 ? -x : x;
        }
        count_levels(jump, m, jumps);
        for (int64_t e = 0; e < m; e++) stamp[e] = (uint32_t)(lo + e) + 1;
        place(single, c, m, slot);
        meet_and_count(slot, stamp, m, state, meetings);
    }
    if (state) spectrum(state, 1, single.count, out);
    free(state);
    return state ? 0 : -1;
}

/* How many slots are met by pairs (a, b), both divided by 2^shift: 2^bits slots that a hash chooses, or one for each of
   fewer pairs. sizes: of the two modes. -1: no memory */
int64_t tw_pattern_pairs(int64_t n, const uint32_t *a, const uint32_t *b, int64_t size_a, int64_t size_b, int64_t shift,
                         int64_t bits, int64_t hashed)
{
    const uint64_t tall = (uint64_t)((size_a - 1) >> shift) + 1, wide = (uint64_t)((size_b - 1) >> shift) + 1;
    const uint64_t words = ((hashed ? (uint64_t)1 << bits : tall * wide) >> 6) + 1;
    uint64_t *met = calloc(words, sizeof *met);
    int64_t found = 0;
    if (!met) return -1;
    for (int64_t e = 0; e < n; e++) {
        const uint64_t key = (a[e] >> shift) * wide + (b[e] >> shift), s = hashed ? hash(key, (int)bits) : key;
        met[s >> 6] |= (uint64_t)1 << (s & 63);
    }
    for (uint64_t w = 0; w < words; w++) found += __builtin_popcountll(met[w]);
    free(met);
    return found;
}
