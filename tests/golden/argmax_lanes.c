/* P[i,j] argmax= B[k,j] for A[i,k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    int32_t *restrict const out = (int32_t *)given_->buffers[2];
    const float *restrict const B_values = (const float *)given_->buffers[3];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[5];
    const int64_t N_j = given_->sizes[4];
    for (int64_t i = lo_; i < hi_; ++i) {
        const int64_t stop = ((N_j / 16) * 16);
        for (int64_t j = 0; j < stop; j += 16) {
            const int64_t first = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            tw_f32x8 acc = tw_splat_f32x8((-__builtin_inff()));
            tw_i32x8 argument = ((tw_i32x8){0} + (int32_t)first);
            tw_f32x8 acc_1 = tw_splat_f32x8((-__builtin_inff()));
            tw_i32x8 argument_1 = ((tw_i32x8){0} + (int32_t)first);
            for (int64_t ap = A1_pos[i], end0_ = A1_pos[(i + 1)]; ap < end0_; ++ap) {
                const int64_t k = A1_crd[ap];
                argument = tw_select_i32x8(((~(*(const tw_f32x8u *)&B_values[((k * N_j) + j)] <= acc)) & (acc == acc)), ((tw_i32x8){0} + (int32_t)ap), argument);
                acc = tw_select_f32x8((argument == ((tw_i32x8){0} + (int32_t)ap)), *(const tw_f32x8u *)&B_values[((k * N_j) + j)], acc);
                argument_1 = tw_select_i32x8(((~(*(const tw_f32x8u *)&B_values[((k * N_j) + (j + 8))] <= acc_1)) & (acc_1 == acc_1)), ((tw_i32x8){0} + (int32_t)ap), argument_1);
                acc_1 = tw_select_f32x8((argument_1 == ((tw_i32x8){0} + (int32_t)ap)), *(const tw_f32x8u *)&B_values[((k * N_j) + (j + 8))], acc_1);
            }
            *(tw_i32x8u *)&out[((i * N_j) + j)] = argument;
            *(tw_i32x8u *)&out[((i * N_j) + (j + 8))] = argument_1;
        }
        const int64_t fits = (((stop + 8) < N_j) & (N_j < (stop + 16)));
        if (fits) {
            const int64_t first_1 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            tw_f32x8 acc_2 = tw_splat_f32x8((-__builtin_inff()));
            tw_i32x8 argument_2 = ((tw_i32x8){0} + (int32_t)first_1);
            tw_f32x8 acc_3 = tw_splat_f32x8((-__builtin_inff()));
            tw_i32x8 argument_3 = ((tw_i32x8){0} + (int32_t)first_1);
            for (int64_t ap_1 = A1_pos[i], end1_ = A1_pos[(i + 1)]; ap_1 < end1_; ++ap_1) {
                const int64_t k_1 = A1_crd[ap_1];
                argument_2 = tw_select_i32x8(((~(*(const tw_f32x8u *)&B_values[((k_1 * N_j) + stop)] <= acc_2)) & (acc_2 == acc_2)), ((tw_i32x8){0} + (int32_t)ap_1), argument_2);
                acc_2 = tw_select_f32x8((argument_2 == ((tw_i32x8){0} + (int32_t)ap_1)), *(const tw_f32x8u *)&B_values[((k_1 * N_j) + stop)], acc_2);
                argument_3 = tw_select_i32x8(((~(*(const tw_f32x8u *)&B_values[((k_1 * N_j) + (N_j - 8))] <= acc_3)) & (acc_3 == acc_3)), ((tw_i32x8){0} + (int32_t)ap_1), argument_3);
                acc_3 = tw_select_f32x8((argument_3 == ((tw_i32x8){0} + (int32_t)ap_1)), *(const tw_f32x8u *)&B_values[((k_1 * N_j) + (N_j - 8))], acc_3);
            }
            *(tw_i32x8u *)&out[((i * N_j) + stop)] = argument_2;
            *(tw_i32x8u *)&out[((i * N_j) + (N_j - 8))] = argument_3;
        }
        const int64_t rest = (fits ? N_j : stop);
        const int64_t stop_1 = (rest + (((N_j - rest) / 8) * 8));
        for (int64_t j_1 = rest; j_1 < stop_1; j_1 += 8) {
            const int64_t first_2 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            tw_f32x8 acc_4 = tw_splat_f32x8((-__builtin_inff()));
            tw_i32x8 argument_4 = ((tw_i32x8){0} + (int32_t)first_2);
            for (int64_t ap_2 = A1_pos[i], end2_ = A1_pos[(i + 1)]; ap_2 < end2_; ++ap_2) {
                const int64_t k_2 = A1_crd[ap_2];
                argument_4 = tw_select_i32x8(((~(*(const tw_f32x8u *)&B_values[((k_2 * N_j) + j_1)] <= acc_4)) & (acc_4 == acc_4)), ((tw_i32x8){0} + (int32_t)ap_2), argument_4);
                acc_4 = tw_select_f32x8((argument_4 == ((tw_i32x8){0} + (int32_t)ap_2)), *(const tw_f32x8u *)&B_values[((k_2 * N_j) + j_1)], acc_4);
            }
            *(tw_i32x8u *)&out[((i * N_j) + j_1)] = argument_4;
        }
        if ((stop_1 < N_j)) {
            if ((8 <= N_j)) {
                for (int64_t j_2 = (N_j - 8); j_2 < N_j; j_2 += 8) {
                    const int64_t first_3 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
                    tw_f32x8 acc_5 = tw_splat_f32x8((-__builtin_inff()));
                    tw_i32x8 argument_5 = ((tw_i32x8){0} + (int32_t)first_3);
                    for (int64_t ap_3 = A1_pos[i], end3_ = A1_pos[(i + 1)]; ap_3 < end3_; ++ap_3) {
                        const int64_t k_3 = A1_crd[ap_3];
                        argument_5 = tw_select_i32x8(((~(*(const tw_f32x8u *)&B_values[((k_3 * N_j) + j_2)] <= acc_5)) & (acc_5 == acc_5)), ((tw_i32x8){0} + (int32_t)ap_3), argument_5);
                        acc_5 = tw_select_f32x8((argument_5 == ((tw_i32x8){0} + (int32_t)ap_3)), *(const tw_f32x8u *)&B_values[((k_3 * N_j) + j_2)], acc_5);
                    }
                    *(tw_i32x8u *)&out[((i * N_j) + j_2)] = argument_5;
                }
            }
        }
        const int64_t rest_1 = ((8 <= N_j) ? N_j : stop_1);
        const int64_t stop_2 = (rest_1 + (((N_j - rest_1) / 4) * 4));
        for (int64_t j_3 = rest_1; j_3 < stop_2; j_3 += 4) {
            const int64_t first_4 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            tw_f32x4 acc_6 = tw_splat_f32x4((-__builtin_inff()));
            tw_i32x4 argument_6 = ((tw_i32x4){0} + (int32_t)first_4);
            for (int64_t ap_4 = A1_pos[i], end4_ = A1_pos[(i + 1)]; ap_4 < end4_; ++ap_4) {
                const int64_t k_4 = A1_crd[ap_4];
                argument_6 = tw_select_i32x4(((~(*(const tw_f32x4u *)&B_values[((k_4 * N_j) + j_3)] <= acc_6)) & (acc_6 == acc_6)), ((tw_i32x4){0} + (int32_t)ap_4), argument_6);
                acc_6 = tw_select_f32x4((argument_6 == ((tw_i32x4){0} + (int32_t)ap_4)), *(const tw_f32x4u *)&B_values[((k_4 * N_j) + j_3)], acc_6);
            }
            *(tw_i32x4u *)&out[((i * N_j) + j_3)] = argument_6;
        }
        const int64_t stop_3 = (stop_2 + (((N_j - stop_2) / 3) * 3));
        for (int64_t j_4 = stop_2; j_4 < stop_3; j_4 += 3) {
            const int64_t first_5 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            float acc_7 = (-__builtin_inff());
            int64_t argument_7 = first_5;
            float acc_8 = (-__builtin_inff());
            int64_t argument_8 = first_5;
            float acc_9 = (-__builtin_inff());
            int64_t argument_9 = first_5;
            for (int64_t ap_5 = A1_pos[i], end5_ = A1_pos[(i + 1)]; ap_5 < end5_; ++ap_5) {
                const int64_t k_5 = A1_crd[ap_5];
                if (((!(B_values[((k_5 * N_j) + j_4)] <= acc_7)) & (acc_7 == acc_7))) {
                    acc_7 = B_values[((k_5 * N_j) + j_4)];
                    argument_7 = ap_5;
                }
                if (((!(B_values[((k_5 * N_j) + (j_4 + 1))] <= acc_8)) & (acc_8 == acc_8))) {
                    acc_8 = B_values[((k_5 * N_j) + (j_4 + 1))];
                    argument_8 = ap_5;
                }
                if (((!(B_values[((k_5 * N_j) + (j_4 + 2))] <= acc_9)) & (acc_9 == acc_9))) {
                    acc_9 = B_values[((k_5 * N_j) + (j_4 + 2))];
                    argument_9 = ap_5;
                }
            }
            out[((i * N_j) + j_4)] = (int32_t)argument_7;
            out[((i * N_j) + (j_4 + 1))] = (int32_t)argument_8;
            out[((i * N_j) + (j_4 + 2))] = (int32_t)argument_9;
        }
        const int64_t stop_4 = (stop_3 + (((N_j - stop_3) / 2) * 2));
        for (int64_t j_5 = stop_3; j_5 < stop_4; j_5 += 2) {
            const int64_t first_6 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            float acc_10 = (-__builtin_inff());
            int64_t argument_10 = first_6;
            float acc_11 = (-__builtin_inff());
            int64_t argument_11 = first_6;
            for (int64_t ap_6 = A1_pos[i], end6_ = A1_pos[(i + 1)]; ap_6 < end6_; ++ap_6) {
                const int64_t k_6 = A1_crd[ap_6];
                if (((!(B_values[((k_6 * N_j) + j_5)] <= acc_10)) & (acc_10 == acc_10))) {
                    acc_10 = B_values[((k_6 * N_j) + j_5)];
                    argument_10 = ap_6;
                }
                if (((!(B_values[((k_6 * N_j) + (j_5 + 1))] <= acc_11)) & (acc_11 == acc_11))) {
                    acc_11 = B_values[((k_6 * N_j) + (j_5 + 1))];
                    argument_11 = ap_6;
                }
            }
            out[((i * N_j) + j_5)] = (int32_t)argument_10;
            out[((i * N_j) + (j_5 + 1))] = (int32_t)argument_11;
        }
        for (int64_t j_6 = stop_4; j_6 < N_j; ++j_6) {
            const int64_t first_7 = ((A1_pos[i] < A1_pos[(i + 1)]) ? A1_pos[i] : -1);
            float acc_12 = (-__builtin_inff());
            int64_t argument_12 = first_7;
            for (int64_t ap_7 = A1_pos[i], end7_ = A1_pos[(i + 1)]; ap_7 < end7_; ++ap_7) {
                const int64_t k_7 = A1_crd[ap_7];
                if (((!(B_values[((k_7 * N_j) + j_6)] <= acc_12)) & (acc_12 == acc_12))) {
                    acc_12 = B_values[((k_7 * N_j) + j_6)];
                    argument_12 = ap_7;
                }
            }
            out[((i * N_j) + j_6)] = (int32_t)argument_12;
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    int32_t *restrict const out = (int32_t *)buffers[2];
    const float *restrict const B_values = (const float *)buffers[3];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[4];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[5];
    const int64_t N_i = sizes[3];
    const int64_t N_j = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)buffers[1], sizes[2]);
    }
    return 0;
}
