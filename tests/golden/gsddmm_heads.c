/* C[A,h] += Q[i,h,d] * K[k,h,d] for A[i,k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const float *restrict const Q_values = (const float *)given_->buffers[3];
    const float *restrict const K_values = (const float *)given_->buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[6];
    const int64_t N_h = given_->sizes[5];
    const int64_t N_d = given_->sizes[6];
    for (int64_t i = lo_; i < hi_; ++i) {
        for (int64_t ap = A1_pos[i], end0_ = A1_pos[(i + 1)]; ap < end0_; ++ap) {
            const int64_t k = A1_crd[ap];
            for (int64_t h = 0; h < N_h; ++h) {
                float acc = 0.0f;
                const int64_t stop = ((N_d / 16) * 16);
                tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
                for (int64_t d = 0; d < stop; d += 16) {
                    acc_1 = (acc_1 + (*(const tw_f32x8u *)&Q_values[((((i * N_h) + h) * N_d) + d)] * *(const tw_f32x8u *)&K_values[((((k * N_h) + h) * N_d) + d)]));
                    acc_2 = (acc_2 + (*(const tw_f32x8u *)&Q_values[((((i * N_h) + h) * N_d) + (d + 8))] * *(const tw_f32x8u *)&K_values[((((k * N_h) + h) * N_d) + (d + 8))]));
                }
                const int64_t stop_1 = (stop + (((N_d - stop) / 8) * 8));
                for (int64_t d_1 = stop; d_1 < stop_1; d_1 += 8) {
                    acc_1 = (acc_1 + (*(const tw_f32x8u *)&Q_values[((((i * N_h) + h) * N_d) + d_1)] * *(const tw_f32x8u *)&K_values[((((k * N_h) + h) * N_d) + d_1)]));
                }
                const int64_t stop_2 = (stop_1 + (((N_d - stop_1) / 4) * 4));
                tw_f32x4 acc_3 = tw_splat_f32x4(0.0f);
                for (int64_t d_2 = stop_1; d_2 < stop_2; d_2 += 4) {
                    acc_3 = (acc_3 + (*(const tw_f32x4u *)&Q_values[((((i * N_h) + h) * N_d) + d_2)] * *(const tw_f32x4u *)&K_values[((((k * N_h) + h) * N_d) + d_2)]));
                }
                float acc_4 = 0.0f;
                for (int64_t d_3 = stop_2; d_3 < N_d; ++d_3) {
                    acc_4 = (acc_4 + (Q_values[((((i * N_h) + h) * N_d) + d_3)] * K_values[((((k * N_h) + h) * N_d) + d_3)]));
                }
                acc_1 = (acc_1 + acc_2);
                acc = (acc + tw_fold_add_f32x8(acc_1));
                acc = (acc + tw_fold_add_f32x4(acc_3));
                acc = (acc + acc_4);
                out[((ap * N_h) + h)] = acc;
            }
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const float *restrict const Q_values = (const float *)buffers[3];
    const float *restrict const K_values = (const float *)buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[6];
    const int64_t N_i = sizes[3];
    const int64_t N_h = sizes[5];
    const int64_t N_d = sizes[6];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
