"""The emulated device from Python: its memory as torch tensors and NumPy arrays. Device addresses are host addresses there, so a
tensor over emulated memory is an ordinary CPU tensor whose pointer the emulated driver accepts, bounds checked."""

import ctypes
import math
import os
from pathlib import Path

TARGET = os.environ.get("TRIGEN_TEST_TARGET", "sm_80")
HAS_TF32 = int(TARGET[3:].rstrip("a")) >= 80  # from Ampere on
THOROUGH = os.environ.get("TRIGEN_TEST_ALL", "0") not in ("", "0")
# Of tests that know no more of a target than that, a quick run takes all cases on the first target and some on the others.
ALL_CASES = TARGET == "sm_80" or THOROUGH


def emulator_file(library_file: str):
    beside = Path(os.environ.get("TRIGEN_EMULATOR", Path(library_file).resolve().parent / "libtrigen_emulator.so"))
    return beside if beside.exists() else None


class EmulatedDevice:
    """Memory and reports of the emulated device 0. The context is the primary one, which plans use too."""

    def __init__(self, file):
        self.driver = ctypes.CDLL(str(file))
        self.driver.trigen_emulator_configure.argtypes = [ctypes.c_char_p]
        for name in ("cuMemAlloc_v2", "cuMemcpyHtoD_v2", "cuMemFree_v2"):
            getattr(self.driver, name).restype = ctypes.c_int
        self._check(
            self.driver.trigen_emulator_configure(f"target={TARGET} reports=fail threads=1".encode()), "configure"
        )
        self._check(self.driver.cuInit(0), "cuInit")
        context = ctypes.c_void_p()
        self._check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
        self._check(self.driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")

    @staticmethod
    def _check(status, what):
        if status != 0:
            raise RuntimeError(f"{what} on the emulated device returned {status}")

    def allocate(self, nbytes: int) -> int:
        address = ctypes.c_uint64()
        self._check(self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1))), "cuMemAlloc")
        return address.value

    def write(self, address: int, host: int, nbytes: int) -> None:
        """A copy to the device, after which the bytes count as written."""
        self._check(
            self.driver.cuMemcpyHtoD_v2(ctypes.c_uint64(address), ctypes.c_void_p(host), ctypes.c_size_t(nbytes)),
            "cuMemcpyHtoD",
        )

    def reports(self) -> str:
        buffer = ctypes.create_string_buffer(1 << 16)
        self.driver.trigen_emulator_reports(0, buffer, ctypes.c_uint64(len(buffer)))
        return buffer.value.decode()

    # ---- torch ------------------------------------------------------------------------------------------------------------

    def empty(self, size, dtype=None, device=None):
        """torch.empty over emulated memory."""
        import torch

        shape = (size,) if isinstance(size, int) else tuple(size)
        dtype = dtype or torch.float32
        count = math.prod(shape)
        if count == 0:
            return torch.empty(shape, dtype=dtype)
        nbytes = count * torch.empty(0, dtype=dtype).element_size()
        buffer = (ctypes.c_byte * nbytes).from_address(self.allocate(nbytes))
        return torch.frombuffer(buffer, dtype=dtype).reshape(shape)

    def put(self, tensor):
        """A copy with the same shape and strides in emulated memory."""
        import torch

        if tensor is None:
            return None
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        host = torch.zeros(extent, dtype=tensor.dtype)
        torch.as_strided(host, tensor.shape, tensor.stride()).copy_(tensor)
        there = self.empty(extent, tensor.dtype)
        self.write(there.data_ptr(), host.data_ptr(), host.numel() * host.element_size())
        return torch.as_strided(there, tensor.shape, tensor.stride())

    def stand_in(self, monkeypatch):
        """Its allocator instead of PyTorch's, and the default stream, which never captures, behind launch.py."""
        import torch
        from trigen.torch import launch

        monkeypatch.setattr(launch, "empty", self.empty)
        monkeypatch.setattr(launch, "empty_like", lambda tensor: self.empty(tensor.shape, tensor.dtype))
        monkeypatch.setattr(launch, "contiguous", lambda tensor: self.put(torch.Tensor.contiguous(tensor)))
        monkeypatch.setattr(launch, "raw_stream", lambda index: 0)
        monkeypatch.setattr(launch, "is_capturing", lambda: False)
        monkeypatch.setattr(launch, "wait", lambda device: None)
