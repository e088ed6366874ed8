/* C[i,j] += A[i,j] * B[i,k] * D[k,j] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const int32_t *restrict const A_source = (const int32_t *)given_->buffers[6];
    const float *restrict const B_values = (const float *)given_->buffers[7];
    const float *restrict const D_values = (const float *)given_->buffers[8];
    const int64_t N_k = given_->sizes[5];
    for (int64_t j = lo_; j < hi_; ++j) {
        for (int64_t ap = A1_pos[j], end0_ = A1_pos[(j + 1)]; ap < end0_; ++ap) {
            const int64_t i = A1_crd[ap];
            const float av = A_values[ap];
            float acc = 0.0f;
            const int64_t stop = ((N_k / 16) * 16);
            tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
            for (int64_t k = 0; k < stop; k += 16) {
                acc_1 = (acc_1 + ((tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((i * N_k) + k)]) * *(const tw_f32x8u *)&D_values[((j * N_k) + k)]));
                acc_2 = (acc_2 + ((tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((i * N_k) + (k + 8))]) * *(const tw_f32x8u *)&D_values[((j * N_k) + (k + 8))]));
            }
            const int64_t stop_1 = (stop + (((N_k - stop) / 8) * 8));
            for (int64_t k_1 = stop; k_1 < stop_1; k_1 += 8) {
                acc_1 = (acc_1 + ((tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((i * N_k) + k_1)]) * *(const tw_f32x8u *)&D_values[((j * N_k) + k_1)]));
            }
            const int64_t stop_2 = (stop_1 + (((N_k - stop_1) / 4) * 4));
            tw_f32x4 acc_3 = tw_splat_f32x4(0.0f);
            for (int64_t k_2 = stop_1; k_2 < stop_2; k_2 += 4) {
                acc_3 = (acc_3 + ((tw_splat_f32x4(av) * *(const tw_f32x4u *)&B_values[((i * N_k) + k_2)]) * *(const tw_f32x4u *)&D_values[((j * N_k) + k_2)]));
            }
            float acc_4 = 0.0f;
            for (int64_t k_3 = stop_2; k_3 < N_k; ++k_3) {
                acc_4 = (acc_4 + ((av * B_values[((i * N_k) + k_3)]) * D_values[((j * N_k) + k_3)]));
            }
            acc_1 = (acc_1 + acc_2);
            acc = (acc + tw_fold_add_f32x8(acc_1));
            acc = (acc + tw_fold_add_f32x4(acc_3));
            acc = (acc + acc_4);
            out[((int64_t)A_source[ap] - 1)] = acc;
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const float *restrict const A_values = (const float *)buffers[5];
    const int32_t *restrict const A_source = (const int32_t *)buffers[6];
    const float *restrict const B_values = (const float *)buffers[7];
    const float *restrict const D_values = (const float *)buffers[8];
    const int64_t N_j = sizes[4];
    const int64_t N_k = sizes[5];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_j;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
