/* New values for packed tensors whose pattern was given with duplicates: they are added up in parallel. */
#include "../toolchain/prelude.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3") /* a quarter less time than by gcc's -O2 */
#endif

typedef struct {
    const void *order;
    const void *starts;
    const void *values;
    void *out;
    int64_t wide; /* whether order and starts are int64 */
    int64_t size; /* bytes of a value: 4 or 8 */
} job;

#define SUMS(index, value) \
    for (int64_t e = lo; e < hi; e++) { \
        double sum = 0; \
        for (index s = ((const index *)j->starts)[e]; s < ((const index *)j->starts)[e + 1]; s++) \
            sum += (double)((const value *)j->values)[((const index *)j->order)[s]]; \
        ((value *)j->out)[e] = (value)sum; \
    }

static void add(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    const job *j = context;
    (void)thread;
    if (j->wide) { if (j->size == 8) SUMS(int64_t, double) else SUMS(int64_t, float) }
    else { if (j->size == 8) SUMS(int32_t, double) else SUMS(int32_t, float) }
}

/* out[e] = the sum of values[order[s]] for s in starts[e] .. starts[e + 1], added up in float64. */
void tw_update_add(tw_driver driver, int64_t threads, int64_t n, const void *order, const void *starts, int64_t wide,
                   const void *values, int64_t size, void *out)
{
    job j = {order, starts, values, out, wide, size};
    driver(add, &j, 0, n, threads, 0, NULL, 0);
}
