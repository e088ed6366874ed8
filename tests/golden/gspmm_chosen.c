/* G[k,j] += (D[i,j] if P[i,j] == A else 0) for A[i,k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const float *restrict const D_values = (const float *)given_->buffers[3];
    const int32_t *restrict const P_values = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[6];
    const int32_t *restrict const A_source = (const int32_t *)given_->buffers[7];
    const int64_t N_j = given_->sizes[4];
    for (int64_t k = lo_; k < hi_; ++k) {
        const int64_t stop = ((N_j / 16) * 16);
        for (int64_t j = 0; j < stop; j += 16) {
            tw_f32x8 acc = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
            for (int64_t ap = A1_pos[k], end0_ = A1_pos[(k + 1)]; ap < end0_; ++ap) {
                const int64_t i = A1_crd[ap];
                const int64_t ae = ((int64_t)A_source[ap] - 1);
                acc = (acc + tw_select_f32x8((*(const tw_i32x8u *)&P_values[((i * N_j) + j)] == ((tw_i32x8){0} + (int32_t)ae)), *(const tw_f32x8u *)&D_values[((i * N_j) + j)], tw_splat_f32x8(0.0f)));
                acc_1 = (acc_1 + tw_select_f32x8((*(const tw_i32x8u *)&P_values[((i * N_j) + (j + 8))] == ((tw_i32x8){0} + (int32_t)ae)), *(const tw_f32x8u *)&D_values[((i * N_j) + (j + 8))], tw_splat_f32x8(0.0f)));
            }
            *(tw_f32x8u *)&out[((k * N_j) + j)] = acc;
            *(tw_f32x8u *)&out[((k * N_j) + (j + 8))] = acc_1;
        }
        const int64_t fits = (((stop + 8) < N_j) & (N_j < (stop + 16)));
        if (fits) {
            tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
            for (int64_t ap_1 = A1_pos[k], end1_ = A1_pos[(k + 1)]; ap_1 < end1_; ++ap_1) {
                const int64_t i_1 = A1_crd[ap_1];
                const int64_t ae_1 = ((int64_t)A_source[ap_1] - 1);
                acc_2 = (acc_2 + tw_select_f32x8((*(const tw_i32x8u *)&P_values[((i_1 * N_j) + stop)] == ((tw_i32x8){0} + (int32_t)ae_1)), *(const tw_f32x8u *)&D_values[((i_1 * N_j) + stop)], tw_splat_f32x8(0.0f)));
                acc_3 = (acc_3 + tw_select_f32x8((*(const tw_i32x8u *)&P_values[((i_1 * N_j) + (N_j - 8))] == ((tw_i32x8){0} + (int32_t)ae_1)), *(const tw_f32x8u *)&D_values[((i_1 * N_j) + (N_j - 8))], tw_splat_f32x8(0.0f)));
            }
            *(tw_f32x8u *)&out[((k * N_j) + stop)] = acc_2;
            *(tw_f32x8u *)&out[((k * N_j) + (N_j - 8))] = acc_3;
        }
        const int64_t rest = (fits ? N_j : stop);
        const int64_t stop_1 = (rest + (((N_j - rest) / 8) * 8));
        for (int64_t j_1 = rest; j_1 < stop_1; j_1 += 8) {
            tw_f32x8 acc_4 = tw_splat_f32x8(0.0f);
            for (int64_t ap_2 = A1_pos[k], end2_ = A1_pos[(k + 1)]; ap_2 < end2_; ++ap_2) {
                const int64_t i_2 = A1_crd[ap_2];
                const int64_t ae_2 = ((int64_t)A_source[ap_2] - 1);
                acc_4 = (acc_4 + tw_select_f32x8((*(const tw_i32x8u *)&P_values[((i_2 * N_j) + j_1)] == ((tw_i32x8){0} + (int32_t)ae_2)), *(const tw_f32x8u *)&D_values[((i_2 * N_j) + j_1)], tw_splat_f32x8(0.0f)));
            }
            *(tw_f32x8u *)&out[((k * N_j) + j_1)] = acc_4;
        }
        if ((stop_1 < N_j)) {
            if ((8 <= N_j)) {
                for (int64_t j_2 = (N_j - 8); j_2 < N_j; j_2 += 8) {
                    tw_f32x8 acc_5 = tw_splat_f32x8(0.0f);
                    for (int64_t ap_3 = A1_pos[k], end3_ = A1_pos[(k + 1)]; ap_3 < end3_; ++ap_3) {
                        const int64_t i_3 = A1_crd[ap_3];
                        const int64_t ae_3 = ((int64_t)A_source[ap_3] - 1);
                        acc_5 = (acc_5 + tw_select_f32x8((*(const tw_i32x8u *)&P_values[((i_3 * N_j) + j_2)] == ((tw_i32x8){0} + (int32_t)ae_3)), *(const tw_f32x8u *)&D_values[((i_3 * N_j) + j_2)], tw_splat_f32x8(0.0f)));
                    }
                    *(tw_f32x8u *)&out[((k * N_j) + j_2)] = acc_5;
                }
            }
        }
        const int64_t rest_1 = ((8 <= N_j) ? N_j : stop_1);
        const int64_t stop_2 = (rest_1 + (((N_j - rest_1) / 4) * 4));
        for (int64_t j_3 = rest_1; j_3 < stop_2; j_3 += 4) {
            tw_f32x4 acc_6 = tw_splat_f32x4(0.0f);
            for (int64_t ap_4 = A1_pos[k], end4_ = A1_pos[(k + 1)]; ap_4 < end4_; ++ap_4) {
                const int64_t i_4 = A1_crd[ap_4];
                const int64_t ae_4 = ((int64_t)A_source[ap_4] - 1);
                acc_6 = (acc_6 + tw_select_f32x4((*(const tw_i32x4u *)&P_values[((i_4 * N_j) + j_3)] == ((tw_i32x4){0} + (int32_t)ae_4)), *(const tw_f32x4u *)&D_values[((i_4 * N_j) + j_3)], tw_splat_f32x4(0.0f)));
            }
            *(tw_f32x4u *)&out[((k * N_j) + j_3)] = acc_6;
        }
        const int64_t stop_3 = (stop_2 + (((N_j - stop_2) / 3) * 3));
        for (int64_t j_4 = stop_2; j_4 < stop_3; j_4 += 3) {
            float acc_7 = 0.0f;
            float acc_8 = 0.0f;
            float acc_9 = 0.0f;
            for (int64_t ap_5 = A1_pos[k], end5_ = A1_pos[(k + 1)]; ap_5 < end5_; ++ap_5) {
                const int64_t i_5 = A1_crd[ap_5];
                const int64_t ae_5 = ((int64_t)A_source[ap_5] - 1);
                acc_7 = (acc_7 + ((P_values[((i_5 * N_j) + j_4)] == ae_5) ? D_values[((i_5 * N_j) + j_4)] : 0.0f));
                acc_8 = (acc_8 + ((P_values[((i_5 * N_j) + (j_4 + 1))] == ae_5) ? D_values[((i_5 * N_j) + (j_4 + 1))] : 0.0f));
                acc_9 = (acc_9 + ((P_values[((i_5 * N_j) + (j_4 + 2))] == ae_5) ? D_values[((i_5 * N_j) + (j_4 + 2))] : 0.0f));
            }
            out[((k * N_j) + j_4)] = acc_7;
            out[((k * N_j) + (j_4 + 1))] = acc_8;
            out[((k * N_j) + (j_4 + 2))] = acc_9;
        }
        const int64_t stop_4 = (stop_3 + (((N_j - stop_3) / 2) * 2));
        for (int64_t j_5 = stop_3; j_5 < stop_4; j_5 += 2) {
            float acc_10 = 0.0f;
            float acc_11 = 0.0f;
            for (int64_t ap_6 = A1_pos[k], end6_ = A1_pos[(k + 1)]; ap_6 < end6_; ++ap_6) {
                const int64_t i_6 = A1_crd[ap_6];
                const int64_t ae_6 = ((int64_t)A_source[ap_6] - 1);
                acc_10 = (acc_10 + ((P_values[((i_6 * N_j) + j_5)] == ae_6) ? D_values[((i_6 * N_j) + j_5)] : 0.0f));
                acc_11 = (acc_11 + ((P_values[((i_6 * N_j) + (j_5 + 1))] == ae_6) ? D_values[((i_6 * N_j) + (j_5 + 1))] : 0.0f));
            }
            out[((k * N_j) + j_5)] = acc_10;
            out[((k * N_j) + (j_5 + 1))] = acc_11;
        }
        for (int64_t j_6 = stop_4; j_6 < N_j; ++j_6) {
            float acc_12 = 0.0f;
            for (int64_t ap_7 = A1_pos[k], end7_ = A1_pos[(k + 1)]; ap_7 < end7_; ++ap_7) {
                const int64_t i_7 = A1_crd[ap_7];
                const int64_t ae_7 = ((int64_t)A_source[ap_7] - 1);
                acc_12 = (acc_12 + ((P_values[((i_7 * N_j) + j_6)] == ae_7) ? D_values[((i_7 * N_j) + j_6)] : 0.0f));
            }
            out[((k * N_j) + j_6)] = acc_12;
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const float *restrict const D_values = (const float *)buffers[3];
    const int32_t *restrict const P_values = (const int32_t *)buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[6];
    const int32_t *restrict const A_source = (const int32_t *)buffers[7];
    const int64_t N_k = sizes[3];
    const int64_t N_j = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_k;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
