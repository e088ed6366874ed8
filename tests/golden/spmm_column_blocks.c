/* C[i,j] += A[i,k] * B[k,j] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    for (int64_t e = lo_; e < hi_; ++e) {
        out[e] = 0.0f;
    }
}
typedef struct { void *const *buffers; const int64_t *sizes; int64_t k1; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A2_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A2_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const float *restrict const B_values = (const float *)given_->buffers[6];
    const int64_t N_i = given_->sizes[3];
    const int64_t N_j = given_->sizes[4];
    const int64_t s_k = given_->sizes[6];
    const int64_t k1 = given_->k1;
    for (int64_t i = lo_; i < hi_; ++i) {
        const int64_t ap = ((k1 * N_i) + i);
        const int64_t stop = ((N_j / 32) * 32);
        for (int64_t j = 0; j < stop; j += 32) {
            tw_f32x8 acc = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
            for (int64_t ap_1 = A2_pos[ap], end1_ = A2_pos[(ap + 1)]; ap_1 < end1_; ++ap_1) {
                const int64_t k0 = A2_crd[ap_1];
                const int64_t k = ((k1 * s_k) + k0);
                const float av = A_values[ap_1];
                acc = (acc + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                acc_1 = (acc_1 + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 8))]));
                acc_2 = (acc_2 + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 16))]));
                acc_3 = (acc_3 + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 24))]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + j)] = (*(const tw_f32x8u *)&out[((i * N_j) + j)] + acc);
            *(tw_f32x8u *)&out[((i * N_j) + (j + 8))] = (*(const tw_f32x8u *)&out[((i * N_j) + (j + 8))] + acc_1);
            *(tw_f32x8u *)&out[((i * N_j) + (j + 16))] = (*(const tw_f32x8u *)&out[((i * N_j) + (j + 16))] + acc_2);
            *(tw_f32x8u *)&out[((i * N_j) + (j + 24))] = (*(const tw_f32x8u *)&out[((i * N_j) + (j + 24))] + acc_3);
        }
        const int64_t stop_1 = (stop + (((N_j - stop) / 16) * 16));
        for (int64_t j_1 = stop; j_1 < stop_1; j_1 += 16) {
            tw_f32x8 acc_4 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_5 = tw_splat_f32x8(0.0f);
            for (int64_t ap_2 = A2_pos[ap], end2_ = A2_pos[(ap + 1)]; ap_2 < end2_; ++ap_2) {
                const int64_t k0_1 = A2_crd[ap_2];
                const int64_t k_1 = ((k1 * s_k) + k0_1);
                const float av_1 = A_values[ap_2];
                acc_4 = (acc_4 + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                acc_5 = (acc_5 + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + (j_1 + 8))]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + j_1)] = (*(const tw_f32x8u *)&out[((i * N_j) + j_1)] + acc_4);
            *(tw_f32x8u *)&out[((i * N_j) + (j_1 + 8))] = (*(const tw_f32x8u *)&out[((i * N_j) + (j_1 + 8))] + acc_5);
        }
        const int64_t stop_2 = (stop_1 + (((N_j - stop_1) / 8) * 8));
        for (int64_t j_2 = stop_1; j_2 < stop_2; j_2 += 8) {
            tw_f32x8 acc_6 = tw_splat_f32x8(0.0f);
            for (int64_t ap_3 = A2_pos[ap], end3_ = A2_pos[(ap + 1)]; ap_3 < end3_; ++ap_3) {
                const int64_t k0_2 = A2_crd[ap_3];
                const int64_t k_2 = ((k1 * s_k) + k0_2);
                const float av_2 = A_values[ap_3];
                acc_6 = (acc_6 + (tw_splat_f32x8(av_2) * *(const tw_f32x8u *)&B_values[((k_2 * N_j) + j_2)]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + j_2)] = (*(const tw_f32x8u *)&out[((i * N_j) + j_2)] + acc_6);
        }
        const int64_t stop_3 = (stop_2 + (((N_j - stop_2) / 4) * 4));
        for (int64_t j_3 = stop_2; j_3 < stop_3; j_3 += 4) {
            tw_f32x4 acc_7 = tw_splat_f32x4(0.0f);
            for (int64_t ap_4 = A2_pos[ap], end4_ = A2_pos[(ap + 1)]; ap_4 < end4_; ++ap_4) {
                const int64_t k0_3 = A2_crd[ap_4];
                const int64_t k_3 = ((k1 * s_k) + k0_3);
                const float av_3 = A_values[ap_4];
                acc_7 = (acc_7 + (tw_splat_f32x4(av_3) * *(const tw_f32x4u *)&B_values[((k_3 * N_j) + j_3)]));
            }
            *(tw_f32x4u *)&out[((i * N_j) + j_3)] = (*(const tw_f32x4u *)&out[((i * N_j) + j_3)] + acc_7);
        }
        for (int64_t j_4 = stop_3; j_4 < N_j; ++j_4) {
            float acc_8 = 0.0f;
            for (int64_t ap_5 = A2_pos[ap], end5_ = A2_pos[(ap + 1)]; ap_5 < end5_; ++ap_5) {
                const int64_t k0_4 = A2_crd[ap_5];
                const int64_t k_4 = ((k1 * s_k) + k0_4);
                const float av_4 = A_values[ap_5];
                acc_8 = (acc_8 + (av_4 * B_values[((k_4 * N_j) + j_4)]));
            }
            out[((i * N_j) + j_4)] = (out[((i * N_j) + j_4)] + acc_8);
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A2_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A2_crd = (const int32_t *)buffers[4];
    const float *restrict const A_values = (const float *)buffers[5];
    const float *restrict const B_values = (const float *)buffers[6];
    const int64_t N_i = sizes[3];
    const int64_t N_j = sizes[4];
    const int64_t N_k = sizes[5];
    const int64_t s_k = sizes[6];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (N_i * N_j);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    for (int64_t k1 = 0, end0_ = (((N_k + s_k) - 1) / s_k); k1 < end0_; ++k1) {
        {
            TW_SYMBOL_body1_context given_ = {buffers, sizes, k1};
            const int64_t lo_ = 0, hi_ = N_i;
            tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
        }
    }
    return 0;
}
