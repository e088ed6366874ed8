/* C[i] += A[i,k] * B[k] */
int TW_SYMBOL(void *const *buffers, const int64_t *sizes)
{
    double *restrict const out = (double *)buffers[2];
    const int32_t *restrict const A1_pos = (const int32_t *)buffers[3];
    const int32_t *restrict const A1_crd = (const int32_t *)buffers[4];
    const double *restrict const A_values = (const double *)buffers[5];
    const double *restrict const B_values = (const double *)buffers[6];
    const int64_t N_i = sizes[3];
    const int64_t n_A1 = sizes[5];
    for (int64_t i = 0; i < N_i; ++i) {
        double acc = 0.0;
        const int64_t lo = A1_pos[i];
        const int64_t hi = A1_pos[(i + 1)];
        const int64_t main = (lo + (((hi - lo) / 4) * 4));
        double acc_1 = 0.0;
        double acc_2 = 0.0;
        double acc_3 = 0.0;
        double acc_4 = 0.0;
        for (int64_t ap = lo; ap < main; ap += 4) {
            const int64_t ahead = A1_crd[tw_min_i64((ap + 16), (n_A1 - 1))];
            __builtin_prefetch(&B_values[ahead], 0, 3);
            const int64_t k = A1_crd[ap];
            const double av = A_values[ap];
            acc_1 = (acc_1 + (av * B_values[k]));
            const int64_t ahead_1 = A1_crd[tw_min_i64(((ap + 1) + 16), (n_A1 - 1))];
            __builtin_prefetch(&B_values[ahead_1], 0, 3);
            const int64_t k_1 = A1_crd[(ap + 1)];
            const double av_1 = A_values[(ap + 1)];
            acc_2 = (acc_2 + (av_1 * B_values[k_1]));
            const int64_t ahead_2 = A1_crd[tw_min_i64(((ap + 2) + 16), (n_A1 - 1))];
            __builtin_prefetch(&B_values[ahead_2], 0, 3);
            const int64_t k_2 = A1_crd[(ap + 2)];
            const double av_2 = A_values[(ap + 2)];
            acc_3 = (acc_3 + (av_2 * B_values[k_2]));
            const int64_t ahead_3 = A1_crd[tw_min_i64(((ap + 3) + 16), (n_A1 - 1))];
            __builtin_prefetch(&B_values[ahead_3], 0, 3);
            const int64_t k_3 = A1_crd[(ap + 3)];
            const double av_3 = A_values[(ap + 3)];
            acc_4 = (acc_4 + (av_3 * B_values[k_3]));
        }
        for (int64_t ap = main; ap < hi; ++ap) {
            const int64_t ahead_4 = A1_crd[tw_min_i64((ap + 16), (n_A1 - 1))];
            __builtin_prefetch(&B_values[ahead_4], 0, 3);
            const int64_t k_4 = A1_crd[ap];
            const double av_4 = A_values[ap];
            acc = (acc + (av_4 * B_values[k_4]));
        }
        acc = (acc + acc_1);
        acc = (acc + acc_2);
        acc = (acc + acc_3);
        acc = (acc + acc_4);
        out[i] = acc;
    }
    return 0;
}
