/* Bodies that attract each other, in float32, softened, by leapfrog steps of first order (velocities before positions).
 * buffers: driver, state, result, physics; sizes: bodies, stride, steps, threads. state: rows x, y, z, their velocities, mass,
 * `stride` floats each, a multiple of eight, the rest of mass 0; result: rows x, y, z after all steps, and the
 * accelerations of the first one, `bodies` floats each; physics: time step, gravitational constant, softening squared.
 * A function returns 1 where memory is short. */
#include "../../../tensorwise/toolchain/prelude.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, TILE = 1024, LEAF = 16 };
static const float ANGLE = 0.9f; /* a node is taken as one body where its radius is below this share of its distance */

typedef struct {
    float *x[3], *v[3], *m, *a[3]; /* masses times the gravitational constant */
    float soft;
    int64_t bodies, stride;
} system_of;

typedef struct {
    float x[3], m, radius; /* centre of mass, and what no body of the node is farther away from it */
    int32_t lo, hi, next;  /* its bodies; the node behind all that are below it */
} node;

typedef struct {
    system_of *s;
    float *x[3], *m; /* bodies in the order of leaves */
    int32_t *order, *leaves;
    node *nodes;
    float *lists; /* four rows a thread */
    int64_t room, leaf_count, node_count;
} tree;

/* 1 / sqrt(r) within 5e-6, by two of Newton's steps. */
TW_INLINE tw_f32x8 inverse_root(tw_f32x8 r)
{
    const union { tw_f32x8 value; tw_i32x8 bits; } is = {r}, guess = {.bits = 0x5f375a86 - (is.bits >> 1)};
    tw_f32x8 y = guess.value;
    y *= 1.5f - 0.5f * r * y * y;
    return y * (1.5f - 0.5f * r * y * y);
}

/* Add to the accelerations of eight bodies what `count` others do. */
TW_INLINE void attract(const float *const *at, int64_t i, const float *const *x, const float *m, int64_t count, float soft,
                       tw_f32x8 *a)
{
    const tw_f32x8 x0 = tw_load_f32x8(at[0] + i), x1 = tw_load_f32x8(at[1] + i), x2 = tw_load_f32x8(at[2] + i);
    tw_f32x8 a0 = a[0], a1 = a[1], a2 = a[2];
    for (int64_t j = 0; j < count; j++) {
        const tw_f32x8 d0 = x[0][j] - x0, d1 = x[1][j] - x1, d2 = x[2][j] - x2;
        const tw_f32x8 y = inverse_root(d0 * d0 + d1 * d1 + d2 * d2 + soft), f = m[j] * y * y * y;
        a0 += f * d0, a1 += f * d1, a2 += f * d2;
    }
    a[0] = a0, a[1] = a1, a[2] = a2;
}

/* ---- directly: as it is written down; by eights, in tiles that stay in the cache ---- */
static int naive(system_of *s, tw_driver driver, int64_t threads)
{
    for (int64_t i = 0; i < s->bodies; i++) {
        float a0 = 0, a1 = 0, a2 = 0;
        for (int64_t j = 0; j < s->bodies; j++) {
            const float d0 = s->x[0][j] - s->x[0][i], d1 = s->x[1][j] - s->x[1][i], d2 = s->x[2][j] - s->x[2][i];
            const float y = 1 / sqrtf(d0 * d0 + d1 * d1 + d2 * d2 + s->soft), f = s->m[j] * y * y * y;
            a0 += f * d0, a1 += f * d1, a2 += f * d2;
        }
        s->a[0][i] = a0, s->a[1][i] = a1, s->a[2][i] = a2;
    }
    return 0;
}

static void eights(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const system_of *s = context;
    for (int k = 0; k < 3; k++) memset(s->a[k] + lo * LANES, 0, sizeof(float) * (size_t)((hi - lo) * LANES));
    for (int64_t j = 0; j < s->bodies; j += TILE) {
        const float *const from[] = {s->x[0] + j, s->x[1] + j, s->x[2] + j}, *const at[] = {s->x[0], s->x[1], s->x[2]};
        for (int64_t i = lo * LANES; i < hi * LANES; i += LANES) {
            tw_f32x8 a[3];
            for (int k = 0; k < 3; k++) a[k] = tw_load_f32x8(s->a[k] + i);
            attract(at, i, from, s->m + j, tw_min_i64(TILE, s->bodies - j), s->soft, a);
            for (int k = 0; k < 3; k++) tw_store_f32x8(s->a[k] + i, a[k]);
        }
    }
}

static int direct(system_of *s, tw_driver driver, int64_t threads)
{
    tw_run(driver, eights, s, 0, (s->bodies + LANES - 1) / LANES, threads, 0, NULL, 0);
    return 0;
}

/* ---- Barnes-Hut over a balanced tree; bodies of a leaf share the list of what attracts them ---- */
static void select_middle(const float *x, int32_t *order, int64_t lo, int64_t hi, int64_t middle)
{
    while (hi - lo > 1) {
        const float pivot = x[order[lo + (hi - lo) / 2]];
        int64_t i = lo, j = hi - 1;
        while (i <= j) {
            while (x[order[i]] < pivot) i++;
            while (x[order[j]] > pivot) j--;
            if (i <= j) {
                const int32_t swapped = order[i];
                order[i++] = order[j], order[j--] = swapped;
            }
        }
        if (middle <= j)
            hi = j + 1;
        else if (middle >= i)
            lo = i;
        else
            return;
    }
}

/* Make the node of order[lo .. hi - 1] and all below it. */
static void build(tree *t, int64_t lo, int64_t hi)
{
    const system_of *s = t->s;
    node *own = t->nodes + t->node_count++;
    float low[3], high[3];
    double sum[3] = {0}, mass = 0;
    for (int k = 0; k < 3; k++) low[k] = INFINITY, high[k] = -INFINITY;
    for (int64_t at = lo; at < hi; at++) {
        const int32_t i = t->order[at];
        for (int k = 0; k < 3; k++) {
            const float x = s->x[k][i];
            low[k] = x < low[k] ? x : low[k], high[k] = x > high[k] ? x : high[k];
            sum[k] += (double)s->m[i] * x;
        }
        mass += s->m[i];
    }
    float square = 0;
    int widest = 0;
    for (int k = 0; k < 3; k++) {
        own->x[k] = (float)(mass > 0 ? sum[k] / mass : 0.5 * (low[k] + high[k]));
        const float far = fmaxf(high[k] - own->x[k], own->x[k] - low[k]);
        square += far * far;
        if (high[k] - low[k] > high[widest] - low[widest]) widest = k;
    }
    own->m = (float)mass, own->radius = sqrtf(square), own->lo = (int32_t)lo, own->hi = (int32_t)hi;
    if (hi - lo > LEAF) {
        const int64_t middle = lo + (hi - lo) / 2;
        select_middle(s->x[widest], t->order, lo, hi, middle);
        build(t, lo, middle);
        build(t, middle, hi);
    } else
        t->leaves[t->leaf_count++] = (int32_t)(own - t->nodes);
    own->next = (int32_t)t->node_count;
}

static void of_leaves(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const tree *t = context;
    float *x[3], *m = t->lists + (4 * thread + 3) * t->room;
    for (int k = 0; k < 3; k++) x[k] = t->lists + (4 * thread + k) * t->room;
    const float *const from[] = {x[0], x[1], x[2]}, *const at[] = {t->x[0], t->x[1], t->x[2]};
    for (int64_t leaf = lo; leaf < hi; leaf++) {
        const node *own = t->nodes + t->leaves[leaf];
        int64_t count = 0;
        for (int64_t k = 0; k < t->node_count;) {
            const node *n = t->nodes + k;
            float square = 0;
            for (int c = 0; c < 3; c++) square += (n->x[c] - own->x[c]) * (n->x[c] - own->x[c]);
            if (n->radius < ANGLE * (sqrtf(square) - own->radius)) {
                for (int c = 0; c < 3; c++) x[c][count] = n->x[c];
                m[count++] = n->m;
                k = n->next;
            } else if (n->hi - n->lo <= LEAF) {
                const size_t bytes = sizeof(float) * (size_t)(n->hi - n->lo);
                for (int c = 0; c < 3; c++) memcpy(x[c] + count, t->x[c] + n->lo, bytes);
                memcpy(m + count, t->m + n->lo, bytes);
                count += n->hi - n->lo;
                k = n->next;
            } else
                k++;
        }
        for (int64_t i = own->lo; i < own->hi; i += LANES) {
            tw_f32x8 a[3] = {0};
            attract(at, i, from, m, count, t->s->soft, a);
            for (int64_t lane = 0; lane < LANES && i + lane < own->hi; lane++)
                for (int k = 0; k < 3; k++) t->s->a[k][t->order[i + lane]] = a[k][lane];
        }
    }
}

static int barnes_hut(system_of *s, tw_driver driver, int64_t threads)
{
    tree t = {s};
    const int64_t n = s->bodies, nodes = 4 * n / LEAF + 4, padded = n + LANES;
    t.room = n + nodes;
    t.order = malloc(sizeof(int32_t) * (size_t)n), t.leaves = malloc(sizeof(int32_t) * (size_t)nodes);
    t.nodes = malloc(sizeof(node) * (size_t)nodes), t.lists = malloc(sizeof(float) * (size_t)(4 * threads * t.room));
    t.m = calloc((size_t)(4 * padded), sizeof(float));
    const int failed = !t.order || !t.leaves || !t.nodes || !t.lists || !t.m;
    if (!failed) {
        for (int k = 0; k < 3; k++) t.x[k] = t.m + (k + 1) * padded;
        for (int64_t i = 0; i < n; i++) t.order[i] = (int32_t)i;
        build(&t, 0, n);
        for (int64_t at = 0; at < n; at++) {
            t.m[at] = s->m[t.order[at]];
            for (int k = 0; k < 3; k++) t.x[k][at] = s->x[k][t.order[at]];
        }
        tw_run(driver, of_leaves, &t, 0, t.leaf_count, threads, 0, NULL, 0);
    }
    free(t.order), free(t.leaves), free(t.nodes), free(t.lists), free(t.m);
    return failed;
}

/* ---- what all versions share ---- */
__attribute__((optimize("O3"))) static void move(system_of *s, float dt)
{
    for (int k = 0; k < 3; k++) {
        float *restrict x = s->x[k], *restrict v = s->v[k];
        const float *restrict a = s->a[k];
        for (int64_t i = 0; i < s->bodies; i++) {
            v[i] += dt * a[i];
            x[i] += dt * v[i];
        }
    }
}

static int simulated(void *const *buffers, const int64_t *sizes, int (*attraction)(system_of *, tw_driver, int64_t))
{
    const int64_t n = sizes[0], stride = sizes[1];
    float *result = buffers[2], *work = malloc(sizeof(float) * (size_t)(10 * stride));
    const float *physics = buffers[3];
    if (!work) return 1;
    memcpy(work, buffers[1], sizeof(float) * (size_t)(7 * stride));
    memset(work + 7 * stride, 0, sizeof(float) * (size_t)(3 * stride));
    system_of s = {.m = work + 6 * stride, .soft = physics[2], .bodies = n, .stride = stride};
    for (int k = 0; k < 3; k++)
        s.x[k] = work + k * stride, s.v[k] = work + (3 + k) * stride, s.a[k] = work + (7 + k) * stride;
    for (int64_t i = 0; i < n; i++) s.m[i] *= physics[1];
    int failed = 0;
    for (int64_t step = 0; step < sizes[2] && !failed; step++) {
        failed = attraction(&s, (tw_driver)buffers[0], sizes[3]);
        for (int k = 0; k < 3 && !step; k++) memcpy(result + (3 + k) * n, s.a[k], sizeof(float) * (size_t)n);
        move(&s, physics[0]);
    }
    for (int k = 0; k < 3; k++) memcpy(result + k * n, s.x[k], sizeof(float) * (size_t)n);
    free(work);
    return failed;
}

int nbody_naive(void *const *buffers, const int64_t *sizes) { return simulated(buffers, sizes, naive); }
int nbody_direct(void *const *buffers, const int64_t *sizes) { return simulated(buffers, sizes, direct); }
int nbody_barnes_hut(void *const *buffers, const int64_t *sizes) { return simulated(buffers, sizes, barnes_hut); }
