/* C[i,j] max= U[k,j] for A[i,k] */
extern "C" __global__ void __launch_bounds__(256) TW_SYMBOL_0(
    float *__restrict__ out, tw_int N_i, tw_int N_j)
{
    const tw_int lane = threadIdx.x;
    for (tw_int e = (tw_int)blockIdx.x * 256 + (tw_int)threadIdx.y; e < (N_i * N_j); e += (tw_int)gridDim.x * 256) {
        out[e] = -TW_INFINITY_f32;
    }
}

extern "C" __global__ void __launch_bounds__(128) TW_SYMBOL_1(
    float *__restrict__ out, const float *__restrict__ U_values, const int *__restrict__ A1_pos, const int *__restrict__ A1_crd, const long long *__restrict__ cuts, tw_int N_j, tw_int parts)
{
    const tw_int lane = threadIdx.x;
    __shared__ int all_A1_crd_staged[32];
    int *const A1_crd_staged = all_A1_crd_staged + threadIdx.y * 16;
    for (tw_int part = (tw_int)blockIdx.x * 2 + (tw_int)threadIdx.y; part < parts; part += (tw_int)gridDim.x * 2) {
        const tw_int first = cuts[(part * 2)];
        const tw_int begin = cuts[((part * 2) + 1)];
        const tw_int stop = tw_min_i64(A1_pos[first], cuts[((part * 2) + 3)]);
        const tw_int last = cuts[((part * 2) + 2)];
        const tw_int end = cuts[((part * 2) + 3)];
        if ((begin < stop)) {
            const tw_int i_1 = (first - 1);
            for (tw_int j = 0; j < N_j; j += 64) {
                float acc = -TW_INFINITY_f32;
                for (tw_int at = begin; at < stop; at += 16) {
                    const tw_int count = tw_min_i64(16, (stop - at));
                    tw_meet<64>();
                    for (tw_int fetched = lane; fetched < count; fetched += 64) {
                        A1_crd_staged[fetched] = (int)A1_crd[(at + fetched)];
                    }
                    tw_meet<64>();
                    const tw_int end_1 = (at + count);
                    for (tw_int ap = at; ap < end_1; ++ap) {
                        const tw_int k = A1_crd_staged[(ap - at)];
                        if (((j + lane) < N_j)) {
                            acc = tw_fmax_f32(acc, U_values[((k * N_j) + (j + lane))]);
                        }
                    }
                }
                if (((j + lane) < N_j)) {
                    { float part_ = acc;
                      tw_atomic_max_f32(&out[((i_1 * N_j) + (j + lane))], part_);
                    }
                }
            }
        }
        for (tw_int i = first; i < last; ++i) {
            for (tw_int j_1 = 0; j_1 < N_j; j_1 += 64) {
                float acc_1 = -TW_INFINITY_f32;
                const tw_int stop_1 = tw_min_i64(A1_pos[(i + 1)], end);
                for (tw_int at_1 = A1_pos[i]; at_1 < stop_1; at_1 += 16) {
                    const tw_int count_1 = tw_min_i64(16, (stop_1 - at_1));
                    tw_meet<64>();
                    for (tw_int fetched_1 = lane; fetched_1 < count_1; fetched_1 += 64) {
                        A1_crd_staged[fetched_1] = (int)A1_crd[(at_1 + fetched_1)];
                    }
                    tw_meet<64>();
                    const tw_int end_2 = (at_1 + count_1);
                    for (tw_int ap_1 = at_1; ap_1 < end_2; ++ap_1) {
                        const tw_int k_1 = A1_crd_staged[(ap_1 - at_1)];
                        if (((j_1 + lane) < N_j)) {
                            acc_1 = tw_fmax_f32(acc_1, U_values[((k_1 * N_j) + (j_1 + lane))]);
                        }
                    }
                }
                if (((j_1 + lane) < N_j)) {
                    { float part_ = acc_1;
                      tw_atomic_max_f32(&out[((i * N_j) + (j_1 + lane))], part_);
                    }
                }
            }
        }
    }
}
