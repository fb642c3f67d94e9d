"""Arrays on a GPU for the tests, as other libraries hand them over."""

import os

import pytest

import sidereal_dsp as sd


def needed():
    """Skip the module without a GPU; fail where SIDEREAL_REQUIRE names `cuda`."""
    if len(sd.devices()) > 1:
        return
    if "cuda" in os.environ.get("SIDEREAL_REQUIRE", ""):
        raise RuntimeError("no GPU, and SIDEREAL_REQUIRE names cuda")
    pytest.skip("no GPU", allow_module_level=True)


class Interface:
    """Array with an array interface only; fields in `others` replace its own, and those in `without` are missing."""

    def __init__(self, array, *without, **others):
        self.array = array
        own = {**array.__cuda_array_interface__, **others}
        self.interface = {name: value for name, value in own.items() if name not in without}

    @property
    def __cuda_array_interface__(self):
        return self.interface


class Tensor:
    """Array with DLPack 1.0 only."""

    def __init__(self, array, **others):
        self.array = array
        self.others = others

    def __dlpack_device__(self):
        return self.others.get("device", self.array.__dlpack_device__())

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


class OldTensor(Tensor):
    """Array with DLPack of before 1.0 only."""

    def __dlpack__(self, *, stream=None):
        return self.array.__dlpack__(stream=stream)


#: What an array on a GPU may look like.
KINDS = [lambda array: array, Interface, Tensor, OldTensor]
