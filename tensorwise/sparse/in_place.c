/* Calls of kernels over the arrays of SciPy's matrices, where they lie.
 *
 * A NumPy array's data pointer and lengths are read from the array object at each call: an array that was resized in place, or
 * whose memory moved, is noticed. Objects are kept alive by the caller. The layout is NumPy's public PyArrayObject_fields; the
 * loader compares it with what NumPy says of an array before anything is called. */
#include <stdint.h>
#include <time.h>

typedef int (*tw_kernel)(void *const *buffers, const int64_t *sizes);

typedef struct {
    char *data;
    int nd;
    int64_t *dimensions;
    int64_t *strides;
} fields;

#define MOST_BUFFERS 16
#define FLAGGED -2  /* the kernel got a NaN where padding may have met it: another kernel must compute */
#define CHANGED -1  /* an array is no longer what it was */
#define REFUSED -3  /* another thread is in its workspace, or it uses more threads or other bits than is wanted now */

/* What is wanted now of every call in this process. */
static int64_t most_threads = INT64_MAX;
static int64_t same_bits_only;

/* One way to compute one product. Laid out by product.py, field by field: all are eight bytes. */
typedef struct {
    tw_kernel kernel;
    const int64_t *sizes;
    int64_t header;  /* bytes from an array object to its fields */
    int64_t indptr, indices, data; /* addresses of array objects; 0: the buffers below are complete */
    int64_t lines;   /* rows of a CSR matrix, columns of a CSC matrix */
    int64_t wide;    /* whether indices are int64 */
    int64_t alignment; /* of operands, in bytes, less one */
    int64_t place_indptr, place_indices, place_data, place_x, place_out;
    int64_t threads, same_bits; /* how many it runs on; whether its results are equal to the last bit to other ways' */
    int64_t exclusive, busy;    /* whether calls take turns, and whether one is running */
    int64_t block;   /* height of the square blocks of data, all of whose elements are entries; 0: there are none */
    int64_t calls;   /* how many have succeeded; of calls in several threads at the same moment one may be missed */
    void *buffers[MOST_BUFFERS];
} way;

static const fields *at(int64_t object, int64_t header) { return (const fields *)(object + header); }

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Multiply by the array object x into the array object out. Returns the nanoseconds that it took, or what is said above. */
int64_t tw_multiply(way *w, int64_t x, int64_t out)
{
    void *buffers[MOST_BUFFERS];
    if (w->threads > most_threads || same_bits_only > w->same_bits) return REFUSED;
    for (int b = 0; b < MOST_BUFFERS; b++) buffers[b] = w->buffers[b];
    if (w->indptr) {
        const fields *indptr = at(w->indptr, w->header), *indices = at(w->indices, w->header), *data = at(w->data, w->header);
        if (indptr->dimensions[0] <= w->lines) return CHANGED;
        const int64_t end = w->wide ? ((int64_t *)indptr->data)[w->lines] : ((int32_t *)indptr->data)[w->lines];
        if (end < 0 || indices->dimensions[0] < end || data->dimensions[0] < end) return CHANGED;
        if (w->block && (data->nd != 3 || data->dimensions[1] != w->block || data->dimensions[2] != w->block)) return CHANGED;
        buffers[w->place_indptr] = indptr->data;
        buffers[w->place_indices] = indices->data;
        buffers[w->place_data] = data->data;
    }
    buffers[w->place_x] = at(x, w->header)->data;
    buffers[w->place_out] = at(out, w->header)->data;
    if (((intptr_t)buffers[w->place_x] | (intptr_t)buffers[w->place_out]) & w->alignment) return CHANGED;
    if (w->exclusive && __atomic_exchange_n(&w->busy, 1, __ATOMIC_ACQUIRE)) return REFUSED;
    const int64_t start = now_ns();
    const int flag = w->kernel(buffers, w->sizes);
    const int64_t took = now_ns() - start;
    if (w->exclusive) __atomic_store_n(&w->busy, 0, __ATOMIC_RELEASE);
    if (flag) return FLAGGED;
    __atomic_store_n(&w->calls, __atomic_load_n(&w->calls, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
    return took;
}

/* Limit the calls of this process from now on. */
void tw_limit(int64_t threads, int64_t same_bits)
{
    most_threads = threads;
    same_bits_only = same_bits;
}

/* The data pointer of an array object, to compare with what NumPy says. */
int64_t tw_data(int64_t object, int64_t header) { return (int64_t)at(object, header)->data; }

/* Bounds that cut `lines` lines into parts of equal cost: entries plus one a line. bounds has parts + 1 elements. */
void tw_bounds(const void *indptr, int64_t wide, int64_t lines, int64_t parts, int64_t *bounds)
{
    const int32_t *narrow = indptr;
    const int64_t *long_ = indptr;
#define COST(line) ((wide ? long_[line] - long_[0] : (int64_t)narrow[line] - narrow[0]) + (line))
    const int64_t all = COST(lines);
    bounds[0] = 0;
    for (int64_t p = 1; p < parts; p++) {
        const int64_t wanted = (int64_t)((double)all * p / parts);
        int64_t low = bounds[p - 1], high = lines;
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            if (COST(middle) < wanted) low = middle + 1;
            else high = middle;
        }
        bounds[p] = low;
    }
    bounds[parts] = lines;
#undef COST
}
