/* G[k,j] += (D[i,j] if P[i,j] == A else 0) for A[i,k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    for (int64_t e = lo_; e < hi_; ++e) {
        out[e] = 0.0f;
    }
}
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    float *restrict const out = (float *)given_->buffers[2];
    const float *restrict const D_values = (const float *)given_->buffers[3];
    const int32_t *restrict const P_values = (const int32_t *)given_->buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[6];
    const int64_t N_j = given_->sizes[4];
    const int64_t N_i = given_->sizes[5];
    const int64_t s_j = given_->sizes[6];
    for (int64_t j1 = lo_; j1 < hi_; ++j1) {
        for (int64_t i = 0; i < N_i; ++i) {
            for (int64_t j0 = 0, end0_ = tw_min_i64(s_j, (N_j - (j1 * s_j))); j0 < end0_; ++j0) {
                const int64_t j = ((j1 * s_j) + j0);
                const int64_t ae = P_values[((i * N_j) + j)];
                if (((A1_pos[i] <= ae) & (ae < A1_pos[(i + 1)]))) {
                    const int64_t k = A1_crd[ae];
                    out[((k * N_j) + j)] = (out[((k * N_j) + j)] + D_values[((i * N_j) + j)]);
                }
            }
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const float *restrict const D_values = (const float *)buffers[3];
    const int32_t *restrict const P_values = (const int32_t *)buffers[4];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[5];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[6];
    const int64_t N_k = sizes[3];
    const int64_t N_j = sizes[4];
    const int64_t N_i = sizes[5];
    const int64_t s_j = sizes[6];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (N_k * N_j);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body1_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = (((N_j + s_j) - 1) / s_j);
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    return 0;
}
