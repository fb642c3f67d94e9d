"""List of the candidates that a search has found."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ._sidereal import write_cand

if TYPE_CHECKING:
    import numpy.typing as npt
    from astropy.table import QTable as _QTable
    from matplotlib.axes import Axes as _Axes
    from pandas import DataFrame as _DataFrame

    from ._sidereal import Candidate

#: Columns of tables: the attributes of a candidate, and their units as astropy names them.
_COLUMNS = {
    "snr": None,
    "time": "s",
    "dm": "pc / cm3",
    "width": "s",
    "members": None,
    "dm_trial": None,
    "dm_min": "pc / cm3",
    "dm_max": "pc / cm3",
    "begin": "s",
    "end": "s",
    "band_fraction": None,
}


class Candidates(Sequence["Candidate"]):
    """Candidates of a search, by descending signal-to-noise ratio.

    Attributes
    ----------
    dms : array
        Trial dispersion measures that were searched, pc cm^-3.
    n_dms_skipped : int
        Trials left out because their delay is longer than the data.
    masked_channels : list of int
        Channels left out, in recorded order.
    n_dropped : int
        Candidates dropped because of `max_per_minute`.
    unsearched : array of float64
        Start and end of each interval in which gaps fill too much of the data for a search, s from the first sample;
        shape (intervals, 2).
    duration : float
        Length of the data searched, s.
    incomplete : str or None
        Reason for which the search or the recording ended early.
    tsamp : float
        Sampling time of the recording, s.
    tstart : float or None
        Start of the first sample, MJD (UTC).
    """

    def __init__(
        self,
        found: list[Candidate],
        *,
        dms: npt.NDArray[np.float64],
        n_dms_skipped: int = 0,
        masked_channels: list[int] | None = None,
        n_dropped: int = 0,
        unsearched: npt.NDArray[np.float64] | None = None,
        duration: float = 0.0,
        incomplete: str | None = None,
        tsamp: float = 1.0,
        tstart: float | None = None,
    ) -> None:
        self._found = found
        self.dms = dms
        self.n_dms_skipped = n_dms_skipped
        self.masked_channels = masked_channels or []
        self.n_dropped = n_dropped
        self.unsearched = np.empty((0, 2)) if unsearched is None else unsearched
        self.duration = duration
        self.incomplete = incomplete
        self.tsamp = tsamp
        self.tstart = tstart

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Candidates: ...
    def __getitem__(self, index: int | slice) -> Candidate | Candidates:
        if not isinstance(index, slice):
            return self._found[index]
        about = {name: value for name, value in vars(self).items() if name != "_found"}
        return Candidates(self._found[index], **about)

    def __repr__(self) -> str:
        best = f", best {self._found[0]!r}" if self._found else ""
        return f"<Candidates: {len(self)} in {self.duration:.6g} s{best}>"

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one attribute of all candidates as an array."""
        kind = np.int64 if name in ("members", "dm_trial") else np.float64
        return np.array([getattr(candidate, name) for candidate in self], dtype=kind)

    def to_pandas(self) -> _DataFrame:
        """Return a pandas DataFrame: a row per candidate, times and widths in s, DM in pc cm^-3."""
        import pandas

        return pandas.DataFrame({name: self.column(name) for name in _COLUMNS})

    def to_table(self) -> _QTable:
        """Return an astropy QTable: a row per candidate, with units.

        With the start of the recording known, `mjd` is the time of each candidate at the highest frequency as an
        astropy Time (UTC).
        """
        from astropy import units
        from astropy.table import QTable
        from astropy.time import Time, TimeDelta

        table = QTable()
        for name, unit in _COLUMNS.items():
            column = self.column(name)
            table[name] = column if unit is None else units.Quantity(column, unit)
        if self.tstart is not None:
            start = Time(self.tstart, format="mjd", scale="utc")
            table["mjd"] = start + TimeDelta(self.column("time"), format="sec")
        return table

    def write_cand(self, path: str | PathLike[str]) -> None:
        """Write the candidates to a file as Heimdall does: the ``candidates.cand`` of ``sidereal search``."""
        write_cand(path, list(self), self.tsamp)

    def plot(self, ax: _Axes | None = None) -> _Axes:
        """Draw dispersion measure against time, the area of each circle by signal-to-noise ratio.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw into; by default those of a new figure.

        Returns
        -------
        matplotlib Axes
        """
        if ax is None:
            from matplotlib import pyplot

            ax = pyplot.figure().add_subplot()
        ax.scatter(
            self.column("time"),
            self.column("dm"),
            s=4.0 * self.column("snr"),
            facecolors="none",
            edgecolors="C0",
        )
        ax.set_xlabel("time (s)")
        ax.set_ylabel("dispersion measure (pc cm$^{-3}$)")
        return ax
