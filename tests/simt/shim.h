/* CUDA on a CPU, for tests: each thread of a block is a fibre, blocks run one after the other.
 *
 * Fibres run up to where they wait for others, from another one on in each pass. A block whose fibres all wait for
 * somebody who does not come is reported (1); a shuffle beyond the threads of a team aborts.
 */
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

#define TW_SHIM 1
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(n)

struct tw_shim_place { unsigned x, y, z; };
static tw_shim_place threadIdx, blockIdx, blockDim, gridDim;

struct tw_shim_meeting { int arrived = 0, generation = 0; };
struct tw_shim_fibre { ucontext_t context; tw_shim_place place; bool done; };
static std::vector<tw_shim_fibre> tw_shim_fibres;
static std::vector<char> tw_shim_stacks;
static std::map<std::tuple<int, unsigned, unsigned>, tw_shim_meeting> tw_shim_meetings;
static ucontext_t tw_shim_scheduler;
static int tw_shim_running;
static long tw_shim_progress;
static uint64_t tw_shim_slots[1024], tw_shim_random;
static void (*tw_shim_body)(void **);
static void **tw_shim_arguments;
static const size_t tw_shim_stack_bytes = 64 * 1024;

static unsigned tw_shim_draw(unsigned below)
{
    tw_shim_random = tw_shim_random * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(tw_shim_random >> 33) % below;
}

static void tw_shim_wait(int kind, unsigned who, unsigned mask, int expected)
{
    tw_shim_meeting &meeting = tw_shim_meetings[std::make_tuple(kind, who, mask)];
    const int generation = meeting.generation;
    if (++meeting.arrived == expected) {
        meeting.arrived = 0;
        ++meeting.generation;
        ++tw_shim_progress;
        return;
    }
    while (meeting.generation == generation)
        swapcontext(&tw_shim_fibres[tw_shim_running].context, &tw_shim_scheduler);
}

static unsigned tw_shim_number() { return threadIdx.y * blockDim.x + threadIdx.x; }
static void tw_shim_barrier(unsigned id, int threads) { tw_shim_wait(0, id, 0, threads); }
static void __syncwarp(unsigned mask)
{
    const unsigned number = tw_shim_number();
    if (!(mask >> number % 32 & 1)) abort(); /* a thread must be among those that it waits for */
    tw_shim_wait(1, number / 32, mask, __builtin_popcount(mask));
}
template <typename C> static C __shfl_xor_sync(unsigned mask, C value, int distance)
{
    const unsigned number = tw_shim_number();
    if (!(mask >> (number % 32 ^ distance) & 1)) abort();
    memcpy(&tw_shim_slots[number], &value, sizeof value);
    __syncwarp(mask);
    C other;
    memcpy(&other, &tw_shim_slots[number / 32 * 32 + (number % 32 ^ distance)], sizeof other);
    __syncwarp(mask);
    return other;
}

template <typename To, typename From> static To tw_shim_bits(From from)
{
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static float __int_as_float(int x) { return tw_shim_bits<float>(x); }
static int __float_as_int(float x) { return tw_shim_bits<int>(x); }
static double __longlong_as_double(long long x) { return tw_shim_bits<double>(x); }
static unsigned long long __double_as_longlong(double x) { return tw_shim_bits<unsigned long long>(x); }
static int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
template <typename C> static C atomicAdd(C *p, C x) { C old = *p; *p = old + x; return old; }
template <typename C> static C atomicCAS(C *p, C before, C after)
{
    C old = *p;
    if (old == before) *p = after;
    return old;
}

static void tw_shim_start()
{
    tw_shim_body(tw_shim_arguments);
    tw_shim_fibres[tw_shim_running].done = true;
    ++tw_shim_progress;
}

/* Run all blocks of a launch; the blocks come in a shuffled order. */
static int tw_shim_launch(void (*body)(void **), void **arguments, const int *shape, unsigned seed)
{
    gridDim = {(unsigned)shape[0], (unsigned)shape[1], 1};
    blockDim = {(unsigned)shape[2], (unsigned)shape[3], 1};
    tw_shim_body = body, tw_shim_arguments = arguments, tw_shim_random = seed;
    const unsigned threads = blockDim.x * blockDim.y, blocks = gridDim.x * gridDim.y;
    tw_shim_fibres.resize(threads);
    tw_shim_stacks.resize(threads * tw_shim_stack_bytes);
    std::vector<unsigned> order(blocks);
    for (unsigned block = 0; block < blocks; ++block) {
        order[block] = block;
        std::swap(order[block], order[tw_shim_draw(block + 1)]);
    }
    for (unsigned block : order) {
        blockIdx = {block % gridDim.x, block / gridDim.x, 0};
        tw_shim_meetings.clear();
        for (unsigned number = 0; number < threads; ++number) {
            tw_shim_fibre &fibre = tw_shim_fibres[number];
            fibre.place = {number % blockDim.x, number / blockDim.x, 0};
            fibre.done = false;
            getcontext(&fibre.context);
            fibre.context.uc_stack.ss_sp = &tw_shim_stacks[number * tw_shim_stack_bytes];
            fibre.context.uc_stack.ss_size = tw_shim_stack_bytes;
            fibre.context.uc_link = &tw_shim_scheduler;
            makecontext(&fibre.context, tw_shim_start, 0);
        }
        for (unsigned left = threads; left;) {
            const long before = tw_shim_progress;
            const unsigned first = tw_shim_draw(threads);
            left = 0;
            for (unsigned turn = 0; turn < threads; ++turn) {
                tw_shim_running = (first + turn) % threads;
                tw_shim_fibre &fibre = tw_shim_fibres[tw_shim_running];
                if (fibre.done) continue;
                threadIdx = fibre.place;
                swapcontext(&tw_shim_scheduler, &fibre.context);
                left += !fibre.done;
            }
            if (left && before == tw_shim_progress) return 1;
        }
    }
    return 0;
}

template <typename... A, size_t... I>
static void tw_shim_call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>)
{
    kernel(*(A *)arguments[I]...);
}
template <typename... A> static void tw_shim_apply(void (*kernel)(A...), void **arguments)
{
    tw_shim_call(kernel, arguments, std::index_sequence_for<A...>());
}
/* int run_KERNEL(void **arguments, {blocks x, y, threads x, y}, seed) */
#define TW_SHIM_ENTRY(KERNEL)                                                                    \
    static void apply_##KERNEL(void **arguments) { tw_shim_apply(KERNEL, arguments); }           \
    extern "C" int run_##KERNEL(void **arguments, const int *shape, unsigned seed)               \
    {                                                                                            \
        return tw_shim_launch(apply_##KERNEL, arguments, shape, seed);                           \
    }
