/* C[i] += A[i,k] * B[k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const float *restrict const B_values = (const float *)given_->buffers[6];
    const int64_t *restrict const cuts = (const int64_t *)given_->buffers[7];
    float *restrict const carries = (float *)given_->buffers[8];
    for (int64_t part = lo_; part < hi_; ++part) {
        const int64_t first = cuts[(part * 2)];
        const int64_t begin = cuts[((part * 2) + 1)];
        const int64_t stop = tw_min_i64(A1_pos[first], cuts[((part * 2) + 3)]);
        const int64_t last = cuts[((part * 2) + 2)];
        const int64_t end = cuts[((part * 2) + 3)];
        if ((begin < stop)) {
            for (int64_t e = 0; e < 1; ++e) {
                carries[(part + e)] = 0.0f;
            }
            const int64_t i_1 = (first - 1);
            float acc = 0.0f;
            const int64_t main = (begin + (((stop - begin) / 4) * 4));
            float acc_1 = 0.0f;
            float acc_2 = 0.0f;
            float acc_3 = 0.0f;
            float acc_4 = 0.0f;
            for (int64_t ap = begin; ap < main; ap += 4) {
                const int64_t k = A1_crd[ap];
                const float av = A_values[ap];
                acc_1 = (acc_1 + (av * B_values[k]));
                const int64_t k_1 = A1_crd[(ap + 1)];
                const float av_1 = A_values[(ap + 1)];
                acc_2 = (acc_2 + (av_1 * B_values[k_1]));
                const int64_t k_2 = A1_crd[(ap + 2)];
                const float av_2 = A_values[(ap + 2)];
                acc_3 = (acc_3 + (av_2 * B_values[k_2]));
                const int64_t k_3 = A1_crd[(ap + 3)];
                const float av_3 = A_values[(ap + 3)];
                acc_4 = (acc_4 + (av_3 * B_values[k_3]));
            }
            for (int64_t ap = main; ap < stop; ++ap) {
                const int64_t k_4 = A1_crd[ap];
                const float av_4 = A_values[ap];
                acc = (acc + (av_4 * B_values[k_4]));
            }
            acc = (acc + acc_1);
            acc = (acc + acc_2);
            acc = (acc + acc_3);
            acc = (acc + acc_4);
            carries[part] = acc;
        }
        for (int64_t i = first; i < last; ++i) {
            float acc_5 = 0.0f;
            const int64_t lo = A1_pos[i];
            const int64_t hi = tw_min_i64(A1_pos[(i + 1)], end);
            const int64_t main_1 = (lo + (((hi - lo) / 4) * 4));
            float acc_6 = 0.0f;
            float acc_7 = 0.0f;
            float acc_8 = 0.0f;
            float acc_9 = 0.0f;
            for (int64_t ap_1 = lo; ap_1 < main_1; ap_1 += 4) {
                const int64_t k_5 = A1_crd[ap_1];
                const float av_5 = A_values[ap_1];
                acc_6 = (acc_6 + (av_5 * B_values[k_5]));
                const int64_t k_6 = A1_crd[(ap_1 + 1)];
                const float av_6 = A_values[(ap_1 + 1)];
                acc_7 = (acc_7 + (av_6 * B_values[k_6]));
                const int64_t k_7 = A1_crd[(ap_1 + 2)];
                const float av_7 = A_values[(ap_1 + 2)];
                acc_8 = (acc_8 + (av_7 * B_values[k_7]));
                const int64_t k_8 = A1_crd[(ap_1 + 3)];
                const float av_8 = A_values[(ap_1 + 3)];
                acc_9 = (acc_9 + (av_8 * B_values[k_8]));
            }
            for (int64_t ap_1 = main_1; ap_1 < hi; ++ap_1) {
                const int64_t k_9 = A1_crd[ap_1];
                const float av_9 = A_values[ap_1];
                acc_5 = (acc_5 + (av_9 * B_values[k_9]));
            }
            acc_5 = (acc_5 + acc_6);
            acc_5 = (acc_5 + acc_7);
            acc_5 = (acc_5 + acc_8);
            acc_5 = (acc_5 + acc_9);
            out[i] = acc_5;
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
    const int64_t *restrict const cuts = (const int64_t *)buffers[7];
    float *restrict const carries = (float *)buffers[8];
    const int64_t parts = sizes[5];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = parts;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    for (int64_t part_1 = 1; part_1 < parts; ++part_1) {
        const int64_t first_1 = cuts[(part_1 * 2)];
        const int64_t begin_1 = cuts[((part_1 * 2) + 1)];
        const int64_t stop_1 = tw_min_i64(A1_pos[first_1], cuts[((part_1 * 2) + 3)]);
        if ((begin_1 < stop_1)) {
            const int64_t i_2 = (first_1 - 1);
            out[i_2] = (out[i_2] + carries[part_1]);
        }
    }
    return 0;
}
