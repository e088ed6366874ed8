/* C[i,h,d] += exp(S[A,h] - M[i,h]) / Z[i,h] * X[k,h,d] for A[i,k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    double *restrict const out = (double *)given_->buffers[2];
    const double *restrict const S_values = (const double *)given_->buffers[3];
    const double *restrict const M_values = (const double *)given_->buffers[4];
    const double *restrict const Z_values = (const double *)given_->buffers[5];
    const double *restrict const X_values = (const double *)given_->buffers[6];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[7];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[8];
    const int64_t N_h = given_->sizes[4];
    const int64_t N_d = given_->sizes[5];
    for (int64_t i = lo_; i < hi_; ++i) {
        for (int64_t h = 0; h < N_h; ++h) {
            const int64_t stop = ((N_d / 16) * 16);
            for (int64_t d = 0; d < stop; d += 16) {
                tw_f64x8 acc = tw_splat_f64x8(0.0);
                tw_f64x8 acc_1 = tw_splat_f64x8(0.0);
                for (int64_t ap = A1_pos[i], end0_ = A1_pos[(i + 1)]; ap < end0_; ++ap) {
                    const int64_t k = A1_crd[ap];
                    acc = (acc + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k * N_h) + h) * N_d) + d)]));
                    acc_1 = (acc_1 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k * N_h) + h) * N_d) + (d + 8))]));
                }
                *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + d)] = acc;
                *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + (d + 8))] = acc_1;
            }
            const int64_t fits = (((stop + 8) < N_d) & (N_d < (stop + 16)));
            if (fits) {
                tw_f64x8 acc_2 = tw_splat_f64x8(0.0);
                tw_f64x8 acc_3 = tw_splat_f64x8(0.0);
                for (int64_t ap_1 = A1_pos[i], end1_ = A1_pos[(i + 1)]; ap_1 < end1_; ++ap_1) {
                    const int64_t k_1 = A1_crd[ap_1];
                    acc_2 = (acc_2 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap_1 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k_1 * N_h) + h) * N_d) + stop)]));
                    acc_3 = (acc_3 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap_1 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k_1 * N_h) + h) * N_d) + (N_d - 8))]));
                }
                *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + stop)] = acc_2;
                *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + (N_d - 8))] = acc_3;
            }
            const int64_t rest = (fits ? N_d : stop);
            const int64_t stop_1 = (rest + (((N_d - rest) / 8) * 8));
            for (int64_t d_1 = rest; d_1 < stop_1; d_1 += 8) {
                tw_f64x8 acc_4 = tw_splat_f64x8(0.0);
                for (int64_t ap_2 = A1_pos[i], end2_ = A1_pos[(i + 1)]; ap_2 < end2_; ++ap_2) {
                    const int64_t k_2 = A1_crd[ap_2];
                    acc_4 = (acc_4 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap_2 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k_2 * N_h) + h) * N_d) + d_1)]));
                }
                *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + d_1)] = acc_4;
            }
            if ((stop_1 < N_d)) {
                if ((8 <= N_d)) {
                    for (int64_t d_2 = (N_d - 8); d_2 < N_d; d_2 += 8) {
                        tw_f64x8 acc_5 = tw_splat_f64x8(0.0);
                        for (int64_t ap_3 = A1_pos[i], end3_ = A1_pos[(i + 1)]; ap_3 < end3_; ++ap_3) {
                            const int64_t k_3 = A1_crd[ap_3];
                            acc_5 = (acc_5 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap_3 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k_3 * N_h) + h) * N_d) + d_2)]));
                        }
                        *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + d_2)] = acc_5;
                    }
                }
            }
            const int64_t rest_1 = ((8 <= N_d) ? N_d : stop_1);
            const int64_t stop_2 = (rest_1 + (((N_d - rest_1) / 4) * 4));
            for (int64_t d_3 = rest_1; d_3 < stop_2; d_3 += 4) {
                tw_f64x4 acc_6 = tw_splat_f64x4(0.0);
                for (int64_t ap_4 = A1_pos[i], end4_ = A1_pos[(i + 1)]; ap_4 < end4_; ++ap_4) {
                    const int64_t k_4 = A1_crd[ap_4];
                    acc_6 = (acc_6 + (tw_splat_f64x4((tw_fexp_f64((S_values[((ap_4 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x4u *)&X_values[((((k_4 * N_h) + h) * N_d) + d_3)]));
                }
                *(tw_f64x4u *)&out[((((i * N_h) + h) * N_d) + d_3)] = acc_6;
            }
            const int64_t stop_3 = (stop_2 + (((N_d - stop_2) / 3) * 3));
            for (int64_t d_4 = stop_2; d_4 < stop_3; d_4 += 3) {
                double acc_7 = 0.0;
                double acc_8 = 0.0;
                double acc_9 = 0.0;
                for (int64_t ap_5 = A1_pos[i], end5_ = A1_pos[(i + 1)]; ap_5 < end5_; ++ap_5) {
                    const int64_t k_5 = A1_crd[ap_5];
                    acc_7 = (acc_7 + ((tw_fexp_f64((S_values[((ap_5 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_5 * N_h) + h) * N_d) + d_4)]));
                    acc_8 = (acc_8 + ((tw_fexp_f64((S_values[((ap_5 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_5 * N_h) + h) * N_d) + (d_4 + 1))]));
                    acc_9 = (acc_9 + ((tw_fexp_f64((S_values[((ap_5 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_5 * N_h) + h) * N_d) + (d_4 + 2))]));
                }
                out[((((i * N_h) + h) * N_d) + d_4)] = acc_7;
                out[((((i * N_h) + h) * N_d) + (d_4 + 1))] = acc_8;
                out[((((i * N_h) + h) * N_d) + (d_4 + 2))] = acc_9;
            }
            const int64_t stop_4 = (stop_3 + (((N_d - stop_3) / 2) * 2));
            for (int64_t d_5 = stop_3; d_5 < stop_4; d_5 += 2) {
                double acc_10 = 0.0;
                double acc_11 = 0.0;
                for (int64_t ap_6 = A1_pos[i], end6_ = A1_pos[(i + 1)]; ap_6 < end6_; ++ap_6) {
                    const int64_t k_6 = A1_crd[ap_6];
                    acc_10 = (acc_10 + ((tw_fexp_f64((S_values[((ap_6 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_6 * N_h) + h) * N_d) + d_5)]));
                    acc_11 = (acc_11 + ((tw_fexp_f64((S_values[((ap_6 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_6 * N_h) + h) * N_d) + (d_5 + 1))]));
                }
                out[((((i * N_h) + h) * N_d) + d_5)] = acc_10;
                out[((((i * N_h) + h) * N_d) + (d_5 + 1))] = acc_11;
            }
            for (int64_t d_6 = stop_4; d_6 < N_d; ++d_6) {
                double acc_12 = 0.0;
                for (int64_t ap_7 = A1_pos[i], end7_ = A1_pos[(i + 1)]; ap_7 < end7_; ++ap_7) {
                    const int64_t k_7 = A1_crd[ap_7];
                    acc_12 = (acc_12 + ((tw_fexp_f64((S_values[((ap_7 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_7 * N_h) + h) * N_d) + d_6)]));
                }
                out[((((i * N_h) + h) * N_d) + d_6)] = acc_12;
            }
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    double *restrict const out = (double *)buffers[2];
    const double *restrict const S_values = (const double *)buffers[3];
    const double *restrict const M_values = (const double *)buffers[4];
    const double *restrict const Z_values = (const double *)buffers[5];
    const double *restrict const X_values = (const double *)buffers[6];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[7];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[8];
    const int64_t N_i = sizes[3];
    const int64_t N_h = sizes[4];
    const int64_t N_d = sizes[5];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
