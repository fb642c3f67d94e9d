"""List of the events that a search for compact binaries has found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from astropy.table import QTable as _QTable
    from pandas import DataFrame as _DataFrame

    from ._sidereal import Event, Psd


class Events(Sequence["Event"]):
    """Events of a search, by descending ranking.

    Attributes
    ----------
    livetime : float
        Time in which at least two detectors were valid, s.
    background_time : float
        Coincident time of all time slides together, s.
    detectors : list of str
        Names of the detectors.
    psds : dict of Psd
        Power spectrum of each detector, by its name; empty for `coincide`.
    incomplete : str or None
        Reason for which the search ended early.
    """

    def __init__(
        self,
        found: list[Event],
        *,
        livetime: float = 0.0,
        background_time: float = 0.0,
        detectors: list[str] | None = None,
        psds: dict[str, Psd] | None = None,
        incomplete: str | None = None,
    ) -> None:
        self._found = found
        self.livetime = livetime
        self.background_time = background_time
        self.detectors = detectors or []
        self.psds = psds or {}
        self.incomplete = incomplete

    def __len__(self) -> int:
        return len(self._found)

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> Events: ...
    def __getitem__(self, index: int | slice) -> Event | Events:
        if not isinstance(index, slice):
            return self._found[index]
        about = {name: value for name, value in vars(self).items() if name != "_found"}
        return Events(self._found[index], **about)

    def __repr__(self) -> str:
        best = f", best {self._found[0]!r}" if self._found else ""
        return f"<Events: {len(self)} in {self.livetime:.6g} s{best}>"

    def _columns(self) -> dict[str, list[Any]]:
        """Return columns of one value per event; those of a detector without a trigger are NaN."""
        missing = float("nan")
        columns: dict[str, list[Any]] = {
            name: [getattr(event, name) for event in self]
            for name in ("gps", "network_snr", "ranking")
        }
        columns["far_hz"] = [missing if event.far_hz is None else event.far_hz for event in self]
        columns["template"] = [event.template for event in self]
        for place in (0, 1):
            columns[f"mass{place + 1}"] = [
                event.masses[place] if event.masses else missing for event in self
            ]
            columns[f"spin{place + 1}z"] = [
                event.spins[place] if event.spins else missing for event in self
            ]
        for name in self.detectors:
            for field in ("gps", "snr", "phase", "xi2"):
                triggers = (event.triggers.get(name) for event in self)
                columns[f"{name}_{field}"] = [
                    getattr(trigger, field) if trigger else missing for trigger in triggers
                ]
        return columns

    def to_pandas(self) -> _DataFrame:
        """Return a pandas DataFrame: a row per event, GPS times in s, masses in solar masses."""
        import pandas

        return pandas.DataFrame(self._columns())

    def to_table(self) -> _QTable:
        """Return an astropy QTable: a row per event, with units."""
        from astropy import units
        from astropy.table import QTable

        table = QTable()
        known = {"gps": "s", "phase": "rad", "far_hz": "Hz", "mass1": "Msun", "mass2": "Msun"}
        for name, column in self._columns().items():
            # Columns of triggers begin with the name of the detector.
            unit = known.get(name, known.get(name.split("_")[-1]))
            table[name] = column if unit is None else units.Quantity(column, unit)
        return table
