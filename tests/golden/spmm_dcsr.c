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
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A0_crd = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[6];
    const float *restrict const A_values = (const float *)given_->buffers[7];
    const float *restrict const B_values = (const float *)given_->buffers[8];
    const int64_t N_j = given_->sizes[4];
    for (int64_t ap = lo_; ap < hi_; ++ap) {
        const int64_t i = A0_crd[ap];
        const int64_t stop = ((N_j / 32) * 32);
        for (int64_t j = 0; j < stop; j += 32) {
            tw_f32x8 acc = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
            for (int64_t ap_1 = A1_pos[ap], end0_ = A1_pos[(ap + 1)]; ap_1 < end0_; ++ap_1) {
                const int64_t k = A1_crd[ap_1];
                const float av = A_values[ap_1];
                acc = (acc + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                acc_1 = (acc_1 + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 8))]));
                acc_2 = (acc_2 + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 16))]));
                acc_3 = (acc_3 + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 24))]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + j)] = acc;
            *(tw_f32x8u *)&out[((i * N_j) + (j + 8))] = acc_1;
            *(tw_f32x8u *)&out[((i * N_j) + (j + 16))] = acc_2;
            *(tw_f32x8u *)&out[((i * N_j) + (j + 24))] = acc_3;
        }
        const int64_t stop_1 = (stop + (((N_j - stop) / 16) * 16));
        for (int64_t j_1 = stop; j_1 < stop_1; j_1 += 16) {
            tw_f32x8 acc_4 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_5 = tw_splat_f32x8(0.0f);
            for (int64_t ap_2 = A1_pos[ap], end1_ = A1_pos[(ap + 1)]; ap_2 < end1_; ++ap_2) {
                const int64_t k_1 = A1_crd[ap_2];
                const float av_1 = A_values[ap_2];
                acc_4 = (acc_4 + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                acc_5 = (acc_5 + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + (j_1 + 8))]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + j_1)] = acc_4;
            *(tw_f32x8u *)&out[((i * N_j) + (j_1 + 8))] = acc_5;
        }
        const int64_t fits = (((stop_1 + 8) < N_j) & (N_j < (stop_1 + 16)));
        if (fits) {
            tw_f32x8 acc_6 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_7 = tw_splat_f32x8(0.0f);
            for (int64_t ap_3 = A1_pos[ap], end2_ = A1_pos[(ap + 1)]; ap_3 < end2_; ++ap_3) {
                const int64_t k_2 = A1_crd[ap_3];
                const float av_2 = A_values[ap_3];
                acc_6 = (acc_6 + (tw_splat_f32x8(av_2) * *(const tw_f32x8u *)&B_values[((k_2 * N_j) + stop_1)]));
                acc_7 = (acc_7 + (tw_splat_f32x8(av_2) * *(const tw_f32x8u *)&B_values[((k_2 * N_j) + (N_j - 8))]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + stop_1)] = acc_6;
            *(tw_f32x8u *)&out[((i * N_j) + (N_j - 8))] = acc_7;
        }
        const int64_t rest = (fits ? N_j : stop_1);
        const int64_t stop_2 = (rest + (((N_j - rest) / 8) * 8));
        for (int64_t j_2 = rest; j_2 < stop_2; j_2 += 8) {
            tw_f32x8 acc_8 = tw_splat_f32x8(0.0f);
            for (int64_t ap_4 = A1_pos[ap], end3_ = A1_pos[(ap + 1)]; ap_4 < end3_; ++ap_4) {
                const int64_t k_3 = A1_crd[ap_4];
                const float av_3 = A_values[ap_4];
                acc_8 = (acc_8 + (tw_splat_f32x8(av_3) * *(const tw_f32x8u *)&B_values[((k_3 * N_j) + j_2)]));
            }
            *(tw_f32x8u *)&out[((i * N_j) + j_2)] = acc_8;
        }
        if ((stop_2 < N_j)) {
            if ((8 <= N_j)) {
                for (int64_t j_3 = (N_j - 8); j_3 < N_j; j_3 += 8) {
                    tw_f32x8 acc_9 = tw_splat_f32x8(0.0f);
                    for (int64_t ap_5 = A1_pos[ap], end4_ = A1_pos[(ap + 1)]; ap_5 < end4_; ++ap_5) {
                        const int64_t k_4 = A1_crd[ap_5];
                        const float av_4 = A_values[ap_5];
                        acc_9 = (acc_9 + (tw_splat_f32x8(av_4) * *(const tw_f32x8u *)&B_values[((k_4 * N_j) + j_3)]));
                    }
                    *(tw_f32x8u *)&out[((i * N_j) + j_3)] = acc_9;
                }
            }
        }
        const int64_t rest_1 = ((8 <= N_j) ? N_j : stop_2);
        const int64_t stop_3 = (rest_1 + (((N_j - rest_1) / 4) * 4));
        for (int64_t j_4 = rest_1; j_4 < stop_3; j_4 += 4) {
            tw_f32x4 acc_10 = tw_splat_f32x4(0.0f);
            for (int64_t ap_6 = A1_pos[ap], end5_ = A1_pos[(ap + 1)]; ap_6 < end5_; ++ap_6) {
                const int64_t k_5 = A1_crd[ap_6];
                const float av_5 = A_values[ap_6];
                acc_10 = (acc_10 + (tw_splat_f32x4(av_5) * *(const tw_f32x4u *)&B_values[((k_5 * N_j) + j_4)]));
            }
            *(tw_f32x4u *)&out[((i * N_j) + j_4)] = acc_10;
        }
        const int64_t stop_4 = (stop_3 + (((N_j - stop_3) / 3) * 3));
        for (int64_t j_5 = stop_3; j_5 < stop_4; j_5 += 3) {
            float acc_11 = 0.0f;
            float acc_12 = 0.0f;
            float acc_13 = 0.0f;
            for (int64_t ap_7 = A1_pos[ap], end6_ = A1_pos[(ap + 1)]; ap_7 < end6_; ++ap_7) {
                const int64_t k_6 = A1_crd[ap_7];
                const float av_6 = A_values[ap_7];
                acc_11 = (acc_11 + (av_6 * B_values[((k_6 * N_j) + j_5)]));
                acc_12 = (acc_12 + (av_6 * B_values[((k_6 * N_j) + (j_5 + 1))]));
                acc_13 = (acc_13 + (av_6 * B_values[((k_6 * N_j) + (j_5 + 2))]));
            }
            out[((i * N_j) + j_5)] = acc_11;
            out[((i * N_j) + (j_5 + 1))] = acc_12;
            out[((i * N_j) + (j_5 + 2))] = acc_13;
        }
        const int64_t stop_5 = (stop_4 + (((N_j - stop_4) / 2) * 2));
        for (int64_t j_6 = stop_4; j_6 < stop_5; j_6 += 2) {
            float acc_14 = 0.0f;
            float acc_15 = 0.0f;
            for (int64_t ap_8 = A1_pos[ap], end7_ = A1_pos[(ap + 1)]; ap_8 < end7_; ++ap_8) {
                const int64_t k_7 = A1_crd[ap_8];
                const float av_7 = A_values[ap_8];
                acc_14 = (acc_14 + (av_7 * B_values[((k_7 * N_j) + j_6)]));
                acc_15 = (acc_15 + (av_7 * B_values[((k_7 * N_j) + (j_6 + 1))]));
            }
            out[((i * N_j) + j_6)] = acc_14;
            out[((i * N_j) + (j_6 + 1))] = acc_15;
        }
        for (int64_t j_7 = stop_5; j_7 < N_j; ++j_7) {
            float acc_16 = 0.0f;
            for (int64_t ap_9 = A1_pos[ap], end8_ = A1_pos[(ap + 1)]; ap_9 < end8_; ++ap_9) {
                const int64_t k_8 = A1_crd[ap_9];
                const float av_8 = A_values[ap_9];
                acc_16 = (acc_16 + (av_8 * B_values[((k_8 * N_j) + j_7)]));
            }
            out[((i * N_j) + j_7)] = acc_16;
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
    const float *restrict const A_values = (const float *)buffers[7];
    const float *restrict const B_values = (const float *)buffers[8];
    const int64_t N_i = sizes[3];
    const int64_t N_j = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (N_i * N_j);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body1_context given_ = {buffers, sizes};
        const int64_t lo_ = A0_pos[0], hi_ = A0_pos[1];
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
