/* C[i,j] max= U[k,j] for A[i,k] */
extern "C" __global__ void __launch_bounds__(256) TW_SYMBOL_0(
    float *__restrict__ out, const int *__restrict__ cut, tw_int N_j, tw_int n_cut)
{
    const tw_int lane = threadIdx.x;
    for (tw_int number = (tw_int)blockIdx.x * 8 + (tw_int)threadIdx.y; number < n_cut; number += (tw_int)gridDim.x * 8) {
        const tw_int row = cut[number];
        for (tw_int j_1 = lane; j_1 < N_j; j_1 += 32) {
            out[((row * N_j) + j_1)] = -TW_INFINITY_f32;
        }
    }
}

extern "C" __global__ void __launch_bounds__(128) TW_SYMBOL_1(
    float *__restrict__ out, const float *__restrict__ U_values, const int *__restrict__ A1_crd, const int *__restrict__ pieces, tw_int N_j, tw_int n_pieces)
{
    const tw_int lane = threadIdx.x;
    __shared__ int all_A1_crd_staged[32];
    int *const A1_crd_staged = all_A1_crd_staged + threadIdx.y * 16;
    for (tw_int piece = (tw_int)blockIdx.x * 2 + (tw_int)threadIdx.y; piece < n_pieces; piece += (tw_int)gridDim.x * 2) {
        const tw_int i_1 = pieces[(piece * 4)];
        const tw_int begin = pieces[((piece * 4) + 1)];
        const tw_int end = pieces[((piece * 4) + 2)];
        const tw_int whole = pieces[((piece * 4) + 3)];
        for (tw_int j = 0; j < N_j; j += 64) {
            float acc = -TW_INFINITY_f32;
            for (tw_int at = begin; at < end; at += 16) {
                const tw_int count = tw_min_i64(16, (end - at));
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
                if ((whole != 0)) {
                    out[((i_1 * N_j) + (j + lane))] = acc;
                }
                if ((whole == 0)) {
                    { float part_ = acc;
                      tw_atomic_max_f32(&out[((i_1 * N_j) + (j + lane))], part_);
                    }
                }
            }
        }
    }
}
