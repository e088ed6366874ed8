/* C[i] += A[i,k] * B[k] */
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body0_context;
static void TW_SYMBOL_body0(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body0_context *const given_ = (const TW_SYMBOL_body0_context *)context_;
    double *restrict const out = (double *)given_->buffers[2];
    for (int64_t e = lo_; e < hi_; ++e) {
        out[e] = 0.0;
    }
}
typedef struct { void *const *buffers; const int64_t *sizes; } TW_SYMBOL_body1_context;
static void TW_SYMBOL_body1(void *context_, int64_t lo_, int64_t hi_, int64_t thread)
{
    const TW_SYMBOL_body1_context *const given_ = (const TW_SYMBOL_body1_context *)context_;
    double *restrict const out = (double *)given_->buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)given_->buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)given_->buffers[4];
    const double *restrict const A_values = (const double *)given_->buffers[5];
    const double *restrict const B_values = (const double *)given_->buffers[6];
    for (int64_t k = lo_; k < hi_; ++k) {
        for (int64_t ap = A1_pos[k], end0_ = A1_pos[(k + 1)]; ap < end0_; ++ap) {
            const int64_t i = A1_crd[ap];
            const double av = A_values[ap];
            { double part_ = (av * B_values[k]);
              tw_atomic_add_f64(&out[i], part_);
            }
        }
    }
}
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    double *restrict const out = (double *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const double *restrict const A_values = (const double *)buffers[5];
    const double *restrict const B_values = (const double *)buffers[6];
    const int64_t N_i = sizes[3];
    const int64_t N_k = sizes[4];
    {
        TW_SYMBOL_body0_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_i;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body0, &given_, lo_, hi_, sizes[0], (hi_ - lo_ + sizes[0] - 1) / sizes[0], (const int64_t *)0, 0);
    }
    {
        TW_SYMBOL_body1_context given_ = {buffers, sizes};
        const int64_t lo_ = 0, hi_ = N_k;
        tw_run((tw_driver)buffers[0], TW_SYMBOL_body1, &given_, lo_, hi_, sizes[0], sizes[1], (const int64_t *)0, 0);
    }
    return 0;
}
