/* What motifs of three and four nodes are counted from, exactly, in int64 (see motifs.py): the number of triangles; and for
 * motifs of four besides, summed over all edges (u, v) with t triangles each, t (d_u + d_v - 4) / 2 and t (t - 1) / 2, the
 * cycles of four nodes and the cliques of four. buffers: driver, pointers, targets, five counts; sizes: nodes, k, threads.
 * A graph has each edge in both directions, rows are sorted. A function returns 1 where memory is short. */
#include "../../../tensorwise/toolchain/prelude.h"

#include <stdlib.h>
#include <string.h>

enum { TRIANGLES, TAILED, DIAMONDS, CYCLES, CLIQUES, COUNTS, MOST_THREADS = 256 };

typedef struct {
    const int32_t *pointers, *targets; /* all edges */
    const int32_t *middle;             /* of each row, where the targets begin that are greater than the node itself */
    int64_t nodes, k, words, pairs; /* pairs: whether cycles are counted by comparing all rows of bits */
    uint64_t *bits;    /* rows of words, for the version of bits */
    int32_t *per_edge; /* triangles, a row of all edges a thread */
    int64_t **counts;  /* a row a thread */
    int32_t **room;    /* three numbers a node, all 0 at first, a thread */
    int failed;        /* atomic */
} graph;

static int64_t choose2(int64_t n) { return n * (n - 1) / 2; }

/* An edge is found to be in t triangles. */
static void at_edge(const graph *g, int64_t *counts, int64_t u, int64_t v, int64_t t)
{
    const int64_t degrees = g->pointers[u + 1] - g->pointers[u] + g->pointers[v + 1] - g->pointers[v];
    counts[TAILED] += t * (degrees - 4); /* twice */
    counts[DIAMONDS] += choose2(t);
}

/* Write what two sorted lists share to `out`, if it is not NULL; return how much. */
TW_INLINE int64_t shared(const int32_t *a, const int32_t *a_end, const int32_t *b, const int32_t *b_end, int32_t *out)
{
    int64_t count = 0;
    while (a < a_end && b < b_end) {
        const int32_t x = *a, y = *b;
        if (out) out[count] = x;
        count += x == y;
        a += x <= y;
        b += y <= x;
    }
    return count;
}

/* Cycles whose last node is u: ways from u over one node to each other one, both before u. */
static int64_t cycles_at(const graph *g, int64_t u, int32_t *ways)
{
    int64_t count = 0;
    for (int32_t e = g->pointers[u]; e < g->middle[u]; e++) {
        const int32_t v = g->targets[e], *to = g->targets + g->pointers[v], *end = g->targets + g->pointers[v + 1];
        for (; to < end && *to < u; to++) count += ways[*to]++;
    }
    for (int32_t e = g->pointers[u]; e < g->middle[u]; e++) {
        const int32_t v = g->targets[e], *to = g->targets + g->pointers[v], *end = g->targets + g->pointers[v + 1];
        for (; to < end && *to < u; to++) ways[*to] = 0;
    }
    return count;
}

/* ---- edges with sorted intersections ---- */
static void merged(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const graph *g = context;
    const int32_t *p = g->pointers, *to = g->targets;
    int64_t *counts = g->counts[thread];
    int32_t *ways = g->room[thread], *both = ways + g->nodes;
    for (int64_t u = lo; u < hi; u++) {
        for (int32_t e = g->middle[u]; e < p[u + 1]; e++) {
            const int32_t v = to[e];
            if (g->k == 3) {
                counts[TRIANGLES] += shared(to + e + 1, to + p[u + 1], to + g->middle[v], to + p[v + 1], NULL);
                continue;
            }
            const int64_t t = shared(to + p[u], to + p[u + 1], to + p[v], to + p[v + 1], both);
            at_edge(g, counts, u, v, t);
            int64_t first = 0;
            while (first < t && both[first] < v) first++;
            counts[TRIANGLES] += t - first;
            for (int64_t a = first; a < t; a++)
                counts[CLIQUES] += shared(both + a + 1, both + t, to + g->middle[both[a]], to + p[both[a] + 1], NULL);
        }
        if (g->k == 4) counts[CYCLES] += cycles_at(g, u, ways);
    }
}

/* ---- neighbours as bits: dense and small graphs ---- */
TW_INLINE int64_t common(const uint64_t *a, const uint64_t *b, int64_t words)
{
    int64_t count = 0;
    for (int64_t w = 0; w < words; w++) count += __builtin_popcountll(a[w] & b[w]);
    return count;
}

/* The same of nodes after v only. */
TW_INLINE int64_t common_after(const uint64_t *a, const uint64_t *b, int64_t words, int64_t v)
{
    const int64_t w = v / 64;
    return __builtin_popcountll(a[w] & b[w] & ~1ull << v % 64) + common(a + w + 1, b + w + 1, words - w - 1);
}

static void in_bits(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const graph *g = context;
    const int64_t words = g->words;
    int64_t *counts = g->counts[thread];
    uint64_t *both = (uint64_t *)(g->room[thread] + (g->nodes + 1) / 2 * 2); /* behind the ways of cycles_at */
    for (int64_t u = lo; u < hi; u++) {
        const uint64_t *own = g->bits + u * words;
        for (int32_t e = g->middle[u]; e < g->pointers[u + 1]; e++) {
            const int64_t v = g->targets[e];
            const uint64_t *other = g->bits + v * words;
            if (g->k == 3) {
                counts[TRIANGLES] += common_after(own, other, words, v);
                continue;
            }
            int64_t t = 0;
            for (int64_t w = 0; w < words; w++) t += __builtin_popcountll(both[w] = own[w] & other[w]);
            at_edge(g, counts, u, v, t);
            for (int64_t w = v / 64; w < words && t; w++)
                for (uint64_t left = w == v / 64 ? both[w] & ~1ull << v % 64 : both[w]; left; left &= left - 1) {
                    const int64_t x = 64 * w + __builtin_ctzll(left);
                    counts[TRIANGLES]++;
                    counts[CLIQUES] += common_after(both, g->bits + x * words, words, x);
                }
        }
        if (g->k == 4 && !g->pairs) counts[CYCLES] += 2 * cycles_at(g, u, g->room[thread]);
        for (int64_t v = 0; v < u && g->k == 4 && g->pairs; v++)
            counts[CYCLES] += choose2(common(own, g->bits + v * words, words)); /* by both diagonals */
    }
}

/* ---- marks on neighbours, nodes of low degree first (ESCAPE, PGD): rows are short above the middle ---- */
static void marked(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    graph *g = context;
    const int32_t *p = g->pointers, *to = g->targets;
    int64_t *counts = g->counts[thread];
    int32_t *ways = g->room[thread], *mark = ways + g->nodes, *seen = mark + g->nodes;
    int32_t *per_edge = g->per_edge ? g->per_edge + thread * p[g->nodes] : NULL;
    for (int64_t u = lo; u < hi; u++) {
        for (int32_t e = g->middle[u]; e < p[u + 1]; e++) mark[to[e]] = e + 1;
        for (int32_t e = g->middle[u]; e < p[u + 1]; e++) {
            const int32_t v = to[e];
            if (g->k == 3) {
                for (int32_t f = g->middle[v]; f < p[v + 1]; f++) counts[TRIANGLES] += mark[to[f]] != 0;
                continue;
            }
            for (int32_t f = g->middle[v]; f < p[v + 1]; f++)
                if (mark[to[f]]) {
                    counts[TRIANGLES]++;
                    per_edge[e]++, per_edge[f]++, per_edge[mark[to[f]] - 1]++;
                    seen[to[f]] = 1;
                }
            for (int32_t f = g->middle[v]; f < p[v + 1]; f++)
                if (seen[to[f]])
                    for (int32_t x = to[f], h = g->middle[x]; h < p[x + 1]; h++) counts[CLIQUES] += seen[to[h]];
            for (int32_t f = g->middle[v]; f < p[v + 1]; f++) seen[to[f]] = 0;
        }
        for (int32_t e = g->middle[u]; e < p[u + 1]; e++) mark[to[e]] = 0;
        if (g->k == 4) counts[CYCLES] += cycles_at(g, u, ways);
    }
}

/* ---- what all versions share ---- */
static int32_t *middles(const int32_t *pointers, const int32_t *targets, int64_t nodes)
{
    int32_t *middle = malloc(sizeof(int32_t) * (size_t)(nodes + 1));
    for (int64_t u = 0; middle && u < nodes; u++)
        middle[u] = (int32_t)tw_lower_i32(targets, pointers[u], pointers[u + 1], u);
    return middle;
}

static int counted(graph *g, tw_driver driver, tw_body body, int64_t threads, int64_t *total)
{
    int64_t *counts[MOST_THREADS] = {0};
    int32_t *room[MOST_THREADS] = {0};
    int failed = !g->middle;
    threads = tw_min_i64(threads, MOST_THREADS);
    for (int64_t t = 0; t < threads; t++) {
        counts[t] = calloc(COUNTS + 16, sizeof(int64_t)); /* no two in one line of the cache */
        room[t] = calloc((size_t)(3 * g->nodes + 4), sizeof(int32_t));
        failed |= !counts[t] || !room[t];
    }
    g->counts = counts, g->room = room;
    if (!failed) tw_run(driver, body, g, 0, g->nodes, threads, tw_max_i64(1, g->nodes / (32 * threads)), NULL, 0);
    for (int64_t t = 0; t < threads; t++) {
        for (int k = 0; k < COUNTS && !failed; k++) total[k] += counts[t][k];
        free(counts[t]), free(room[t]);
    }
    return failed;
}

static graph graph_of(void *const *buffers, const int64_t *sizes)
{
    memset(buffers[3], 0, COUNTS * sizeof(int64_t));
    return (graph){buffers[1], buffers[2], middles(buffers[1], buffers[2], sizes[0]), sizes[0], sizes[1]};
}

int motifs_merge(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    int64_t *total = buffers[3];
    const int failed = counted(&g, (tw_driver)buffers[0], merged, sizes[2], total);
    total[TAILED] /= 2;
    free((void *)g.middle);
    return failed;
}

int motifs_bits(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    int64_t *total = buffers[3];
    g.words = (g.nodes + 63) / 64;
    int64_t ways = 0;
    for (int64_t u = 0; u < g.nodes; u++) ways += choose2(g.pointers[u + 1] - g.pointers[u]);
    g.pairs = ways > g.nodes * g.nodes * g.words / 4; /* a way takes about as long as two words */
    int failed = !(g.bits = calloc((size_t)(g.nodes * g.words + 1), sizeof(uint64_t)));
    for (int64_t u = 0; u < g.nodes && !failed; u++)
        for (int32_t e = g.pointers[u]; e < g.pointers[u + 1]; e++)
            g.bits[u * g.words + g.targets[e] / 64] |= 1ull << g.targets[e] % 64;
    failed = failed || counted(&g, (tw_driver)buffers[0], in_bits, sizes[2], total);
    total[TAILED] /= 2;
    total[CYCLES] /= 2;
    free(g.bits), free((void *)g.middle);
    return failed;
}

/* The graph with nodes numbered by degree: each edge as before, rows sorted. */
static int by_degree(graph *g)
{
    const int64_t nodes = g->nodes, edges = g->pointers[nodes];
    int32_t *name = malloc(sizeof(int32_t) * (size_t)(nodes + 1)), *first = calloc((size_t)(nodes + 2), sizeof(int32_t));
    int32_t *pointers = calloc((size_t)(nodes + 2), sizeof(int32_t)), *targets = malloc(sizeof(int32_t) * (size_t)(edges + 1));
    int32_t *order = malloc(sizeof(int32_t) * (size_t)(nodes + 1));
    const int failed = !name || !first || !pointers || !targets || !order;
    if (!failed) {
        for (int64_t u = 0; u < nodes; u++) first[g->pointers[u + 1] - g->pointers[u] + 1]++;
        for (int64_t d = 0; d < nodes; d++) first[d + 1] += first[d];
        for (int64_t u = 0; u < nodes; u++) order[name[u] = first[g->pointers[u + 1] - g->pointers[u]]++] = (int32_t)u;
        for (int64_t r = 0; r < nodes; r++) pointers[r + 1] = pointers[r] + g->pointers[order[r] + 1] - g->pointers[order[r]];
        for (int64_t r = 0; r < nodes; r++) first[r] = pointers[r];
        for (int64_t r = 0; r < nodes; r++) /* sources come in order, so that rows are sorted */
            for (int32_t e = g->pointers[order[r]]; e < g->pointers[order[r] + 1]; e++)
                targets[first[name[g->targets[e]]]++] = (int32_t)r;
    }
    free(name), free(first), free(order);
    g->pointers = pointers, g->targets = targets;
    return failed;
}

int motifs_marks(void *const *buffers, const int64_t *sizes)
{
    graph g = {buffers[1], buffers[2], NULL, sizes[0], sizes[1]};
    int64_t *total = memset(buffers[3], 0, COUNTS * sizeof(int64_t));
    const int64_t threads = tw_min_i64(sizes[2], MOST_THREADS);
    int failed = by_degree(&g);
    if (!failed) {
        const int64_t edges = g.pointers[g.nodes];
        g.middle = middles(g.pointers, g.targets, g.nodes);
        if (g.k == 4) failed = !(g.per_edge = calloc((size_t)(threads * edges + 1), sizeof(int32_t)));
        failed = failed || counted(&g, (tw_driver)buffers[0], marked, threads, total);
        for (int64_t u = 0; u < g.nodes && g.k == 4 && !failed; u++)
            for (int32_t e = g.middle[u]; e < g.pointers[u + 1]; e++) {
                int64_t t = 0;
                for (int64_t thread = 0; thread < threads; thread++) t += g.per_edge[thread * edges + e];
                if (t) at_edge(&g, total, u, g.targets[e], t);
            }
        total[TAILED] /= 2;
    }
    free(g.per_edge), free((void *)g.middle), free((void *)g.pointers), free((void *)g.targets);
    return failed;
}
