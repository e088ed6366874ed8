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
typedef struct { void *const *buffers; const int64_t *sizes; int * flag_; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A0_crd = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[6];
    const float *restrict const A_values = (const float *)given_->buffers[7];
    const float *restrict const B_values = (const float *)given_->buffers[8];
    const int64_t *restrict const cuts = (const int64_t *)given_->buffers[9];
    float *restrict const carries = (float *)given_->buffers[10];
    const int64_t N_i = given_->sizes[3];
    const int64_t N_j = given_->sizes[4];
    const int * flag_ = given_->flag_;
    for (int64_t part = lo_; part < hi_; ++part) {
        const int64_t first = cuts[(part * 2)];
        const int64_t begin = cuts[((part * 2) + 1)];
        const int64_t stop = tw_min_i64(A1_pos[first], cuts[((part * 2) + 3)]);
        const int64_t last = cuts[((part * 2) + 2)];
        const int64_t end = cuts[((part * 2) + 3)];
        if ((begin < stop)) {
            for (int64_t e = 0, end0_ = (4 * N_j); e < end0_; ++e) {
                carries[((part * (4 * N_j)) + e)] = 0.0f;
            }
            const int64_t ap_1 = (first - 1);
            const int64_t i1 = A0_crd[ap_1];
            const int64_t stop_1 = ((N_j / 8) * 8);
            for (int64_t j = 0; j < stop_1; j += 8) {
                tw_f32x8 acc = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
                for (int64_t ap_2 = begin; ap_2 < stop; ++ap_2) {
                    const int64_t k = A1_crd[ap_2];
                    const int64_t i = (i1 * 4);
                    const int64_t ap_3 = (ap_2 * 4);
                    const float av = A_values[ap_3];
                    acc = (acc + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                    const int64_t i_1 = ((i1 * 4) + 1);
                    const int64_t ap_4 = ((ap_2 * 4) + 1);
                    const float av_1 = A_values[ap_4];
                    acc_1 = (acc_1 + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                    const int64_t i_2 = ((i1 * 4) + 2);
                    const int64_t ap_5 = ((ap_2 * 4) + 2);
                    const float av_2 = A_values[ap_5];
                    acc_2 = (acc_2 + (tw_splat_f32x8(av_2) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                    const int64_t i_3 = ((i1 * 4) + 3);
                    const int64_t ap_6 = ((ap_2 * 4) + 3);
                    const float av_3 = A_values[ap_6];
                    acc_3 = (acc_3 + (tw_splat_f32x8(av_3) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                }
                if ((tw_fold_nan_f32x8((((acc + acc_1) + acc_2) + acc_3)) != 0.0f)) {
                    __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_4 = (i1 * 4);
                if ((i_4 < N_i)) {
                    *(tw_f32x8u *)&carries[((part * (4 * N_j)) + j)] = acc;
                }
                const int64_t i_5 = ((i1 * 4) + 1);
                if ((i_5 < N_i)) {
                    *(tw_f32x8u *)&carries[((part * (4 * N_j)) + (N_j + j))] = acc_1;
                }
                const int64_t i_6 = ((i1 * 4) + 2);
                if ((i_6 < N_i)) {
                    *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((2 * N_j) + j))] = acc_2;
                }
                const int64_t i_7 = ((i1 * 4) + 3);
                if ((i_7 < N_i)) {
                    *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((3 * N_j) + j))] = acc_3;
                }
            }
            if ((stop_1 < N_j)) {
                if ((8 <= N_j)) {
                    for (int64_t j_1 = (N_j - 8); j_1 < N_j; j_1 += 8) {
                        tw_f32x8 acc_4 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_5 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_6 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_7 = tw_splat_f32x8(0.0f);
                        for (int64_t ap_7 = begin; ap_7 < stop; ++ap_7) {
                            const int64_t k_1 = A1_crd[ap_7];
                            const int64_t i_8 = (i1 * 4);
                            const int64_t ap_8 = (ap_7 * 4);
                            const float av_4 = A_values[ap_8];
                            acc_4 = (acc_4 + (tw_splat_f32x8(av_4) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                            const int64_t i_9 = ((i1 * 4) + 1);
                            const int64_t ap_9 = ((ap_7 * 4) + 1);
                            const float av_5 = A_values[ap_9];
                            acc_5 = (acc_5 + (tw_splat_f32x8(av_5) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                            const int64_t i_10 = ((i1 * 4) + 2);
                            const int64_t ap_10 = ((ap_7 * 4) + 2);
                            const float av_6 = A_values[ap_10];
                            acc_6 = (acc_6 + (tw_splat_f32x8(av_6) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                            const int64_t i_11 = ((i1 * 4) + 3);
                            const int64_t ap_11 = ((ap_7 * 4) + 3);
                            const float av_7 = A_values[ap_11];
                            acc_7 = (acc_7 + (tw_splat_f32x8(av_7) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                        }
                        if ((tw_fold_nan_f32x8((((acc_4 + acc_5) + acc_6) + acc_7)) != 0.0f)) {
                            __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                        }
                        const int64_t i_12 = (i1 * 4);
                        if ((i_12 < N_i)) {
                            *(tw_f32x8u *)&carries[((part * (4 * N_j)) + j_1)] = acc_4;
                        }
                        const int64_t i_13 = ((i1 * 4) + 1);
                        if ((i_13 < N_i)) {
                            *(tw_f32x8u *)&carries[((part * (4 * N_j)) + (N_j + j_1))] = acc_5;
                        }
                        const int64_t i_14 = ((i1 * 4) + 2);
                        if ((i_14 < N_i)) {
                            *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((2 * N_j) + j_1))] = acc_6;
                        }
                        const int64_t i_15 = ((i1 * 4) + 3);
                        if ((i_15 < N_i)) {
                            *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((3 * N_j) + j_1))] = acc_7;
                        }
                    }
                }
            }
            const int64_t rest = ((8 <= N_j) ? N_j : stop_1);
            const int64_t stop_2 = (rest + (((N_j - rest) / 4) * 4));
            for (int64_t j_2 = rest; j_2 < stop_2; j_2 += 4) {
                tw_f32x4 acc_8 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_9 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_10 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_11 = tw_splat_f32x4(0.0f);
                for (int64_t ap_12 = begin; ap_12 < stop; ++ap_12) {
                    const int64_t k_2 = A1_crd[ap_12];
                    const int64_t i_16 = (i1 * 4);
                    const int64_t ap_13 = (ap_12 * 4);
                    const float av_8 = A_values[ap_13];
                    acc_8 = (acc_8 + (tw_splat_f32x4(av_8) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                    const int64_t i_17 = ((i1 * 4) + 1);
                    const int64_t ap_14 = ((ap_12 * 4) + 1);
                    const float av_9 = A_values[ap_14];
                    acc_9 = (acc_9 + (tw_splat_f32x4(av_9) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                    const int64_t i_18 = ((i1 * 4) + 2);
                    const int64_t ap_15 = ((ap_12 * 4) + 2);
                    const float av_10 = A_values[ap_15];
                    acc_10 = (acc_10 + (tw_splat_f32x4(av_10) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                    const int64_t i_19 = ((i1 * 4) + 3);
                    const int64_t ap_16 = ((ap_12 * 4) + 3);
                    const float av_11 = A_values[ap_16];
                    acc_11 = (acc_11 + (tw_splat_f32x4(av_11) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                }
                if ((tw_fold_nan_f32x4((((acc_8 + acc_9) + acc_10) + acc_11)) != 0.0f)) {
                    __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_20 = (i1 * 4);
                if ((i_20 < N_i)) {
                    *(tw_f32x4u *)&carries[((part * (4 * N_j)) + j_2)] = acc_8;
                }
                const int64_t i_21 = ((i1 * 4) + 1);
                if ((i_21 < N_i)) {
                    *(tw_f32x4u *)&carries[((part * (4 * N_j)) + (N_j + j_2))] = acc_9;
                }
                const int64_t i_22 = ((i1 * 4) + 2);
                if ((i_22 < N_i)) {
                    *(tw_f32x4u *)&carries[((part * (4 * N_j)) + ((2 * N_j) + j_2))] = acc_10;
                }
                const int64_t i_23 = ((i1 * 4) + 3);
                if ((i_23 < N_i)) {
                    *(tw_f32x4u *)&carries[((part * (4 * N_j)) + ((3 * N_j) + j_2))] = acc_11;
                }
            }
            for (int64_t j_3 = stop_2; j_3 < N_j; ++j_3) {
                float acc_12 = 0.0f;
                float acc_13 = 0.0f;
                float acc_14 = 0.0f;
                float acc_15 = 0.0f;
                for (int64_t ap_17 = begin; ap_17 < stop; ++ap_17) {
                    const int64_t k_3 = A1_crd[ap_17];
                    const int64_t i_24 = (i1 * 4);
                    const int64_t ap_18 = (ap_17 * 4);
                    const float av_12 = A_values[ap_18];
                    acc_12 = (acc_12 + (av_12 * B_values[((k_3 * N_j) + j_3)]));
                    const int64_t i_25 = ((i1 * 4) + 1);
                    const int64_t ap_19 = ((ap_17 * 4) + 1);
                    const float av_13 = A_values[ap_19];
                    acc_13 = (acc_13 + (av_13 * B_values[((k_3 * N_j) + j_3)]));
                    const int64_t i_26 = ((i1 * 4) + 2);
                    const int64_t ap_20 = ((ap_17 * 4) + 2);
                    const float av_14 = A_values[ap_20];
                    acc_14 = (acc_14 + (av_14 * B_values[((k_3 * N_j) + j_3)]));
                    const int64_t i_27 = ((i1 * 4) + 3);
                    const int64_t ap_21 = ((ap_17 * 4) + 3);
                    const float av_15 = A_values[ap_21];
                    acc_15 = (acc_15 + (av_15 * B_values[((k_3 * N_j) + j_3)]));
                }
                const float watched = (((acc_12 + acc_13) + acc_14) + acc_15);
                if ((watched != watched)) {
                    __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_28 = (i1 * 4);
                if ((i_28 < N_i)) {
                    carries[((part * (4 * N_j)) + j_3)] = acc_12;
                }
                const int64_t i_29 = ((i1 * 4) + 1);
                if ((i_29 < N_i)) {
                    carries[((part * (4 * N_j)) + (N_j + j_3))] = acc_13;
                }
                const int64_t i_30 = ((i1 * 4) + 2);
                if ((i_30 < N_i)) {
                    carries[((part * (4 * N_j)) + ((2 * N_j) + j_3))] = acc_14;
                }
                const int64_t i_31 = ((i1 * 4) + 3);
                if ((i_31 < N_i)) {
                    carries[((part * (4 * N_j)) + ((3 * N_j) + j_3))] = acc_15;
                }
            }
        }
        for (int64_t ap = first; ap < last; ++ap) {
            const int64_t i1_1 = A0_crd[ap];
            const int64_t stop_3 = ((N_j / 8) * 8);
            for (int64_t j_4 = 0; j_4 < stop_3; j_4 += 8) {
                tw_f32x8 acc_16 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_17 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_18 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_19 = tw_splat_f32x8(0.0f);
                for (int64_t ap_22 = A1_pos[ap], end1_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_22 < end1_; ++ap_22) {
                    const int64_t k_4 = A1_crd[ap_22];
                    const int64_t i_32 = (i1_1 * 4);
                    const int64_t ap_23 = (ap_22 * 4);
                    const float av_16 = A_values[ap_23];
                    acc_16 = (acc_16 + (tw_splat_f32x8(av_16) * *(const tw_f32x8u *)&B_values[((k_4 * N_j) + j_4)]));
                    const int64_t i_33 = ((i1_1 * 4) + 1);
                    const int64_t ap_24 = ((ap_22 * 4) + 1);
                    const float av_17 = A_values[ap_24];
                    acc_17 = (acc_17 + (tw_splat_f32x8(av_17) * *(const tw_f32x8u *)&B_values[((k_4 * N_j) + j_4)]));
                    const int64_t i_34 = ((i1_1 * 4) + 2);
                    const int64_t ap_25 = ((ap_22 * 4) + 2);
                    const float av_18 = A_values[ap_25];
                    acc_18 = (acc_18 + (tw_splat_f32x8(av_18) * *(const tw_f32x8u *)&B_values[((k_4 * N_j) + j_4)]));
                    const int64_t i_35 = ((i1_1 * 4) + 3);
                    const int64_t ap_26 = ((ap_22 * 4) + 3);
                    const float av_19 = A_values[ap_26];
                    acc_19 = (acc_19 + (tw_splat_f32x8(av_19) * *(const tw_f32x8u *)&B_values[((k_4 * N_j) + j_4)]));
                }
                if ((tw_fold_nan_f32x8((((acc_16 + acc_17) + acc_18) + acc_19)) != 0.0f)) {
                    __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_36 = (i1_1 * 4);
                if ((i_36 < N_i)) {
                    *(tw_f32x8u *)&out[((i_36 * N_j) + j_4)] = acc_16;
                }
                const int64_t i_37 = ((i1_1 * 4) + 1);
                if ((i_37 < N_i)) {
                    *(tw_f32x8u *)&out[((i_37 * N_j) + j_4)] = acc_17;
                }
                const int64_t i_38 = ((i1_1 * 4) + 2);
                if ((i_38 < N_i)) {
                    *(tw_f32x8u *)&out[((i_38 * N_j) + j_4)] = acc_18;
                }
                const int64_t i_39 = ((i1_1 * 4) + 3);
                if ((i_39 < N_i)) {
                    *(tw_f32x8u *)&out[((i_39 * N_j) + j_4)] = acc_19;
                }
            }
            if ((stop_3 < N_j)) {
                if ((8 <= N_j)) {
                    for (int64_t j_5 = (N_j - 8); j_5 < N_j; j_5 += 8) {
                        tw_f32x8 acc_20 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_21 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_22 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_23 = tw_splat_f32x8(0.0f);
                        for (int64_t ap_27 = A1_pos[ap], end2_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_27 < end2_; ++ap_27) {
                            const int64_t k_5 = A1_crd[ap_27];
                            const int64_t i_40 = (i1_1 * 4);
                            const int64_t ap_28 = (ap_27 * 4);
                            const float av_20 = A_values[ap_28];
                            acc_20 = (acc_20 + (tw_splat_f32x8(av_20) * *(const tw_f32x8u *)&B_values[((k_5 * N_j) + j_5)]));
                            const int64_t i_41 = ((i1_1 * 4) + 1);
                            const int64_t ap_29 = ((ap_27 * 4) + 1);
                            const float av_21 = A_values[ap_29];
                            acc_21 = (acc_21 + (tw_splat_f32x8(av_21) * *(const tw_f32x8u *)&B_values[((k_5 * N_j) + j_5)]));
                            const int64_t i_42 = ((i1_1 * 4) + 2);
                            const int64_t ap_30 = ((ap_27 * 4) + 2);
                            const float av_22 = A_values[ap_30];
                            acc_22 = (acc_22 + (tw_splat_f32x8(av_22) * *(const tw_f32x8u *)&B_values[((k_5 * N_j) + j_5)]));
                            const int64_t i_43 = ((i1_1 * 4) + 3);
                            const int64_t ap_31 = ((ap_27 * 4) + 3);
                            const float av_23 = A_values[ap_31];
                            acc_23 = (acc_23 + (tw_splat_f32x8(av_23) * *(const tw_f32x8u *)&B_values[((k_5 * N_j) + j_5)]));
                        }
                        if ((tw_fold_nan_f32x8((((acc_20 + acc_21) + acc_22) + acc_23)) != 0.0f)) {
                            __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                        }
                        const int64_t i_44 = (i1_1 * 4);
                        if ((i_44 < N_i)) {
                            *(tw_f32x8u *)&out[((i_44 * N_j) + j_5)] = acc_20;
                        }
                        const int64_t i_45 = ((i1_1 * 4) + 1);
                        if ((i_45 < N_i)) {
                            *(tw_f32x8u *)&out[((i_45 * N_j) + j_5)] = acc_21;
                        }
                        const int64_t i_46 = ((i1_1 * 4) + 2);
                        if ((i_46 < N_i)) {
                            *(tw_f32x8u *)&out[((i_46 * N_j) + j_5)] = acc_22;
                        }
                        const int64_t i_47 = ((i1_1 * 4) + 3);
                        if ((i_47 < N_i)) {
                            *(tw_f32x8u *)&out[((i_47 * N_j) + j_5)] = acc_23;
                        }
                    }
                }
            }
            const int64_t rest_1 = ((8 <= N_j) ? N_j : stop_3);
            const int64_t stop_4 = (rest_1 + (((N_j - rest_1) / 4) * 4));
            for (int64_t j_6 = rest_1; j_6 < stop_4; j_6 += 4) {
                tw_f32x4 acc_24 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_25 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_26 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_27 = tw_splat_f32x4(0.0f);
                for (int64_t ap_32 = A1_pos[ap], end3_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_32 < end3_; ++ap_32) {
                    const int64_t k_6 = A1_crd[ap_32];
                    const int64_t i_48 = (i1_1 * 4);
                    const int64_t ap_33 = (ap_32 * 4);
                    const float av_24 = A_values[ap_33];
                    acc_24 = (acc_24 + (tw_splat_f32x4(av_24) * *(const tw_f32x4u *)&B_values[((k_6 * N_j) + j_6)]));
                    const int64_t i_49 = ((i1_1 * 4) + 1);
                    const int64_t ap_34 = ((ap_32 * 4) + 1);
                    const float av_25 = A_values[ap_34];
                    acc_25 = (acc_25 + (tw_splat_f32x4(av_25) * *(const tw_f32x4u *)&B_values[((k_6 * N_j) + j_6)]));
                    const int64_t i_50 = ((i1_1 * 4) + 2);
                    const int64_t ap_35 = ((ap_32 * 4) + 2);
                    const float av_26 = A_values[ap_35];
                    acc_26 = (acc_26 + (tw_splat_f32x4(av_26) * *(const tw_f32x4u *)&B_values[((k_6 * N_j) + j_6)]));
                    const int64_t i_51 = ((i1_1 * 4) + 3);
                    const int64_t ap_36 = ((ap_32 * 4) + 3);
                    const float av_27 = A_values[ap_36];
                    acc_27 = (acc_27 + (tw_splat_f32x4(av_27) * *(const tw_f32x4u *)&B_values[((k_6 * N_j) + j_6)]));
                }
                if ((tw_fold_nan_f32x4((((acc_24 + acc_25) + acc_26) + acc_27)) != 0.0f)) {
                    __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_52 = (i1_1 * 4);
                if ((i_52 < N_i)) {
                    *(tw_f32x4u *)&out[((i_52 * N_j) + j_6)] = acc_24;
                }
                const int64_t i_53 = ((i1_1 * 4) + 1);
                if ((i_53 < N_i)) {
                    *(tw_f32x4u *)&out[((i_53 * N_j) + j_6)] = acc_25;
                }
                const int64_t i_54 = ((i1_1 * 4) + 2);
                if ((i_54 < N_i)) {
                    *(tw_f32x4u *)&out[((i_54 * N_j) + j_6)] = acc_26;
                }
                const int64_t i_55 = ((i1_1 * 4) + 3);
                if ((i_55 < N_i)) {
                    *(tw_f32x4u *)&out[((i_55 * N_j) + j_6)] = acc_27;
                }
            }
            for (int64_t j_7 = stop_4; j_7 < N_j; ++j_7) {
                float acc_28 = 0.0f;
                float acc_29 = 0.0f;
                float acc_30 = 0.0f;
                float acc_31 = 0.0f;
                for (int64_t ap_37 = A1_pos[ap], end4_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_37 < end4_; ++ap_37) {
                    const int64_t k_7 = A1_crd[ap_37];
                    const int64_t i_56 = (i1_1 * 4);
                    const int64_t ap_38 = (ap_37 * 4);
                    const float av_28 = A_values[ap_38];
                    acc_28 = (acc_28 + (av_28 * B_values[((k_7 * N_j) + j_7)]));
                    const int64_t i_57 = ((i1_1 * 4) + 1);
                    const int64_t ap_39 = ((ap_37 * 4) + 1);
                    const float av_29 = A_values[ap_39];
                    acc_29 = (acc_29 + (av_29 * B_values[((k_7 * N_j) + j_7)]));
                    const int64_t i_58 = ((i1_1 * 4) + 2);
                    const int64_t ap_40 = ((ap_37 * 4) + 2);
                    const float av_30 = A_values[ap_40];
                    acc_30 = (acc_30 + (av_30 * B_values[((k_7 * N_j) + j_7)]));
                    const int64_t i_59 = ((i1_1 * 4) + 3);
                    const int64_t ap_41 = ((ap_37 * 4) + 3);
                    const float av_31 = A_values[ap_41];
                    acc_31 = (acc_31 + (av_31 * B_values[((k_7 * N_j) + j_7)]));
                }
                const float watched_1 = (((acc_28 + acc_29) + acc_30) + acc_31);
                if ((watched_1 != watched_1)) {
                    __atomic_store_n((int *)flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_60 = (i1_1 * 4);
                if ((i_60 < N_i)) {
                    out[((i_60 * N_j) + j_7)] = acc_28;
                }
                const int64_t i_61 = ((i1_1 * 4) + 1);
                if ((i_61 < N_i)) {
                    out[((i_61 * N_j) + j_7)] = acc_29;
                }
                const int64_t i_62 = ((i1_1 * 4) + 2);
                if ((i_62 < N_i)) {
                    out[((i_62 * N_j) + j_7)] = acc_30;
                }
                const int64_t i_63 = ((i1_1 * 4) + 3);
                if ((i_63 < N_i)) {
                    out[((i_63 * N_j) + j_7)] = acc_31;
                }
            }
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A0_crd = (const int32_t *)buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[6];
    const float *restrict const A_values = (const float *)buffers[7];
    const float *restrict const B_values = (const float *)buffers[8];
    const int64_t *restrict const cuts = (const int64_t *)buffers[9];
    float *restrict const carries = (float *)buffers[10];
    const int64_t N_i = sizes[3];
    const int64_t N_j = sizes[4];
    const int64_t parts = sizes[6];
    int raised_ = 0, *const flag_ = &raised_;
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (N_i * N_j);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body1_context given_ = {buffers, sizes, flag_};
        const int64_t lo_ = 0, hi_ = parts;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    for (int64_t part_1 = 1; part_1 < parts; ++part_1) {
        const int64_t first_1 = cuts[(part_1 * 2)];
        const int64_t begin_1 = cuts[((part_1 * 2) + 1)];
        const int64_t stop_5 = tw_min_i64(A1_pos[first_1], cuts[((part_1 * 2) + 3)]);
        if ((begin_1 < stop_5)) {
            const int64_t i1_2 = A0_crd[(first_1 - 1)];
            for (int64_t i0 = 0; i0 < 4; ++i0) {
                const int64_t i_64 = ((i1_2 * 4) + i0);
                if ((i_64 < N_i)) {
                    for (int64_t j_8 = 0; j_8 < N_j; ++j_8) {
                        out[((i_64 * N_j) + j_8)] = (out[((i_64 * N_j) + j_8)] + carries[((part_1 * (4 * N_j)) + ((i0 * N_j) + j_8))]);
                    }
                }
            }
        }
    }
    return raised_;
}
