/* C[k,r] += A[i,k,l] * B[i,r] * D[l,r] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    for (int64_t e = lo_; e < hi_; ++e) {
        out[e] = 0.0f;
    }
}
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A0_crd = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[6];
    const int32_t *restrict const A2_pos = (const int32_t *)given_->buffers[7];
    const int32_t *restrict const A2_crd = (const int32_t *)given_->buffers[8];
    const float *restrict const A_values = (const float *)given_->buffers[9];
    const float *restrict const B_values = (const float *)given_->buffers[10];
    const float *restrict const D_values = (const float *)given_->buffers[11];
    const int64_t N_r = given_->sizes[4];
    for (int64_t ap = lo_; ap < hi_; ++ap) {
        const int64_t k = A0_crd[ap];
        for (int64_t ap_1 = A1_pos[ap], end0_ = A1_pos[(ap + 1)]; ap_1 < end0_; ++ap_1) {
            const int64_t i = A1_crd[ap_1];
            const int64_t stop = ((N_r / 16) * 16);
            for (int64_t r = 0; r < stop; r += 16) {
                tw_f32x8 acc = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
                const tw_f32x8 held0_ = *(const tw_f32x8u *)&B_values[((i * N_r) + r)];
                const tw_f32x8 held1_ = *(const tw_f32x8u *)&B_values[((i * N_r) + (r + 8))];
                for (int64_t ap_2 = A2_pos[ap_1], end1_ = A2_pos[(ap_1 + 1)]; ap_2 < end1_; ++ap_2) {
                    const int64_t l = A2_crd[ap_2];
                    const float av = A_values[ap_2];
                    acc = (acc + ((tw_splat_f32x8(av) * held0_) * *(const tw_f32x8u *)&D_values[((l * N_r) + r)]));
                    acc_1 = (acc_1 + ((tw_splat_f32x8(av) * held1_) * *(const tw_f32x8u *)&D_values[((l * N_r) + (r + 8))]));
                }
                *(tw_f32x8u *)&out[((k * N_r) + r)] = (*(const tw_f32x8u *)&out[((k * N_r) + r)] + acc);
                *(tw_f32x8u *)&out[((k * N_r) + (r + 8))] = (*(const tw_f32x8u *)&out[((k * N_r) + (r + 8))] + acc_1);
            }
            const int64_t stop_1 = (stop + (((N_r - stop) / 8) * 8));
            for (int64_t r_1 = stop; r_1 < stop_1; r_1 += 8) {
                tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
                const tw_f32x8 held2_ = *(const tw_f32x8u *)&B_values[((i * N_r) + r_1)];
                for (int64_t ap_3 = A2_pos[ap_1], end2_ = A2_pos[(ap_1 + 1)]; ap_3 < end2_; ++ap_3) {
                    const int64_t l_1 = A2_crd[ap_3];
                    const float av_1 = A_values[ap_3];
                    acc_2 = (acc_2 + ((tw_splat_f32x8(av_1) * held2_) * *(const tw_f32x8u *)&D_values[((l_1 * N_r) + r_1)]));
                }
                *(tw_f32x8u *)&out[((k * N_r) + r_1)] = (*(const tw_f32x8u *)&out[((k * N_r) + r_1)] + acc_2);
            }
            const int64_t stop_2 = (stop_1 + (((N_r - stop_1) / 4) * 4));
            for (int64_t r_2 = stop_1; r_2 < stop_2; r_2 += 4) {
                tw_f32x4 acc_3 = tw_splat_f32x4(0.0f);
                const tw_f32x4 held3_ = *(const tw_f32x4u *)&B_values[((i * N_r) + r_2)];
                for (int64_t ap_4 = A2_pos[ap_1], end3_ = A2_pos[(ap_1 + 1)]; ap_4 < end3_; ++ap_4) {
                    const int64_t l_2 = A2_crd[ap_4];
                    const float av_2 = A_values[ap_4];
                    acc_3 = (acc_3 + ((tw_splat_f32x4(av_2) * held3_) * *(const tw_f32x4u *)&D_values[((l_2 * N_r) + r_2)]));
                }
                *(tw_f32x4u *)&out[((k * N_r) + r_2)] = (*(const tw_f32x4u *)&out[((k * N_r) + r_2)] + acc_3);
            }
            for (int64_t r_3 = stop_2; r_3 < N_r; ++r_3) {
                float acc_4 = 0.0f;
                for (int64_t ap_5 = A2_pos[ap_1], end4_ = A2_pos[(ap_1 + 1)]; ap_5 < end4_; ++ap_5) {
                    const int64_t l_3 = A2_crd[ap_5];
                    const float av_3 = A_values[ap_5];
                    acc_4 = (acc_4 + ((av_3 * B_values[((i * N_r) + r_3)]) * D_values[((l_3 * N_r) + r_3)]));
                }
                out[((k * N_r) + r_3)] = (out[((k * N_r) + r_3)] + acc_4);
            }
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A0_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A0_crd = (const int32_t *)buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[6];
    const int32_t *restrict const A2_pos = (const int32_t *)buffers[7];
    const int32_t *restrict const A2_crd = (const int32_t *)buffers[8];
    const float *restrict const A_values = (const float *)buffers[9];
    const float *restrict const B_values = (const float *)buffers[10];
    const float *restrict const D_values = (const float *)buffers[11];
    const int64_t N_k = sizes[3];
    const int64_t N_r = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (N_k * N_r);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body1_context given_ = {buffers, sizes};
        const int64_t lo_ = A0_pos[0], hi_ = A0_pos[1];
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    return 0;
}
