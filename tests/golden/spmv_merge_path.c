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
        const int64_t goes_on = (begin < tw_min_i64(A1_pos[first], cuts[((part * 2) + 3)]));
        const int64_t last = cuts[((part * 2) + 2)];
        const int64_t end = cuts[((part * 2) + 3)];
        if (goes_on) {
            for (int64_t e = 0; e < 1; ++e) {
                carries[(part + e)] = 0.0f;
            }
        }
        for (int64_t i = (first - goes_on); i < last; ++i) {
            float acc = 0.0f;
            const int64_t lo = tw_max_i64(A1_pos[i], begin);
            const int64_t hi = tw_min_i64(A1_pos[(i + 1)], end);
            const int64_t main = (lo + (((hi - lo) / 4) * 4));
            float acc_1 = 0.0f;
            float acc_2 = 0.0f;
            float acc_3 = 0.0f;
            float acc_4 = 0.0f;
            for (int64_t ap = lo; ap < main; ap += 4) {
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
            for (int64_t ap = main; ap < hi; ++ap) {
                const int64_t k_4 = A1_crd[ap];
                const float av_4 = A_values[ap];
                acc = (acc + (av_4 * B_values[k_4]));
            }
            acc = (acc + acc_1);
            acc = (acc + acc_2);
            acc = (acc + acc_3);
            acc = (acc + acc_4);
            if ((first <= i)) {
                out[i] = acc;
            }
            if ((i < first)) {
                carries[part] = acc;
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
        const int64_t goes_on_1 = (begin_1 < tw_min_i64(A1_pos[first_1], cuts[((part_1 * 2) + 3)]));
        if (goes_on_1) {
            const int64_t i_1 = (first_1 - 1);
            out[i_1] = (out[i_1] + carries[part_1]);
        }
    }
    return 0;
}
