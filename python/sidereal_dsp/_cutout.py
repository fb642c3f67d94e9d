"""Data around a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes as _Axes

    from ._sidereal import Candidate


class Cutout:
    """Data around a candidate, highest frequency first.

    Attributes
    ----------
    waterfall : array of float32
        Dedispersed power of each sub-band, standard deviations, NaN without data; axes: sub-band and time.
    plane : array of float32
        Series of each trial dispersion measure, standard deviations of a bin; axes: trial and time.
    profile : array of float32
        Series at the candidate's dispersion measure, standard deviations of a bin; axis: time.
    times : array of float64
        Centre of each bin after the candidate's time, s.
    freqs : array of float64
        Centre of each sub-band, MHz.
    dms : array of float64
        Trial dispersion measures, pc cm^-3.
    snr : array of float32
        Highest signal-to-noise ratio of the candidate's boxcar near its time; axis: trial.
    candidate : Candidate
        Burst.
    """

    def __init__(
        self,
        *,
        waterfall: npt.NDArray[np.float32],
        plane: npt.NDArray[np.float32],
        profile: npt.NDArray[np.float32],
        times: npt.NDArray[np.float64],
        freqs: npt.NDArray[np.float64],
        dms: npt.NDArray[np.float64],
        snr: npt.NDArray[np.float32],
        candidate: Candidate,
    ) -> None:
        self.waterfall = waterfall
        self.plane = plane
        self.profile = profile
        self.times = times
        self.freqs = freqs
        self.dms = dms
        self.snr = snr
        self.candidate = candidate

    def __repr__(self) -> str:
        channels, times = self.waterfall.shape
        return f"<Cutout: {channels} sub-bands and {times} bins around {self.candidate!r}>"

    def plot(self, axes: Any = None) -> list[_Axes]:
        """Draw the profile, the dedispersed sub-bands and the trials, each against time.

        Parameters
        ----------
        axes : three matplotlib Axes, optional
            Axes to draw into; by default those of a new figure.

        Returns
        -------
        list of matplotlib Axes
        """
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.figure().subplots(3, sharex=True)
        top, middle, bottom = axes
        milliseconds = 1e3 * self.times
        top.step(milliseconds, self.profile, where="mid")
        top.set_ylabel("S/N of a bin")
        middle.pcolormesh(milliseconds, self.freqs, self.waterfall)
        middle.set_ylabel("frequency (MHz)")
        bottom.pcolormesh(milliseconds, self.dms, self.plane)
        bottom.set_ylabel("DM (pc cm$^{-3}$)")
        bottom.set_xlabel("time after the candidate (ms)")
        return [top, middle, bottom]
