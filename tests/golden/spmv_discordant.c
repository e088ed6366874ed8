/* C[i] += A[i,k] * B[k] */
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    float *restrict const out = (float *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const float *restrict const A_values = (const float *)buffers[5];
    const float *restrict const B_values = (const float *)buffers[6];
    const int64_t N_i = sizes[3];
    const int64_t N_k = sizes[4];
    for (int64_t e = 0; e < N_i; ++e) {
        out[e] = 0.0f;
    }
    for (int64_t k = 0; k < N_k; ++k) {
        for (int64_t i = 0; i < N_i; ++i) {
            const int64_t ap = tw_search_i32(A1_crd, A1_pos[i], A1_pos[(i + 1)], k);
            if ((0 <= ap)) {
                const float av = A_values[ap];
                out[i] = (out[i] + (av * B_values[k]));
            }
        }
    }
    return 0;
}
