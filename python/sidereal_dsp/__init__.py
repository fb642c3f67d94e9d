"""Signal processing for radio astronomy and gravitational waves, on CPUs and NVIDIA GPUs.

Arrays go in and come out as NumPy arrays; arrays with `out=` are written in place. Times are in s, frequencies in MHz and
dispersion measures in pc cm^-3; astropy's quantities are accepted. Functions release Python's lock while they work,
and stop on Ctrl-C.
"""

from ._candidates import Candidates
from ._errors import (
    DeviceError,
    FileError,
    FormatError,
    ParameterError,
    SiderealError,
    UnavailableError,
)
from ._sidereal import (
    Candidate,
    Channelizer,
    Correlator,
    Dedisperser,
    Device,
    DmPlan,
    DmRange,
    Gulps,
    Header,
    Psd,
    Recording,
    __version__,
    channelize,
    correlate,
    dedisperse,
    devices,
    dm_plan,
    estimate_psd,
    find_pulses,
    open,
    search,
    whiten,
)
from ._visibilities import Visibilities

__all__ = [
    "Candidate",
    "Candidates",
    "Channelizer",
    "Correlator",
    "Dedisperser",
    "Device",
    "DeviceError",
    "DmPlan",
    "DmRange",
    "FileError",
    "FormatError",
    "Gulps",
    "Header",
    "ParameterError",
    "Psd",
    "Recording",
    "SiderealError",
    "UnavailableError",
    "Visibilities",
    "__version__",
    "channelize",
    "correlate",
    "dedisperse",
    "devices",
    "dm_plan",
    "estimate_psd",
    "find_pulses",
    "open",
    "search",
    "whiten",
]
