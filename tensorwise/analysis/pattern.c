/* What is counted in sparsity patterns, for tensorwise/analysis. One core; entries are sorted row-major, sizes and the
 * number of entries are below 2^31.
 *
 * Nothing here knows a feature. An entry *meets* a slot (a column, a group of columns, a diagonal) at a time (its row,
 * or its number). Two times lie in the same window of 2^a exactly when their exclusive or is below 2^a. So how many
 * meetings have `time ^ last time of the slot` of at least 2^a says, for every a at once, how many pairs of a window
 * and a slot there are: nonempty blocks of all heights, and distinct operands gathered by windows of all sizes.
 *
 * Work goes a chunk at a time, through simple loops that the compiler can vectorise or overlap. analysis/plain.py does
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
#define WAYS 4        /* tables that are incremented in turn: an increment would wait for the one before it; */
#define APART 16      /* numbers between them: a load seems to wait for a store 4096 bytes away */
#define NEVER (1 << 30) /* how far back a slot was met that was not met before */
#define SIDE 64       /* cells of the finest grid in a row */
#define GRID (SIDE * SIDE + APART)
#define GRIDS 4       /* grids of 64, 32, 16 and 8 cells in a row */
#define SHORT 1024    /* lengths below this are counted, longer ones are listed */
#define HEIGHTS 5     /* slices of 4, 8, 16, 32 and 64 rows */
#define PANEL 6       /* log2 of the rows of a panel, in which blocks and diagonals are counted or not */
#define HEAVY 8192    /* entries above which a panel is not counted as a whole, but */
#define STRIP 10      /* some strips of it, of so many columns (log2) */
#define GROUP 3       /* log2 of the rows that share dense columns */
#define SPARSE_MEETINGS 4 /* rows of a group that a column may meet before it counts as dense */
#define NARROW 3      /* groups of 2, 4 and 8 columns are met in the sample */
#define LINE 4        /* log2 of the columns that share a cache line, as floats do */

/* Which levels are counted of what: how many numbers are at least 2^a. Blocks: 1 to 16 rows; meetings: these, and bands of
   64 to 16384 rows; pieces of diagonals: 16 to 64 rows; crossings: a cache line, and strips of 64 to 8192 columns;
   offsets: 1, 16, 256 and 4096 columns; windows: 64, 1024 and 16384 entries. */
#define BLOCKS 5
#define MEETINGS 10
#define PIECES 3
#define CROSSINGS 9
#define OFFSETS 4
#define WINDOWS 3
static const uint8_t meetings[] = {0, 1, 2, 3, 4, 6, 8, 10, 12, 14}, pieces[] = {4, 5, 6},
                     crossings[] = {4, 6, 7, 8, 9, 10, 11, 12, 13}, offsets[] = {0, 4, 8, 12}, windows[] = {6, 10, 14};

/* NULL: no memory. A large table, which is accessed at random, lies in large pages where the system has them. */
static void *allocate(int64_t size)
{
#if defined(MADV_HUGEPAGE)
    const size_t page = (size_t)1 << 21, bytes = ((size_t)size + page - 1) / page * page;
    if (bytes >= 4 * page) {
        void *table = aligned_alloc(page, bytes);
        if (table) madvise(table, bytes, MADV_HUGEPAGE);
        return table;
    }
#endif
    return malloc((size_t)size);
}

/* ---- levels ---- */

typedef uint8_t bytes __attribute__((vector_size(32)));

/* out[l] += how many of x, which are not negative, are at least 2^level[l]. A float's exponent is the bit length, exact
   below 2^24; as bytes, many fit in a vector. Overwrites x from m to the end of the chunk. */
static void count_levels(int32_t *x, int64_t m, const uint8_t *level, int many, int64_t *out)
{
    uint8_t length[CHUNK];
    for (int64_t e = m; e < CHUNK; e++) x[e] = 0;
    for (int64_t e = 0; e < CHUNK; e++) {
        const union { float number; int32_t word; } as = {.number = (float)x[e]};
        length[e] = (uint8_t)(as.word >> 23); /* 127 for 1, 128 for 2 and 3, ... */
    }
    for (int l = 0; l < many; l++) {
        const bytes least = (bytes){0} + (uint8_t)(127 + level[l]);
        bytes reached = {0};
        uint8_t lanes[32];
        int64_t total = 0;
        for (int64_t e = 0; e < CHUNK; e += 32) {
            bytes some;
            memcpy(&some, length + e, sizeof some);
            reached -= (bytes)(some >= least);
        }
        memcpy(lanes, &reached, sizeof lanes);
        for (int k = 0; k < 32; k++) total += lanes[k];
        out[l] += total;
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
static void look_back(uint32_t *restrict kept, const uint32_t *restrict stamp, int64_t m, const uint8_t *level, int many,
                      int64_t *out)
{
    for (int64_t e = 0; e < m; e++) {
        const uint32_t back = (stamp[e] - 1) ^ (kept[e] - 1);
        kept[e] = back < NEVER ? back : NEVER;
    }
    count_levels((int32_t *)kept, m, level, many, out);
}

static void meet(const uint32_t *restrict slot, const uint32_t *restrict stamp, int64_t m, uint32_t *restrict last,
                 const uint8_t *level, int many, int64_t *out)
{
    uint32_t kept[CHUNK];
    for (int64_t e = 0; e < m; e++) {
        kept[e] = last[slot[e]];
        last[slot[e]] = stamp[e];
    }
    look_back(kept, stamp, m, level, many, out);
}

/* The same, with the number of meetings in the upper half. */
static void meet_and_count(const uint32_t *restrict slot, const uint32_t *restrict stamp, int64_t m,
                           uint64_t *restrict state, const uint8_t *level, int many, int64_t *out)
{
    uint32_t kept[CHUNK];
    for (int64_t e = 0; e < m; e++) {
        __builtin_prefetch(&state[slot[e + 24 < m ? e + 24 : m - 1]], 1); /* wide matrices do not fit the caches */
        const uint64_t s = state[slot[e]];
        kept[e] = (uint32_t)s;
        state[slot[e]] = (s >> 32 << 32) + ((uint64_t)1 << 32 | stamp[e]);
    }
    look_back(kept, stamp, m, level, many, out);
}

/* Meetings of slots that are met more than SPARSE_MEETINGS times by a group of rows. A slot keeps the number of the last group, and
   in four bits how often that group met it. */
static int64_t meet_in_groups(const uint32_t *restrict slot, const uint32_t *restrict row, int64_t m,
                              uint32_t *restrict state)
{
    uint32_t met[CHUNK];
    int32_t dense = 0;
    for (int64_t e = 0; e < m; e++) { /* no branches: which group it was cannot be foreseen */
        const uint32_t group = row[e] >> GROUP << 4, s = state[slot[e]], before = s > group ? s : group;
        met[e] = (before & 15) + 1;
        state[slot[e]] = before + ((before & 15) < 15);
    }
    for (int64_t e = 0; e < m; e++) dense += met[e] == SPARSE_MEETINGS + 1 ? SPARSE_MEETINGS + 1 : met[e] > SPARSE_MEETINGS;
    return dense;
}

/* ---- how long lines are ---- */

typedef struct {
    int64_t brief[SHORT]; /* how many lines have each length; those without entries are left out */
    int64_t listed;       /* how many are longer */
} spectrum;

/* Counts lines by length, lists those of SHORT and more in `lengthy`. `wide`: lengths are the upper halves of 64 bits, and
   most may be zero. */
INLINE void count_lengths(const void *lengths, int wide, int64_t count, spectrum *out, int64_t *lengthy)
{
    const uint64_t *upper = lengths;
    int64_t ways[WAYS][SHORT + APART] = {{0}};
    for (int64_t lo = 0, hi; lo < count; lo = hi) {
        uint64_t any = 1;
        hi = count - lo < 16 ? count : lo + 16;
        if (wide && hi == lo + 16) {
            any = 0;
            for (int64_t s = lo; s < lo + 16; s++) any |= upper[s];
        }
        for (int64_t s = lo; any && s < hi; s++) {
            const uint32_t l = wide ? (uint32_t)(upper[s] >> 32) : ((const uint32_t *)lengths)[s];
            if (l < SHORT) ways[s & (WAYS - 1)][l]++; else lengthy[out->listed++] = l;
        }
    }
    for (int w = 0; w < WAYS; w++) for (int l = 1; l < SHORT; l++) out->brief[l] += ways[w][l];
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

typedef struct { /* analysis/compiled.py has the same */
    int64_t own[HEIGHTS], sorted[HEIGHTS]; /* see tw_pattern_slices */
    int64_t crossings[CROSSINGS];          /* levels of column ^ the column before it in the row */
    int64_t offsets[OFFSETS];              /* levels of |row - column| */
    int64_t columns[MEETINGS], lines[MEETINGS]; /* meetings of columns, and of cache lines of columns */
    int64_t blocks[NARROW][BLOCKS];        /* meetings of groups of 2, 4 and 8 columns, in the sample */
    int64_t pieces[PIECES];                /* meetings of diagonals, there, too */
    int64_t sampled, dense; /* entries in the sample, and of these see meet_in_groups */
    int64_t span, runs;     /* sum of column - column before it in the row, and how many of these are 1 */
    int64_t below, above;   /* largest row - column and column - row */
    int64_t distance;       /* sum of |row - column| */
    int64_t filled[GRIDS];  /* how many cells of each grid have entries */
    int64_t bands[2][SIDE]; /* entries in each row and in each column of cells of the finest grid */
    spectrum row_lengths, column_lengths;
} counts;

typedef struct {
    int64_t n, rows, columns, skip;
    const uint32_t *row, *column;
    slots single, lines;                   /* of all entries: columns, and cache lines of them */
    slots groups[NARROW + 1], diagonals;   /* of the sampled ones: groups of 1, 2, 4 and 8 columns, and diagonals */
} matrix;

static void neighbours(const uint32_t *r, const uint32_t *c, int64_t m, int first, counts *out)
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
    count_levels((int32_t *)crossing, m, crossings, CROSSINGS, out->crossings);
    out->span += span;
    out->runs += runs;
}

static void distances(const uint32_t *r, const uint32_t *c, int64_t m, counts *out)
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
    count_levels(far, m, offsets, OFFSETS, out->offsets);
    out->distance += total;
    out->above = above > out->above ? above : out->above;
    out->below = below > out->below ? below : out->below;
}

/* Cell key * SIDE / keys: exact for up to 2^16 keys, for more of them but for rounding at the edges of cells. Keys are cut
   to 20 bits; the hundredth keeps those at an edge from being rounded below it. */
typedef struct { int shift; float factor; } scale;

static scale scale_for(int64_t keys)
{
    int shift = 0;
    while ((keys - 1) >> shift >= 1 << 20) shift++;
    return (scale){shift, (float)SIDE / (float)(((keys - 1) >> shift) + 1)};
}

INLINE int32_t cell(scale s, uint32_t key) { return (int32_t)(((float)(int32_t)(key >> s.shift) + 0x1p-7f) * s.factor); }

/* Counts the entries in each row and column of cells, and the filled cells of grids ever coarser; overwrites cells. */
static void coarsen(uint32_t *cells, counts *out)
{
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SIDE; c++) {
            out->bands[0][r] += cells[r * SIDE + c];
            out->bands[1][c] += cells[r * SIDE + c];
        }
    for (int g = 0, side = SIDE; g < GRIDS; g++, side /= 2) {
        int32_t filled = 0;
        for (int at = 0; at < side * side; at++) filled += cells[at] != 0;
        out->filled[g] = filled;
        for (int r = 0; r < side / 2; r++) { /* a cell covers four of the grid before */
            const uint32_t *here = cells + 2 * r * side, *below = here + side;
            for (int c = 0; c < side / 2; c++)
                cells[r * (side / 2) + c] = here[2 * c] | here[2 * c + 1] | below[2 * c] | below[2 * c + 1];
        }
    }
}

/* Words of the tables of `all_entries`. */
static int64_t all_words(const matrix *a) { return 2 * a->single.count + a->lines.count + WAYS * GRID; }

static void all_entries(const matrix *a, uint32_t *tables, int64_t *lengthy, counts *out)
{
    const scale tall = scale_for(a->rows), wide = scale_for(a->columns);
    uint64_t *by_column = memset(tables, 0, (size_t)all_words(a) * sizeof *tables);
    uint32_t *by_line = tables + 2 * a->single.count;
    uint32_t *cells = by_line + a->lines.count; /* a grid each way, as in `count_lengths` */
    for (int64_t lo = 0; lo < a->n; lo += CHUNK) {
        const int64_t m = a->n - lo < CHUNK ? a->n - lo : CHUNK;
        const uint32_t *r = a->row + lo, *c = a->column + lo;
        uint32_t slot[CHUNK], stamp[CHUNK];
        neighbours(r, c, m, lo == 0, out);
        distances(r, c, m, out);
        for (int64_t e = 0; e < m; e++) stamp[e] = r[e] + 1;
        place(a->single, c, m, slot);
        meet_and_count(slot, stamp, m, by_column, meetings, MEETINGS, out->columns);
        place(a->lines, c, m, slot);
        meet(slot, stamp, m, by_line, meetings, MEETINGS, out->lines);
        for (int64_t e = 0; e < m; e++) slot[e] = (uint32_t)(cell(tall, r[e]) * SIDE + cell(wide, c[e]));
        for (int64_t e = 0; e < m; e++) cells[(e & (WAYS - 1)) * GRID + slot[e]]++;
    }
    count_lengths(by_column, 1, a->single.count, &out->column_lengths, lengthy);
    for (int w = 1; w < WAYS; w++) for (int g = 0; g < SIDE * SIDE; g++) cells[g] += cells[w * GRID + g];
    coarsen(cells, out);
}

/* Gathers the sampled entries, so that chunks are full, and counts in them. */
typedef struct { uint32_t *by_group[NARROW + 1], *by_diagonal, row[CHUNK], column[CHUNK]; int64_t m; } sample;

/* Words of the tables of `some_panels`. */
static int64_t sample_words(const matrix *a)
{
    int64_t words = a->diagonals.count;
    for (int b = 0; b <= NARROW; b++) words += a->groups[b].count;
    return words;
}

static void count_sample(const matrix *a, sample *s, counts *out)
{
    uint32_t slot[CHUNK], stamp[CHUNK], diagonal[CHUNK];
    place(a->groups[0], s->column, s->m, slot);
    out->dense += meet_in_groups(slot, s->row, s->m, s->by_group[0]);
    for (int64_t e = 0; e < s->m; e++) stamp[e] = s->row[e] + 1;
    for (int b = 1; b <= NARROW; b++) {
        place(a->groups[b], s->column, s->m, slot);
        meet(slot, stamp, s->m, s->by_group[b], meetings, BLOCKS, out->blocks[b - 1]);
    }
    for (int64_t e = 0; e < s->m; e++) diagonal[e] = s->column[e] - s->row[e] + (uint32_t)(a->rows - 1);
    place(a->diagonals, diagonal, s->m, slot);
    meet(slot, stamp, s->m, s->by_diagonal, pieces, PIECES, out->pieces);
    out->sampled += s->m;
    s->m = 0;
}

/* One number in each `skip`, drawn by a hash; always 0. */
static int is_drawn(int64_t number, int64_t skip) { return number % skip == hash((uint64_t)(number / skip), 16) % skip; }

/* Counts in one of each `skip` panels that have entries; of heavy ones, in one of each `skip` strips. */
static void some_panels(const matrix *a, uint32_t *tables, int64_t rows, const uint32_t *id, const uint32_t *length,
                        counts *out)
{
    sample s = {.by_diagonal = memset(tables, 0, (size_t)sample_words(a) * sizeof *tables), .m = 0};
    tables += a->diagonals.count;
    for (int b = 0; b <= NARROW; tables += a->groups[b++].count) s.by_group[b] = tables;
    for (int64_t q = 0, e = 0, last = 0, panel = 0; e < a->n; panel++) {
        const uint32_t here = id[q] >> PANEL;
        while (q < rows && id[q] >> PANEL == here) last += length[q++];
        const int heavy = last - e > HEAVY;
        for (int64_t end; e < last; e = end) { /* a panel, or a row's entries in a strip */
            const uint32_t strip = heavy ? a->column[e] >> STRIP : 0;
            end = heavy ? e + 1 : last;
            while (end < last && a->column[end] >> STRIP == strip) end++;
            if (!is_drawn(panel + strip, a->skip)) continue;
            for (int64_t from = e, some; from < end; from += some) {
                some = end - from < CHUNK - s.m ? end - from : CHUNK - s.m;
                memcpy(s.row + s.m, a->row + from, (size_t)some * sizeof *s.row);
                memcpy(s.column + s.m, a->column + from, (size_t)some * sizeof *s.column);
                s.m += some;
                if (s.m == CHUNK) count_sample(a, &s, out);
            }
        }
    }
    count_sample(a, &s, out);
}

/* Counts in n > 0 entries of a rows x columns matrix. `pointers` may be NULL; blocks are counted in one of `skip` panels or strips;
   2^fold and 2^sample_fold slots are told apart, of all entries and of those; `lengthy` has room for 2 (n / SHORT + 1)
   lengths, of rows and from the middle of columns; `out` is zero. Returns 0, or -1: no memory. */
int64_t tw_pattern_matrix(int64_t n, const uint32_t *row, const uint32_t *column, const uint32_t *pointers, int64_t rows,
                          int64_t columns, int64_t fold, int64_t skip, int64_t sample_fold, int64_t *lengthy, counts *out)
{
    matrix a = {n, rows, columns, skip, row, column, slots_for(columns, 0, fold), slots_for(columns, LINE, fold)};
    for (int b = 0; b <= NARROW; b++) a.groups[b] = slots_for(columns, b, sample_fold);
    a.diagonals = slots_for(rows + columns - 1, 0, sample_fold);
    const int64_t all = all_words(&a), some = sample_words(&a), most = (rows < n ? rows : n) + 1;
    /* one piece of memory, used by one stage after the other: a fresh page costs as much as a hundred entries */
    uint32_t *tables = allocate((2 * most + (all > some ? all : some)) * (int64_t)sizeof *tables);
    if (!tables) return -1;
    uint32_t *id = tables + (all > some ? all : some), *length = id + most;
    const int64_t filled = nonempty(n, row, pointers, rows, id, length);
    count_lengths(length, 0, filled, &out->row_lengths, lengthy);
    out->below = out->above = INT32_MIN;
    some_panels(&a, tables, filled, id, length, out);
    all_entries(&a, tables, lengthy + n / SHORT + 1, out);
    tw_pattern_slices(filled, id, length, out->own, out->sorted);
    free(tables);
    return 0;
}

/* ---- tensors ---- */

/* Windows of n > 0 entries meet coordinates of one mode; `lengthy` has room for n / SHORT + 1 lengths. Returns how many
   entries repeat the coordinate before them, or -1: no memory. */
int64_t tw_pattern_mode(int64_t n, const uint32_t *coordinate, int64_t size, int64_t fold, int64_t *met, spectrum *out,
                        int64_t *lengthy)
{
    const slots single = slots_for(size, 0, fold);
    uint64_t *state = allocate(single.count * (int64_t)sizeof *state);
    int64_t repeats = 0;
    if (!state) return -1;
    memset(state, 0, (size_t)single.count * sizeof *state);
    for (int64_t e = 1; e < n; e++) repeats += coordinate[e] == coordinate[e - 1];
    for (int64_t lo = 0; lo < n; lo += CHUNK) {
        const int64_t m = n - lo < CHUNK ? n - lo : CHUNK;
        uint32_t slot[CHUNK], stamp[CHUNK];
        for (int64_t e = 0; e < m; e++) stamp[e] = (uint32_t)(lo + e) + 1;
        place(single, coordinate + lo, m, slot);
        meet_and_count(slot, stamp, m, state, windows, WINDOWS, met);
    }
    count_lengths(state, 1, single.count, out, lengthy);
    free(state);
    return repeats;
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
