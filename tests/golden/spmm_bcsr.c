/* C[i,j] += A[i,k] * B[k,j] */
typedef struct { void *const *buffers; const int64_t *sizes; int * flag_; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const float *restrict const B_values = (const float *)given_->buffers[6];
    const int64_t N_i = given_->sizes[3];
    const int64_t N_j = given_->sizes[4];
    const int64_t N_k = given_->sizes[5];
    const int * flag_ = given_->flag_;
    for (int64_t i1 = lo_; i1 < hi_; ++i1) {
        const int64_t stop = ((N_j / 8) * 8);
        for (int64_t j = 0; j < stop; j += 8) {
            tw_f32x8 acc = tw_splat_f32x8(0.0f);
            tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
            for (int64_t ap = A1_pos[i1], end0_ = A1_pos[(i1 + 1)]; ap < end0_; ++ap) {
                const int64_t k1 = A1_crd[ap];
                const int64_t i = (i1 * 2);
                const int64_t ap_1 = (ap * 2);
                const int64_t k = (k1 * 2);
                if ((k < N_k)) {
                    const int64_t ap_2 = (ap_1 * 2);
                    const float av = A_values[ap_2];
                    acc = (acc + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                }
                const int64_t k_1 = ((k1 * 2) + 1);
                if ((k_1 < N_k)) {
                    const int64_t ap_3 = ((ap_1 * 2) + 1);
                    const float av_1 = A_values[ap_3];
                    acc = (acc + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j)]));
                }
                const int64_t i_1 = ((i1 * 2) + 1);
                const int64_t ap_4 = ((ap * 2) + 1);
                const int64_t k_2 = (k1 * 2);
                if ((k_2 < N_k)) {
                    const int64_t ap_5 = (ap_4 * 2);
                    const float av_2 = A_values[ap_5];
                    acc_1 = (acc_1 + (tw_splat_f32x8(av_2) * *(const tw_f32x8u *)&B_values[((k_2 * N_j) + j)]));
                }
                const int64_t k_3 = ((k1 * 2) + 1);
                if ((k_3 < N_k)) {
                    const int64_t ap_6 = ((ap_4 * 2) + 1);
                    const float av_3 = A_values[ap_6];
                    acc_1 = (acc_1 + (tw_splat_f32x8(av_3) * *(const tw_f32x8u *)&B_values[((k_3 * N_j) + j)]));
                }
            }
            if ((tw_fold_nan_f32x8((acc + acc_1)) != 0.0f)) {
                __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
            }
            const int64_t i_2 = (i1 * 2);
            if ((i_2 < N_i)) {
                *(tw_f32x8u *)&out[((i_2 * N_j) + j)] = acc;
            }
            const int64_t i_3 = ((i1 * 2) + 1);
            if ((i_3 < N_i)) {
                *(tw_f32x8u *)&out[((i_3 * N_j) + j)] = acc_1;
            }
        }
        if ((stop < N_j)) {
            if ((8 <= N_j)) {
                for (int64_t j_1 = (N_j - 8); j_1 < N_j; j_1 += 8) {
                    tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
                    tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
                    for (int64_t ap_7 = A1_pos[i1], end1_ = A1_pos[(i1 + 1)]; ap_7 < end1_; ++ap_7) {
                        const int64_t k1_1 = A1_crd[ap_7];
                        const int64_t i_4 = (i1 * 2);
                        const int64_t ap_8 = (ap_7 * 2);
                        const int64_t k_4 = (k1_1 * 2);
                        if ((k_4 < N_k)) {
                            const int64_t ap_9 = (ap_8 * 2);
                            const float av_4 = A_values[ap_9];
                            acc_2 = (acc_2 + (tw_splat_f32x8(av_4) * *(const tw_f32x8u *)&B_values[((k_4 * N_j) + j_1)]));
                        }
                        const int64_t k_5 = ((k1_1 * 2) + 1);
                        if ((k_5 < N_k)) {
                            const int64_t ap_10 = ((ap_8 * 2) + 1);
                            const float av_5 = A_values[ap_10];
                            acc_2 = (acc_2 + (tw_splat_f32x8(av_5) * *(const tw_f32x8u *)&B_values[((k_5 * N_j) + j_1)]));
                        }
                        const int64_t i_5 = ((i1 * 2) + 1);
                        const int64_t ap_11 = ((ap_7 * 2) + 1);
                        const int64_t k_6 = (k1_1 * 2);
                        if ((k_6 < N_k)) {
                            const int64_t ap_12 = (ap_11 * 2);
                            const float av_6 = A_values[ap_12];
                            acc_3 = (acc_3 + (tw_splat_f32x8(av_6) * *(const tw_f32x8u *)&B_values[((k_6 * N_j) + j_1)]));
                        }
                        const int64_t k_7 = ((k1_1 * 2) + 1);
                        if ((k_7 < N_k)) {
                            const int64_t ap_13 = ((ap_11 * 2) + 1);
                            const float av_7 = A_values[ap_13];
                            acc_3 = (acc_3 + (tw_splat_f32x8(av_7) * *(const tw_f32x8u *)&B_values[((k_7 * N_j) + j_1)]));
                        }
                    }
                    if ((tw_fold_nan_f32x8((acc_2 + acc_3)) != 0.0f)) {
                        __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                    }
                    const int64_t i_6 = (i1 * 2);
                    if ((i_6 < N_i)) {
                        *(tw_f32x8u *)&out[((i_6 * N_j) + j_1)] = acc_2;
                    }
                    const int64_t i_7 = ((i1 * 2) + 1);
                    if ((i_7 < N_i)) {
                        *(tw_f32x8u *)&out[((i_7 * N_j) + j_1)] = acc_3;
                    }
                }
            }
        }
        const int64_t rest = ((8 <= N_j) ? N_j : stop);
        const int64_t stop_1 = (rest + (((N_j - rest) / 4) * 4));
        for (int64_t j_2 = rest; j_2 < stop_1; j_2 += 4) {
            tw_f32x4 acc_4 = tw_splat_f32x4(0.0f);
            tw_f32x4 acc_5 = tw_splat_f32x4(0.0f);
            for (int64_t ap_14 = A1_pos[i1], end2_ = A1_pos[(i1 + 1)]; ap_14 < end2_; ++ap_14) {
                const int64_t k1_2 = A1_crd[ap_14];
                const int64_t i_8 = (i1 * 2);
                const int64_t ap_15 = (ap_14 * 2);
                const int64_t k_8 = (k1_2 * 2);
                if ((k_8 < N_k)) {
                    const int64_t ap_16 = (ap_15 * 2);
                    const float av_8 = A_values[ap_16];
                    acc_4 = (acc_4 + (tw_splat_f32x4(av_8) * *(const tw_f32x4u *)&B_values[((k_8 * N_j) + j_2)]));
                }
                const int64_t k_9 = ((k1_2 * 2) + 1);
                if ((k_9 < N_k)) {
                    const int64_t ap_17 = ((ap_15 * 2) + 1);
                    const float av_9 = A_values[ap_17];
                    acc_4 = (acc_4 + (tw_splat_f32x4(av_9) * *(const tw_f32x4u *)&B_values[((k_9 * N_j) + j_2)]));
                }
                const int64_t i_9 = ((i1 * 2) + 1);
                const int64_t ap_18 = ((ap_14 * 2) + 1);
                const int64_t k_10 = (k1_2 * 2);
                if ((k_10 < N_k)) {
                    const int64_t ap_19 = (ap_18 * 2);
                    const float av_10 = A_values[ap_19];
                    acc_5 = (acc_5 + (tw_splat_f32x4(av_10) * *(const tw_f32x4u *)&B_values[((k_10 * N_j) + j_2)]));
                }
                const int64_t k_11 = ((k1_2 * 2) + 1);
                if ((k_11 < N_k)) {
                    const int64_t ap_20 = ((ap_18 * 2) + 1);
                    const float av_11 = A_values[ap_20];
                    acc_5 = (acc_5 + (tw_splat_f32x4(av_11) * *(const tw_f32x4u *)&B_values[((k_11 * N_j) + j_2)]));
                }
            }
            if ((tw_fold_nan_f32x4((acc_4 + acc_5)) != 0.0f)) {
                __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
            }
            const int64_t i_10 = (i1 * 2);
            if ((i_10 < N_i)) {
                *(tw_f32x4u *)&out[((i_10 * N_j) + j_2)] = acc_4;
            }
            const int64_t i_11 = ((i1 * 2) + 1);
            if ((i_11 < N_i)) {
                *(tw_f32x4u *)&out[((i_11 * N_j) + j_2)] = acc_5;
            }
        }
        for (int64_t j_3 = stop_1; j_3 < N_j; ++j_3) {
            float acc_6 = 0.0f;
            float acc_7 = 0.0f;
            for (int64_t ap_21 = A1_pos[i1], end3_ = A1_pos[(i1 + 1)]; ap_21 < end3_; ++ap_21) {
                const int64_t k1_3 = A1_crd[ap_21];
                const int64_t i_12 = (i1 * 2);
                const int64_t ap_22 = (ap_21 * 2);
                const int64_t k_12 = (k1_3 * 2);
                if ((k_12 < N_k)) {
                    const int64_t ap_23 = (ap_22 * 2);
                    const float av_12 = A_values[ap_23];
                    acc_6 = (acc_6 + (av_12 * B_values[((k_12 * N_j) + j_3)]));
                }
                const int64_t k_13 = ((k1_3 * 2) + 1);
                if ((k_13 < N_k)) {
                    const int64_t ap_24 = ((ap_22 * 2) + 1);
                    const float av_13 = A_values[ap_24];
                    acc_6 = (acc_6 + (av_13 * B_values[((k_13 * N_j) + j_3)]));
                }
                const int64_t i_13 = ((i1 * 2) + 1);
                const int64_t ap_25 = ((ap_21 * 2) + 1);
                const int64_t k_14 = (k1_3 * 2);
                if ((k_14 < N_k)) {
                    const int64_t ap_26 = (ap_25 * 2);
                    const float av_14 = A_values[ap_26];
                    acc_7 = (acc_7 + (av_14 * B_values[((k_14 * N_j) + j_3)]));
                }
                const int64_t k_15 = ((k1_3 * 2) + 1);
                if ((k_15 < N_k)) {
                    const int64_t ap_27 = ((ap_25 * 2) + 1);
                    const float av_15 = A_values[ap_27];
                    acc_7 = (acc_7 + (av_15 * B_values[((k_15 * N_j) + j_3)]));
                }
            }
            const float watched = (acc_6 + acc_7);
            if ((watched != watched)) {
                __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
            }
            const int64_t i_14 = (i1 * 2);
            if ((i_14 < N_i)) {
                out[((i_14 * N_j) + j_3)] = acc_6;
            }
            const int64_t i_15 = ((i1 * 2) + 1);
            if ((i_15 < N_i)) {
                out[((i_15 * N_j) + j_3)] = acc_7;
            }
        }
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
    const int64_t N_j = sizes[4];
    const int64_t N_k = sizes[5];
    int raised_ = 0, *const flag_ = &raised_;
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes, flag_};
        const int64_t lo_ = 0, hi_ = (((N_i + 2) - 1) / 2);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    return raised_;
}
