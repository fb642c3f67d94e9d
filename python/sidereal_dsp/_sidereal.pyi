from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Protocol, final, overload

import numpy as np
import numpy.typing as npt

from ._candidates import Candidates
from ._cutout import Cutout
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

class _OnGpu(Protocol):
    """Array in a GPU's memory, by its array interface."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _Tensor(Protocol):
    """Array of another library, by DLPack."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...
    def __dlpack_device__(self) -> Any: ...

_Any = npt.NDArray[Any] | _OnGpu | _Tensor

__all__ = [
    "Array",
    "Bank",
    "Candidate",
    "Channelizer",
    "Correlation",
    "Correlator",
    "Dedisperser",
    "Device",
    "DeviceArray",
    "DmPlan",
    "DmRange",
    "Event",
    "Gulps",
    "Header",
    "Integrations",
    "Psd",
    "Recording",
    "Spiir",
    "Strain",
    "Trigger",
    "Waveform",
    "__version__",
    "_time_channelize",
    "channelize",
    "coincide",
    "correlate",
    "correlate_files",
    "cutout",
    "dedisperse",
    "delays",
    "design",
    "devices",
    "dm_plan",
    "estimate_psd",
    "find_pulses",
    "find_triggers",
    "inspiral",
    "open_filterbank",
    "prototype",
    "read_strain",
    "run_command",
    "search",
    "search_strain",
    "to_device",
    "whiten",
    "write_cand",
]
__version__: str

@final
class Device:
    def __new__(
        cls, name: str, description: str, threads: int, memory_bytes: int | None
    ) -> Device: ...
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
class DeviceArray:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device(self) -> str: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def to_host(self) -> _Array: ...
    def __len__(self) -> int: ...

def to_device(x: _Array | _Tensor, *, device: str = "cuda") -> DeviceArray: ...

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
        bits: int | None = None,
        gain: float = 1.0,
        device: str = "cpu",
        threads: int = 0,
    ) -> Channelizer: ...
    @overload
    def push(self, x: _Array, *, out: _Array | None = None) -> _Array: ...
    @overload
    def push(self, x: _Any, *, out: _Any | None = None) -> Any: ...
    def flush(self) -> Any: ...
    def reset(self) -> None: ...
    def frequencies(self, centre: _Number, bandwidth: _Number) -> npt.NDArray[np.float64]: ...
    @property
    def delay_samples(self) -> float: ...
    @property
    def samples_per_row(self) -> int: ...

@overload
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
    bits: int | None = None,
    gain: float = 1.0,
    encoding: str | None = None,
    out: _Array | None = None,
    device: str | None = None,
    threads: int = 0,
) -> _Array: ...
@overload
def channelize(
    x: _Any,
    channels: int,
    *,
    taps: int = 8,
    window: str | _Numbers | None = None,
    oversampling: tuple[int, int] | None = None,
    detect: str | None = None,
    feed: str = "linear",
    integrate: int = 1,
    bits: int | None = None,
    gain: float = 1.0,
    encoding: str | None = None,
    out: _Any | None = None,
    device: str | None = None,
    threads: int = 0,
) -> Any: ...

def _time_channelize(x: _Array, channels: int, out: _Array, threads: int) -> float: ...
def prototype(
    channels: int, taps: int = 8, window: str = "hann", *, real: bool = False
) -> npt.NDArray[np.float64]: ...

@final
class DmRange:
    def __new__(
        cls, dm_min: float, dm_end: float, dm_step: float, downsample: int = 1
    ) -> DmRange: ...
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
    def __new__(cls, ranges: Sequence[DmRange]) -> DmPlan: ...
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
    @overload
    def push(self, x: _Array, *, out: _Array | None = None) -> _Array: ...
    @overload
    def push(self, x: _Any, *, out: _Any | None = None) -> Any: ...
    def flush(self) -> Any: ...
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
    device: str | None = None,
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
    device: str | None = None,
    threads: int = 0,
) -> tuple[_Array, npt.NDArray[np.int64]]: ...
@overload
def dedisperse(
    x: _Any,
    freqs: _Numbers,
    tsamp: _Number,
    dms: _Numbers,
    *,
    downsample: int = 1,
    zap_channels: _Channels | None = None,
    out: _Any | None = None,
    return_valid: bool = False,
    device: str | None = None,
    threads: int = 0,
) -> Any: ...
def find_pulses(
    series: _Array,
    tsamp: _Number,
    *,
    snr: float = 6.0,
    valid: Sequence[int] | npt.NDArray[np.integer[Any]] | int | None = None,
    max_width: _Number | None = None,
    baseline_length: _Number | None = None,
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
    def push(self, x: _Any) -> None: ...
    def read(self, reset: bool = True) -> Visibilities: ...
    def reset(self) -> None: ...

def correlate(
    x: _Any, *, encoding: str | None = None, device: str | None = None, threads: int = 0
) -> Visibilities: ...

@final
class Array:
    @staticmethod
    def from_csv(path: _Path) -> Array: ...
    @property
    def name(self) -> str: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def positions(self) -> npt.NDArray[np.float64]: ...
    def __len__(self) -> int: ...

class _Coordinates(Protocol):
    """Coordinates on the sky, as astropy's SkyCoord."""

    @property
    def icrs(self) -> Any: ...

class _Dates(Protocol):
    """Times, as astropy's Time."""

    @property
    def utc(self) -> Any: ...

def delays(
    array: Array,
    direction: tuple[float, float] | _Coordinates,
    times: float | Sequence[float] | npt.NDArray[Any] | _Dates,
) -> npt.NDArray[np.float64]: ...

@final
class Correlation:
    @property
    def baselines(self) -> npt.NDArray[np.int64]: ...
    @property
    def freqs(self) -> npt.NDArray[np.float64]: ...
    @property
    def integration(self) -> float: ...
    @property
    def array(self) -> Array: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Integrations: ...
    def write_uvh5(self, path: _Path) -> None: ...
    def to_uvdata(self) -> Any: ...

@final
class Integrations(Iterator[Visibilities]):
    def __iter__(self) -> Integrations: ...
    def __next__(self) -> Visibilities: ...

def correlate_files(
    sources: Mapping[Any, _Path | Sequence[_Path]] | _Path | Sequence[_Path],
    array: Array,
    channels: int,
    *,
    phase_centre: tuple[float, float] | _Coordinates | None = None,
    integration: _Number | None = None,
    bits: int = 8,
    taps: int = 8,
    window: str = "hann",
    average_channels: int = 1,
    time_range: tuple[_Number, _Number] | None = None,
    allow_gaps: bool = False,
    device: str = "cpu",
    threads: int = 0,
) -> Correlation: ...

@final
class Strain:
    def __new__(
        cls,
        detector: str,
        samples: _Array,
        sample_rate: _Number,
        t0: float | _Quantity | _Time,
        *,
        valid: _Array | None = None,
    ) -> Strain: ...
    @property
    def detector(self) -> str: ...
    @property
    def t0(self) -> float: ...
    @property
    def sample_rate(self) -> int: ...
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
    def __new__(cls, gps: float, snr: float, phase: float, xi2: float) -> Trigger: ...
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
    def __new__(
        cls,
        gps: float,
        network_snr: float,
        ranking: float,
        far_hz: float | None,
        template: str,
        masses: tuple[float, float] | None,
        spins: tuple[float, float] | None,
        triggers: dict[str, Trigger],
    ) -> Event: ...
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
class Waveform:
    def __new__(
        cls,
        name: str,
        samples: _Array,
        sample_rate: _Number,
        *,
        distance: float = 1.0,
    ) -> Waveform: ...
    @property
    def name(self) -> str: ...
    @property
    def samples(self) -> npt.NDArray[np.complex128]: ...
    @property
    def sample_rate(self) -> int: ...
    @property
    def peak(self) -> int: ...
    def __len__(self) -> int: ...

def inspiral(
    mass1: float,
    mass2: float,
    *,
    spin1z: float = 0.0,
    spin2z: float = 0.0,
    sample_rate: _Number | None = None,
    f_low: _Number | None = None,
    approximant: str | None = None,
) -> Waveform: ...

@final
class Bank:
    @property
    def names(self) -> list[str]: ...
    @property
    def fits(self) -> npt.NDArray[np.float64]: ...
    @property
    def horizons(self) -> npt.NDArray[np.float64]: ...
    @property
    def peak_offsets(self) -> npt.NDArray[np.float64]: ...
    @property
    def left_out(self) -> list[tuple[str, str]]: ...
    @property
    def sample_rate(self) -> int: ...
    def __len__(self) -> int: ...

def design(
    waveforms: Sequence[Waveform], psd: Psd, *, f_low: _Number | None = None, threads: int = 0
) -> Bank: ...

@final
class Spiir:
    def __new__(cls, bank: Bank, *, device: str = "cpu", threads: int = 0) -> Spiir: ...
    @overload
    def push(
        self, x: npt.NDArray[np.float32], *, out: _Array | None = None
    ) -> npt.NDArray[np.complex64]: ...
    @overload
    def push(self, x: _Any, *, out: _Any | None = None) -> Any: ...
    def flush(self) -> Any: ...
    def reset(self) -> None: ...
    @property
    def latency(self) -> int: ...

def find_triggers(
    z: _Array,
    bank: Bank,
    t0: float | _Quantity | _Time,
    *,
    valid: _Array | None = None,
    threshold: float = 4.0,
    window: _Number | None = None,
    threads: int = 0,
) -> np.recarray[Any, Any]: ...
def coincide(
    triggers: Mapping[str, np.recarray[Any, Any]],
    valid: Mapping[str, Sequence[Sequence[float]] | _Array],
    *,
    bank: Bank | None = None,
    slides: int = 100,
    window_pad: _Number | None = None,
    cluster: _Number | None = None,
    threads: int = 0,
) -> Events: ...

@final
class Psd:
    def __new__(cls, df: _Number, densities: _Numbers) -> Psd: ...
    @property
    def df(self) -> float: ...
    @property
    def frequencies(self) -> npt.NDArray[np.float64]: ...
    @property
    def densities(self) -> npt.NDArray[np.float64]: ...
    def __len__(self) -> int: ...

def estimate_psd(
    strain: _Array,
    sample_rate: _Number,
    *,
    segment: _Number | None = None,
    average: str = "median",
    skip_ends: _Number | None = None,
    valid: _Array | None = None,
) -> Psd: ...
def whiten(
    strain: _Array,
    sample_rate: _Number,
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
    def tstart(self) -> float | None: ...
    @property
    def tsamp(self) -> float: ...
    @property
    def freqs(self) -> npt.NDArray[np.float64]: ...
    @property
    def channel_width(self) -> float: ...
    @property
    def fch1(self) -> float: ...
    @property
    def foff(self) -> float: ...
    @property
    def nchans(self) -> int: ...
    @property
    def nbits(self) -> int: ...
    @property
    def nsamples(self) -> int | None: ...

@final
class Recording:
    @property
    def header(self) -> Header: ...
    def read(self, start: int = 0, nsamps: int | None = None) -> _Array: ...
    def gulps(self, nsamps: int, overlap: int = 0) -> Gulps: ...

@final
class Gulps(Iterator[_Array]):
    def __iter__(self) -> Gulps: ...
    def __next__(self) -> _Array: ...

def open_filterbank(paths: _Path | Sequence[_Path], *, allow_gaps: bool = False) -> Recording: ...

@final
class Candidate:
    def __new__(
        cls,
        dm: float,
        time: float,
        snr: float,
        width: float,
        members: int,
        dm_trial: int,
        dm_min: float,
        dm_max: float,
        begin: float,
        end: float,
        band_fraction: float,
    ) -> Candidate: ...
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
    baseline_length: _Number | None = None,
    rfi: str = "auto",
    zap_channels: _Channels | None = None,
    zero_dm: bool = False,
    max_per_minute: int = 1000,
    time_range: tuple[_Number, _Number] | None = None,
    channels: int | None = None,
    taps: int | None = None,
    integrate: int | None = None,
    coherent_dm: _Number | None = None,
    on_candidate: Callable[[Candidate], object] | None = None,
    device: str = "cpu",
    threads: int = 0,
) -> Candidates: ...
def run_command(words: Sequence[str]) -> int: ...
def cutout(
    source: _Path | Sequence[_Path] | Recording,
    candidate: Candidate,
    *,
    zap_channels: _Channels | None = None,
    zero_dm: bool = False,
    fetch: bool = False,
) -> Cutout: ...
def write_cand(path: _Path, found: Sequence[Candidate], tsamp: float) -> None: ...
