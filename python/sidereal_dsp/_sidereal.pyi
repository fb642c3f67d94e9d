from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol, final, overload

import numpy as np
import numpy.typing as npt

from ._candidates import Candidates
from ._events import Events
from ._visibilities import Visibilities

class _Quantity(Protocol):
    """Number with a unit, as astropy's Quantity."""

    def to_value(self, unit: str, /) -> Any: ...

class _Time(Protocol):
    """Time with its GPS seconds, as astropy's Time."""

    @property
    def gps(self) -> Any: ...

_Number = float | _Quantity
_Numbers = Sequence[float] | npt.NDArray[Any] | _Quantity
_Channels = Sequence[int] | Sequence[bool] | npt.NDArray[Any]
_Path = str | PathLike[str]
_Array = npt.NDArray[Any]

__all__ = [
    "Candidate",
    "Channelizer",
    "Correlator",
    "Dedisperser",
    "Device",
    "DmPlan",
    "DmRange",
    "Event",
    "Gulps",
    "Header",
    "Psd",
    "Recording",
    "Strain",
    "Trigger",
    "__version__",
    "channelize",
    "correlate",
    "dedisperse",
    "devices",
    "dm_plan",
    "estimate_psd",
    "find_pulses",
    "open",
    "read_strain",
    "run_command",
    "search",
    "search_strain",
    "whiten",
]
__version__: str

@final
class Device:
    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def memory_bytes(self) -> int | None: ...

def devices() -> list[Device]: ...

@final
class Channelizer:
    def __new__(
        cls,
        channels: int,
        taps: int = 8,
        *,
        encoding: str,
        antennas: int | None = None,
        coarse_channels: int | None = None,
        pols: int | None = None,
        window: str | _Numbers | None = None,
        oversampling: tuple[int, int] | None = None,
        detect: str | None = None,
        feed: str = "linear",
        integrate: int = 1,
        device: str = "cpu",
        threads: int = 0,
    ) -> Channelizer: ...
    def push(self, x: _Array, *, out: _Array | None = None) -> _Array: ...
    def flush(self) -> _Array: ...
    def reset(self) -> None: ...
    def frequencies(self, centre: _Number, bandwidth: _Number) -> npt.NDArray[np.float64]: ...
    @property
    def delay_samples(self) -> float: ...
    @property
    def samples_per_row(self) -> int: ...

def channelize(
    x: _Array,
    channels: int,
    *,
    taps: int = 8,
    window: str | _Numbers | None = None,
    oversampling: tuple[int, int] | None = None,
    detect: str | None = None,
    feed: str = "linear",
    integrate: int = 1,
    encoding: str | None = None,
    out: _Array | None = None,
    device: str = "cpu",
    threads: int = 0,
) -> _Array: ...

@final
class DmRange:
    @property
    def dm_min(self) -> float: ...
    @property
    def dm_end(self) -> float: ...
    @property
    def dm_step(self) -> float: ...
    @property
    def downsample(self) -> int: ...
    @property
    def trials(self) -> int: ...

@final
class DmPlan:
    @property
    def dms(self) -> npt.NDArray[np.float64]: ...
    @property
    def ranges(self) -> list[DmRange]: ...
    def __len__(self) -> int: ...

def dm_plan(
    freqs: _Numbers,
    tsamp: _Number,
    dm_max: _Number,
    *,
    dm_min: _Number | None = None,
    dm_step: _Number | None = None,
    tolerance: float | None = None,
    channel_width: _Number | None = None,
) -> DmPlan: ...

@final
class Dedisperser:
    def __new__(
        cls,
        freqs: _Numbers,
        tsamp: _Number,
        dms: _Numbers,
        dtype: npt.DTypeLike,
        *,
        downsample: int = 1,
        zap_channels: _Channels | None = None,
        device: str = "cpu",
        threads: int = 0,
    ) -> Dedisperser: ...
    def push(self, x: _Array, *, out: _Array | None = None) -> _Array: ...
    def flush(self) -> _Array: ...
    def reset(self) -> None: ...
    def valid_samples(self, rows: int) -> npt.NDArray[np.int64]: ...
    def shifts(self, trial: int) -> list[int]: ...

@overload
def dedisperse(
    x: _Array,
    freqs: _Numbers,
    tsamp: _Number,
    dms: _Numbers,
    *,
    downsample: int = 1,
    zap_channels: _Channels | None = None,
    out: _Array | None = None,
    return_valid: Literal[False] = False,
    device: str = "cpu",
    threads: int = 0,
) -> _Array: ...
@overload
def dedisperse(
    x: _Array,
    freqs: _Numbers,
    tsamp: _Number,
    dms: _Numbers,
    *,
    downsample: int = 1,
    zap_channels: _Channels | None = None,
    out: _Array | None = None,
    return_valid: Literal[True],
    device: str = "cpu",
    threads: int = 0,
) -> tuple[_Array, npt.NDArray[np.int64]]: ...
def find_pulses(
    series: _Array,
    tsamp: _Number,
    *,
    snr: float = 6.0,
    valid: Sequence[int] | npt.NDArray[np.integer[Any]] | int | None = None,
    max_width: _Number | None = None,
    baseline: _Number | None = None,
    device: str = "cpu",
    threads: int = 0,
) -> np.recarray[Any, Any]: ...

@final
class Correlator:
    def __new__(
        cls,
        antennas: int,
        channels: int,
        *,
        pols: int = 2,
        encoding: str = "complex64",
        precision: str = "f32",
        device: str = "cpu",
        threads: int = 0,
    ) -> Correlator: ...
    def push(self, x: _Array) -> None: ...
    def read(self, reset: bool = True) -> Visibilities: ...
    def reset(self) -> None: ...

def correlate(
    x: _Array, *, encoding: str | None = None, device: str = "cpu", threads: int = 0
) -> Visibilities: ...

@final
class Strain:
    def __new__(
        cls,
        detector: str,
        samples: _Array,
        rate: _Number,
        start: float | _Quantity | _Time,
        *,
        valid: _Array | None = None,
    ) -> Strain: ...
    @property
    def detector(self) -> str: ...
    @property
    def start(self) -> float: ...
    @property
    def rate(self) -> int: ...
    @property
    def samples(self) -> npt.NDArray[np.float64]: ...
    @property
    def valid(self) -> npt.NDArray[np.bool_]: ...
    def __len__(self) -> int: ...

def read_strain(
    paths: _Path | Sequence[_Path], *, detector: str | None = None, channel: str | None = None
) -> Strain: ...

@final
class Trigger:
    @property
    def gps(self) -> float: ...
    @property
    def snr(self) -> float: ...
    @property
    def phase(self) -> float: ...
    @property
    def xi2(self) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Event:
    @property
    def gps(self) -> float: ...
    @property
    def network_snr(self) -> float: ...
    @property
    def ranking(self) -> float: ...
    @property
    def far_hz(self) -> float | None: ...
    @property
    def template(self) -> str: ...
    @property
    def masses(self) -> tuple[float, float] | None: ...
    @property
    def spins(self) -> tuple[float, float] | None: ...
    @property
    def triggers(self) -> dict[str, Trigger]: ...

def search_strain(
    strain: Sequence[Strain],
    *,
    masses: tuple[float, float] | None = None,
    templates: Sequence[Sequence[float]] | None = None,
    f_low: _Number | None = None,
    segment: _Number | None = None,
    threshold: float = 4.0,
    slides: int = 100,
    device: str = "cpu",
    threads: int = 0,
) -> Events: ...

@final
class Psd:
    def __new__(cls, spacing: _Number, densities: _Numbers) -> Psd: ...
    @property
    def spacing(self) -> float: ...
    @property
    def frequencies(self) -> npt.NDArray[np.float64]: ...
    @property
    def densities(self) -> npt.NDArray[np.float64]: ...
    def __len__(self) -> int: ...

def estimate_psd(
    strain: _Array,
    rate: _Number,
    *,
    segment: _Number | None = None,
    average: str = "median",
    skip_ends: _Number | None = None,
    valid: _Array | None = None,
) -> Psd: ...
def whiten(
    strain: _Array,
    rate: _Number,
    psd: Psd,
    *,
    f_low: _Number | None = None,
    low_latency: bool = False,
    valid: _Array | None = None,
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]: ...
@final
class Header:
    @property
    def path(self) -> Path: ...
    @property
    def format(self) -> str: ...
    @property
    def source_name(self) -> str: ...
    @property
    def telescope(self) -> str: ...
    @property
    def ra_deg(self) -> float | None: ...
    @property
    def dec_deg(self) -> float | None: ...
    @property
    def tstart_mjd(self) -> float | None: ...
    @property
    def tsamp(self) -> float: ...
    @property
    def freqs(self) -> npt.NDArray[np.float64]: ...
    @property
    def channel_width(self) -> float: ...
    @property
    def channels(self) -> int: ...
    @property
    def bits(self) -> int: ...
    @property
    def times(self) -> int | None: ...

@final
class Recording:
    @property
    def header(self) -> Header: ...
    def read(self, start: int = 0, n: int | None = None) -> _Array: ...
    def gulps(self, n: int, overlap: int = 0) -> Gulps: ...

@final
class Gulps(Iterator[_Array]):
    def __iter__(self) -> Gulps: ...
    def __next__(self) -> _Array: ...

def open(paths: _Path | Sequence[_Path], *, allow_gaps: bool = False) -> Recording: ...

@final
class Candidate:
    @property
    def dm(self) -> float: ...
    @property
    def time(self) -> float: ...
    @property
    def snr(self) -> float: ...
    @property
    def width(self) -> float: ...
    @property
    def members(self) -> int: ...
    @property
    def dm_trial(self) -> int: ...
    @property
    def dm_min(self) -> float: ...
    @property
    def dm_max(self) -> float: ...
    @property
    def begin(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def band_fraction(self) -> float: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

def search(
    source: _Path | Sequence[_Path] | Recording | _Array,
    *,
    freqs: _Numbers | None = None,
    tsamp: _Number | None = None,
    dm_max: _Number | None = None,
    dm_min: _Number | None = None,
    dm_step: _Number | None = None,
    tolerance: float | None = None,
    plan: DmPlan | None = None,
    snr: float = 6.0,
    max_width: _Number | None = None,
    baseline: _Number | None = None,
    rfi: str = "auto",
    zap_channels: _Channels | None = None,
    zero_dm: bool = False,
    max_per_minute: int = 1000,
    time_range: tuple[_Number, _Number] | None = None,
    on_candidate: Callable[[Candidate], object] | None = None,
    device: str = "cpu",
    threads: int = 0,
) -> Candidates: ...
def run_command(words: Sequence[str]) -> int: ...
