/* What generated CUDA C++ stands on. TW_INT, the type of indices, is given: int where all arrays are short enough.
 *
 *   tw_TxN                                  N neighbours that a thread loads at once; operators go lane by lane
 *   tw_splat_TxN tw_select_TxN tw_fold_*_TxN   as in prelude.h, for the elements f32, f64 (and i32, i64 to compare with)
 *   tw_meet<W>(), tw_exchange<W>(x, d)      the W threads of a team wait for each other, or swap x with thread ^ d
 */
#ifndef TW_INT
#define TW_INT long long
#endif
typedef TW_INT tw_int;
#define TW_INLINE static __device__ __forceinline__
#define TW_INFINITY_f32 __int_as_float(0x7f800000)
#define TW_INFINITY_f64 __longlong_as_double(0x7ff0000000000000LL)
#define TW_NAN_f32 __int_as_float(0x7fc00000)
#define TW_NAN_f64 __longlong_as_double(0x7ff8000000000000LL)

TW_INLINE tw_int tw_min_i64(tw_int a, tw_int b) { return a < b ? a : b; }
TW_INLINE tw_int tw_max_i64(tw_int a, tw_int b) { return a > b ? a : b; }

/* Position of c in the ascending crd[lo:hi), or -1. */
#define TW_SEARCH(I, C)                                                                    \
    TW_INLINE tw_int tw_search_##I(const C *crd, tw_int lo, tw_int hi, tw_int c)           \
    {                                                                                      \
        const tw_int end = hi;                                                             \
        while (lo < hi) {                                                                  \
            const tw_int middle = lo + (hi - lo) / 2;                                      \
            if ((tw_int)crd[middle] < c) lo = middle + 1; else hi = middle;                \
        }                                                                                  \
        return lo < end && (tw_int)crd[lo] == c ? lo : -1;                                 \
    }
TW_SEARCH(i32, int)
TW_SEARCH(i64, long long)
TW_SEARCH(u16, unsigned short)
TW_SEARCH(u32, unsigned int)

/* -- numbers; NaN propagates through extremes ------------------------------------------------ */

#define TW_NUMBERS(T, C, BITS, AS_BITS, AS_NUMBER, EXP)                                    \
    TW_INLINE C tw_fmax_##T(C a, C b) { return a > b || a != a ? a : b; }                  \
    TW_INLINE C tw_fmin_##T(C a, C b) { return a < b || a != a ? a : b; }                  \
    TW_INLINE C tw_fexp_##T(C a) { return EXP(a); }                                        \
    TW_INLINE void tw_atomic_add_##T(C *p, C x) { atomicAdd(p, x); }                       \
    TW_UPDATE(mul, T, C, BITS, AS_BITS, AS_NUMBER, old * x)                                \
    TW_UPDATE(max, T, C, BITS, AS_BITS, AS_NUMBER, tw_fmax_##T(old, x))                    \
    TW_UPDATE(min, T, C, BITS, AS_BITS, AS_NUMBER, tw_fmin_##T(old, x))
#define TW_UPDATE(name, T, C, BITS, AS_BITS, AS_NUMBER, COMBINED)                          \
    TW_INLINE void tw_atomic_##name##_##T(C *p, C x)                                       \
    {                                                                                      \
        BITS seen = *(volatile BITS *)p, before;                                           \
        do {                                                                               \
            before = seen;                                                                 \
            const C old = AS_NUMBER(before);                                               \
            seen = atomicCAS((BITS *)p, before, AS_BITS(COMBINED));                        \
        } while (seen != before);                                                          \
    }
TW_NUMBERS(f32, float, int, __float_as_int, __int_as_float, expf)
TW_NUMBERS(f64, double, unsigned long long, __double_as_longlong, __longlong_as_double, exp)

/* -- vectors --------------------------------------------------------------------------------- */

template <typename C, int N> struct alignas(sizeof(C) * N) tw_vector {
    C at[N];
    __device__ __forceinline__ C &operator[](int lane) { return at[lane]; }
    __device__ __forceinline__ C operator[](int lane) const { return at[lane]; }
};
template <typename C> struct tw_mask { typedef C type; };
template <> struct tw_mask<float> { typedef int type; };
template <> struct tw_mask<double> { typedef long long type; };

#define TW_LANES for (int lane_ = 0; lane_ < N; ++lane_)
#define TW_ARITHMETIC(SYMBOL)                                                              \
    template <typename C, int N>                                                           \
    TW_INLINE tw_vector<C, N> operator SYMBOL(tw_vector<C, N> a, tw_vector<C, N> b)        \
    {                                                                                      \
        TW_LANES a[lane_] = a[lane_] SYMBOL b[lane_];                                      \
        return a;                                                                          \
    }
#define TW_COMPARISON(SYMBOL)                                                              \
    template <typename C, int N>                                                           \
    TW_INLINE tw_vector<typename tw_mask<C>::type, N> operator SYMBOL(                     \
        tw_vector<C, N> a, tw_vector<C, N> b)                                              \
    {                                                                                      \
        tw_vector<typename tw_mask<C>::type, N> held;                                      \
        TW_LANES held[lane_] = a[lane_] SYMBOL b[lane_] ? -1 : 0;                          \
        return held;                                                                       \
    }
TW_ARITHMETIC(+)
TW_ARITHMETIC(-)
TW_ARITHMETIC(*)
TW_ARITHMETIC(/)
TW_ARITHMETIC(&)
TW_ARITHMETIC(|)
TW_COMPARISON(<)
TW_COMPARISON(<=)
TW_COMPARISON(==)
TW_COMPARISON(!=)
template <typename C, int N> TW_INLINE tw_vector<C, N> operator-(tw_vector<C, N> a)
{
    TW_LANES a[lane_] = -a[lane_];
    return a;
}
template <typename C, int N> TW_INLINE tw_vector<C, N> operator~(tw_vector<C, N> a)
{
    TW_LANES a[lane_] = ~a[lane_];
    return a;
}
template <typename C, int N> TW_INLINE tw_vector<C, N> tw_absolute(tw_vector<C, N> a)
{
    TW_LANES a[lane_] = a[lane_] <= 0 ? 0 - a[lane_] : a[lane_]; /* also -0 becomes +0 */
    return a;
}
template <typename V, typename C> TW_INLINE V tw_repeated(C x)
{
    V all;
    for (int lane = 0; lane < (int)(sizeof(V) / sizeof(all[0])); ++lane) all[lane] = x;
    return all;
}

/* Adds a vector at once where the GPU can, and says whether it did. */
template <typename C, int N> TW_INLINE bool tw_add_vector(C *, tw_vector<C, N>) { return false; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
TW_INLINE bool tw_add_vector(float *p, tw_vector<float, 2> v)
{
    atomicAdd((float2 *)p, make_float2(v[0], v[1]));
    return true;
}
TW_INLINE bool tw_add_vector(float *p, tw_vector<float, 4> v)
{
    atomicAdd((float4 *)p, make_float4(v[0], v[1], v[2], v[3]));
    return true;
}
#endif
#define TW_VECTOR(T, C, N)                                                                 \
    typedef tw_vector<C, N> tw_##T##x##N, tw_##T##x##N##u;                                 \
    TW_INLINE tw_##T##x##N tw_select_##T##x##N(                                            \
        tw_vector<tw_mask<C>::type, N> condition, tw_##T##x##N a, tw_##T##x##N b)          \
    {                                                                                      \
        for (int lane = 0; lane < N; ++lane) a[lane] = condition[lane] ? a[lane] : b[lane];\
        return a;                                                                          \
    }
#define TW_BY_LANE(name, T, N, VALUE)                                                      \
    TW_INLINE tw_##T##x##N tw_##name##_##T##x##N(tw_##T##x##N a, tw_##T##x##N b)           \
    {                                                                                      \
        for (int lane = 0; lane < N; ++lane) a[lane] = VALUE;                              \
        return a;                                                                          \
    }
#define TW_FOLD(name, T, C, N, VALUE)                                                      \
    TW_INLINE C tw_fold_##name##_##T##x##N(tw_##T##x##N v)                                 \
    {                                                                                      \
        C all = v[0];                                                                      \
        for (int lane = 1; lane < N; ++lane) all = VALUE;                                  \
        return all;                                                                        \
    }
#define TW_FLOATS(T, C, N)                                                                 \
    TW_VECTOR(T, C, N)                                                                     \
    TW_INLINE void tw_atomic_add_##T##x##N(C *p, tw_##T##x##N v)                           \
    {                                                                                      \
        if (tw_add_vector(p, v)) return;                                                   \
        for (int lane = 0; lane < N; ++lane) atomicAdd(p + lane, v[lane]);                 \
    }                                                                                      \
    TW_INLINE tw_##T##x##N tw_splat_##T##x##N(C x) { return tw_repeated<tw_##T##x##N>(x); }\
    TW_INLINE tw_##T##x##N tw_fexp_##T##x##N(tw_##T##x##N a)                               \
    {                                                                                      \
        for (int lane = 0; lane < N; ++lane) a[lane] = tw_fexp_##T(a[lane]);               \
        return a;                                                                          \
    }                                                                                      \
    TW_BY_LANE(fmax, T, N, tw_fmax_##T(a[lane], b[lane]))                                  \
    TW_BY_LANE(fmin, T, N, tw_fmin_##T(a[lane], b[lane]))                                  \
    TW_FOLD(add, T, C, N, all + v[lane])                                                   \
    TW_FOLD(mul, T, C, N, all * v[lane])                                                   \
    TW_FOLD(max, T, C, N, tw_fmax_##T(all, v[lane]))                                       \
    TW_FOLD(min, T, C, N, tw_fmin_##T(all, v[lane]))
TW_VECTOR(i32, int, 2)
TW_VECTOR(i32, int, 4)
TW_VECTOR(i64, long long, 2)
TW_VECTOR(i64, long long, 4)
TW_FLOATS(f32, float, 2)
TW_FLOATS(f32, float, 4)
TW_FLOATS(f64, double, 2)
TW_FLOATS(f64, double, 4)

/* -- teams: W threads along x, inside a warp, or made of whole warps --------------------------- */

template <int W> TW_INLINE unsigned int tw_team()
{
    const unsigned int number = (threadIdx.y * W + threadIdx.x) % 32;
    return W == 32 ? 0xffffffffu : ((1u << W % 32) - 1) << number / W * W;
}
template <int W> TW_INLINE void tw_meet()
{
    if (W <= 32) {
        __syncwarp(tw_team<W>());
    } else { /* a barrier a team: there are sixteen, and teams of more than one warp are at most as many */
#ifdef TW_SHIM
        tw_shim_barrier(threadIdx.y, W);
#else
        asm volatile("barrier.sync %0, %1;" ::"r"(threadIdx.y), "r"(W) : "memory");
#endif
    }
}
template <int W, typename C> TW_INLINE C tw_exchange(C value, int distance)
{
    return __shfl_xor_sync(tw_team<W>(), value, distance);
}
