/* C[i,j] argmax= A[i,k] * B[k,j] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    int32_t *restrict const out = (int32_t *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const float *restrict const A_values = (const float *)given_->buffers[5];
    const float *restrict const B_values = (const float *)given_->buffers[6];
    const int64_t N_j = given_->sizes[4];
    for (int64_t i = lo_; i < hi_; ++i) {
        for (int64_t j = 0; j < N_j; ++j) {
            float acc = (-__builtin_inff());
            int64_t argument = -1;
            for (int64_t ap = A1_pos[i], end0_ = A1_pos[(i + 1)]; ap < end0_; ++ap) {
                const int64_t k = A1_crd[ap];
                const float av = A_values[ap];
                if (((0 <= k) & (((acc < (av * B_values[((k * N_j) + j)])) | (((av * B_values[((k * N_j) + j)]) != (av * B_values[((k * N_j) + j)])) & (acc == acc))) | ((((av * B_values[((k * N_j) + j)]) == acc) | (((av * B_values[((k * N_j) + j)]) != (av * B_values[((k * N_j) + j)])) & (acc != acc))) & ((argument < 0) | (k < argument)))))) {
                    acc = (av * B_values[((k * N_j) + j)]);
                    argument = k;
                }
            }
            out[((i * N_j) + j)] = (int32_t)argument;
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    int32_t *restrict const out = (int32_t *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const float *restrict const A_values = (const float *)buffers[5];
    const float *restrict const B_values = (const float *)buffers[6];
    const int64_t N_i = sizes[3];
    const int64_t N_j = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    return 0;
}
