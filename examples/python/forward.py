"""One causal token mixing without PyTorch: y[b,t,d] = sum over s <= t of W[t,s] x[b,s,d], in f32, checked at every element.

    python examples/python/forward.py                                       # this machine's GPU
    TRIGEN_DRIVER=.../libtrigen_emulator.so python examples/python/forward.py    # the emulated device, without one

Memory comes from the CUDA driver by ctypes, so that nothing but the trigen package is needed; an application has its framework's tensors.
"""

import ctypes
import os
import random
import sys

from trigen.library import DeviceTensor, Runtime

B, T, D = 2, 48, 40
SKIPPED = 77


class Device:
    """Memory of device 0, in its primary context."""

    def __init__(self):
        self.driver = ctypes.CDLL(os.environ.get("TRIGEN_DRIVER", "libcuda.so.1"))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        for call, *arguments in (
            ("cuInit", 0),
            ("cuDeviceGet", ctypes.byref(device), 0),
            ("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0),
            ("cuCtxSetCurrent", context),
        ):
            self.call(call, *arguments)

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status != 0:
            raise OSError(f"{name} failed: CUDA error {status}")

    def allocate(self, size):
        address = ctypes.c_uint64()
        if size:
            self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def upload(self, values):
        address = self.allocate(ctypes.sizeof(values))
        self.call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), values, ctypes.c_size_t(ctypes.sizeof(values)))
        return address

    def download(self, values, address):
        self.call("cuCtxSynchronize")
        self.call("cuMemcpyDtoH_v2", values, ctypes.c_uint64(address), ctypes.c_size_t(ctypes.sizeof(values)))


def main():
    try:
        device = Device()
    except OSError as error:
        print(f"[SKIP] no device here: {error}")
        return SKIPPED
    generator = random.Random(1)
    x = (ctypes.c_float * (B * T * D))(*(generator.uniform(-1, 1) for _ in range(B * T * D)))
    # The upper triangle is never read: it may hold anything.
    w = (ctypes.c_float * (T * T))(
        *(generator.uniform(-1, 1) if s <= t else float("nan") for t in range(T) for s in range(T))
    )
    y = (ctypes.c_float * (B * T * D))()

    plan = Runtime().plan(f"forward,dtype=f32,B={B},T={T},D={D}")
    info = plan.describe()
    print(
        f"{info.problem}\n  {info.candidate} for {info.target} on {info.device} ({info.provenance}, kernel from {info.binary_from})"
    )
    out = device.allocate(ctypes.sizeof(y))
    plan.run(
        x=DeviceTensor(device.upload(x)),
        w=device.upload(w),
        y=DeviceTensor(out),
        workspace=device.allocate(plan.workspace_size),
        workspace_size=plan.workspace_size,
    )
    device.download(y, out)

    worst = 0.0
    for b in range(B):
        for t in range(T):
            for d in range(D):
                exact = sum(w[t * T + s] * x[(b * T + s) * D + d] for s in range(t + 1))
                difference = abs(exact - y[(b * T + t) * D + d])
                if not difference <= worst:  # true for NaN too
                    worst = difference
    # f32 sums of up to 48 products of numbers up to 1: at most 48 roundings of 48 * 2^-24.
    print(f"largest difference from the CPU's sums: {worst:.3g}")
    return 0 if worst <= 48 * 48 / 2**24 else 1


if __name__ == "__main__":
    sys.exit(main())
