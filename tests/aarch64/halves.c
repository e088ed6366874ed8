/* The prelude's halves against the processor's own conversions: all 65,536 and their neighbours as floats. */

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

/* Widths of 4, 8 and 16 lanes must agree with the scalar. */
#define LANES(N)                                                                                         \
    static int64_t wrong_##N(uint16_t h, float f)                                                        \
    {                                                                                                    \
        tw_u16x##N bits;                                                                                 \
        for (int l = 0; l < N; l++) bits[l] = (uint16_t)(h + l);                                         \
        const tw_f32x##N wide = tw_widen_f16x##N(bits), value = tw_splat_f32x##N(f);                     \
        const tw_u16x##N narrow = tw_narrow_f16x##N(value);                                              \
        int64_t wrong = 0;                                                                               \
        for (int l = 0; l < N; l++) {                                                                    \
            wrong += !same(wide[l], tw_widen_f16(bits[l]));                                              \
            wrong += narrow[l] != tw_narrow_f16(f) && f == f;                                            \
        }                                                                                                \
        return wrong;                                                                                    \
    }
LANES(4)
LANES(8)
LANES(16)

/* Number of conversions that differ. */
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
        if (h % 61 == 0) wrong += wrong_4(bits, (float)own) + wrong_8(bits, (float)own) + wrong_16(bits, (float)own);
    }
    return wrong;
}
