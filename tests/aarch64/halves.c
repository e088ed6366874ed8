/* The prelude's halves: all 65,536 of both types, and the floats around them. float16 is compared with the processor's own
 * conversions, bfloat16 with a rounding by cases. */

#include <string.h>

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static int same(float a, float b) { return (a != a && b != b) || !memcmp(&a, &b, 4); }

static uint16_t narrowed(float f)
{
    const __fp16 h = (__fp16)f;
    uint16_t bits;
    memcpy(&bits, &h, 2);
    return bits;
}

/* The nearest bfloat16 of the float h * 2^16 + low: h, or the one after it; of two that are as near, the even one. */
static uint16_t rounded_bf16(uint16_t h, uint16_t low)
{
    if (low == 0x8000) return (uint16_t)(h + h % 2);
    return low > 0x8000 ? (uint16_t)(h + 1) : h;
}

static int is_nan_bf16(uint16_t h) { return (h & 0x7fff) > 0x7f80; }

/* Widths of 4, 8 and 16 lanes must agree with the scalar. */
#define LANES(N, H)                                                                                      \
    static int64_t wrong_##H##x##N(uint16_t h, float f)                                                  \
    {                                                                                                    \
        tw_u16x##N bits;                                                                                 \
        for (int l = 0; l < N; l++) bits[l] = (uint16_t)(h + l);                                         \
        const tw_f32x##N wide = tw_widen_##H##x##N(bits), value = tw_splat_f32x##N(f);                     \
        const tw_u16x##N narrow = tw_narrow_##H##x##N(value);                                              \
        int64_t wrong = 0;                                                                               \
        for (int l = 0; l < N; l++) {                                                                    \
            wrong += !same(wide[l], tw_widen_##H(bits[l]));                                              \
            wrong += narrow[l] != tw_narrow_##H(f) && f == f;                                            \
        }                                                                                                \
        return wrong;                                                                                    \
    }
LANES(4, f16)
LANES(8, f16)
LANES(16, f16)
LANES(4, bf16)
LANES(8, bf16)
LANES(16, bf16)

/* Number of conversions of float16 that differ. */
int64_t halves_wrong(int64_t unused)
{
    int64_t wrong = 0;
    (void)unused;
    for (uint32_t h = 0; h < 65536; h++) {
        __fp16 own;
        const uint16_t bits = (uint16_t)h;
        memcpy(&own, &bits, 2);
        wrong += !same(tw_widen_f16(bits), (float)own);
        for (int step = -1; step <= 1; step++) {
            uint32_t word;
            const float value = tw_widen_f16(bits);
            memcpy(&word, &value, 4);
            for (uint32_t half = 0; half <= 0x1000; half += 0x1000) { /* at the half, and half way to the next one */
                const float f = float_of(word + half + (uint32_t)step);
                wrong += f == f && tw_narrow_f16(f) != narrowed(f);
            }
        }
        if (h % 61 == 0) {
            const float f = (float)own;
            wrong += wrong_f16x4(bits, f) + wrong_f16x8(bits, f) + wrong_f16x16(bits, f);
        }
    }
    return wrong;
}

/* Number of conversions of bfloat16 that differ. */
int64_t brain_halves_wrong(int64_t unused)
{
    static const uint16_t lows[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    int64_t wrong = 0;
    (void)unused;
    for (uint32_t h = 0; h < 65536; h++) {
        const uint16_t bits = (uint16_t)h;
        wrong += !same(tw_widen_bf16(bits), float_of(h << 16));
        for (int at = 0; at < (int)(sizeof lows / sizeof *lows); at++) {
            const float f = float_of(h << 16 | lows[at]);
            const uint16_t made = tw_narrow_bf16(f);
            wrong += f == f ? made != rounded_bf16(bits, lows[at]) : !is_nan_bf16(made);
            if (h % 61 == 0) wrong += wrong_bf16x4(bits, f) + wrong_bf16x8(bits, f) + wrong_bf16x16(bits, f);
        }
    }
    return wrong;
}
