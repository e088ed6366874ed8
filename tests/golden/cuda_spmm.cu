/* C[i,j] += A[i,k] * B[k,j] */
extern "C" __global__ void __launch_bounds__(128) TW_SYMBOL_0(
    float *__restrict__ out, const int *__restrict__ A1_pos, const int *__restrict__ A1_crd, const float *__restrict__ A_values, const float *__restrict__ B_values, const int *__restrict__ i_visited, tw_int N_i, tw_int N_j)
{
    const tw_int lane = threadIdx.x;
    __shared__ int all_A1_crd_staged[128];
    int *const A1_crd_staged = all_A1_crd_staged + threadIdx.y * 32;
    __shared__ float all_A_values_staged[128];
    float *const A_values_staged = all_A_values_staged + threadIdx.y * 32;
    for (tw_int place = (tw_int)blockIdx.x * 4 + (tw_int)threadIdx.y; place < N_i; place += (tw_int)gridDim.x * 4) {
        const tw_int i = i_visited[place];
        for (tw_int j = (tw_int)blockIdx.y * 64; j < N_j; j += (tw_int)gridDim.y * 64) {
            float acc = 0.0f;
            float acc_1 = 0.0f;
            const tw_int stop = A1_pos[(i + 1)];
            for (tw_int at = A1_pos[i]; at < stop; at += 32) {
                const tw_int count = tw_min_i64(32, (stop - at));
                tw_meet<32>();
                for (tw_int fetched = lane; fetched < count; fetched += 32) {
                    A1_crd_staged[fetched] = (int)A1_crd[(at + fetched)];
                    A_values_staged[fetched] = A_values[(at + fetched)];
                }
                tw_meet<32>();
                const tw_int end = (at + count);
                for (tw_int ap = at; ap < end; ++ap) {
                    const tw_int k = A1_crd_staged[(ap - at)];
                    const float av = A_values_staged[(ap - at)];
                    if (((j + lane) < N_j)) {
                        acc = (acc + (av * B_values[((k * N_j) + (j + lane))]));
                    }
                    if ((((j + 32) + lane) < N_j)) {
                        acc_1 = (acc_1 + (av * B_values[((k * N_j) + ((j + 32) + lane))]));
                    }
                }
            }
            if (((j + lane) < N_j)) {
                out[((i * N_j) + (j + lane))] = acc;
            }
            if ((((j + 32) + lane) < N_j)) {
                out[((i * N_j) + ((j + 32) + lane))] = acc_1;
            }
        }
    }
}
