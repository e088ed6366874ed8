/* A SPADE-like accelerator, cycle-approximate, for tensorwise/device/spade.py, which says what is assumed and why.
 *
 * Time is kept in whole cycles, so that a run is the same everywhere. Processing elements (PEs) are advanced in turn to the
 * end of a slice of time, which is short beside a memory latency; what they share (L2, last-level cache, memory) sees
 * their accesses in that order. Caches are kept by rows of dense matrices, not by lines: all lines of a row are read
 * together and lie in neighbouring sets, so that each set of rows behaves as the sets of its lines do. The times of a
 * row are those of its first line; its others follow one a cycle.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define INLINE static inline __attribute__((always_inline))
#define AHEAD 4 /* entries */
#define QUEUE 64 /* most rows or operations in flight that a queue may hold */

/* The fields of a machine, in the order in which device/spade.py lists them. */
typedef struct {
    int64_t elements, cluster, line_bytes, registers, stations, operations, loads, sparse_loads, stores, arithmetic;
    int64_t l1_bytes, l1_ways, l1_cycles, buffer_lines, buffer_cycles, victim_bytes, victim_ways, victim_cycles;
    int64_t l2_bytes, l2_ways, l2_cycles, last_bytes, last_ways, last_cycles, memory_cycles, queue_cycles, rate, peak;
    int64_t tile_cycles, barrier_cycles, slice_cycles;
} tw_spade_machine; /* rate, peak: lines a cycle that memory gives at most, and in theory, times 65536 */

/* What is run: one pass over the tiles for dense rows of so many lines. */
typedef struct {
    int64_t sampled, lines, width, split, barrier, bypass, rows, columns, tiles, column_panels, written;
} tw_spade_run; /* sampled: SDDMM; width: all dense columns; written: whether an output has to be read before it is written */

enum { CYCLES, ENTRIES, OPERATIONS, REGISTER_HITS, L1_HITS, L2_HITS, LAST_HITS, BUFFER_HITS, VICTIM_HITS, ROW_READS, SPARSE_LINES,
       READ_LINES, WRITTEN_LINES, TILES, BARRIERS, COUNTERS };

/* Sets of tags, the latest first; a tag is (row + 1) << 1 | dirty, 0 where there is none. Sets lie `stride` tags apart and are
 * searched and moved along eight tags at a time. */
typedef struct { uint32_t sets, ways, stride; uint64_t magic; uint32_t *tags; } store;
#ifdef __AVX2__
typedef uint32_t lanes __attribute__((vector_size(32), aligned(4), may_alias));
typedef float floats __attribute__((vector_size(32)));
#endif

typedef struct {
    int64_t front, dispatched, chain, sparse_ready, last_store;
    int64_t loads[QUEUE], stations[QUEUE], stores[QUEUE], ahead[QUEUE], freed[QUEUE];
    int64_t at, end, tile, last_tile, reached; /* reached: the entry behind the last one, whose line is here */
    uint32_t load, station, stored, operation, group, left, row;
} element;

typedef struct {
    const tw_spade_machine *m;
    const tw_spade_run *r;
    const int32_t *row, *column, *sequence;
    const int64_t *start;
    const int32_t *place;
    const float *value, *first, *second;
    float *out;
    store *l1, *l2, *buffer, *victim, *registers, last;
    int64_t loads, stations, stores, groups; /* what queues hold, in rows, operations, rows and groups of 16 entries */
    int64_t used, backlog, room, queue;
    int64_t *counted;
} machine;

INLINE uint32_t *set_of(const store *s, uint32_t tag)
{
    const uint64_t low = s->magic * (tag >> 1); /* the remainder by multiplication: Lemire, Kaser and Kurz, 2019 */
    return s->tags + (uint64_t)(((unsigned __int128)low * s->sets) >> 64) * s->stride;
}

/* Which of a set's ways has a row; `ways` where none has it. */
INLINE uint32_t way_of(const uint32_t *set, uint32_t ways, uint32_t blocks, uint32_t tag)
{
#ifdef __AVX2__
    uint64_t met = UINT64_C(1) << ways;
    for (uint32_t block = 0; block < blocks; block++) {
        const lanes same = (((const lanes *)set)[block] | 1) == (tag | 1);
        met |= (uint64_t)(uint32_t)__builtin_ia32_movmskps256((floats)same) << 8 * block;
    }
    return (uint32_t)__builtin_ctzll(met);
#else
    uint32_t way = 0;
    while (way < ways && (set[way] ^ tag) > 1) way++;
    return way + 0 * blocks;
#endif
}

/* Make the tag that is at `way` of a set the first one, without a branch on where it was. */
INLINE void move_up(uint32_t *set, uint32_t way, uint32_t blocks, uint32_t tag)
{
#ifdef __AVX2__
    for (uint32_t block = blocks; block-- > 0;) {
        lanes *here = (lanes *)set + block;
        const lanes number = (lanes){0, 1, 2, 3, 4, 5, 6, 7} + 8 * block, moved = (lanes)(number <= way);
        *here = (*(const lanes *)(set + 8 * block - 1) & moved) | (*here & ~moved);
    }
#else
    for (uint32_t k = way; k > 0; k--) set[k] = set[k - 1];
    (void)blocks;
#endif
    set[0] = tag;
}

INLINE int touch_blocks(uint32_t *set, uint32_t ways, uint32_t blocks, uint32_t tag, uint32_t *evicted)
{
    const uint32_t way = way_of(set, ways, blocks, tag);
    const int found = way < ways;
    if (found) {
        tag |= set[way];
        *evicted = 0;
    } else {
        *evicted = set[ways - 1];
    }
    move_up(set, found ? way : ways - 1, blocks, tag);
    return found;
}

/* Look for a row and make it the latest. 1: it was there. 0: it was not, it is now, and *evicted has the tag that left. */
INLINE int touch(const store *s, uint32_t tag, uint32_t *evicted)
{
    if (!s->sets) {
        *evicted = tag;
        return 0;
    }
    uint32_t *set = set_of(s, tag);
    if ((set[0] ^ tag) <= 1) {
        set[0] |= tag;
        *evicted = 0;
        return 1;
    }
    switch (s->stride) { /* numbers that are known make loops short */
    case 8: return touch_blocks(set, s->ways, 1, tag, evicted);
    case 16: return touch_blocks(set, s->ways, 2, tag, evicted);
    case 24: return touch_blocks(set, s->ways, 3, tag, evicted);
    default: return touch_blocks(set, s->ways, s->stride / 8, tag, evicted);
    }
}

/* Take a row out. Returns its tag, 0 where it is not there. */
INLINE uint32_t take(const store *s, uint32_t tag)
{
    if (!s->sets) return 0;
    uint32_t *set = set_of(s, tag);
    uint32_t way = way_of(set, s->ways, s->stride / 8, tag);
    if (way == s->ways) return 0;
    const uint32_t found = set[way];
    for (; way + 1 < s->ways; way++) set[way] = set[way + 1];
    set[way] = 0;
    return found;
}

INLINE int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* Cycles until lines that are asked of memory now are here. */
INLINE int64_t from_memory(machine *s, int64_t lines)
{
    s->used += lines << 16;
    s->counted[READ_LINES] += lines;
    const int64_t over = s->backlog + s->used - s->room;
    return s->m->memory_cycles + s->queue + (over > 0 ? over / s->m->rate : 0);
}

INLINE void to_memory(machine *s)
{
    s->used += s->r->lines << 16;
    s->counted[WRITTEN_LINES] += s->r->lines;
}

static void written_back(machine *s, int64_t pe, int level, uint32_t tag)
{
    uint32_t evicted;
    if (level == 2) {
        if (!touch(&s->l2[pe / s->m->cluster], tag, &evicted) && evicted & 1) written_back(s, pe, 3, evicted);
    } else if (!touch(&s->last, tag, &evicted) && evicted & 1) {
        to_memory(s);
    }
}

/* Cycles until a row that goes through the caches is here. */
INLINE int64_t cached(machine *s, int64_t pe, uint32_t tag)
{
    const tw_spade_machine *m = s->m;
    const uint32_t clean = tag & ~1u;
    uint32_t evicted;
    if (touch(&s->l1[pe], tag, &evicted)) {
        s->counted[L1_HITS]++;
        return m->l1_cycles;
    }
    if (evicted & 1) written_back(s, pe, 2, evicted);
    if (touch(&s->l2[pe / m->cluster], clean, &evicted)) {
        s->counted[L2_HITS]++;
        return m->l2_cycles;
    }
    if (evicted & 1) written_back(s, pe, 3, evicted);
    if (touch(&s->last, clean, &evicted)) {
        s->counted[LAST_HITS]++;
        return m->last_cycles;
    }
    if (evicted & 1) to_memory(s);
    s->counted[ROW_READS]++;
    return from_memory(s, s->r->lines);
}

/* Cycles until a row that bypasses the caches is here: bypass buffer, then victim cache, then memory. */
INLINE int64_t bypassing(machine *s, int64_t pe, uint32_t tag)
{
    uint32_t evicted, gone;
    const uint32_t kept = take(&s->victim[pe], tag);
    const int hit = touch(&s->buffer[pe], tag | (kept & 1), &evicted);
    if (evicted && !touch(&s->victim[pe], evicted, &gone) && gone & 1) to_memory(s);
    if (hit) {
        s->counted[BUFFER_HITS]++;
        return s->m->buffer_cycles;
    }
    if (kept) {
        s->counted[VICTIM_HITS]++;
        return s->m->victim_cycles;
    }
    s->counted[ROW_READS]++;
    return from_memory(s, s->r->lines);
}

/* A row of the matrix that entries index by row: where it was computed or is read, by the way the program chose. */
INLINE int64_t row_access(machine *s, int64_t pe, uint32_t row, uint32_t dirty)
{
    const uint32_t tag = (uint32_t)(s->r->columns + row + 1) << 1 | dirty;
    return s->r->bypass ? bypassing(s, pe, tag) : cached(s, pe, tag);
}

/* The numbers: what the vector operations of one entry do, strip of columns after strip, lanes in order. */
static void compute(machine *s, int64_t at)
{
    const tw_spade_run *r = s->r;
    const int64_t place = s->place ? s->place[at] : at, row = s->row[at], column = s->column[at];
    const float value = s->value[place];
    if (!r->sampled) {
        const float *b = s->first + column * r->width;
        float *c = s->out + row * r->width;
        for (int64_t j = 0; j < r->width; j++) c[j] += value * b[j];
        return;
    }
    const float *b = s->first + row * r->width, *d = s->second + column * r->width;
    for (int64_t from = 0; from < r->width; from += r->split) {
        const int64_t end = from + r->split < r->width ? from + r->split : r->width;
        float lane[16] = {0}, sum = 0;
        for (int64_t k = from; k < end; k++) lane[(k - from) % 16] += b[k] * d[k];
        for (int k = 0; k < 16; k++) sum += lane[k];
        s->out[place] += value * sum;
    }
}

INLINE void push(int64_t *queue, uint32_t *at, int64_t size, int64_t time)
{
    queue[*at] = time;
    *at = *at + 1 == size ? 0 : *at + 1;
}

/* Lines of coordinates and values, 16 entries at a time; as many groups are ahead as the sparse load queue holds. */
INLINE void next_group(machine *s, element *p)
{
    const int64_t asked = p->freed[p->group];
    const int64_t lines = 3 + (s->r->sampled && s->r->written);
    s->counted[SPARSE_LINES] += lines;
    p->sparse_ready = asked + from_memory(s, lines);
    p->left = 16 - (uint32_t)(p->at & 15);
    if (s->r->sampled) { /* a line of values is written for 16 entries */
        s->used += 1 << 16;
        s->counted[WRITTEN_LINES]++;
    }
}

/* Finish the row that a PE works on: its registers go to the store queue. */
static void finish_row(machine *s, element *p, int64_t pe)
{
    if (p->row == UINT32_MAX || s->r->sampled) return;
    const int64_t asked = later(p->chain + s->m->arithmetic, p->stores[p->stored]);
    p->dispatched = later(p->dispatched, p->stores[p->stored]);
    p->last_store = asked + row_access(s, pe, p->row, 1);
    push(p->stores, &p->stored, s->stores, p->last_store);
}

/* Run a PE until its next operation would be dispatched at `until` or later, or its tiles are done. */
static void advance(machine *s, element *p, int64_t pe, int64_t until)
{
    const tw_spade_machine *m = s->m;
    const store *registers = &s->registers[pe];
    const int64_t lines = s->r->lines, apart = s->r->sampled ? 0 : later(m->arithmetic, lines);
    while (p->dispatched < until) {
        if (p->at == p->end) {
            if (p->tile == p->last_tile) return;
            const int64_t tile = s->sequence[p->tile++];
            p->at = s->start[tile];
            p->end = s->start[tile + 1];
            p->dispatched += m->tile_cycles;
            s->counted[TILES]++;
            if (p->at != p->reached) p->left = 0; /* another place in memory */
        }
        if (p->at + AHEAD < p->end) { /* the tags of large caches are far away themselves */
            const uint32_t soon = ((uint32_t)s->column[p->at + AHEAD] + 1) << 1;
            if (s->l2->sets) __builtin_prefetch(set_of(&s->l2[pe / m->cluster], soon), 1);
            if (s->last.sets) __builtin_prefetch(set_of(&s->last, soon), 1);
        }
        if (!p->left) next_group(s, p);
        const uint32_t row = (uint32_t)s->row[p->at], column = (uint32_t)s->column[p->at];
        p->front = later(later(p->front + 1, p->sparse_ready), p->ahead[p->operation]);
        int64_t dispatched = later(later(p->dispatched + lines, p->front), p->stations[p->station]);
        if (row != p->row) {
            p->dispatched = dispatched;
            finish_row(s, p, pe);
            dispatched = p->dispatched;
            const int64_t asked = later(dispatched, p->loads[p->load]);
            p->chain = asked + row_access(s, pe, row, 0);
            push(p->loads, &p->load, s->loads, p->chain);
            p->row = row;
        }
        int64_t ready = dispatched + 1;
        const uint32_t tag = (column + 1) << 1;
        uint32_t *held = set_of(registers, tag);
        if (*held == tag) {
            s->counted[REGISTER_HITS]++;
        } else {
            *held = tag;
            const int64_t asked = later(dispatched, p->loads[p->load]);
            ready = asked + cached(s, pe, tag);
            push(p->loads, &p->load, s->loads, ready);
        }
        ready = later(ready, p->chain);
        if (apart) p->chain = ready + apart;
        push(p->stations, &p->station, s->stations, ready + 1);
        push(p->ahead, &p->operation, m->operations, dispatched);
        p->dispatched = dispatched;
        p->last_store = later(p->last_store, ready + m->arithmetic);
        if (!--p->left) push(p->freed, &p->group, s->groups, p->front);
        if (s->out) compute(s, p->at);
        p->reached = ++p->at;
        s->counted[OPERATIONS] += lines;
        s->counted[ENTRIES]++;
    }
}

/* Memory at the end of a slice that took so many cycles: what is left over waits, and requests wait longer where it is busy. */
static void settle(machine *s, int64_t cycles, int64_t *load)
{
    const int64_t room = cycles * s->m->rate, peak = cycles * s->m->peak;
    const int64_t busy = s->used * 1024 / (peak > 0 ? peak : 1);
    *load = (*load + (busy < 973 ? busy : 973)) / 2;
    s->queue = s->m->queue_cycles * *load / (1024 - *load);
    s->backlog = later(0, s->backlog + s->used - room);
    s->used = 0;
}

static int64_t dirty_rows(const store *s)
{
    int64_t found = 0;
    for (uint32_t set = 0; set < s->sets; set++)
        for (uint32_t way = 0; way < s->ways; way++) found += s->tags[(uint64_t)set * s->stride + way] & 1;
    return found;
}

static void sized(store *s, int64_t rows, int64_t ways)
{
    s->ways = (uint32_t)(ways < rows ? ways : rows);
    s->sets = s->ways ? (uint32_t)(rows / s->ways) : 0;
    s->stride = (s->ways + 7) / 8 * 8;
    s->magic = s->sets ? UINT64_MAX / s->sets + 1 : 0;
}

/* Tile order: (row panel, column panel), rows in order inside. Returns the number of tiles, -1 without memory.
 * row and column: the entries, row by row; taken: so ordered, with their places, NULL where there is one column panel and they
 * are in this order; start, tile_row, tile_column: where each tile begins, and its panels. */
int64_t tw_spade_tiles(int64_t entries, const int32_t *row, const int32_t *column, int64_t row_panel, int64_t column_panel,
                       int64_t column_panels, int32_t *taken_row, int32_t *taken_column, int32_t *place, int64_t *start,
                       int32_t *tile_row, int32_t *tile_column)
{
    int64_t *count = calloc((size_t)column_panels, sizeof *count);
    uint64_t *met = calloc((size_t)(column_panels + 63) / 64, sizeof *met);
    int64_t tiles = 0;
    for (int64_t from = 0, end; count && met && from < entries; from = end) {
        const int32_t panel = (int32_t)(row[from] / row_panel);
        const int64_t beyond = (panel + INT64_C(1)) * row_panel;
        for (end = from; end < entries && row[end] < beyond; end++) {
            const int64_t c = column[end] / column_panel;
            count[c]++;
            met[c >> 6] |= UINT64_C(1) << (c & 63);
        }
        int64_t at = from;
        const int64_t first = tiles;
        for (int64_t word = 0; word < (column_panels + 63) / 64; word++)
            for (uint64_t bits = met[word]; bits; bits &= bits - 1) {
                const int64_t c = word * 64 + __builtin_ctzll(bits), here = count[c];
                start[tiles] = count[c] = at;
                tile_row[tiles] = panel;
                tile_column[tiles++] = (int32_t)c;
                at += here;
            }
        for (int64_t e = from; taken_row && e < end; e++) {
            const int64_t to = count[column[e] / column_panel]++;
            taken_row[to] = row[e];
            taken_column[to] = column[e];
            place[to] = (int32_t)e;
        }
        for (int64_t tile = first; tile < tiles; tile++) {
            count[tile_column[tile]] = 0;
            met[tile_column[tile] >> 6] = 0;
        }
    }
    start[tiles] = entries;
    if (!count || !met) tiles = -1;
    free(count);
    free(met);
    return tiles;
}

/* Sort tiles by key modulo `keys`, those of one key as they were. ends: keys + 1 numbers, scratch. */
static void by_key(int64_t tiles, const int32_t *from, int32_t *to, const int32_t *key, int64_t keys, int64_t *ends)
{
    memset(ends, 0, (size_t)(keys + 1) * sizeof *ends);
    for (int64_t t = 0; t < tiles; t++) ends[key[t] % keys + 1]++;
    for (int64_t k = 0; k < keys; k++) ends[k + 1] += ends[k];
    for (int64_t t = 0; t < tiles; t++) to[ends[key[from[t]] % keys]++] = from[t];
}

/* Run one pass. operands: (value, first, second, out), or NULL where no numbers are wanted: for SpMM the dense operand, NULL and
 * the result by rows; for SDDMM both dense operands by rows of `width` columns, and a number an entry.
 * Returns 0, or -1 without memory; counted has COUNTERS numbers. */
int64_t tw_spade_run_pass(const tw_spade_machine *m, const tw_spade_run *r, const int32_t *row, const int32_t *column,
                          const int32_t *place, const int64_t *start, const int32_t *tile_row, const int32_t *tile_column,
                          void *const *operands, int64_t *counted)
{
    machine s = {.m = m, .r = r, .row = row, .column = column, .place = place, .start = start, .counted = counted};
    if (operands) {
        s.value = operands[0], s.first = operands[1], s.second = operands[2], s.out = operands[3];
    }
    const int64_t pes = m->elements, clusters = (pes + m->cluster - 1) / m->cluster, row_bytes = r->lines * m->line_bytes;
    s.loads = later(1, m->loads / r->lines);
    s.stations = later(1, m->stations / r->lines);
    s.stores = later(1, m->stores / r->lines);
    s.groups = later(1, m->sparse_loads / 3);
    memset(counted, 0, COUNTERS * sizeof *counted);

    const int64_t stores = 4 * pes + clusters + 1;
    store *all = calloc((size_t)stores, sizeof *all);
    element *elements = calloc((size_t)pes, sizeof *elements);
    int32_t *order = malloc((size_t)(r->tiles + 1) * 2 * sizeof *order);
    int64_t *ends = malloc((size_t)(later(pes, r->column_panels) + 2) * sizeof *ends);
    uint32_t *tags = NULL;
    int64_t result = -1, tagged = 0;
    if (!all || !elements || !order || !ends) goto done;
    s.l1 = all, s.buffer = all + pes, s.victim = all + 2 * pes, s.registers = all + 3 * pes, s.l2 = all + 4 * pes;
    for (int64_t pe = 0; pe < pes; pe++) {
        sized(&s.l1[pe], m->l1_bytes / row_bytes, m->l1_ways);
        sized(&s.buffer[pe], later(1, m->buffer_lines / r->lines), m->buffer_lines);
        sized(&s.victim[pe], m->victim_bytes / row_bytes, m->victim_ways);
        sized(&s.registers[pe], later(1, m->registers / r->lines - 1), 1); /* one row is worked on */
    }
    for (int64_t c = 0; c < clusters; c++) sized(&s.l2[c], m->l2_bytes / row_bytes, m->l2_ways);
    sized(&all[stores - 1], m->last_bytes / row_bytes, m->last_ways);
    for (int64_t k = 0; k < stores; k++) tagged += (int64_t)all[k].sets * all[k].stride;
    tags = calloc((size_t)tagged + 8, sizeof *tags); /* what is before a set is read when it is moved along */
    if (!tags) goto done;
    for (int64_t k = 0, at = 8; k < stores; at += (int64_t)all[k].sets * all[k].stride, k++) all[k].tags = tags + at;
    s.last = all[stores - 1];

    /* Row panels go round the PEs. Without barriers a PE takes its panels one after the other; with barriers all PEs
     * take the tiles of one column panel before those of the next. */
    int32_t *sequence = order, *other = order + r->tiles + 1;
    for (int64_t t = 0; t < r->tiles; t++) other[t] = (int32_t)t;
    by_key(r->tiles, other, sequence, tile_row, pes, ends);
    if (r->barrier) {
        by_key(r->tiles, sequence, other, tile_column, r->column_panels, ends);
        sequence = other;
    }
    s.sequence = sequence;

    int64_t now = 0, load = 0, first = 0;
    for (int64_t pe = 0; pe < pes; pe++) elements[pe].row = UINT32_MAX;
    for (int64_t from = 0, end; from < r->tiles; from = end) {
        for (int64_t pe = 0; pe < pes; pe++) elements[pe].tile = elements[pe].last_tile = 0;
        for (end = from; end < r->tiles && !(r->barrier && tile_column[sequence[end]] != tile_column[sequence[from]]); end++) {
            element *p = &elements[tile_row[sequence[end]] % pes];
            if (!p->last_tile) p->tile = end;
            p->last_tile = end + 1;
        }
        for (int64_t pe = 0; pe < pes; pe++) {
            element *p = &elements[pe];
            p->front = p->dispatched = p->chain = p->last_store = p->sparse_ready = now;
            for (int64_t k = 0; k < s.groups; k++) p->freed[k] = now;
        }
        for (int active = 1; active;) { /* a slice of time */
            s.room = m->slice_cycles * m->rate;
            const int64_t until = now + m->slice_cycles;
            int64_t next = INT64_MAX;
            for (int64_t k = 0, pe = first; k < pes; k++, pe = pe + 1 == pes ? 0 : pe + 1) {
                element *p = &elements[pe];
                if (p->at == p->end && p->tile == p->last_tile) continue;
                advance(&s, p, pe, until);
                if (p->at < p->end || p->tile < p->last_tile) next = p->dispatched < next ? p->dispatched : next;
            }
            first = first + 1 == pes ? 0 : first + 1; /* nobody is always served first */
            active = next != INT64_MAX;
            settle(&s, (active ? next : until) - now, &load);
            now = active ? next : until;
        }
        now = 0;
        for (int64_t pe = 0; pe < pes; pe++) {
            finish_row(&s, &elements[pe], pe);
            elements[pe].row = UINT32_MAX;
            now = later(now, later(elements[pe].dispatched, later(elements[pe].chain, elements[pe].last_store)));
        }
        if (r->barrier) {
            now += m->barrier_cycles * pes;
            counted[BARRIERS]++;
        }
    }
    if (r->tiles) { /* write back and invalidate */
        int64_t rows = 0;
        for (int64_t k = 0; k < stores; k++) rows += dirty_rows(&all[k]);
        counted[WRITTEN_LINES] += rows * r->lines;
        now += (s.backlog + ((rows * r->lines) << 16)) / m->rate;
    }
    counted[CYCLES] = now;
    result = 0;
done:
    free(all);
    free(elements);
    free(order);
    free(ends);
    free(tags);
    return result;
}
