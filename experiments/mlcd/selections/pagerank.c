/* PageRank in float32: x = (1 - d) / n + d P' x, where P' has share[u] = 1 / out-degree at each edge from u, then scaled to
 * sum up to 1; that is what spreading the rank of nodes without edges evenly gives. All stop when what is left of it
 * is below the tolerance. buffers: driver, pointers and nodes of edges in, of edges out, share, x, two floats a node,
 * bounds of parts with about as many edges in; sizes: nodes, threads, parts. */
#include "../../../tensorwise/toolchain/prelude.h"

#include <math.h>
#include <string.h>

enum { MOST_STEPS = 1000, MOST_THREADS = 256, LINE = 16 };
static const float DAMPING = 0.85f;
static const double TOLERANCE = 1e-6;

typedef struct {
    tw_driver driver;
    const int32_t *in_pointers, *in, *out_pointers, *out;
    const float *share;
    float *x, *first, *second;
    const int64_t *bounds;
    int64_t nodes, threads, parts;
    float base;
    double left[MOST_THREADS * LINE];
} graph;

static graph graph_of(void *const *b, const int64_t *sizes)
{
    return (graph){(tw_driver)b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9],
                   sizes[0], tw_min_i64(sizes[1], MOST_THREADS), sizes[2], (1 - DAMPING) / (float)sizes[0]};
}

static int scaled_to_one(float *x, int64_t nodes)
{
    double sum = 0;
    for (int64_t v = 0; v < nodes; v++) sum += x[v];
    for (int64_t v = 0; v < nodes; v++) x[v] = (float)(x[v] / sum);
    return 0;
}

/* Do one step for all nodes; return by how much x changed in all. */
static double stepped(graph *g, tw_body body)
{
    memset(g->left, 0, sizeof(double) * (size_t)(LINE * g->threads));
    if (g->threads > 1)
        g->driver(body, g, 0, g->nodes, g->threads, 0, g->bounds, g->parts);
    else
        body(g, 0, g->nodes, 0);
    double left = 0;
    for (int64_t t = 0; t < g->threads; t++) left += g->left[LINE * t];
    return left;
}

static void begin(graph *g)
{
    for (int64_t v = 0; v < g->nodes; v++) {
        g->x[v] = g->base;
        g->first[v] = g->base * g->share[v];
    }
}

/* ---- pull: every node adds up what its neighbours had; first holds it, second what they will have ---- */
static void pull(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    graph *g = context;
    double left = 0;
    for (int64_t v = lo; v < hi; v++) {
        float sum = 0;
        for (int32_t e = g->in_pointers[v]; e < g->in_pointers[v + 1]; e++) sum += g->first[g->in[e]];
        const float next = g->base + DAMPING * sum;
        left += fabsf(next - g->x[v]);
        g->x[v] = next;
        g->second[v] = next * g->share[v];
    }
    g->left[LINE * thread] += left;
}

int pagerank_pull(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    begin(&g);
    for (int step = 0; step < MOST_STEPS && stepped(&g, pull) > TOLERANCE; step++) {
        float *const had = g.first;
        g.first = g.second;
        g.second = had;
    }
    return scaled_to_one(g.x, g.nodes);
}

/* ---- Gauss-Seidel: what a neighbour has by now; several threads read what they come upon, and need no order ---- */
TW_INLINE double updated(graph *g, int64_t v)
{
    float sum = 0;
    for (int32_t e = g->in_pointers[v]; e < g->in_pointers[v + 1]; e++) {
        float has;
        __atomic_load(g->first + g->in[e], &has, __ATOMIC_RELAXED);
        sum += has;
    }
    const float next = g->base + DAMPING * sum, before = g->x[v];
    float has = next * g->share[v];
    g->x[v] = next;
    __atomic_store(g->first + v, &has, __ATOMIC_RELAXED);
    return fabsf(next - before);
}

static void sweep(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    graph *g = context;
    double left = 0;
    for (int64_t v = lo; v < hi; v++) left += updated(g, v);
    g->left[LINE * thread] += left;
}

int pagerank_gauss_seidel(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    begin(&g);
    for (int step = 0; step < MOST_STEPS && stepped(&g, sweep) > TOLERANCE; step++) continue;
    return scaled_to_one(g.x, g.nodes);
}

/* ---- the same without nodes that nothing leads to, which stay as they are, and those that lead nowhere, which come last ---- */
static void sweep_listed(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    graph *g = context;
    const int32_t *listed = (const int32_t *)g->second;
    double left = 0;
    for (int64_t at = lo; at < hi; at++) left += updated(g, listed[at]);
    g->left[LINE * thread] += left;
}

int pagerank_inner(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    int32_t *listed = (int32_t *)g.second;
    int64_t inner = 0;
    begin(&g);
    for (int64_t v = 0; v < g.nodes; v++) {
        listed[inner] = (int32_t)v;
        inner += g.share[v] > 0 && g.in_pointers[v + 1] > g.in_pointers[v];
    }
    for (int step = 0; step < MOST_STEPS; step++) {
        memset(g.left, 0, sizeof(double) * (size_t)(LINE * g.threads));
        tw_run(g.driver, sweep_listed, &g, 0, inner, g.threads, 0, NULL, 0);
        double left = 0;
        for (int64_t t = 0; t < g.threads; t++) left += g.left[LINE * t];
        if (left <= TOLERANCE) break;
    }
    for (int64_t v = 0; v < g.nodes; v++)
        if (g.share[v] == 0) updated(&g, v);
    return scaled_to_one(g.x, g.nodes);
}

/* ---- push: every node gives to its neighbours; nodes without edges have nothing to do ---- */
int pagerank_push(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    float *sum = g.second;
    for (int64_t v = 0; v < g.nodes; v++) g.x[v] = g.base;
    double left = 1;
    for (int step = 0; step < MOST_STEPS && left > TOLERANCE; step++) {
        memset(sum, 0, sizeof(float) * (size_t)g.nodes);
        for (int64_t u = 0; u < g.nodes; u++) {
            const float gives = g.x[u] * g.share[u];
            for (int32_t e = g.out_pointers[u]; e < g.out_pointers[u + 1]; e++) sum[g.out[e]] += gives;
        }
        left = 0;
        for (int64_t v = 0; v < g.nodes; v++) {
            const float next = g.base + DAMPING * sum[v];
            left += fabsf(next - g.x[v]);
            g.x[v] = next;
        }
    }
    return scaled_to_one(g.x, g.nodes);
}

/* ---- delta: only nodes to which enough was added since they last gave give, from a queue (Andersen and others, 2006) ---- */
int pagerank_delta(void *const *buffers, const int64_t *sizes)
{
    graph g = graph_of(buffers, sizes);
    float *added = g.first;
    int32_t *queue = (int32_t *)g.second;
    const float enough = (float)(TOLERANCE / (double)g.nodes);
    for (int64_t v = 0; v < g.nodes; v++) {
        g.x[v] = 0;
        added[v] = g.base;
        queue[v] = (int32_t)v;
    }
    int64_t waiting = g.nodes, first = 0, last = 0;
    while (waiting) {
        const int32_t u = queue[first];
        first = first + 1 < g.nodes ? first + 1 : 0;
        waiting--;
        const float has = added[u], gives = DAMPING * has * g.share[u];
        g.x[u] += has;
        added[u] = 0;
        for (int32_t e = g.out_pointers[u]; e < g.out_pointers[u + 1]; e++) {
            const int32_t v = g.out[e];
            const float before = added[v];
            added[v] = before + gives;
            if (before <= enough && added[v] > enough) {
                queue[last] = v;
                last = last + 1 < g.nodes ? last + 1 : 0;
                waiting++;
            }
        }
    }
    return scaled_to_one(g.x, g.nodes);
}

/* ---- around a product that others compute: buffers: driver, x, P' x; sizes: nodes ---- */
int pagerank_begin(void *const *buffers, const int64_t *sizes)
{
    float *x = buffers[1];
    for (int64_t v = 0; v < sizes[0]; v++) x[v] = (1 - DAMPING) / (float)sizes[0];
    return 0;
}

/* Returns 1 while there is more to do. */
int pagerank_settle(void *const *buffers, const int64_t *sizes)
{
    float *x = buffers[1];
    const float *product = buffers[2], base = (1 - DAMPING) / (float)sizes[0];
    double left = 0;
    for (int64_t v = 0; v < sizes[0]; v++) {
        const float next = base + DAMPING * product[v];
        left += fabsf(next - x[v]);
        x[v] = next;
    }
    return left > TOLERANCE ? 1 : scaled_to_one(x, sizes[0]);
}
