/* C[i] += A[i,k] * B[k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const work = (float *)given_->buffers[7];
    for (int64_t e = lo_; e < hi_; ++e) {
        work[e] = 0.0f;
    }
}
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const uint16_t *restrict const A_values = (const uint16_t *)given_->buffers[5];
    const uint16_t *restrict const B_values = (const uint16_t *)given_->buffers[6];
    float *restrict const work = (float *)given_->buffers[7];
    for (int64_t k = lo_; k < hi_; ++k) {
        for (int64_t ap = A1_pos[k], end0_ = A1_pos[(k + 1)]; ap < end0_; ++ap) {
            const int64_t i = A1_crd[ap];
            const float av = tw_widen_f16(A_values[ap]);
            { float part_ = (av * tw_widen_f16(B_values[k]));
              tw_atomic_add_f32(&work[i], part_);
            }
        }
    }
}
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body2_context;
static void TW_SYMBOL_body2(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body2_context *const given_ = (const TW_SYMBOL_body2_context *)context_;
    uint16_t *restrict const out = (uint16_t *)given_->buffers[2];
    float *restrict const work = (float *)given_->buffers[7];
    for (int64_t e = lo_; e < hi_; ++e) {
        out[e] = tw_narrow_f16(work[e]);
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    uint16_t *restrict const out = (uint16_t *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const uint16_t *restrict const A_values = (const uint16_t *)buffers[5];
    const uint16_t *restrict const B_values = (const uint16_t *)buffers[6];
    float *restrict const work = (float *)buffers[7];
    const int64_t N_i = sizes[3];
    const int64_t N_k = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body1_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_k;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body2_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body2, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    return 0;
}
