"""A' diag(c) A of few columns in float64, by a CUDA kernel that makes nothing below the diagonal.

Rows come to shared memory once and are multiplied from there on tensor cores, 16 x 8 entries of the result at a time.
Such tiles fit any d: 6.3 thousand products a row where d = 100, for which blocks of 64 columns take 12.3 thousand.
"""

from __future__ import annotations

from functools import cache
from typing import Any

ROWS, STAGES = 64, 3  # rows in shared memory at once, and how many times as many are under way
THREADS = 256  # two halves of the rows for each of four warps, which share the tiles
MOST = 128  # columns: their sums fill the registers of a processor
CAPABILITY = (9, 0)  # of devices that have these products and were measured

SOURCE = r"""
#define M ((N + 1) / 2)                        // rows of tiles, 16 columns of A each; N columns of tiles, 8 each
#define TILES (N + (M == 8 ? 2 : 1))           // of one warp at most
#define WEIGHTS (ROWS * STRIDE + 8)            // where c begins behind the rows of a stage
#define STAGE (WEIGHTS + ROWS)

__device__ __forceinline__ void multiply(double* sums, const double* a, const double* b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}

// Row I of the tiles and row 7 - I, on and above the diagonal: about as many for each I. What a lane holds of a tile is
// fixed by the instruction: column g of A, at rows t and t + 4.
template <int I> struct Rows {
    static constexpr int FROM = 2 * I, AGAIN = 2 * (7 - I), FIRST = N > FROM ? N - FROM : 0;

    static __device__ __forceinline__ void add(const double* A, const double* c, double (*sums)[4], int g, int t,
                                               int begin) {
        if constexpr (FROM < N) {
            #pragma unroll 2
            for (int k = begin; k < begin + ROWS / 2; k += 8) {
                double b[FIRST][2];
                #pragma unroll
                for (int j = 0; j < FIRST; j++) {
                    b[j][0] = A[(k + t) * STRIDE + 8 * (FROM + j) + g];
                    b[j][1] = A[(k + t + 4) * STRIDE + 8 * (FROM + j) + g];
                }
                along<0, 0>(b, c[k + t], c[k + t + 4], sums);
                if constexpr (AGAIN < N) along<AGAIN - FROM, FIRST>(b, c[k + t], c[k + t + 4], sums);
            }
        }
    }

    // The 16 columns of A from column SINCE of b, scaled, times all columns of b from there.
    template <int SINCE, int PLACE> static __device__ __forceinline__ void along(
        double (*b)[2], double above, double below, double (*sums)[4]) {
        constexpr int NEXT = SINCE + 1 < FIRST ? SINCE + 1 : SINCE;  // the last row of tiles may be half a one
        double a[4] = {above * b[SINCE][0], above * b[NEXT][0], below * b[SINCE][1], below * b[NEXT][1]};
        #pragma unroll
        for (int j = SINCE; j < FIRST; j++) multiply(sums[PLACE + j - SINCE], a, b[j]);
    }

    static __device__ __forceinline__ void store(double* out, double (*sums)[4], int g, int t, int d, int fresh) {
        if constexpr (FROM < N) line<I, 0>(out, sums, g, t, d, fresh);
        if constexpr (AGAIN < N) line<7 - I, FIRST>(out, sums, g, t, d, fresh);
    }

    template <int ROW, int PLACE> static __device__ __forceinline__ void line(
        double* out, double (*sums)[4], int g, int t, int d, int fresh) {
        #pragma unroll
        for (int j = 2 * ROW; j < N; j++)
            #pragma unroll
            for (int e = 0; e < 4; e++) {
                int r = 16 * ROW + g + 8 * (e / 2), s = 8 * j + 2 * t + e % 2;
                if (r > s || s >= d) continue;
                double sum = sums[PLACE + j - 2 * ROW][e] + (fresh ? 0.0 : out[r * d + s]);
                out[r * d + s] = sum;
                out[s * d + r] = sum;
            }
    }
};

template <int BYTES> __device__ __forceinline__ void fetch(double* to, const double* from, bool live) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::
        "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "n"(BYTES), "r"(live ? BYTES : 0));  // else zeros
}

extern "C" __global__ void __launch_bounds__(256, 1) triangle(
    const double* A, const double* c, double* out, int m, int d, int down, int along, int share,
    int fresh) {
    extern __shared__ __align__(16) double room[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int role = warp % 4, half = warp / 4;
    const long long begin = (long long)blockIdx.x * share, end = begin + share < m ? begin + share : m;
    const int steps = begin < end ? (int)((end - begin + ROWS - 1) / ROWS) : 0;
    double sums[TILES][4] = {};

    auto load = [&](int step) {
        double* stage = room + step % STAGES * STAGE;
        for (int r = warp; r < ROWS; r += 8) {
            const long long row = begin + (long long)step * ROWS + r;
            const bool live = row < end;
            const double* from = A + (live ? row : 0) * down;
            for (int j = lane * WIDE; j < d; j += 32 * WIDE)
                fetch<8 * WIDE>(stage + r * STRIDE + j, from + (long long)j * along, live);
        }
        if (threadIdx.x < ROWS) {
            const long long row = begin + (long long)step * ROWS + threadIdx.x;
            fetch<8>(stage + WEIGHTS + threadIdx.x, c + (row < end ? row : 0), row < end);
        }
        asm volatile("cp.async.commit_group;");
    };

    for (int step = 0; step < STAGES - 1; step++) load(step);
    for (int step = 0; step < steps; step++) {
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2));
        __syncthreads();
        load(step + STAGES - 1);
        const double *stage = room + step % STAGES * STAGE, *weights = stage + WEIGHTS;
        if (role == 0) Rows<0>::add(stage, weights, sums, g, t, half * ROWS / 2);
        else if (role == 1) Rows<1>::add(stage, weights, sums, g, t, half * ROWS / 2);
        else if (role == 2) Rows<2>::add(stage, weights, sums, g, t, half * ROWS / 2);
        else Rows<3>::add(stage, weights, sums, g, t, half * ROWS / 2);
    }
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 4 * TILES; i++)
        if (half) room[i * 128 + threadIdx.x - 128] = sums[i / 4][i % 4];
    __syncthreads();
    if (half) return;
    #pragma unroll
    for (int i = 0; i < 4 * TILES; i++) sums[i / 4][i % 4] += room[i * 128 + threadIdx.x];
    out += (long long)blockIdx.x * d * d;
    if (role == 0) Rows<0>::store(out, sums, g, t, d, fresh);
    else if (role == 1) Rows<1>::store(out, sums, g, t, d, fresh);
    else if (role == 2) Rows<2>::store(out, sums, g, t, d, fresh);
    else Rows<3>::store(out, sums, g, t, d, fresh);
}
"""


def stride_of(d: int) -> int:
    """Numbers from row to row in shared memory: four more than a multiple of 8, so that no two lanes meet in a bank."""
    return d + (4 - d) % 8


def source_of(d: int, wide: int) -> str:
    """The kernel for d columns; `wide` numbers are fetched at once."""
    sizes = {"N": -(-d // 8), "ROWS": ROWS, "STAGES": STAGES, "STRIDE": stride_of(d), "WIDE": wide}
    return "".join(f"#define {name} {value}\n" for name, value in sizes.items()) + SOURCE


def shared_of(d: int) -> int:
    """Bytes of shared memory: the stages, or the sums of half of the warps where these are more."""
    return 8 * max(STAGES * (ROWS * (stride_of(d) + 1) + 8), 4 * (-(-d // 8) + 2) * THREADS // 2)


def wide_of(d: int, down: int, along: int, pointer: int) -> int:
    """Two numbers at once where every pair of a row lies on 16 bytes."""
    return 2 if d % 2 == 0 and down % 2 == 0 and along == 1 and pointer % 16 == 0 else 1


def shares_of(m: int, parts: int) -> int:
    """Rows of each part."""
    return ROWS * -(-m // (parts * ROWS))


@cache
def torch_kernel(device: Any, d: int, wide: int) -> Any:
    """Compiled for one device of PyTorch."""
    import torch

    with torch.cuda.device(device):
        kernel = torch.cuda._compile_kernel(source_of(d, wide), "triangle")
        kernel.set_shared_memory_config(shared_of(d))
    return kernel


@cache
def torch_serves(device: Any) -> bool:
    """Whether a device of PyTorch makes these products and this PyTorch compiles them: a small one is checked."""
    import torch

    if torch.cuda.get_device_capability(device) != CAPABILITY:
        return False
    A = torch.linspace(-1.0, 2.0, 200 * 35, dtype=torch.float64, device=device).view(200, 35)
    try:
        made = torch_add_gram(None, A, A[:, 0].contiguous()).sum(0)
    except Exception:  # no compiler here, or none that is found: blocks serve
        return False
    return bool(torch.allclose(made, A.T @ (A[:, :1] * A)))


def torch_add_gram(total: Any, A: Any, c: Any) -> Any:
    """total[p] + A' diag(c) A over part p of the rows of a tensor; None is nothing."""
    import torch

    (m, d), (down, along) = A.shape, A.stride()
    parts = torch.cuda.get_device_properties(A.device).multi_processor_count if total is None else len(total)
    out = torch.empty((parts, d, d), dtype=torch.float64, device=A.device) if total is None else total
    kernel = torch_kernel(A.device, d, wide_of(d, down, along, A.data_ptr()))
    arguments = [A, c.contiguous(), out, m, d, down, along, shares_of(m, parts), int(total is None)]
    with torch.cuda.device(A.device):
        kernel(grid=(parts, 1, 1), block=(THREADS, 1, 1), args=arguments, shared_mem=shared_of(d))
    return out


@cache
def cupy_kernel(device: int, d: int, wide: int) -> Any:
    """Compiled for the current device, whose number is given."""
    import cupy

    kernel = cupy.RawModule(code=source_of(d, wide), options=("-std=c++17",)).get_function("triangle")
    kernel.max_dynamic_shared_size_bytes = shared_of(d)
    return kernel


@cache
def cupy_serves(device: int) -> bool:
    """Whether the current device of CuPy, whose number is given, makes these products: a small one is checked."""
    import cupy

    if cupy.cuda.Device(device).compute_capability != "{}{}".format(*CAPABILITY):
        return False
    A = cupy.linspace(-1.0, 2.0, 200 * 35).reshape(200, 35)
    try:
        made = cupy_add_gram(None, A, cupy.ascontiguousarray(A[:, 0])).sum(axis=0)
    except Exception:  # no compiler here: batched products serve
        return False
    return bool(cupy.allclose(made, A.T @ (A[:, :1] * A)))


def cupy_add_gram(total: Any, A: Any, c: Any) -> Any:
    """total[p] + A' diag(c) A over part p of the rows of a CuPy array; None is nothing."""
    import cupy
    import numpy as np

    (m, d), (down, along) = A.shape, (each // A.itemsize for each in A.strides)
    parts = A.device.attributes["MultiProcessorCount"] if total is None else len(total)
    out = cupy.empty((parts, d, d)) if total is None else total
    numbers = (np.int32(each) for each in (m, d, down, along, shares_of(m, parts), total is None))
    kernel = cupy_kernel(A.device.id, d, wide_of(d, down, along, A.data.ptr))
    kernel((parts,), (THREADS,), (A, cupy.ascontiguousarray(c), out, *numbers), shared_mem=shared_of(d))
    return out
