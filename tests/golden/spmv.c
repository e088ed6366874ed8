/* C[i] += A[i,k] * B[k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const float *restrict const B_values = (const float *)given_->buffers[6];
    for (int64_t i = lo_; i < hi_; ++i) {
        float acc = 0.0f;
        const int64_t lo = A1_pos[i];
        const int64_t end = A1_pos[(i + 1)];
        const int64_t stop = (lo + (((end - lo) / 4) * 4));
        tw_f32x4 acc_1 = tw_splat_f32x4(0.0f);
        for (int64_t k = lo; k < stop; k += 4) {
            acc_1 = (acc_1 + (*(const tw_f32x4u *)&A_values[k] * tw_gather_f32x4_i32(B_values, &A1_crd[k])));
        }
        float acc_2 = 0.0f;
        for (int64_t k_1 = stop; k_1 < end; ++k_1) {
            const int64_t k_2 = A1_crd[k_1];
            const float av = A_values[k_1];
            acc_2 = (acc_2 + (av * B_values[k_2]));
        }
        acc = (acc + tw_fold_add_f32x4(acc_1));
        acc = (acc + acc_2);
        out[i] = acc;
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const float *restrict const A_values = (const float *)buffers[5];
    const float *restrict const B_values = (const float *)buffers[6];
    const int64_t N_i = sizes[3];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
