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
        const int64_t goes_on = (begin < tw_min_i64(A1_pos[first], cuts[((part * 2) + 3)]));
        const int64_t last = cuts[((part * 2) + 2)];
        const int64_t end = cuts[((part * 2) + 3)];
        if (goes_on) {
            for (int64_t e = 0, end0_ = (4 * N_j); e < end0_; ++e) {
                carries[((part * (4 * N_j)) + e)] = 0.0f;
            }
        }
        for (int64_t ap = (first - goes_on); ap < last; ++ap) {
            const int64_t i1 = A0_crd[ap];
            const int64_t stop = ((N_j / 8) * 8);
            for (int64_t j = 0; j < stop; j += 8) {
                tw_f32x8 acc = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_1 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_2 = tw_splat_f32x8(0.0f);
                tw_f32x8 acc_3 = tw_splat_f32x8(0.0f);
                for (int64_t ap_1 = tw_max_i64(A1_pos[ap], begin), end1_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_1 < end1_; ++ap_1) {
                    const int64_t k = A1_crd[ap_1];
                    const int64_t i = (i1 * 4);
                    const int64_t ap_2 = (ap_1 * 4);
                    const float av = A_values[ap_2];
                    acc = (acc + (tw_splat_f32x8(av) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                    const int64_t i_1 = ((i1 * 4) + 1);
                    const int64_t ap_3 = ((ap_1 * 4) + 1);
                    const float av_1 = A_values[ap_3];
                    acc_1 = (acc_1 + (tw_splat_f32x8(av_1) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                    const int64_t i_2 = ((i1 * 4) + 2);
                    const int64_t ap_4 = ((ap_1 * 4) + 2);
                    const float av_2 = A_values[ap_4];
                    acc_2 = (acc_2 + (tw_splat_f32x8(av_2) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                    const int64_t i_3 = ((i1 * 4) + 3);
                    const int64_t ap_5 = ((ap_1 * 4) + 3);
                    const float av_3 = A_values[ap_5];
                    acc_3 = (acc_3 + (tw_splat_f32x8(av_3) * *(const tw_f32x8u *)&B_values[((k * N_j) + j)]));
                }
                if ((tw_fold_nan_f32x8((((acc + acc_1) + acc_2) + acc_3)) != 0.0f)) {
                    __atomic_store_n(flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_4 = (i1 * 4);
                if ((i_4 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x8u *)&out[((i_4 * N_j) + j)] = acc;
                    }
                    if ((ap < first)) {
                        *(tw_f32x8u *)&carries[((part * (4 * N_j)) + j)] = acc;
                    }
                }
                const int64_t i_5 = ((i1 * 4) + 1);
                if ((i_5 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x8u *)&out[((i_5 * N_j) + j)] = acc_1;
                    }
                    if ((ap < first)) {
                        *(tw_f32x8u *)&carries[((part * (4 * N_j)) + (N_j + j))] = acc_1;
                    }
                }
                const int64_t i_6 = ((i1 * 4) + 2);
                if ((i_6 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x8u *)&out[((i_6 * N_j) + j)] = acc_2;
                    }
                    if ((ap < first)) {
                        *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((2 * N_j) + j))] = acc_2;
                    }
                }
                const int64_t i_7 = ((i1 * 4) + 3);
                if ((i_7 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x8u *)&out[((i_7 * N_j) + j)] = acc_3;
                    }
                    if ((ap < first)) {
                        *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((3 * N_j) + j))] = acc_3;
                    }
                }
            }
            if ((stop < N_j)) {
                if ((8 <= N_j)) {
                    for (int64_t j_1 = (N_j - 8); j_1 < N_j; j_1 += 8) {
                        tw_f32x8 acc_4 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_5 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_6 = tw_splat_f32x8(0.0f);
                        tw_f32x8 acc_7 = tw_splat_f32x8(0.0f);
                        for (int64_t ap_6 = tw_max_i64(A1_pos[ap], begin), end2_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_6 < end2_; ++ap_6) {
                            const int64_t k_1 = A1_crd[ap_6];
                            const int64_t i_8 = (i1 * 4);
                            const int64_t ap_7 = (ap_6 * 4);
                            const float av_4 = A_values[ap_7];
                            acc_4 = (acc_4 + (tw_splat_f32x8(av_4) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                            const int64_t i_9 = ((i1 * 4) + 1);
                            const int64_t ap_8 = ((ap_6 * 4) + 1);
                            const float av_5 = A_values[ap_8];
                            acc_5 = (acc_5 + (tw_splat_f32x8(av_5) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                            const int64_t i_10 = ((i1 * 4) + 2);
                            const int64_t ap_9 = ((ap_6 * 4) + 2);
                            const float av_6 = A_values[ap_9];
                            acc_6 = (acc_6 + (tw_splat_f32x8(av_6) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                            const int64_t i_11 = ((i1 * 4) + 3);
                            const int64_t ap_10 = ((ap_6 * 4) + 3);
                            const float av_7 = A_values[ap_10];
                            acc_7 = (acc_7 + (tw_splat_f32x8(av_7) * *(const tw_f32x8u *)&B_values[((k_1 * N_j) + j_1)]));
                        }
                        if ((tw_fold_nan_f32x8((((acc_4 + acc_5) + acc_6) + acc_7)) != 0.0f)) {
                            __atomic_store_n(flag_, 1, __ATOMIC_RELAXED);
                        }
                        const int64_t i_12 = (i1 * 4);
                        if ((i_12 < N_i)) {
                            if ((first <= ap)) {
                                *(tw_f32x8u *)&out[((i_12 * N_j) + j_1)] = acc_4;
                            }
                            if ((ap < first)) {
                                *(tw_f32x8u *)&carries[((part * (4 * N_j)) + j_1)] = acc_4;
                            }
                        }
                        const int64_t i_13 = ((i1 * 4) + 1);
                        if ((i_13 < N_i)) {
                            if ((first <= ap)) {
                                *(tw_f32x8u *)&out[((i_13 * N_j) + j_1)] = acc_5;
                            }
                            if ((ap < first)) {
                                *(tw_f32x8u *)&carries[((part * (4 * N_j)) + (N_j + j_1))] = acc_5;
                            }
                        }
                        const int64_t i_14 = ((i1 * 4) + 2);
                        if ((i_14 < N_i)) {
                            if ((first <= ap)) {
                                *(tw_f32x8u *)&out[((i_14 * N_j) + j_1)] = acc_6;
                            }
                            if ((ap < first)) {
                                *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((2 * N_j) + j_1))] = acc_6;
                            }
                        }
                        const int64_t i_15 = ((i1 * 4) + 3);
                        if ((i_15 < N_i)) {
                            if ((first <= ap)) {
                                *(tw_f32x8u *)&out[((i_15 * N_j) + j_1)] = acc_7;
                            }
                            if ((ap < first)) {
                                *(tw_f32x8u *)&carries[((part * (4 * N_j)) + ((3 * N_j) + j_1))] = acc_7;
                            }
                        }
                    }
                }
            }
            const int64_t rest = ((8 <= N_j) ? N_j : stop);
            const int64_t stop_1 = (rest + (((N_j - rest) / 4) * 4));
            for (int64_t j_2 = rest; j_2 < stop_1; j_2 += 4) {
                tw_f32x4 acc_8 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_9 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_10 = tw_splat_f32x4(0.0f);
                tw_f32x4 acc_11 = tw_splat_f32x4(0.0f);
                for (int64_t ap_11 = tw_max_i64(A1_pos[ap], begin), end3_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_11 < end3_; ++ap_11) {
                    const int64_t k_2 = A1_crd[ap_11];
                    const int64_t i_16 = (i1 * 4);
                    const int64_t ap_12 = (ap_11 * 4);
                    const float av_8 = A_values[ap_12];
                    acc_8 = (acc_8 + (tw_splat_f32x4(av_8) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                    const int64_t i_17 = ((i1 * 4) + 1);
                    const int64_t ap_13 = ((ap_11 * 4) + 1);
                    const float av_9 = A_values[ap_13];
                    acc_9 = (acc_9 + (tw_splat_f32x4(av_9) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                    const int64_t i_18 = ((i1 * 4) + 2);
                    const int64_t ap_14 = ((ap_11 * 4) + 2);
                    const float av_10 = A_values[ap_14];
                    acc_10 = (acc_10 + (tw_splat_f32x4(av_10) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                    const int64_t i_19 = ((i1 * 4) + 3);
                    const int64_t ap_15 = ((ap_11 * 4) + 3);
                    const float av_11 = A_values[ap_15];
                    acc_11 = (acc_11 + (tw_splat_f32x4(av_11) * *(const tw_f32x4u *)&B_values[((k_2 * N_j) + j_2)]));
                }
                if ((tw_fold_nan_f32x4((((acc_8 + acc_9) + acc_10) + acc_11)) != 0.0f)) {
                    __atomic_store_n(flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_20 = (i1 * 4);
                if ((i_20 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x4u *)&out[((i_20 * N_j) + j_2)] = acc_8;
                    }
                    if ((ap < first)) {
                        *(tw_f32x4u *)&carries[((part * (4 * N_j)) + j_2)] = acc_8;
                    }
                }
                const int64_t i_21 = ((i1 * 4) + 1);
                if ((i_21 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x4u *)&out[((i_21 * N_j) + j_2)] = acc_9;
                    }
                    if ((ap < first)) {
                        *(tw_f32x4u *)&carries[((part * (4 * N_j)) + (N_j + j_2))] = acc_9;
                    }
                }
                const int64_t i_22 = ((i1 * 4) + 2);
                if ((i_22 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x4u *)&out[((i_22 * N_j) + j_2)] = acc_10;
                    }
                    if ((ap < first)) {
                        *(tw_f32x4u *)&carries[((part * (4 * N_j)) + ((2 * N_j) + j_2))] = acc_10;
                    }
                }
                const int64_t i_23 = ((i1 * 4) + 3);
                if ((i_23 < N_i)) {
                    if ((first <= ap)) {
                        *(tw_f32x4u *)&out[((i_23 * N_j) + j_2)] = acc_11;
                    }
                    if ((ap < first)) {
                        *(tw_f32x4u *)&carries[((part * (4 * N_j)) + ((3 * N_j) + j_2))] = acc_11;
                    }
                }
            }
            for (int64_t j_3 = stop_1; j_3 < N_j; ++j_3) {
                float acc_12 = 0.0f;
                float acc_13 = 0.0f;
                float acc_14 = 0.0f;
                float acc_15 = 0.0f;
                for (int64_t ap_16 = tw_max_i64(A1_pos[ap], begin), end4_ = tw_min_i64(A1_pos[(ap + 1)], end); ap_16 < end4_; ++ap_16) {
                    const int64_t k_3 = A1_crd[ap_16];
                    const int64_t i_24 = (i1 * 4);
                    const int64_t ap_17 = (ap_16 * 4);
                    const float av_12 = A_values[ap_17];
                    acc_12 = (acc_12 + (av_12 * B_values[((k_3 * N_j) + j_3)]));
                    const int64_t i_25 = ((i1 * 4) + 1);
                    const int64_t ap_18 = ((ap_16 * 4) + 1);
                    const float av_13 = A_values[ap_18];
                    acc_13 = (acc_13 + (av_13 * B_values[((k_3 * N_j) + j_3)]));
                    const int64_t i_26 = ((i1 * 4) + 2);
                    const int64_t ap_19 = ((ap_16 * 4) + 2);
                    const float av_14 = A_values[ap_19];
                    acc_14 = (acc_14 + (av_14 * B_values[((k_3 * N_j) + j_3)]));
                    const int64_t i_27 = ((i1 * 4) + 3);
                    const int64_t ap_20 = ((ap_16 * 4) + 3);
                    const float av_15 = A_values[ap_20];
                    acc_15 = (acc_15 + (av_15 * B_values[((k_3 * N_j) + j_3)]));
                }
                const float watched = (((acc_12 + acc_13) + acc_14) + acc_15);
                if ((watched != watched)) {
                    __atomic_store_n(flag_, 1, __ATOMIC_RELAXED);
                }
                const int64_t i_28 = (i1 * 4);
                if ((i_28 < N_i)) {
                    if ((first <= ap)) {
                        out[((i_28 * N_j) + j_3)] = acc_12;
                    }
                    if ((ap < first)) {
                        carries[((part * (4 * N_j)) + j_3)] = acc_12;
                    }
                }
                const int64_t i_29 = ((i1 * 4) + 1);
                if ((i_29 < N_i)) {
                    if ((first <= ap)) {
                        out[((i_29 * N_j) + j_3)] = acc_13;
                    }
                    if ((ap < first)) {
                        carries[((part * (4 * N_j)) + (N_j + j_3))] = acc_13;
                    }
                }
                const int64_t i_30 = ((i1 * 4) + 2);
                if ((i_30 < N_i)) {
                    if ((first <= ap)) {
                        out[((i_30 * N_j) + j_3)] = acc_14;
                    }
                    if ((ap < first)) {
                        carries[((part * (4 * N_j)) + ((2 * N_j) + j_3))] = acc_14;
                    }
                }
                const int64_t i_31 = ((i1 * 4) + 3);
                if ((i_31 < N_i)) {
                    if ((first <= ap)) {
                        out[((i_31 * N_j) + j_3)] = acc_15;
                    }
                    if ((ap < first)) {
                        carries[((part * (4 * N_j)) + ((3 * N_j) + j_3))] = acc_15;
                    }
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
        const int64_t goes_on_1 = (begin_1 < tw_min_i64(A1_pos[first_1], cuts[((part_1 * 2) + 3)]));
        if (goes_on_1) {
            const int64_t i1_1 = A0_crd[(first_1 - 1)];
            for (int64_t i0 = 0; i0 < 4; ++i0) {
                const int64_t i_32 = ((i1_1 * 4) + i0);
                if ((i_32 < N_i)) {
                    for (int64_t j_4 = 0; j_4 < N_j; ++j_4) {
                        out[((i_32 * N_j) + j_4)] = (out[((i_32 * N_j) + j_4)] + carries[((part_1 * (4 * N_j)) + ((i0 * N_j) + j_4))]);
                    }
                }
            }
        }
    }
    return raised_;
}
