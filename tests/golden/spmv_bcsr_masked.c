/* C[i] += A[i,k] * B[k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const int32_t *restrict const A_source = (const int32_t *)given_->buffers[6];
    const float *restrict const B_values = (const float *)given_->buffers[7];
    const int64_t N_i = given_->sizes[3];
    const int64_t N_k = given_->sizes[4];
    for (int64_t i1 = lo_; i1 < hi_; ++i1) {
        float acc = 0.0f;
        float acc_1 = 0.0f;
        for (int64_t ap = A1_pos[i1], end0_ = A1_pos[(i1 + 1)]; ap < end0_; ++ap) {
            const int64_t k1 = A1_crd[ap];
            const int64_t i = (i1 * 2);
            const int64_t ap_1 = (ap * 2);
            const int64_t k = (k1 * 2);
            if ((k < N_k)) {
                const int64_t ap_2 = (ap_1 * 2);
                if ((0 < A_source[ap_2])) {
                    acc = (acc + (A_values[ap_2] * B_values[k]));
                }
            }
            const int64_t k_1 = ((k1 * 2) + 1);
            if ((k_1 < N_k)) {
                const int64_t ap_3 = ((ap_1 * 2) + 1);
                if ((0 < A_source[ap_3])) {
                    acc = (acc + (A_values[ap_3] * B_values[k_1]));
                }
            }
            const int64_t i_1 = ((i1 * 2) + 1);
            const int64_t ap_4 = ((ap * 2) + 1);
            const int64_t k_2 = (k1 * 2);
            if ((k_2 < N_k)) {
                const int64_t ap_5 = (ap_4 * 2);
                if ((0 < A_source[ap_5])) {
                    acc_1 = (acc_1 + (A_values[ap_5] * B_values[k_2]));
                }
            }
            const int64_t k_3 = ((k1 * 2) + 1);
            if ((k_3 < N_k)) {
                const int64_t ap_6 = ((ap_4 * 2) + 1);
                if ((0 < A_source[ap_6])) {
                    acc_1 = (acc_1 + (A_values[ap_6] * B_values[k_3]));
                }
            }
        }
        const int64_t i_2 = (i1 * 2);
        if ((i_2 < N_i)) {
            out[i_2] = acc;
        }
        const int64_t i_3 = ((i1 * 2) + 1);
        if ((i_3 < N_i)) {
            out[i_3] = acc_1;
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const float *restrict const A_values = (const float *)buffers[5];
    const int32_t *restrict const A_source = (const int32_t *)buffers[6];
    const float *restrict const B_values = (const float *)buffers[7];
    const int64_t N_i = sizes[3];
    const int64_t N_k = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (((N_i + 2) - 1) / 2);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    return 0;
}
