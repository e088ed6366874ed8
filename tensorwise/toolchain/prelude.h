/* What every generated kernel may use. Parsed once a compiled file, so it stays lean: no intrinsics
 * header (135 ms a compile), only vector types that gcc and clang share. TW_F32_LANES and TW_F64_LANES, set
 * before, limit the widths that are declared (the cache sets them to what the kernels name; 0 is none), and TW_EXP
 * says that exponentials are needed.
 *
 * T is f32 or f64, N is 2, 4, 8 or 16 lanes, I is i32 (beside f32) or i64 (beside f64):
 *   tw_TxN, tw_IxN          vectors, aligned to their size        tw_TxNu, tw_IxNu   the same, at any address
 *   tw_load_TxN(p)  tw_store_TxN(p, v)  tw_splat_TxN(s)           tw_select_TxN(mask, a, b)   mask: lanes 0 or -1
 *   tw_gather_TxN_K(base, index)                                  lane l is base[index[l]]   K: i32, u16 or i64
 *   tw_fmin_TxN(a, b)  tw_fmax_TxN(a, b)                          by lane, NaN propagates
 *   tw_fexp_T(x)  tw_fexp_TxN(v)                                  within 2 units in the last place (where TW_EXP is set)
 *   tw_fold_add_TxN(v)  _mul_  _min_  _max_                       all lanes to one value, as a tree of halves
 *   tw_folds_add_TxN(a, b, c, d)                                  lane l: all lanes of the l-th vector added (N from 4)
 *   tw_fold_nan_TxN(v)                                            not 0 where a lane is NaN
 *
 * Halves H, f16 or bf16, are uint16_t in memory and floats in registers (TW_F16_LANES: 0 is none, 1 scalars only):
 *   tw_widen_H(bits)  tw_widen_HxN(tw_u16xN bits)                 the float, exactly
 *   tw_narrow_H(value)  tw_narrow_HxN(tw_f32xN v)                 the nearest half, ties to even; NaN stays NaN
 */
#ifndef TW_PRELUDE_H
#define TW_PRELUDE_H
#include <stddef.h>
#include <stdint.h>

#define TW_INLINE static inline __attribute__((always_inline, unused))

/* ---- parallel loops (the driver is runtime.c's; a kernel gets its address as buffers[0]) ---- */
typedef void (*tw_body)(void *context, int64_t lo, int64_t hi, int64_t thread);
typedef void (*tw_driver)(tw_body body, void *context, int64_t lo, int64_t hi, int64_t threads, int64_t chunk,
                          const int64_t *bounds, int64_t parts);

/* The driver, without the indirect call when there is nothing to share out: `body` may then be inlined. */
TW_INLINE void tw_run(tw_driver driver, tw_body body, void *context, int64_t lo, int64_t hi, int64_t threads,
                      int64_t chunk, const int64_t *bounds, int64_t parts)
{
    if (threads > 1 || bounds)
        driver(body, context, lo, hi, threads, chunk, bounds, parts);
    else if (lo < hi)
        body(context, lo, hi, 0);
}

/* ---- integers ---- */
TW_INLINE int64_t tw_min_i64(int64_t a, int64_t b) { return a < b ? a : b; }
TW_INLINE int64_t tw_max_i64(int64_t a, int64_t b) { return a > b ? a : b; }

/* tw_lower_I: first position p in [lo, hi) with crd[p] >= c, else hi. tw_search_I: the position of c, or -1. */
#define TW_SEARCH(I, C)                                                                            \
    TW_INLINE int64_t tw_lower_##I(const C *crd, int64_t lo, int64_t hi, int64_t c)                \
    {                                                                                              \
        int64_t n = hi - lo;                                                                       \
        while (n > 0) {                                                                            \
            const int64_t half = n >> 1;                                                           \
            const int below = crd[lo + half] < c;                                                  \
            lo = below ? lo + half + 1 : lo;                                                       \
            n = below ? n - half - 1 : half;                                                       \
        }                                                                                          \
        return lo;                                                                                 \
    }                                                                                              \
    TW_INLINE int64_t tw_search_##I(const C *crd, int64_t lo, int64_t hi, int64_t c)               \
    {                                                                                              \
        const int64_t p = tw_lower_##I(crd, lo, hi, c);                                            \
        return p < hi && crd[p] == c ? p : -1;                                                     \
    }
TW_SEARCH(i32, int32_t)
TW_SEARCH(i64, int64_t)
TW_SEARCH(u16, uint16_t)

/* ---- scalars: NumPy's minimum and maximum (a NaN on either side is the result), atomic updates ---- */
#define TW_UPDATE(name, T, C, B, expression)                                                       \
    TW_INLINE void tw_atomic_##name##_##T(C *p, C b)                                               \
    {                                                                                              \
        union { B bits; C value; } a, next;                                                        \
        a.bits = __atomic_load_n((B *)p, __ATOMIC_RELAXED);                                        \
        do                                                                                         \
            next.value = (expression);                                                             \
        while (!__atomic_compare_exchange_n((B *)p, &a.bits, next.bits, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)); \
    }
#define TW_SCALAR(T, C, B)                                                                         \
    TW_INLINE C tw_fmin_##T(C a, C b) { return a < b || a != a ? a : b; }                          \
    TW_INLINE C tw_fmax_##T(C a, C b) { return a > b || a != a ? a : b; }                          \
    typedef B __attribute__((may_alias)) tw_bits_##T;                                              \
    TW_UPDATE(add, T, C, tw_bits_##T, a.value + b)                                                 \
    TW_UPDATE(mul, T, C, tw_bits_##T, a.value * b)                                                 \
    TW_UPDATE(min, T, C, tw_bits_##T, tw_fmin_##T(a.value, b))                                     \
    TW_UPDATE(max, T, C, tw_bits_##T, tw_fmax_##T(a.value, b))
TW_SCALAR(f32, float, uint32_t)
TW_SCALAR(f64, double, uint64_t)

/* ---- the exponential ----
 * x = n ln 2 + r, |r| <= ln 2 / 2: a polynomial of r times 2^n, in two factors, since n may lie outside the exponents.
 * Adding 1.5 times 2^23 (2^52) rounds to an integer and leaves it in the lowest bits. V is C or a vector, I its bits. */
#if TW_EXP
#define TW_EXP_OF(S, V, I, BITS, BIAS, LOW, HIGH, MAGIC, LOG2E, LN2_HIGH, LN2_LOW, POLYNOMIAL)     \
    TW_INLINE V tw_fexp_##S(V x)                                                                   \
    {                                                                                              \
        typedef union { V value; I bits; } both;                                                   \
        x = tw_fmax_##S(tw_fmin_##S(x, (V){0} + HIGH), (V){0} + LOW);                              \
        const both rounded = {x * LOG2E + MAGIC}, magic = {(V){0} + MAGIC};                        \
        const I n = rounded.bits - magic.bits, half = n >> 1;                                      \
        const V k = rounded.value - MAGIC, r = (x - k * LN2_HIGH) - k * LN2_LOW;                   \
        const both first = {.bits = ((half + BIAS) & (2 * BIAS + 1)) << BITS};                     \
        const both second = {.bits = ((n - half + BIAS) & (2 * BIAS + 1)) << BITS};                \
        return (POLYNOMIAL) * first.value * second.value;                                          \
    }
#define TW_EXP_OF_f32(S, V, I)                                                                     \
    TW_EXP_OF(S, V, I, 23, 127, -104.0f, 89.0f, 12582912.0f, 1.44269504f, 0.693359375f, -2.12194440e-4f, \
              1 + r * (1 + r * (1.0f / 2 + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 +      \
              r * (1.0f / 720 + r * (1.0f / 5040))))))))
#define TW_EXP_OF_f64(S, V, I)                                                                     \
    TW_EXP_OF(S, V, I, 52, 1023, -746.0, 710.0, 6755399441055744.0, 1.4426950408889634, 0x1.62e42fee00000p-1, \
              0x1.a39ef35793c76p-33,                                                               \
              1 + r * (1 + r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720 + \
              r * (1.0 / 5040 + r * (1.0 / 40320 + r * (1.0 / 362880 + r * (1.0 / 3628800 + r * (1.0 / 39916800 + \
              r * (1.0 / 479001600 + r * (1.0 / 6227020800))))))))))))))
TW_EXP_OF_f32(f32, float, int32_t)
TW_EXP_OF_f64(f64, double, int64_t)
#endif

/* ---- vectors ---- */
#ifndef TW_F32_LANES
#define TW_F32_LANES 16
#endif
#ifndef TW_F64_LANES
#define TW_F64_LANES 16
#endif
#define TW_FOR2(x, k) x(k), x(k + 1)
#define TW_FOR4(x, k) TW_FOR2(x, k), TW_FOR2(x, k + 2)
#define TW_FOR8(x, k) TW_FOR4(x, k), TW_FOR4(x, k + 4)
#define TW_FOR16(x, k) TW_FOR8(x, k), TW_FOR8(x, k + 8)
#define TW_ONE(k) s

/* Short indices are read several in a word: the processor loads one word and two elements in a cycle, not one index
 * less. They are not negative. */
typedef uint64_t __attribute__((may_alias, aligned(2))) tw_word64;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define TW_AT_i32(k) base[(uint32_t)(((const tw_word64 *)index)[(k) / 2] >> (k) % 2 * 32)]
#define TW_AT_u16(k) base[(uint16_t)(((const tw_word64 *)index)[(k) / 4] >> (k) % 4 * 16)]
#else
#define TW_AT_i32(k) base[index[k]]
#define TW_AT_u16(k) base[index[k]]
#endif
#define TW_AT_i64(k) base[index[k]]
#define TW_GATHER(T, C, N, K, I)                                                                   \
    TW_INLINE tw_##T##x##N tw_gather_##T##x##N##_##K(const C *base, const I *index)                \
    {                                                                                              \
        return (tw_##T##x##N){TW_FOR##N(TW_AT_##K, 0)};                                            \
    }
#define TW_TYPE(T, C, N)                                                                           \
    typedef C tw_##T##x##N __attribute__((vector_size(N * sizeof(C)), may_alias));                 \
    typedef C tw_##T##x##N##u __attribute__((vector_size(N * sizeof(C)), aligned(sizeof(C)), may_alias));
#define TW_VECTOR(T, C, I, K, N)                                                                   \
    TW_TYPE(T, C, N)                                                                               \
    TW_TYPE(I, K, N)                                                                               \
    TW_INLINE tw_##T##x##N tw_load_##T##x##N(const C *p) { return *(const tw_##T##x##N##u *)p; }   \
    TW_INLINE void tw_store_##T##x##N(C *p, tw_##T##x##N v) { *(tw_##T##x##N##u *)p = v; }         \
    TW_INLINE tw_##T##x##N tw_splat_##T##x##N(C s) { return (tw_##T##x##N){TW_FOR##N(TW_ONE, 0)}; } \
    TW_GATHER(T, C, N, i32, int32_t)                                                               \
    TW_GATHER(T, C, N, i64, int64_t)                                                               \
    TW_INLINE tw_##T##x##N tw_select_##T##x##N(tw_##I##x##N mask, tw_##T##x##N a, tw_##T##x##N b)  \
    {                                                                                              \
        return (tw_##T##x##N)((mask & (tw_##I##x##N)a) | (~mask & (tw_##I##x##N)b));               \
    }                                                                                              \
    TW_INLINE tw_##T##x##N tw_fmin_##T##x##N(tw_##T##x##N a, tw_##T##x##N b)                       \
    {                                                                                              \
        return tw_select_##T##x##N((a < b) | (a != a), a, b);                                      \
    }                                                                                              \
    TW_INLINE tw_##T##x##N tw_fmax_##T##x##N(tw_##T##x##N a, tw_##T##x##N b)                       \
    {                                                                                              \
        return tw_select_##T##x##N((a > b) | (a != a), a, b);                                      \
    }                                                                                              \
    TW_INLINE tw_##I##x##N tw_select_##I##x##N(tw_##I##x##N mask, tw_##I##x##N a, tw_##I##x##N b)  \
    {                                                                                              \
        return (mask & a) | (~mask & b);                                                           \
    }                                                                                              \
    TW_EXP_VECTOR(T, C, I, K, N)
#if TW_EXP
#define TW_EXP_VECTOR(T, C, I, K, N) TW_EXP_OF_##T(T##x##N, tw_##T##x##N, tw_##I##x##N)
#else
#define TW_EXP_VECTOR(T, C, I, K, N)
#endif
#define TW_FOLD(T, C, N, H, name, expression)                                                      \
    TW_INLINE C tw_fold_##name##_##T##x##N(tw_##T##x##N v)                                         \
    {                                                                                              \
        union { tw_##T##x##N whole; tw_##T##x##H half[2]; } u = {v};                               \
        const tw_##T##x##H a = u.half[0], b = u.half[1];                                           \
        return tw_fold_##name##_##T##x##H(expression);                                             \
    }
/* Four floats fold in one register: compilers would take two out and add them horizontally, which is slow. */
#define TW_FOLD_OF_4(name, combined)                                                               \
    TW_INLINE float tw_fold_##name##_f32x4(tw_f32x4 a)                                             \
    {                                                                                              \
        tw_f32x4 b = __builtin_shufflevector(a, a, 2, 3, 2, 3);                                    \
        a = combined;                                                                              \
        b = __builtin_shufflevector(a, a, 1, 1, 3, 3);                                             \
        a = combined;                                                                              \
        return a[0];                                                                               \
    }
/* Four vectors transposed and added take half the shuffles of four folds. */
#define TW_PAIRED(a, b, low, high) (__builtin_shufflevector(a, b, low) + __builtin_shufflevector(a, b, high))
#define TW_LIST(...) __VA_ARGS__
#define TW_TOGETHER_OF(T, N, first_low, first_high, second_low, second_high, whole)              \
    TW_INLINE tw_##T##x4 tw_folds_add_##T##x##N(tw_##T##x##N a, tw_##T##x##N b, tw_##T##x##N c, tw_##T##x##N d) \
    {                                                                                              \
        const tw_##T##x##N ab = TW_PAIRED(a, b, TW_LIST first_low, TW_LIST first_high);            \
        const tw_##T##x##N cd = TW_PAIRED(c, d, TW_LIST first_low, TW_LIST first_high);            \
        const tw_##T##x##N r = TW_PAIRED(ab, cd, TW_LIST second_low, TW_LIST second_high);         \
        return whole;                                                                              \
    }
#define TW_TOGETHER_BY_HALVES(T, N, H)                                                             \
    TW_INLINE tw_##T##x##H tw_halved_##T##x##N(tw_##T##x##N v)                                     \
    {                                                                                              \
        union { tw_##T##x##N whole; tw_##T##x##H half[2]; } u = {v};                               \
        return u.half[0] + u.half[1];                                                              \
    }                                                                                              \
    TW_INLINE tw_##T##x4 tw_folds_add_##T##x##N(tw_##T##x##N a, tw_##T##x##N b, tw_##T##x##N c, tw_##T##x##N d) \
    {                                                                                              \
        return tw_folds_add_##T##x##H(tw_halved_##T##x##N(a), tw_halved_##T##x##N(b),              \
                                      tw_halved_##T##x##N(c), tw_halved_##T##x##N(d));             \
    }
/* Whether any lane is NaN. */
#define TW_NAN_BY_HALVES(T, C, N, H)                                                               \
    TW_INLINE int tw_fold_nan_##T##x##N(tw_##T##x##N v)                                            \
    {                                                                                              \
        union { tw_##T##x##N whole; tw_##T##x##H half[2]; } u = {v};                               \
        return tw_fold_nan_##T##x##H(u.half[0]) | tw_fold_nan_##T##x##H(u.half[1]);                \
    }
#ifdef __AVX2__
#define TW_NAN_BY_MASK(T, C, N, builtin)                                                           \
    TW_INLINE int tw_fold_nan_##T##x##N(tw_##T##x##N v)                                            \
    {                                                                                              \
        typedef C lanes __attribute__((vector_size(N * sizeof(C))));                               \
        return __builtin_ia32_##builtin((lanes)(v != v)) != 0;                                     \
    }
#define TW_NAN_f32x4(T, C, N, H) TW_NAN_BY_MASK(T, C, N, movmskps)
#define TW_NAN_f32x8(T, C, N, H) TW_NAN_BY_MASK(T, C, N, movmskps256)
#define TW_NAN_f64x4(T, C, N, H) TW_NAN_BY_MASK(T, C, N, movmskpd256)
#else
#define TW_NAN_f32x4 TW_NAN_BY_HALVES
#define TW_NAN_f32x8 TW_NAN_BY_HALVES
#define TW_NAN_f64x4 TW_NAN_BY_HALVES
#endif
#define TW_NAN_f64x8 TW_NAN_BY_HALVES
#define TW_NAN_f32x16 TW_NAN_BY_HALVES
#define TW_NAN_f64x16 TW_NAN_BY_HALVES

#define TW_FAMILY_OF_2(T, C, I, K)                                                                 \
    TW_VECTOR(T, C, I, K, 2)                                                                       \
    TW_INLINE tw_##T##x2 tw_gather_##T##x2_u16(const C *base, const uint16_t *index)               \
    {                                                                                              \
        return (tw_##T##x2){base[index[0]], base[index[1]]};                                       \
    }                                                                                              \
    TW_INLINE C tw_fold_add_##T##x2(tw_##T##x2 v) { return v[0] + v[1]; }                          \
    TW_INLINE C tw_fold_mul_##T##x2(tw_##T##x2 v) { return v[0] * v[1]; }                          \
    TW_INLINE C tw_fold_min_##T##x2(tw_##T##x2 v) { return tw_fmin_##T(v[0], v[1]); }              \
    TW_INLINE C tw_fold_max_##T##x2(tw_##T##x2 v) { return tw_fmax_##T(v[0], v[1]); }              \
    TW_INLINE int tw_fold_nan_##T##x2(tw_##T##x2 v) { return v[0] != v[0] || v[1] != v[1]; }
#define TW_FOLDS(T, C, N, H)                                                                       \
    TW_FOLD(T, C, N, H, add, a + b)                                                                \
    TW_FOLD(T, C, N, H, mul, a * b)                                                                \
    TW_FOLD(T, C, N, H, min, tw_fmin_##T##x##H(a, b))                                              \
    TW_FOLD(T, C, N, H, max, tw_fmax_##T##x##H(a, b))
#define TW_FOLDS_f32x4(T, C, N, H)                                                                 \
    TW_FOLD_OF_4(add, a + b)                                                                       \
    TW_FOLD_OF_4(mul, a * b)                                                                       \
    TW_FOLD_OF_4(min, tw_fmin_f32x4(a, b))                                                         \
    TW_FOLD_OF_4(max, tw_fmax_f32x4(a, b))
#define TW_FOLDS_f32x8 TW_FOLDS
#define TW_FOLDS_f32x16 TW_FOLDS
#define TW_FOLDS_f64x4 TW_FOLDS
#define TW_FOLDS_f64x8 TW_FOLDS
#define TW_FOLDS_f64x16 TW_FOLDS
#define TW_FAMILY(T, C, I, K, N, H)                                                                \
    TW_VECTOR(T, C, I, K, N)                                                                       \
    TW_GATHER(T, C, N, u16, uint16_t)                                                              \
    TW_FOLDS_##T##x##N(T, C, N, H)                                                                 \
    TW_NAN_##T##x##N(T, C, N, H)

#if TW_F32_LANES >= 2
TW_FAMILY_OF_2(f32, float, i32, int32_t)
#endif
#if TW_F32_LANES >= 4
TW_FAMILY(f32, float, i32, int32_t, 4, 2)
TW_TOGETHER_OF(f32, 4, (0, 1, 4, 5), (2, 3, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), r)
#endif
#if TW_F32_LANES >= 8
TW_FAMILY(f32, float, i32, int32_t, 8, 4)
TW_TOGETHER_OF(f32, 8, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15), (0, 2, 8, 10, 4, 6, 12, 14),
               (1, 3, 9, 11, 5, 7, 13, 15),
               __builtin_shufflevector(r, r, 0, 1, 2, 3) + __builtin_shufflevector(r, r, 4, 5, 6, 7))
#endif
#if TW_F32_LANES >= 16
TW_FAMILY(f32, float, i32, int32_t, 16, 8)
TW_TOGETHER_BY_HALVES(f32, 16, 8)
#endif
/* ---- halves ---- */
#ifndef TW_F16_LANES
#define TW_F16_LANES 16
#endif
#if TW_F16_LANES >= 1
typedef union { uint32_t bits; float value; } tw_word;
TW_INLINE float tw_widen_bf16(uint16_t h) { return ((tw_word){(uint32_t)h << 16}).value; }
TW_INLINE uint16_t tw_narrow_bf16(float f)
{
    const uint32_t x = ((tw_word){.value = f}).bits;
    return (uint16_t)(f != f ? x >> 16 | 0x40 : (x + 0x7fff + (x >> 16 & 1)) >> 16);
}
typedef short tw_h8 __attribute__((vector_size(16)));
typedef long long tw_q2 __attribute__((vector_size(16)));
typedef short tw_h16 __attribute__((vector_size(32)));
typedef int32_t tw_w16 __attribute__((vector_size(64)));
#if defined(__clang__) && defined(__FLT16_MANT_DIG__) && (defined(__F16C__) || defined(__aarch64__))
#define TW_NATIVE_F16
typedef union { uint16_t bits; _Float16 value; } tw_short;
TW_INLINE float tw_widen_f16(uint16_t h) { return ((tw_short){h}).value; }
TW_INLINE uint16_t tw_narrow_f16(float f) { return ((tw_short){.value = (_Float16)f}).bits; }
#elif defined(__F16C__) && !defined(__clang__) /* clang has the type from 15 on, and no builtins */
typedef float tw_s4 __attribute__((vector_size(16)));
typedef float tw_s8 __attribute__((vector_size(32)));
TW_INLINE float tw_widen_f16(uint16_t h) { return __builtin_ia32_vcvtph2ps((tw_h8){(short)h})[0]; }
TW_INLINE uint16_t tw_narrow_f16(float f) { return (uint16_t)__builtin_ia32_vcvtps2ph((tw_s4){f}, 0)[0]; }
#else
/* Shifted into place, a finite half is the float times 2^-112; the product is exact, subnormal or not. */
TW_INLINE float tw_widen_f16(uint16_t h)
{
    const uint32_t x = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    const tw_word finite = {.value = ((tw_word){x}).value * 0x1p112f};
    return ((tw_word){sign | (x >= 0x7c00 << 13 ? x | 0x7f800000 : finite.bits)}).value;
}
/* Below 2^-14 halves are as far apart as floats at 1/2: adding that rounds. Above, the exponent moves by 112 and the
   bits that go carry into those that stay; from 2^16 on it is infinity. */
TW_INLINE uint16_t tw_narrow_f16(float f)
{
    const uint32_t all = ((tw_word){.value = f}).bits, x = all & 0x7fffffff;
    const uint32_t small = ((tw_word){.value = ((tw_word){x}).value + 0.5f}).bits - 0x3f000000;
    const uint32_t normal = (x - 0x37fff001 + (x >> 13 & 1)) >> 13;
    const uint32_t large = x > 0x7f800000 ? 0x7e00 | (x >> 13 & 0x3ff) : 0x7c00;
    return (uint16_t)(all >> 16 & 0x8000 | (x < 0x38800000 ? small : x < 0x47800000 ? normal : large));
}
#endif
#endif

/* gcc makes several instructions and a shuffle of a conversion that the processor has one for */
#define TW_WORDS_2(h) __builtin_convertvector(h, tw_u32x2)
#if defined(__SSE4_1__) && !defined(__clang__)
#define TW_WORDS_4(h) (tw_u32x4)__builtin_ia32_pmovzxwd128((tw_h8)(tw_q2){(int64_t)(h), 0})
#else
#define TW_WORDS_4(h) __builtin_convertvector(h, tw_u32x4)
#endif
#if defined(__AVX2__) && !defined(__clang__)
#define TW_WORDS_8(h) (tw_u32x8)__builtin_ia32_pmovzxwd256((tw_h8)(h))
#else
#define TW_WORDS_8(h) __builtin_convertvector(h, tw_u32x8)
#endif
#if defined(__AVX512F__) && !defined(__clang__)
#define TW_WORDS_16(h) \
    (tw_u32x16) __builtin_ia32_pmovzxwd512_mask((tw_h16)(h), (tw_w16){0}, (uint16_t)-1)
#else
#define TW_WORDS_16(h) __builtin_convertvector(h, tw_u32x16)
#endif
#define TW_HALVES(N)                                                                               \
    typedef uint16_t tw_u16x##N __attribute__((vector_size(2 * N), may_alias));                    \
    typedef uint16_t tw_u16x##N##u __attribute__((vector_size(2 * N), aligned(2), may_alias));     \
    typedef uint32_t tw_u32x##N __attribute__((vector_size(4 * N), may_alias));                    \
    TW_INLINE tw_f32x##N tw_widen_bf16x##N(tw_u16x##N h) { return (tw_f32x##N)(TW_WORDS_##N(h) << 16); } \
    TW_INLINE tw_u16x##N tw_narrow_bf16x##N(tw_f32x##N v)                                          \
    {                                                                                              \
        const tw_u32x##N x = (tw_u32x##N)v, nan = (tw_u32x##N)(v != v);                            \
        const tw_u32x##N rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;                             \
        return __builtin_convertvector((nan & (x >> 16 | 0x40)) | (~nan & rounded), tw_u16x##N);   \
    }
#define TW_HALVES_NATIVE(N)                                                                        \
    typedef _Float16 tw_h##N##_ __attribute__((vector_size(2 * N)));                               \
    TW_INLINE tw_f32x##N tw_widen_f16x##N(tw_u16x##N h)                                            \
    {                                                                                              \
        return __builtin_convertvector((tw_h##N##_)h, tw_f32x##N);                                 \
    }                                                                                              \
    TW_INLINE tw_u16x##N tw_narrow_f16x##N(tw_f32x##N v)                                           \
    {                                                                                              \
        return (tw_u16x##N)__builtin_convertvector(v, tw_h##N##_);                                 \
    }
#define TW_HALVES_BITWISE(N)                                                                       \
    TW_INLINE tw_f32x##N tw_widen_f16x##N(tw_u16x##N h)                                            \
    {                                                                                              \
        const tw_u32x##N bits = __builtin_convertvector(h, tw_u32x##N);                            \
        const tw_u32x##N x = (bits & 0x7fff) << 13, special = (tw_u32x##N)(x >= 0x7c00 << 13);     \
        const tw_u32x##N finite = (tw_u32x##N)((tw_f32x##N)x * 0x1p112f);                          \
        return (tw_f32x##N)((bits & 0x8000) << 16 | (special & (x | 0x7f800000)) | (~special & finite)); \
    }                                                                                              \
    TW_INLINE tw_u16x##N tw_narrow_f16x##N(tw_f32x##N v)                                           \
    {                                                                                              \
        const tw_u32x##N x = (tw_u32x##N)v & 0x7fffffff, nan = (tw_u32x##N)(v != v);               \
        const tw_u32x##N small = (tw_u32x##N)(x < 0x38800000), large = (tw_u32x##N)(x >= 0x47800000); \
        const tw_u32x##N least = (tw_u32x##N)((tw_f32x##N)x + 0.5f) - 0x3f000000;                  \
        const tw_u32x##N normal = (x - 0x37fff001 + (x >> 13 & 1)) >> 13;                          \
        const tw_u32x##N most = (nan & (0x7e00 | (x >> 13 & 0x3ff))) | (~nan & 0x7c00);            \
        const tw_u32x##N sign = (tw_u32x##N)v >> 16 & 0x8000;                                      \
        return __builtin_convertvector(                                                            \
            sign | (small & least) | (large & most) | (~(small | large) & normal), tw_u16x##N);    \
    }
#define TW_HALVES_BY_HALVES(N, H)                                                                  \
    TW_INLINE tw_f32x##N tw_widen_f16x##N(tw_u16x##N h)                                            \
    {                                                                                              \
        const union { tw_u16x##N whole; tw_u16x##H half[2]; } given = {h};                         \
        const union { tw_f32x##H half[2]; tw_f32x##N whole; } made = {                             \
            {tw_widen_f16x##H(given.half[0]), tw_widen_f16x##H(given.half[1])}};                   \
        return made.whole;                                                                         \
    }                                                                                              \
    TW_INLINE tw_u16x##N tw_narrow_f16x##N(tw_f32x##N v)                                           \
    {                                                                                              \
        const union { tw_f32x##N whole; tw_f32x##H half[2]; } given = {v};                         \
        const union { tw_u16x##H half[2]; tw_u16x##N whole; } made = {                             \
            {tw_narrow_f16x##H(given.half[0]), tw_narrow_f16x##H(given.half[1])}};                 \
        return made.whole;                                                                         \
    }
#if TW_F16_LANES >= 2
TW_HALVES(2)
TW_INLINE tw_f32x2 tw_widen_f16x2(tw_u16x2 h) { return (tw_f32x2){tw_widen_f16(h[0]), tw_widen_f16(h[1])}; }
TW_INLINE tw_u16x2 tw_narrow_f16x2(tw_f32x2 v) { return (tw_u16x2){tw_narrow_f16(v[0]), tw_narrow_f16(v[1])}; }
#endif
#if TW_F16_LANES >= 4
TW_HALVES(4)
#if defined(TW_NATIVE_F16)
TW_HALVES_NATIVE(4)
#elif defined(__F16C__) && !defined(__clang__)
TW_INLINE tw_f32x4 tw_widen_f16x4(tw_u16x4 h)
{
    return __builtin_ia32_vcvtph2ps((tw_h8)(tw_q2){(int64_t)h, 0});
}
TW_INLINE tw_u16x4 tw_narrow_f16x4(tw_f32x4 v)
{
    return (tw_u16x4)((tw_q2)__builtin_ia32_vcvtps2ph((tw_s4)v, 0))[0];
}
#else
TW_HALVES_BITWISE(4)
#endif
#endif
#if TW_F16_LANES >= 8
TW_HALVES(8)
#if defined(TW_NATIVE_F16)
TW_HALVES_NATIVE(8)
#elif defined(__F16C__) && !defined(__clang__)
TW_INLINE tw_f32x8 tw_widen_f16x8(tw_u16x8 h) { return __builtin_ia32_vcvtph2ps256((tw_h8)h); }
TW_INLINE tw_u16x8 tw_narrow_f16x8(tw_f32x8 v) { return (tw_u16x8)__builtin_ia32_vcvtps2ph256((tw_s8)v, 0); }
#else
TW_HALVES_BITWISE(8)
#endif
#endif
#if TW_F16_LANES >= 16
TW_HALVES(16)
#if defined(TW_NATIVE_F16)
TW_HALVES_NATIVE(16)
#elif defined(__AVX512F__) && !defined(__clang__)
typedef float tw_s16 __attribute__((vector_size(64)));
TW_INLINE tw_f32x16 tw_widen_f16x16(tw_u16x16 h)
{
    return (tw_f32x16)__builtin_ia32_vcvtph2ps512_mask((tw_h16)h, (tw_s16){0}, (uint16_t)-1, 4);
}
TW_INLINE tw_u16x16 tw_narrow_f16x16(tw_f32x16 v)
{
    return (tw_u16x16)__builtin_ia32_vcvtps2ph512_mask((tw_s16)v, 0, (tw_h16){0}, (uint16_t)-1);
}
#elif defined(__F16C__) && !defined(__clang__)
TW_HALVES_BY_HALVES(16, 8)
#else
TW_HALVES_BITWISE(16)
#endif
#endif

#if TW_F64_LANES >= 2
TW_FAMILY_OF_2(f64, double, i64, int64_t)
#endif
#if TW_F64_LANES >= 4
TW_FAMILY(f64, double, i64, int64_t, 4, 2)
TW_TOGETHER_OF(f64, 4, (0, 4, 2, 6), (1, 5, 3, 7), (0, 1, 4, 5), (2, 3, 6, 7), r)
#endif
#if TW_F64_LANES >= 8
TW_FAMILY(f64, double, i64, int64_t, 8, 4)
TW_TOGETHER_BY_HALVES(f64, 8, 4)
#endif
#if TW_F64_LANES >= 16
TW_FAMILY(f64, double, i64, int64_t, 16, 8)
TW_TOGETHER_BY_HALVES(f64, 16, 8)
#endif
#endif
