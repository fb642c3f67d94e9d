"""Visibilities of a correlation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


class Visibilities:
    """Sums of the products of all pairs of antennas.

    Attributes
    ----------
    sums : array of complex128
        Axes: channel, baseline and pair of polarizations (XX, or XX, XY, YX and YY).
    counts : array of uint64
        Number of spectra in each sum; axes: channel and baseline.
    baselines : array of int
        Antennas i >= j of each baseline, of which the first is not conjugated; axes: baseline and the two antennas.
    spectra : int
        Number of spectra since the start of the integration.
    antennas, pols : int
        Number of antennas and of polarizations.
    freqs : array of float64 or None
        Centre of each channel, MHz, if it is known.
    mjd : float or None
        Centre of the integration, MJD (UTC), if it is known.
    """

    def __init__(
        self,
        sums: npt.NDArray[np.complex128],
        counts: npt.NDArray[np.uint64],
        *,
        antennas: int,
        pols: int,
        spectra: int,
        freqs: npt.NDArray[np.float64] | None = None,
        mjd: float | None = None,
    ) -> None:
        self.sums = sums
        self.counts = counts
        self.antennas = antennas
        self.pols = pols
        self.spectra = spectra
        self.freqs = freqs
        self.mjd = mjd
        self.baselines: npt.NDArray[Any] = np.stack(np.tril_indices(antennas), axis=1)

    def mean(self) -> npt.NDArray[np.complex128]:
        """Return the sums divided by their counts, NaN where there is no spectrum; axes as those of `sums`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.sums / self.counts[:, :, np.newaxis]

    def matrix(self) -> npt.NDArray[np.complex128]:
        """Return the sums as Hermitian matrices; axes: channel, antenna, polarization, antenna, polarization."""
        channels, _, _ = self.sums.shape
        pairs = self.sums.reshape(channels, -1, self.pols, self.pols)
        first, second = self.baselines.T
        matrix = np.empty(
            (channels, self.antennas, self.pols, self.antennas, self.pols), dtype=self.sums.dtype
        )
        # With an array as index on either side of a slice, the axis of the baselines comes first.
        matrix[:, second, :, first, :] = np.moveaxis(pairs.conj(), (0, 1, 2, 3), (1, 0, 3, 2))
        matrix[:, first, :, second, :] = np.moveaxis(pairs, 1, 0)
        return matrix

    def __repr__(self) -> str:
        return (
            f"<Visibilities: {self.antennas} antennas, {self.pols} polarizations, "
            f"{self.sums.shape[0]} channels, {self.spectra} spectra>"
        )
