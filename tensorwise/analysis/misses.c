/* Caches along the executions of a leaf, for tensorwise/analysis/misses.py: which lines they miss.
 *
 * Places are in bytes, times 2**FINER: the mean step of a loop may be a part of a byte.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define FINER 8
#define LINE 6
#define PAGE 12
#define WAYS 8
#define NEAR 2 /* lines from one miss to the next that any prefetcher foresees */
#define FAR 64 /* lines within which it foresees equal steps */
#define SLOTS 10 /* of an access, to know what a stretch has touched: 2**SLOTS */

enum { FIRST, FIRST_FAR, FIRST_WRITTEN, CONFLICT, CONFLICT_WRITTEN, SECOND, SECOND_FAR, SECOND_WRITTEN, SECOND_CONFLICT, PAGES,
       FAR_PAGES, SHARED, COUNTED };

typedef struct { int64_t *held, sets; } cache; /* of each set its ways, the last one used first; 0: nothing */
typedef struct { int64_t last, step; } stream; /* of an access the last line that missed, and from the one before how far */
typedef struct { int64_t grain, stretch; } touch; /* in which stretch a grain was touched last */

INLINE uint64_t mixed(int64_t line) { return (uint64_t)line * UINT64_C(0x9E3779B97F4A7C15); }

/* Whether a cache misses a line that belongs to a set; it holds it afterwards. */
INLINE int misses_of(const cache *c, uint64_t set, int64_t line)
{
    int64_t *held = c->held + (int64_t)(set & (uint64_t)(c->sets - 1)) * WAYS, before = ++line; /* 0 is nothing */
    for (int way = 0; way < WAYS; way++) {
        const int64_t other = held[way];
        held[way] = before;
        if (other == line) return 0;
        before = other;
    }
    return 1;
}

INLINE int misses(const cache *c, int64_t line) { return misses_of(c, (uint64_t)line, line); }

/* The same of a cache in which hardly any lines meet: it chooses sets as if by lot. */
INLINE int misses_apart(const cache *c, int64_t line) { return misses_of(c, mixed(line) >> 32, line); }

INLINE int unforeseen(stream *s, int64_t line)
{
    const int64_t step = line - s->last, same = step == s->step;
    s->last = line;
    s->step = step;
    return !(step && step >= -NEAR && step <= NEAR) && !(same && step >= -FAR && step <= FAR);
}

/* extents: of loops, outermost first. first, bytes, writes: of accesses: where the first execution touches, how much, whether it
 * is written. steps: of each loop, of each access. Runs `window` executions from each of `starts`, of which the first `warm` are
 * not counted; in `stretch` executions each access touches each of its `grains`, of so many bytes, once. apart: how far from it
 * another thread is, 0: nowhere. found: COUNTED numbers. Returns 0, -1 without memory. */
int64_t tw_misses_leaf(int64_t loops, const int64_t *extents, int64_t accesses, const int64_t *first, const int64_t *bytes,
                       const int64_t *writes, const int64_t *steps, int64_t windows, const int64_t *starts, int64_t window,
                       int64_t warm, int64_t stretch, const int64_t *grains, const int64_t *apart, int64_t *found)
{
    /* 32 KiB and 1 MiB of lines, 64 and 2048 pages; and the lines again, where they do not meet */
    static const int64_t sets[6] = {64, 2048, 8, 256, 64, 2048};
    int64_t all = 0, failed = -1;
    for (int k = 0; k < 6; k++) all += sets[k] * WAYS;
    int64_t *held = calloc((size_t)all, sizeof *held), *at = malloc((size_t)(loops + 1) * sizeof *at);
    int64_t *place = malloc((size_t)(2 * accesses + 1) * sizeof *place), *before = place + accesses;
    stream *streams = calloc((size_t)(2 * accesses + 1), sizeof *streams);
    touch *touched = calloc((size_t)(accesses << SLOTS) + 1, sizeof *touched);
    memset(found, 0, COUNTED * sizeof *found);
    if (!held || !at || !place || !streams || !touched) goto done;
    failed = 0;
    cache caches[6];
    for (int k = 0, from = 0; k < 6; from += sets[k++] * WAYS) caches[k] = (cache){held + from, sets[k]};
    for (int64_t w = 0; w < windows; w++) {
        int64_t rest = starts[w];
        for (int64_t a = 0; a < accesses; a++) place[a] = first[a], before[a] = -1;
        for (int64_t k = loops - 1; k >= 0; rest /= extents[k--]) {
            at[k] = rest % extents[k];
            for (int64_t a = 0; a < accesses; a++) place[a] += at[k] * steps[k * accesses + a];
        }
        for (int64_t run = 0; run < window; run++) {
            const int64_t counts = run >= warm, now = 1 + (starts[w] + run) / stretch;
            for (int64_t a = 0; a < accesses; a++) {
                const int64_t byte = place[a] >> FINER, end = (byte + bytes[a] - 1) >> LINE, grain = byte / grains[a];
                if (stretch > 1 && bytes[a] <= grains[a]) {
                    touch *one = touched + (a << SLOTS) + (int64_t)(mixed(grain) >> (64 - SLOTS));
                    if (one->grain == grain && one->stretch == now) continue;
                    *one = (touch){grain, now};
                }
                found[SHARED] += counts & writes[a] & (apart[a] && (byte + apart[a]) >> LINE == byte >> LINE);
                for (int64_t line = byte >> LINE; line <= end; line++) {
                    if (line == before[a]) continue;
                    before[a] = line;
                    if (misses(caches + 2, line >> (PAGE - LINE))) {
                        found[PAGES] += counts;
                        found[FAR_PAGES] += counts & misses(caches + 3, line >> (PAGE - LINE));
                    }
                    const int64_t fetched = misses_apart(caches + 4, line), far = fetched && misses_apart(caches + 5, line);
                    if (!misses(caches, line)) continue;
                    found[FIRST] += counts;
                    found[FIRST_FAR] += counts & unforeseen(streams + 2 * a, line);
                    found[FIRST_WRITTEN] += counts & writes[a];
                    found[CONFLICT] += counts & !fetched;
                    found[CONFLICT_WRITTEN] += counts & !fetched & writes[a];
                    if (!misses(caches + 1, line)) continue;
                    found[SECOND] += counts;
                    found[SECOND_FAR] += counts & unforeseen(streams + 2 * a + 1, line);
                    found[SECOND_WRITTEN] += counts & writes[a];
                    found[SECOND_CONFLICT] += counts & !far;
                }
            }
            for (int64_t k = loops - 1; k >= 0; k--) {
                const int64_t *step = steps + k * accesses;
                if (++at[k] < extents[k]) {
                    for (int64_t a = 0; a < accesses; a++) place[a] += step[a];
                    break;
                }
                at[k] = 0;
                for (int64_t a = 0; a < accesses; a++) place[a] -= (extents[k] - 1) * step[a];
            }
        }
    }
done:
    free(held), free(at), free(place), free(streams), free(touched);
    return failed;
}
