/* Caches along the executions of a leaf, for tensorwise/features/misses.py: which lines they miss.
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

enum { FIRST, FIRST_FAR, SECOND, SECOND_FAR, WRITTEN, PAGES, FAR_PAGES, COUNTED };

typedef struct { int64_t *held, sets; } cache; /* of each set its ways, the last one used first; 0: nothing */
typedef struct { int64_t last, step; } stream; /* of an access the last line that missed, and from the one before how far */

/* Whether a cache misses a line; it holds it afterwards. */
INLINE int misses(const cache *c, int64_t line)
{
    int64_t *held = c->held + (line & (c->sets - 1)) * WAYS, before = ++line; /* 0 is nothing */
    for (int way = 0; way < WAYS; way++) {
        const int64_t other = held[way];
        held[way] = before;
        if (other == line) return 0;
        before = other;
    }
    return 1;
}

INLINE int unforeseen(stream *s, int64_t line)
{
    const int64_t step = line - s->last, same = step == s->step;
    s->last = line;
    s->step = step;
    return !(step && step >= -NEAR && step <= NEAR) && !(same && step >= -FAR && step <= FAR);
}

/* extents: of loops, outermost first. first, bytes, writes: of accesses: where the first execution touches, how much, whether it
 * is written. steps: of each loop, of each access. Runs `window` executions from each of `starts`, of which the first `warm` are
 * not counted. found: COUNTED numbers. Returns 0, -1 without memory. */
int64_t tw_misses_leaf(int64_t loops, const int64_t *extents, int64_t accesses, const int64_t *first, const int64_t *bytes,
                       const int64_t *writes, const int64_t *steps, int64_t windows, const int64_t *starts, int64_t window,
                       int64_t warm, int64_t *found)
{
    static const int64_t sets[4] = {64, 2048, 8, 256}; /* 32 KiB and 1 MiB of lines, 64 and 2048 pages */
    int64_t all = 0, failed = -1;
    for (int k = 0; k < 4; k++) all += sets[k] * WAYS;
    int64_t *held = calloc((size_t)all, sizeof *held), *at = malloc((size_t)(loops + 1) * sizeof *at);
    int64_t *place = malloc((size_t)(2 * accesses + 1) * sizeof *place), *before = place + accesses;
    stream *streams = calloc((size_t)(2 * accesses + 1), sizeof *streams);
    memset(found, 0, COUNTED * sizeof *found);
    if (!held || !at || !place || !streams) goto done;
    failed = 0;
    cache caches[4];
    for (int k = 0, from = 0; k < 4; from += sets[k++] * WAYS) caches[k] = (cache){held + from, sets[k]};
    for (int64_t w = 0; w < windows; w++) {
        int64_t rest = starts[w];
        for (int64_t a = 0; a < accesses; a++) place[a] = first[a], before[a] = -1;
        for (int64_t k = loops - 1; k >= 0; rest /= extents[k--]) {
            at[k] = rest % extents[k];
            for (int64_t a = 0; a < accesses; a++) place[a] += at[k] * steps[k * accesses + a];
        }
        for (int64_t run = 0; run < window; run++) {
            const int64_t counts = run >= warm;
            for (int64_t a = 0; a < accesses; a++) {
                const int64_t byte = place[a] >> FINER, end = (byte + bytes[a] - 1) >> LINE;
                for (int64_t line = byte >> LINE; line <= end; line++) {
                    if (line == before[a]) continue;
                    before[a] = line;
                    if (misses(caches + 2, line >> (PAGE - LINE))) {
                        found[PAGES] += counts;
                        found[FAR_PAGES] += counts & misses(caches + 3, line >> (PAGE - LINE));
                    }
                    if (!misses(caches, line)) continue;
                    found[FIRST] += counts;
                    found[FIRST_FAR] += counts & unforeseen(streams + 2 * a, line);
                    if (!misses(caches + 1, line)) continue;
                    found[SECOND] += counts;
                    found[SECOND_FAR] += counts & unforeseen(streams + 2 * a + 1, line);
                    found[WRITTEN] += counts & writes[a];
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
    free(held), free(at), free(place), free(streams);
    return failed;
}
