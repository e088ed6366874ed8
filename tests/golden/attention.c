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
            const int64_t stop_1 = (stop + (((N_d - stop) / 8) * 8));
            for (int64_t d_1 = stop; d_1 < stop_1; d_1 += 8) {
                tw_f64x8 acc_2 = tw_splat_f64x8(0.0);
                for (int64_t ap_1 = A1_pos[i], end1_ = A1_pos[(i + 1)]; ap_1 < end1_; ++ap_1) {
                    const int64_t k_1 = A1_crd[ap_1];
                    acc_2 = (acc_2 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap_1 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k_1 * N_h) + h) * N_d) + d_1)]));
                }
                *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + d_1)] = acc_2;
            }
            if ((stop_1 < N_d)) {
                if ((8 <= N_d)) {
                    for (int64_t d_2 = (N_d - 8); d_2 < N_d; d_2 += 8) {
                        tw_f64x8 acc_3 = tw_splat_f64x8(0.0);
                        for (int64_t ap_2 = A1_pos[i], end2_ = A1_pos[(i + 1)]; ap_2 < end2_; ++ap_2) {
                            const int64_t k_2 = A1_crd[ap_2];
                            acc_3 = (acc_3 + (tw_splat_f64x8((tw_fexp_f64((S_values[((ap_2 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x8u *)&X_values[((((k_2 * N_h) + h) * N_d) + d_2)]));
                        }
                        *(tw_f64x8u *)&out[((((i * N_h) + h) * N_d) + d_2)] = acc_3;
                    }
                }
            }
            const int64_t rest = ((8 <= N_d) ? N_d : stop_1);
            const int64_t stop_2 = (rest + (((N_d - rest) / 4) * 4));
            for (int64_t d_3 = rest; d_3 < stop_2; d_3 += 4) {
                tw_f64x4 acc_4 = tw_splat_f64x4(0.0);
                for (int64_t ap_3 = A1_pos[i], end3_ = A1_pos[(i + 1)]; ap_3 < end3_; ++ap_3) {
                    const int64_t k_3 = A1_crd[ap_3];
                    acc_4 = (acc_4 + (tw_splat_f64x4((tw_fexp_f64((S_values[((ap_3 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)])) * *(const tw_f64x4u *)&X_values[((((k_3 * N_h) + h) * N_d) + d_3)]));
                }
                *(tw_f64x4u *)&out[((((i * N_h) + h) * N_d) + d_3)] = acc_4;
            }
            for (int64_t d_4 = stop_2; d_4 < N_d; ++d_4) {
                double acc_5 = 0.0;
                for (int64_t ap_4 = A1_pos[i], end4_ = A1_pos[(i + 1)]; ap_4 < end4_; ++ap_4) {
                    const int64_t k_4 = A1_crd[ap_4];
                    acc_5 = (acc_5 + ((tw_fexp_f64((S_values[((ap_4 * N_h) + h)] - M_values[((i * N_h) + h)])) / Z_values[((i * N_h) + h)]) * X_values[((((k_4 * N_h) + h) * N_d) + d_4)]));
                }
                out[((((i * N_h) + h) * N_d) + d_4)] = acc_5;
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
