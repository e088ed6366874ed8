/* C[i,r] += A[i,k,l] * B[k,r] * D[l,r] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A2_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A2_crd = (const int32_t *)given_->buffers[6];
    const float *restrict const A_values = (const float *)given_->buffers[7];
    const float *restrict const B_values = (const float *)given_->buffers[8];
    const float *restrict const D_values = (const float *)given_->buffers[9];
    const int64_t N_r = given_->sizes[4];
    for (int64_t i = lo_; i < hi_; ++i) {
        const int64_t stop = ((N_r / 16) * 16);
        for (int64_t r = 0; r < stop; r += 16) {
            tw_f32x8 acc = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
            for (int64_t ap = A1_pos[i], end0_ = A1_pos[(i + 1)]; ap < end0_; ++ap) {
                const int64_t k = A1_crd[ap];
                const tw_f32x8 held0_ = *(const tw_f32x8u *)&B_values[((k * N_r) + r)];
                const tw_f32x8 held1_ = *(const tw_f32x8u *)&B_values[((k * N_r) + (r + 8))];
                for (int64_t ap_1 = A2_pos[ap], end1_ = A2_pos[(ap + 1)]; ap_1 < end1_; ++ap_1) {
                    const int64_t l = A2_crd[ap_1];
                    const float av = A_values[ap_1];
                    acc = (acc + ((tw_splat_f32x8(av) * held0_) * *(const tw_f32x8u *)&D_values[((l * N_r) + r)]));
                    acc_1 = (acc_1 + ((tw_splat_f32x8(av) * held1_) * *(const tw_f32x8u *)&D_values[((l * N_r) + (r + 8))]));
                }
            }
            *(tw_f32x8u *)&out[((i * N_r) + r)] = acc;
            *(tw_f32x8u *)&out[((i * N_r) + (r + 8))] = acc_1;
        }
        const int64_t fits = (((stop + 8) < N_r) & (N_r < (stop + 16)));
        if (fits) {
            tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
            for (int64_t ap_2 = A1_pos[i], end2_ = A1_pos[(i + 1)]; ap_2 < end2_; ++ap_2) {
                const int64_t k_1 = A1_crd[ap_2];
                const tw_f32x8 held2_ = *(const tw_f32x8u *)&B_values[((k_1 * N_r) + stop)];
                const tw_f32x8 held3_ = *(const tw_f32x8u *)&B_values[((k_1 * N_r) + (N_r - 8))];
                for (int64_t ap_3 = A2_pos[ap_2], end3_ = A2_pos[(ap_2 + 1)]; ap_3 < end3_; ++ap_3) {
                    const int64_t l_1 = A2_crd[ap_3];
                    const float av_1 = A_values[ap_3];
                    acc_2 = (acc_2 + ((tw_splat_f32x8(av_1) * held2_) * *(const tw_f32x8u *)&D_values[((l_1 * N_r) + stop)]));
                    acc_3 = (acc_3 + ((tw_splat_f32x8(av_1) * held3_) * *(const tw_f32x8u *)&D_values[((l_1 * N_r) + (N_r - 8))]));
                }
            }
            *(tw_f32x8u *)&out[((i * N_r) + stop)] = acc_2;
            *(tw_f32x8u *)&out[((i * N_r) + (N_r - 8))] = acc_3;
        }
        const int64_t rest = (fits ? N_r : stop);
        const int64_t stop_1 = (rest + (((N_r - rest) / 8) * 8));
        for (int64_t r_1 = rest; r_1 < stop_1; r_1 += 8) {
            tw_f32x8 acc_4 = tw_splat_f32x8(0.0f);
            for (int64_t ap_4 = A1_pos[i], end4_ = A1_pos[(i + 1)]; ap_4 < end4_; ++ap_4) {
                const int64_t k_2 = A1_crd[ap_4];
                const tw_f32x8 held4_ = *(const tw_f32x8u *)&B_values[((k_2 * N_r) + r_1)];
                for (int64_t ap_5 = A2_pos[ap_4], end5_ = A2_pos[(ap_4 + 1)]; ap_5 < end5_; ++ap_5) {
                    const int64_t l_2 = A2_crd[ap_5];
                    const float av_2 = A_values[ap_5];
                    acc_4 = (acc_4 + ((tw_splat_f32x8(av_2) * held4_) * *(const tw_f32x8u *)&D_values[((l_2 * N_r) + r_1)]));
                }
            }
            *(tw_f32x8u *)&out[((i * N_r) + r_1)] = acc_4;
        }
        if ((stop_1 < N_r)) {
            if ((8 <= N_r)) {
                for (int64_t r_2 = (N_r - 8); r_2 < N_r; r_2 += 8) {
                    tw_f32x8 acc_5 = tw_splat_f32x8(0.0f);
                    for (int64_t ap_6 = A1_pos[i], end6_ = A1_pos[(i + 1)]; ap_6 < end6_; ++ap_6) {
                        const int64_t k_3 = A1_crd[ap_6];
                        const tw_f32x8 held5_ = *(const tw_f32x8u *)&B_values[((k_3 * N_r) + r_2)];
                        for (int64_t ap_7 = A2_pos[ap_6], end7_ = A2_pos[(ap_6 + 1)]; ap_7 < end7_; ++ap_7) {
                            const int64_t l_3 = A2_crd[ap_7];
                            const float av_3 = A_values[ap_7];
                            acc_5 = (acc_5 + ((tw_splat_f32x8(av_3) * held5_) * *(const tw_f32x8u *)&D_values[((l_3 * N_r) + r_2)]));
                        }
                    }
                    *(tw_f32x8u *)&out[((i * N_r) + r_2)] = acc_5;
                }
            }
        }
        const int64_t rest_1 = ((8 <= N_r) ? N_r : stop_1);
        const int64_t stop_2 = (rest_1 + (((N_r - rest_1) / 4) * 4));
        for (int64_t r_3 = rest_1; r_3 < stop_2; r_3 += 4) {
            tw_f32x4 acc_6 = tw_splat_f32x4(0.0f);
            for (int64_t ap_8 = A1_pos[i], end8_ = A1_pos[(i + 1)]; ap_8 < end8_; ++ap_8) {
                const int64_t k_4 = A1_crd[ap_8];
                const tw_f32x4 held6_ = *(const tw_f32x4u *)&B_values[((k_4 * N_r) + r_3)];
                for (int64_t ap_9 = A2_pos[ap_8], end9_ = A2_pos[(ap_8 + 1)]; ap_9 < end9_; ++ap_9) {
                    const int64_t l_4 = A2_crd[ap_9];
                    const float av_4 = A_values[ap_9];
                    acc_6 = (acc_6 + ((tw_splat_f32x4(av_4) * held6_) * *(const tw_f32x4u *)&D_values[((l_4 * N_r) + r_3)]));
                }
            }
            *(tw_f32x4u *)&out[((i * N_r) + r_3)] = acc_6;
        }
        const int64_t stop_3 = (stop_2 + (((N_r - stop_2) / 3) * 3));
        for (int64_t r_4 = stop_2; r_4 < stop_3; r_4 += 3) {
            float acc_7 = 0.0f;
            float acc_8 = 0.0f;
            float acc_9 = 0.0f;
            for (int64_t ap_10 = A1_pos[i], end10_ = A1_pos[(i + 1)]; ap_10 < end10_; ++ap_10) {
                const int64_t k_5 = A1_crd[ap_10];
                for (int64_t ap_11 = A2_pos[ap_10], end11_ = A2_pos[(ap_10 + 1)]; ap_11 < end11_; ++ap_11) {
                    const int64_t l_5 = A2_crd[ap_11];
                    const float av_5 = A_values[ap_11];
                    acc_7 = (acc_7 + ((av_5 * B_values[((k_5 * N_r) + r_4)]) * D_values[((l_5 * N_r) + r_4)]));
                    acc_8 = (acc_8 + ((av_5 * B_values[((k_5 * N_r) + (r_4 + 1))]) * D_values[((l_5 * N_r) + (r_4 + 1))]));
                    acc_9 = (acc_9 + ((av_5 * B_values[((k_5 * N_r) + (r_4 + 2))]) * D_values[((l_5 * N_r) + (r_4 + 2))]));
                }
            }
            out[((i * N_r) + r_4)] = acc_7;
            out[((i * N_r) + (r_4 + 1))] = acc_8;
            out[((i * N_r) + (r_4 + 2))] = acc_9;
        }
        const int64_t stop_4 = (stop_3 + (((N_r - stop_3) / 2) * 2));
        for (int64_t r_5 = stop_3; r_5 < stop_4; r_5 += 2) {
            float acc_10 = 0.0f;
            float acc_11 = 0.0f;
            for (int64_t ap_12 = A1_pos[i], end12_ = A1_pos[(i + 1)]; ap_12 < end12_; ++ap_12) {
                const int64_t k_6 = A1_crd[ap_12];
                for (int64_t ap_13 = A2_pos[ap_12], end13_ = A2_pos[(ap_12 + 1)]; ap_13 < end13_; ++ap_13) {
                    const int64_t l_6 = A2_crd[ap_13];
                    const float av_6 = A_values[ap_13];
                    acc_10 = (acc_10 + ((av_6 * B_values[((k_6 * N_r) + r_5)]) * D_values[((l_6 * N_r) + r_5)]));
                    acc_11 = (acc_11 + ((av_6 * B_values[((k_6 * N_r) + (r_5 + 1))]) * D_values[((l_6 * N_r) + (r_5 + 1))]));
                }
            }
            out[((i * N_r) + r_5)] = acc_10;
            out[((i * N_r) + (r_5 + 1))] = acc_11;
        }
        for (int64_t r_6 = stop_4; r_6 < N_r; ++r_6) {
            float acc_12 = 0.0f;
            for (int64_t ap_14 = A1_pos[i], end14_ = A1_pos[(i + 1)]; ap_14 < end14_; ++ap_14) {
                const int64_t k_7 = A1_crd[ap_14];
                for (int64_t ap_15 = A2_pos[ap_14], end15_ = A2_pos[(ap_14 + 1)]; ap_15 < end15_; ++ap_15) {
                    const int64_t l_7 = A2_crd[ap_15];
                    const float av_7 = A_values[ap_15];
                    acc_12 = (acc_12 + ((av_7 * B_values[((k_7 * N_r) + r_6)]) * D_values[((l_7 * N_r) + r_6)]));
                }
            }
            out[((i * N_r) + r_6)] = acc_12;
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const int32_t *restrict const A2_pos = (const int32_t *)buffers[5];
    const int32_t *restrict const A2_crd = (const int32_t *)buffers[6];
    const float *restrict const A_values = (const float *)buffers[7];
    const float *restrict const B_values = (const float *)buffers[8];
    const float *restrict const D_values = (const float *)buffers[9];
    const int64_t N_i = sizes[3];
    const int64_t N_r = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
