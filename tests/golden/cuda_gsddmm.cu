/* C[A] += U[k,j] * V[i,j] for A[i,k] */
extern "C" __global__ void __launch_bounds__(128) TW_SYMBOL_0(
    float *__restrict__ out, const float *__restrict__ U_values, const float *__restrict__ V_values, const int *__restrict__ A0_pos, const int *__restrict__ A0_crd, const int *__restrict__ A1_crd)
{
    const tw_int lane = threadIdx.x;
    for (tw_int ap = A0_pos[0] + (tw_int)blockIdx.x * 16 + (tw_int)threadIdx.y; ap < A0_pos[1]; ap += (tw_int)gridDim.x * 16) {
        const tw_int i = A0_crd[ap];
        const tw_int k = A1_crd[ap];
        float acc = 0.0f;
        tw_f32x4 acc_1 = tw_splat_f32x4(0.0f);
        for (tw_int j = 0; j < 64; j += 32) {
            acc_1 = (acc_1 + (*(const tw_f32x4u *)&U_values[((k * 64) + (j + (lane * 4)))] * *(const tw_f32x4u *)&V_values[((i * 64) + (j + (lane * 4)))]));
        }
        acc = (acc + tw_fold_add_f32x4(acc_1));
        const float other = tw_exchange<8>(acc, 4);
        acc = (acc + other);
        const float other_1 = tw_exchange<8>(acc, 2);
        acc = (acc + other_1);
        const float other_2 = tw_exchange<8>(acc, 1);
        acc = (acc + other_2);
        if ((lane == 0)) {
            out[ap] = acc;
        }
    }
}
