/* C = A B in float32, all by rows; with `relu` negative results become 0. buffers: driver, a, b, c; sizes: m, n, k, relu, threads. */
#include "../../../tensorwise/toolchain/prelude.h"

typedef struct {
    const float *a, *b;
    float *c;
    int64_t m, n, k, relu, threads;
} product;

static product product_of(void *const *buffers, const int64_t *sizes)
{
    return (product){buffers[1], buffers[2], buffers[3], sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]};
}

/* ---- MLCD, Algorithm 3 ---- */
TW_INLINE void one(const product *p, int64_t i, int64_t j)
{
    float sum = 0;
    for (int64_t l = 0; l < p->k; l++) sum += p->a[i * p->k + l] * p->b[l * p->n + j];
    p->c[i * p->n + j] = p->relu && sum < 0 ? 0 : sum;
}
int gemm_naive(void *const *buffers, const int64_t *sizes)
{
    const product p = product_of(buffers, sizes);
    for (int64_t i = 0; i < p.m; i++)
        for (int64_t j = 0; j < p.n; j++) one(&p, i, j);
    return 0;
}

/* ---- the same over stored entries; buffers: driver, pointers, columns and values of a, b, c; sizes: m, n, relu ---- */
__attribute__((optimize("O3"))) int gemm_rows(void *const *buffers, const int64_t *sizes)
{
    const int32_t *pointers = buffers[1], *columns = buffers[2];
    const float *values = buffers[3];
    const int64_t n = sizes[1];
    for (int64_t i = 0; i < sizes[0]; i++) {
        float *restrict c = (float *)buffers[5] + i * n;
        for (int64_t j = 0; j < n; j++) c[j] = 0;
        for (int32_t e = pointers[i]; e < pointers[i + 1]; e++) {
            const float a = values[e], *restrict b = (const float *)buffers[4] + columns[e] * n;
            for (int64_t j = 0; j < n; j++) c[j] += a * b[j];
        }
        for (int64_t j = 0; j < n && sizes[2]; j++) c[j] = c[j] < 0 ? 0 : c[j];
    }
    return 0;
}

/* ---- blocks of C in registers, eight rows of eight columns at most; threads share out the blocks ---- */
enum { ROWS = 8, WIDE = 16, SERIAL = 30000 };

TW_INLINE tw_f32x8 load_8(const float *from, int64_t count) { return *(const tw_f32x8u *)from; }
/* The first `count` of four, zeros behind them; the compiler knows the count. */
TW_INLINE tw_f32x4 load_4(const float *from, int64_t count)
{
    if (count == 4) return *(const tw_f32x4u *)from;
    return (tw_f32x4){from[0], count > 1 ? from[1] : 0, count > 2 ? from[2] : 0, 0};
}

#define EIGHT(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define ONE(DO) DO(0)
#define DECLARE(r) vector sum##r = {0};
#define ADD(r) sum##r += x * a[r * p->k + l];
#define CLAMP(r) sum##r = (vector)((sum##r > 0) & (bits)sum##r);
#define STORE(r) __builtin_memcpy(c + r * p->n, &sum##r, (size_t)count * sizeof *c);
#define BLOCK(N, EACH)                                                                             \
    TW_INLINE void block_##N##_##EACH(const product *p, int64_t i, int64_t j, int64_t count)       \
    {                                                                                              \
        typedef tw_f32x##N vector;                                                                 \
        typedef tw_i32x##N bits;                                                                   \
        const float *a = p->a + i * p->k, *b = p->b + j;                                           \
        float *c = p->c + i * p->n + j;                                                            \
        EACH(DECLARE)                                                                              \
        for (int64_t l = 0; l < p->k; l++) {                                                       \
            const vector x = load_##N(b + l * p->n, count);                                        \
            EACH(ADD)                                                                              \
        }                                                                                          \
        if (p->relu) { EACH(CLAMP) }                                                               \
        EACH(STORE)                                                                                \
    }                                                                                              \

#define BLOCKS(EACH)                                                                               \
    BLOCK(8, EACH) BLOCK(4, EACH)                                                                  \
    static void blocks_##EACH(const product *p, int64_t i, int64_t j, int64_t end)                 \
    {                                                                                              \
        for (; j + 8 <= end; j += 8) block_8_##EACH(p, i, j, 8);                                   \
        if (j + 4 <= end) block_4_##EACH(p, i, j, 4), j += 4;                                      \
        if (j + 3 == end) block_4_##EACH(p, i, j, 3);                                              \
        if (j + 2 == end) block_4_##EACH(p, i, j, 2);                                              \
        if (j + 1 == end) block_4_##EACH(p, i, j, 1);                                              \
    }

BLOCKS(EIGHT)
BLOCKS(ONE)

/* Neighbouring blocks share their columns of B, which so stay in the cache. */
static void blocked(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const product *p = context;
    const int64_t strips = (p->m + ROWS - 1) / ROWS;
    for (int64_t at = lo; at < hi; at++) {
        const int64_t j = at / strips * WIDE, end = tw_min_i64(j + WIDE, p->n), i = at % strips * ROWS;
        if (i + ROWS <= p->m)
            blocks_EIGHT(p, i, j, end);
        else
            for (int64_t row = i; row < p->m; row++) blocks_ONE(p, row, j, end);
    }
}

int gemm_blocked(void *const *buffers, const int64_t *sizes)
{
    product p = product_of(buffers, sizes);
    const int64_t count = (p.m + ROWS - 1) / ROWS * ((p.n + WIDE - 1) / WIDE);
    const int64_t threads = p.m * p.n * p.k < SERIAL ? 1 : p.threads;
    tw_run((tw_driver)buffers[0], blocked, &p, 0, count, threads, tw_max_i64(1, count / (4 * threads)), NULL, 0);
    return 0;
}

/* ---- max(C, 0) in a pass of its own ---- */
__attribute__((optimize("O3"))) static void relu(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    float *c = context;
    for (int64_t at = lo; at < hi; at++) c[at] = c[at] < 0 ? 0 : c[at];
}

/* buffers: driver, c; sizes: entries, threads. */
int gemm_relu(void *const *buffers, const int64_t *sizes)
{
    const int64_t threads = sizes[0] < SERIAL ? 1 : sizes[1];
    tw_run((tw_driver)buffers[0], relu, buffers[1], 0, sizes[0], threads, sizes[0] / threads + 1, NULL, 0);
    return 0;
}

/* ---- the BLAS routine at buffers[4], which takes matrices by columns: B' A' is C' ---- */
typedef void (*sgemm)(const char *, const char *, const int *, const int *, const int *, const float *, const float *,
                      const int *, const float *, const int *, const float *, float *, const int *);

int gemm_blas(void *const *buffers, const int64_t *sizes)
{
    const product p = product_of(buffers, sizes);
    const int m = (int)p.m, n = (int)p.n, k = (int)p.k;
    const float one = 1, zero = 0;
    ((sgemm)buffers[4])("N", "N", &n, &m, &k, &one, p.b, &n, p.a, &k, &zero, p.c, &n);
    if (p.relu) {
        void *const whole[] = {buffers[0], p.c};
        gemm_relu(whole, (const int64_t[]){p.m * p.n, p.threads});
    }
    return 0;
}
