/* Fixed CSR: what TACO generates for the default schedule and format of SpMV, SpMM, SDDMM and MTTKRP. Frozen.
 *
 * These are the "Fixed CSR" kernels of WACO (section 5.1): format UC (CSR) for the matrix operations, CCC (CSF)
 * for MTTKRP; the outermost loop is parallel with dynamic chunks of 128, 32, 32 and 32 iterations. They stand
 * beside our kernels in every benchmark, and are never improved. Written here after what TACO prints:
 *
 * - a loop over the positions of a compressed level reads pos and crd arrays of int32_t;
 * - a reduction whose loop is innermost runs into a local scalar (SpMV, SDDMM), any other into the output in
 *   memory, which a parallel loop has set to zero before (SpMM, MTTKRP): no tiles, no registers for a row;
 * - the extent of the dense index is a constant (WACO gives TACO the directive bound(j, jb, 256, MaxExact));
 * - TACO prints schedule(runtime), and WACO's driver sets "dynamic" and the chunk before the call: the clause
 *   names them here, which runs the same code of the OpenMP runtime;
 * - SDDMM writes its results at the positions of A, as WACO's patch of the printed text does, and reads D by
 *   columns (its level order is column-major there);
 * - compiled as WACO's driver does with gcc: -O3 -ffast-math -march=native -mtune=native -fopenmp.
 *
 * arrays: out, the dense operands, the values, then pos and crd of each level. sizes: rows, threads.
 */
#include <stdint.h>

static void zero(int32_t extent, int threads, REAL *restrict C_vals)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int32_t pC = 0; pC < extent; pC++) {
        C_vals[pC] = 0.0;
    }
}

/* C(i) = A(i,k) * B(k) */
void spmv(const int64_t *sizes, void *const *arrays)
{
    REAL *restrict C_vals = arrays[0];
    const REAL *restrict B_vals = arrays[1];
    const REAL *restrict A_vals = arrays[2];
    const int32_t *restrict A2_pos = arrays[3];
    const int32_t *restrict A2_crd = arrays[4];
    int32_t A1_dimension = (int32_t)sizes[0];
    int threads = (int)sizes[1];

#pragma omp parallel for schedule(dynamic, 128) num_threads(threads)
    for (int32_t i = 0; i < A1_dimension; i++) {
        REAL tkC_val = 0.0;
        for (int32_t kA = A2_pos[i]; kA < A2_pos[(i + 1)]; kA++) {
            int32_t k = A2_crd[kA];
            tkC_val += A_vals[kA] * B_vals[k];
        }
        C_vals[i] = tkC_val;
    }
}

/* C(i,j) = A(i,k) * B(k,j) */
void spmm(const int64_t *sizes, void *const *arrays)
{
    REAL *restrict C_vals = arrays[0];
    const REAL *restrict B_vals = arrays[1];
    const REAL *restrict A_vals = arrays[2];
    const int32_t *restrict A2_pos = arrays[3];
    const int32_t *restrict A2_crd = arrays[4];
    int32_t A1_dimension = (int32_t)sizes[0];
    int threads = (int)sizes[1];

    zero(A1_dimension * WIDTH, threads, C_vals);
#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int32_t i = 0; i < A1_dimension; i++) {
        for (int32_t kA = A2_pos[i]; kA < A2_pos[(i + 1)]; kA++) {
            int32_t k = A2_crd[kA];
            for (int32_t j = 0; j < WIDTH; j++) {
                int32_t jC = i * WIDTH + j;
                int32_t jB = k * WIDTH + j;
                C_vals[jC] = C_vals[jC] + A_vals[kA] * B_vals[jB];
            }
        }
    }
}

/* C(i,j) = A(i,j) * B(i,k) * D(k,j) */
void sddmm(const int64_t *sizes, void *const *arrays)
{
    REAL *restrict C_vals = arrays[0];
    const REAL *restrict B_vals = arrays[1];
    const REAL *restrict D_vals = arrays[2];
    const REAL *restrict A_vals = arrays[3];
    const int32_t *restrict A2_pos = arrays[4];
    const int32_t *restrict A2_crd = arrays[5];
    int32_t A1_dimension = (int32_t)sizes[0];
    int threads = (int)sizes[1];

#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int32_t i = 0; i < A1_dimension; i++) {
        for (int32_t jA = A2_pos[i]; jA < A2_pos[(i + 1)]; jA++) {
            int32_t j = A2_crd[jA];
            REAL tkC_val = 0.0;
            for (int32_t k = 0; k < WIDTH; k++) {
                int32_t kB = i * WIDTH + k;
                int32_t kD = j * WIDTH + k;
                tkC_val += (A_vals[jA] * B_vals[kB]) * D_vals[kD];
            }
            C_vals[jA] = tkC_val;
        }
    }
}

/* C(i,r) = A(i,k,l) * B(k,r) * D(l,r) */
void mttkrp3(const int64_t *sizes, void *const *arrays)
{
    REAL *restrict C_vals = arrays[0];
    const REAL *restrict B_vals = arrays[1];
    const REAL *restrict D_vals = arrays[2];
    const REAL *restrict A_vals = arrays[3];
    const int32_t *restrict A1_pos = arrays[4];
    const int32_t *restrict A1_crd = arrays[5];
    const int32_t *restrict A2_pos = arrays[6];
    const int32_t *restrict A2_crd = arrays[7];
    const int32_t *restrict A3_pos = arrays[8];
    const int32_t *restrict A3_crd = arrays[9];
    int32_t C1_dimension = (int32_t)sizes[0];
    int threads = (int)sizes[1];

    zero(C1_dimension * WIDTH, threads, C_vals);
#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int32_t iA = A1_pos[0]; iA < A1_pos[1]; iA++) {
        int32_t i = A1_crd[iA];
        for (int32_t kA = A2_pos[iA]; kA < A2_pos[(iA + 1)]; kA++) {
            int32_t k = A2_crd[kA];
            for (int32_t lA = A3_pos[kA]; lA < A3_pos[(kA + 1)]; lA++) {
                int32_t l = A3_crd[lA];
                for (int32_t r = 0; r < WIDTH; r++) {
                    int32_t rC = i * WIDTH + r;
                    int32_t rB = k * WIDTH + r;
                    int32_t rD = l * WIDTH + r;
                    C_vals[rC] = C_vals[rC] + (A_vals[lA] * B_vals[rB]) * D_vals[rD];
                }
            }
        }
    }
}

/* C(i,r) = A(i,k,l,m) * B(k,r) * D(l,r) * E(m,r) */
void mttkrp4(const int64_t *sizes, void *const *arrays)
{
    REAL *restrict C_vals = arrays[0];
    const REAL *restrict B_vals = arrays[1];
    const REAL *restrict D_vals = arrays[2];
    const REAL *restrict E_vals = arrays[3];
    const REAL *restrict A_vals = arrays[4];
    const int32_t *restrict A1_pos = arrays[5];
    const int32_t *restrict A1_crd = arrays[6];
    const int32_t *restrict A2_pos = arrays[7];
    const int32_t *restrict A2_crd = arrays[8];
    const int32_t *restrict A3_pos = arrays[9];
    const int32_t *restrict A3_crd = arrays[10];
    const int32_t *restrict A4_pos = arrays[11];
    const int32_t *restrict A4_crd = arrays[12];
    int32_t C1_dimension = (int32_t)sizes[0];
    int threads = (int)sizes[1];

    zero(C1_dimension * WIDTH, threads, C_vals);
#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int32_t iA = A1_pos[0]; iA < A1_pos[1]; iA++) {
        int32_t i = A1_crd[iA];
        for (int32_t kA = A2_pos[iA]; kA < A2_pos[(iA + 1)]; kA++) {
            int32_t k = A2_crd[kA];
            for (int32_t lA = A3_pos[kA]; lA < A3_pos[(kA + 1)]; lA++) {
                int32_t l = A3_crd[lA];
                for (int32_t mA = A4_pos[lA]; mA < A4_pos[(lA + 1)]; mA++) {
                    int32_t m = A4_crd[mA];
                    for (int32_t r = 0; r < WIDTH; r++) {
                        int32_t rC = i * WIDTH + r;
                        int32_t rB = k * WIDTH + r;
                        int32_t rD = l * WIDTH + r;
                        int32_t rE = m * WIDTH + r;
                        C_vals[rC] = C_vals[rC] + ((A_vals[mA] * B_vals[rB]) * D_vals[rD]) * E_vals[rE];
                    }
                }
            }
        }
    }
}

/* C(i,r) = A(i,k,l,m,n) * B(k,r) * D(l,r) * E(m,r) * F(n,r) */
void mttkrp5(const int64_t *sizes, void *const *arrays)
{
    REAL *restrict C_vals = arrays[0];
    const REAL *restrict B_vals = arrays[1];
    const REAL *restrict D_vals = arrays[2];
    const REAL *restrict E_vals = arrays[3];
    const REAL *restrict F_vals = arrays[4];
    const REAL *restrict A_vals = arrays[5];
    const int32_t *restrict A1_pos = arrays[6];
    const int32_t *restrict A1_crd = arrays[7];
    const int32_t *restrict A2_pos = arrays[8];
    const int32_t *restrict A2_crd = arrays[9];
    const int32_t *restrict A3_pos = arrays[10];
    const int32_t *restrict A3_crd = arrays[11];
    const int32_t *restrict A4_pos = arrays[12];
    const int32_t *restrict A4_crd = arrays[13];
    const int32_t *restrict A5_pos = arrays[14];
    const int32_t *restrict A5_crd = arrays[15];
    int32_t C1_dimension = (int32_t)sizes[0];
    int threads = (int)sizes[1];

    zero(C1_dimension * WIDTH, threads, C_vals);
#pragma omp parallel for schedule(dynamic, 32) num_threads(threads)
    for (int32_t iA = A1_pos[0]; iA < A1_pos[1]; iA++) {
        int32_t i = A1_crd[iA];
        for (int32_t kA = A2_pos[iA]; kA < A2_pos[(iA + 1)]; kA++) {
            int32_t k = A2_crd[kA];
            for (int32_t lA = A3_pos[kA]; lA < A3_pos[(kA + 1)]; lA++) {
                int32_t l = A3_crd[lA];
                for (int32_t mA = A4_pos[lA]; mA < A4_pos[(lA + 1)]; mA++) {
                    int32_t m = A4_crd[mA];
                    for (int32_t nA = A5_pos[mA]; nA < A5_pos[(mA + 1)]; nA++) {
                        int32_t n = A5_crd[nA];
                        for (int32_t r = 0; r < WIDTH; r++) {
                            int32_t rC = i * WIDTH + r;
                            int32_t rB = k * WIDTH + r;
                            int32_t rD = l * WIDTH + r;
                            int32_t rE = m * WIDTH + r;
                            int32_t rF = n * WIDTH + r;
                            C_vals[rC] =
                                C_vals[rC] + (((A_vals[nA] * B_vals[rB]) * D_vals[rD]) * E_vals[rE]) * F_vals[rF];
                        }
                    }
                }
            }
        }
    }
}
