/* Drives runtime.c for the thread sanitizer: plain writes to data that the driver must keep apart. */
#include "prelude.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

void tw_parallel(tw_body, void *, int64_t, int64_t, int64_t, int64_t, const int64_t *, int64_t);
int64_t tw_workers(void);

enum { N = 997 };
typedef struct {
    int64_t counts[N];
    int64_t of_thread[64];
    int nested;
} data;

static void body(void *context, int64_t lo, int64_t hi, int64_t thread)
{
    data *d = context;
    if (d->nested) {
        data *inner = calloc(1, sizeof *inner);
        tw_parallel(body, inner, 0, 10, 3, 1, NULL, 0);
        free(inner);
    }
    for (int64_t i = lo; i < hi; i++) d->counts[i]++;
    d->of_thread[thread] += hi - lo;
}

static void *drive(void *unused)
{
    data *d = calloc(1, sizeof *d);
    int64_t bounds[9] = {0, 100, 100, 300, 301, 500, 700, 900, N}, calls = 0;
    for (int repeat = 0; repeat < 200; repeat++)
        for (int64_t threads = 1; threads <= 5; threads++, calls++) {
            d->nested = repeat % 7 == 0;
            if (repeat % 2) tw_parallel(body, d, 0, N, threads, 1 + repeat, NULL, 0);
            else tw_parallel(body, d, 0, 0, threads, 0, bounds, 8);
        }
    int64_t sum = 0;
    for (int i = 0; i < N; i++)
        if (d->counts[i] != calls) exit(2);
    for (int t = 0; t < 64; t++) sum += d->of_thread[t];
    if (sum != calls * N) exit(3);
    free(d);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    drive(NULL);
    for (int t = 0; t < 3; t++) pthread_create(&threads[t], NULL, drive, NULL);
    for (int t = 0; t < 3; t++) pthread_join(threads[t], NULL);
    if (tw_workers() != 4) return 4;
    puts("fine");
    return 0;
}
