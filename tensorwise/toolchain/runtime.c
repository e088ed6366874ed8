/* The parallel driver of all generated kernels, on a pool of its own.
 *
 * A call opens a job; the caller is thread 0 and works at once; worker w joins as thread w when it sees the job in time. Work
 * is claimed piece by piece through atomic counters and nothing belongs to a worker that has not come, so a call never waits
 * for a thread to wake up, only for pieces that are being worked on. A call from inside a body, or while another thread's call
 * is running, is served serially by its caller: there is one pool and it never deadlocks.
 *
 * `state` carries the whole protocol: generation << 32 | open << 31 | workers inside the job. The job's fields are written only
 * while it is closed and empty, and read only by who joined it. */
#ifdef __linux__
#define _GNU_SOURCE /* affinity */
#endif
#include "prelude.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define MAX_THREADS 1024
#define LINE __attribute__((aligned(128))) /* two cache lines: neighbours are prefetched in pairs */
#define OPEN (1ull << 31)
#define INSIDE (OPEN - 1)
#define GENERATION(state) ((state) >> 32)
#define SPINS_BEFORE_YIELD 2000
#define POLITE_NS 10000 /* of spinning, from which on whoever else wants the processor is let through */
#define MOST_WAKE_NS 200000 /* longer than that the caller was stopped meanwhile */
#define OTHERS_NS 100000 /* a yield that takes longer let another thread run: Linux gave it milliseconds */
#define CROWDED_NS 100000000 /* so long a worker then sleeps between jobs: woken, it has the processor at once */

typedef struct {
    tw_body body;
    void *context;
    int64_t lo, hi, chunk, pieces, threads;
    const int64_t *bounds;
} job;

typedef struct {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_t thread;
    int64_t id;
    int sleeping; /* atomic */
    int off;      /* the processor that it was kept off last, -1 for none; guarded by busy */
    int64_t crowded_until; /* another thread uses its processor, as a BLAS's that spins; its own */
} LINE worker;

static LINE uint64_t state;
static LINE int64_t next_piece;
static LINE uint8_t claimed[MAX_THREADS];
static LINE job current;
static LINE int busy; /* held by the one caller that uses the pool */
static LINE worker workers[MAX_THREADS];
static int64_t started; /* workers 1 .. started exist; guarded by busy */
static int64_t spin_ns = 60000; /* at least; see spinning() */
static int64_t wake_ns;         /* atomic: what waking a worker takes its caller, the longest of late */
static int spin_is_given;
static pthread_once_t once = PTHREAD_ONCE_INIT;
#ifdef __linux__
/* Where this process may run: an OpenMP runtime binds the main thread (OMP_PROC_BIND), whose threads would inherit that. */
static cpu_set_t cpus;
#endif

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t look(void) { return __atomic_load_n(&state, __ATOMIC_SEQ_CST); }

static void run_piece(const job *j, int64_t piece, int64_t thread)
{
    if (j->bounds) {
        if (j->bounds[piece] < j->bounds[piece + 1])
            j->body(j->context, j->bounds[piece], j->bounds[piece + 1], thread);
    } else {
        const int64_t lo = j->lo + piece * j->chunk;
        j->body(j->context, lo, j->hi - lo < j->chunk ? j->hi : lo + j->chunk, thread);
    }
}

/* Pieces 0 .. threads-1 are first offered to their own threads, so that equal calls touch equal data; the rest goes to whoever
 * is free. In the end, first pieces whose thread did not come are taken over. */
static void work(int64_t thread)
{
    const job j = current;
    if (!__atomic_exchange_n(&claimed[thread], 1, __ATOMIC_RELAXED)) run_piece(&j, thread, thread);
    for (int64_t p; (p = __atomic_fetch_add(&next_piece, 1, __ATOMIC_RELAXED)) < j.pieces;) run_piece(&j, p, thread);
    for (int64_t k = 1; k < j.threads; k++) {
        const int64_t p = (thread + k) % j.threads;
        if (!__atomic_load_n(&claimed[p], __ATOMIC_RELAXED) && !__atomic_exchange_n(&claimed[p], 1, __ATOMIC_RELAXED))
            run_piece(&j, p, thread);
    }
}

/* Serve the job that is open now, if any. Returns the generation it looked at. */
static uint64_t join(int64_t thread)
{
    uint64_t s = look();
    while (s & OPEN) {
        if (!__atomic_compare_exchange_n(&state, &s, s + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        if (thread < current.threads) work(thread);
        __atomic_fetch_sub(&state, 1, __ATOMIC_RELEASE);
        break;
    }
    return GENERATION(s);
}

/* How long a worker waits for the next job before it sleeps: twice as long as waking it takes. On virtual machines
 * that may be 80 us; workers that spin for less fall asleep while their caller still wakes them, call after call. */
static int64_t spinning(void)
{
    const int64_t wake = __atomic_load_n(&wake_ns, __ATOMIC_RELAXED);
    return spin_is_given ? spin_ns : tw_max_i64(spin_ns, 2 * wake);
}

static void *serve(void *argument)
{
    worker *me = argument;
    for (uint64_t seen = join(me->id);; seen = join(me->id)) {
        const int64_t start = now_ns();
        for (int64_t turn = 1; GENERATION(look()) == seen; turn++) {
            relax();
            if (turn % 32) continue;
            const int64_t now = now_ns(), waited = now - start;
            if (waited < (now < me->crowded_until ? POLITE_NS : spinning())) {
                if (waited <= POLITE_NS) continue;
                sched_yield(); /* our caller may be waiting for this very processor */
                if (now_ns() - now > OTHERS_NS) me->crowded_until = now + CROWDED_NS;
                continue;
            }
            pthread_mutex_lock(&me->mutex);
            __atomic_store_n(&me->sleeping, 1, __ATOMIC_SEQ_CST); /* before look(): see wake_workers */
            while (GENERATION(look()) == seen) pthread_cond_wait(&me->wake, &me->mutex);
            __atomic_store_n(&me->sleeping, 0, __ATOMIC_RELAXED);
            pthread_mutex_unlock(&me->mutex);
        }
    }
    return NULL;
}

/* Keep a worker that is about to run off our processor. Linux would often wake it right there, behind us: an idle
 * processor of a virtual machine looks taken to it (decision 0108). */
static void keep_off(worker *w)
{
    (void)w;
#ifdef __linux__
    const int here = sched_getcpu();
    if (here < 0 || here == w->off) return;
    cpu_set_t others = cpus;
    if (here < CPU_SETSIZE) CPU_CLR(here, &others);
    if (CPU_COUNT(&others)) pthread_setaffinity_np(w->thread, sizeof others, &others);
    w->off = here;
#endif
}

/* Either we see that a worker sleeps, or it sees the new generation and does not. */
static void wake_workers(int64_t threads)
{
    for (int64_t w = 1; w < threads && w <= started; w++) {
        if (!__atomic_load_n(&workers[w].sleeping, __ATOMIC_SEQ_CST)) continue;
        keep_off(&workers[w]);
        const int64_t start = now_ns(), before = __atomic_load_n(&wake_ns, __ATOMIC_RELAXED);
        pthread_mutex_lock(&workers[w].mutex);
        pthread_cond_signal(&workers[w].wake);
        pthread_mutex_unlock(&workers[w].mutex);
        const int64_t took = tw_min_i64(now_ns() - start, MOST_WAKE_NS);
        __atomic_store_n(&wake_ns, tw_max_i64(took, before - before / 8), __ATOMIC_RELAXED);
    }
}

/* Have threads - 1 workers, or as many as the system grants: the others' pieces are taken over. */
static void start_workers(int64_t threads)
{
    if (started >= threads - 1) return;
    sigset_t all, before;
    pthread_attr_t detached;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
#ifdef __linux__
    pthread_attr_setaffinity_np(&detached, sizeof cpus, &cpus);
#endif
    for (; started < threads - 1; started++) {
        worker *w = &workers[started + 1];
        pthread_mutex_init(&w->mutex, NULL);
        pthread_cond_init(&w->wake, NULL);
        w->id = started + 1;
        w->sleeping = 0;
        w->off = -1;
        if (pthread_create(&w->thread, &detached, serve, w)) break;
        keep_off(w);
    }
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* In a forked child only the thread that forked is left. */
static void forget_workers(void)
{
    started = 0;
    __atomic_store_n(&state, look() & ~(OPEN | INSIDE), __ATOMIC_RELAXED);
    __atomic_store_n(&busy, 0, __ATOMIC_RELAXED);
}

static void prepare(void)
{
    const char *text = getenv("TENSORWISE_SPIN_US");
    if (text && *text) {
        const long long us = atoll(text);
        spin_ns = us < 0 ? 0 : us > 1000000 ? 1000000000 : us * 1000;
        spin_is_given = 1;
    }
}

/* As the library is loaded: a fork must find its handler before any thread can be in a call. */
__attribute__((constructor)) static void look_around(void)
{
#ifdef __linux__
    sched_getaffinity(0, sizeof cpus, &cpus);
#endif
    pthread_atfork(NULL, NULL, forget_workers);
}

static void run_serially(tw_body body, void *context, int64_t lo, int64_t hi, const int64_t *bounds, int64_t parts)
{
    if (!bounds) {
        if (lo < hi) body(context, lo, hi, 0);
        return;
    }
    for (int64_t p = 0; p < parts; p++)
        if (bounds[p] < bounds[p + 1]) body(context, bounds[p], bounds[p + 1], 0);
}

/* Run body over [lo, hi) on up to `threads` threads; see tw_driver in prelude.h.
 *   bounds NULL: pieces of `chunk` iterations (0: about eight a thread), or one call when threads <= 1;
 *   else: pieces [bounds[p], bounds[p+1]) for p in 0 .. parts-1, empty ones skipped; lo, hi, chunk unused.
 * Every index is covered by exactly one call; calls that run at the same time differ in `thread`, which is in 0 .. threads-1;
 * all calls have returned, and their writes are visible, on return. */
void tw_parallel(tw_body body, void *context, int64_t lo, int64_t hi, int64_t threads, int64_t chunk,
                 const int64_t *bounds, int64_t parts)
{
    threads = tw_min_i64(threads, MAX_THREADS);
    int64_t pieces = parts;
    if (!bounds) {
        const int64_t n = tw_max_i64(hi - lo, 0);
        if (chunk <= 0) chunk = n / (8 * tw_max_i64(threads, 1)) + 1;
        pieces = n / chunk + (n % chunk != 0);
    }
    threads = tw_min_i64(threads, pieces);
    int idle = 0;
    if (threads <= 1 || !__atomic_compare_exchange_n(&busy, &idle, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        run_serially(body, context, lo, hi, bounds, parts);
        return;
    }
    pthread_once(&once, prepare);
    start_workers(threads);
    current = (job){body, context, lo, hi, chunk, pieces, threads, bounds};
    for (int64_t p = 0; p < threads; p++) __atomic_store_n(&claimed[p], 0, __ATOMIC_RELAXED);
    __atomic_store_n(&next_piece, threads, __ATOMIC_RELAXED);
    __atomic_store_n(&state, (GENERATION(look()) + 1) << 32 | OPEN, __ATOMIC_SEQ_CST);
    wake_workers(threads);
    work(0);
    uint64_t s = __atomic_and_fetch(&state, ~OPEN, __ATOMIC_SEQ_CST);
    for (int64_t turn = 0; s & INSIDE; s = look())
        if (turn++ < SPINS_BEFORE_YIELD) relax();
        else sched_yield();
    __atomic_store_n(&busy, 0, __ATOMIC_RELEASE);
}

/* Number of pool threads beside the callers; for tests and reports. */
int64_t tw_workers(void) { return __atomic_load_n(&started, __ATOMIC_RELAXED); }
