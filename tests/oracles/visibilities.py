"""Visibilities of point sources on an array, from astropy's directions and no code of ours.

The wave reaches antenna i later than the array's reference point by delay_i = -(r_i - r_ref) . s / c, so
x_i(t) = s(t - delay_i), and V_ij = <x_i conj(x_j)> = sum over sources of
flux exp(-2 pi i f (delay_i - delay_j)), with the delays of the phase centre taken away where one is tracked.
"""

import dataclasses
import pathlib
import shutil
import warnings

import astropy.units as u
import numpy
import pytest
from astropy.coordinates import ITRS, EarthLocation, SkyCoord
from astropy.io import fits
from astropy.time import Time
from astropy.utils import iers
from astropy.wcs import WCS
from conftest import BUILT, ROOT, call

iers.conf.auto_download = False

LIGHT = 299792458.0
LOCATION = (-121.470736, 40.817431, 1019.2)  # degrees east, degrees north, metres
SOURCE = (83.633, 22.0145)
STEP = 1e-3  # degrees by which north is found


def positions(antennas=6, radius=60.0, seed=3):
    """Offsets from the reference, east, north, up in metres."""
    random = numpy.random.default_rng(seed)
    return random.uniform(-1, 1, (antennas, 3)) * [radius, radius, radius / 20]


def rotation(longitude, latitude):
    """Rows east, north, up along the ITRF axes."""
    lon, lat = numpy.radians([longitude, latitude])
    east = [-numpy.sin(lon), numpy.cos(lon), 0]
    up = [numpy.cos(lat) * numpy.cos(lon), numpy.cos(lat) * numpy.sin(lon), numpy.sin(lat)]
    return numpy.array([east, numpy.cross(up, east), up])


@dataclasses.dataclass
class Sky:
    """What the writer is given: where the array is, when, and what it sees."""

    enu: numpy.ndarray = dataclasses.field(default_factory=positions)
    location: tuple = LOCATION
    start: str = "2025-03-02T03:10:00"
    integration: float = 4.0
    times: int = 5
    first: float = 1.40e9
    step: float = 0.5e6
    channels: int = 16
    tracked: tuple | None = None
    sources: tuple = ((*SOURCE, 1.0),)  # right ascension, declination, flux

    def __post_init__(self):
        self.frequencies = self.first + self.step * numpy.arange(self.channels)
        self.itrf = self.enu @ rotation(*self.location[:2])
        self.place = EarthLocation.from_geodetic(*self.location[:2], self.location[2] * u.m)
        middles = (numpy.arange(self.times) + 0.5) * self.integration
        self.epochs = Time(self.start, scale="utc") + middles * u.s
        self.lst = self.epochs.sidereal_time("apparent", longitude=self.location[0] * u.deg).deg
        self.dut1 = float(self.epochs[0].delta_ut1_utc)

    def direction(self, ra, dec):
        """Unit vectors to a source in the Earth-fixed frame: axes time, (x, y, z)."""
        source = SkyCoord(ra * u.deg, dec * u.deg, frame="icrs")
        return numpy.array(
            [source.transform_to(ITRS(obstime=epoch)).cartesian.xyz.value for epoch in self.epochs]
        )

    def delays(self, ra, dec):
        """Axes time, antenna; seconds."""
        return -self.direction(ra, dec) @ self.itrf.T / LIGHT

    def uvw(self):
        """Axes time, antenna, (u, v, w): v points to the catalogue's north, not to the moment's."""
        if self.tracked is None:
            return numpy.repeat(self.enu[None], self.times, axis=0)
        ra, dec = self.tracked
        s = self.direction(ra, dec)
        east = numpy.cross(self.direction(ra, dec + STEP), s)
        east /= numpy.linalg.norm(east, axis=1)[:, None]
        axes = numpy.stack([east, numpy.cross(s, east), s], axis=1)
        return numpy.einsum("tak,nk->tna", axes, self.itrf)

    def pointing(self):
        """Apparent right ascension and declination, and frame angle: axes time, 3; degrees."""
        if self.tracked is None:
            latitude = numpy.full(self.times, self.location[1])
            return numpy.stack([self.lst, latitude, 0 * latitude], axis=1)
        ra, dec = self.apparent(*self.tracked)
        # Where the catalogue's north lies as the moment has it.
        north_ra, north_dec = self.apparent(self.tracked[0], self.tracked[1] + STEP)
        across = (north_ra - ra) * numpy.cos(numpy.radians(dec))
        angle = numpy.degrees(numpy.arctan2(across, north_dec - dec))
        return numpy.stack([ra, dec, angle], axis=1)

    def apparent(self, ra, dec):
        x, y, z = self.direction(ra, dec).T
        hour_angle = self.location[0] - numpy.degrees(numpy.arctan2(y, x))
        return (self.lst - hour_angle) % 360, numpy.degrees(numpy.arcsin(z))

    def baselines(self):
        return [(i, j) for i in range(len(self.enu)) for j in range(i + 1)]

    def visibilities(self):
        """V_ij of one polarization: axes time, baseline, channel."""
        pairs = numpy.array(self.baselines())
        phase_centre = 0 if self.tracked is None else self.delays(*self.tracked)
        total = 0
        for ra, dec, flux in self.sources:
            delay = self.delays(ra, dec) - phase_centre
            difference = delay[:, pairs[:, 0]] - delay[:, pairs[:, 1]]
            turns = difference[:, :, None] * self.frequencies
            total = total + flux * numpy.exp(-2j * numpy.pi * turns)
        return total


def description(sky, **changes):
    """The text that the example `uvh5` takes: a list of lines."""
    full = changes.pop("full_count", 100)
    ants = len(sky.enu)
    numbers = changes.pop("numbers", range(ants))
    diameters = changes.pop("diameters", [6.1] * ants)
    start = sky.epochs[0].to_value("mjd", subfmt="long")
    midnight = Time(int(start), format="mjd", scale="utc")
    gst0 = midnight.sidereal_time("apparent", longitude=0 * u.deg).deg
    lines = {
        "telescope": "test-array sidereal",
        "location": "{:.17g} {:.17g} {:.17g}".format(*sky.location),
        "mount": "alt-az",
        "frequencies": f"{sky.first!r} {sky.step!r} {sky.channels}",
        "feeds": "linear 90",
        "timing": f"{sky.integration!r} {sky.dut1!r} {full}",
        "reference": f"{midnight.strftime('%Y-%m-%d')} {float(gst0)!r}",
        "source": "drift-scan" if sky.tracked is None else "here {!r} {!r}".format(*sky.tracked),
        "history": "made for a test",
        **changes,
    }
    text = [f"{key} {value}" for key, value in lines.items()]
    for index, (offset, number) in enumerate(zip(sky.itrf, numbers, strict=True)):
        xyz = " ".join(f"{metres:.17g}" for metres in offset)
        diameter = "" if diameters is None else f" {diameters[index]!r}"
        text.append(f"antenna A{index} {number} {xyz}{diameter}")
    text += [f"baseline {i} {j}" for i, j in sky.baselines()]
    for epoch, lst, pointing in zip(sky.epochs, sky.lst, sky.pointing(), strict=True):
        day = int(epoch.mjd)
        seconds = (epoch - Time(day, format="mjd", scale="utc")).sec
        angles = " ".join(f"{angle:.17g}" for angle in pointing)
        text.append(f"integration {day} {seconds:.17g} {lst:.17g} {angles}")
    return text


def write(folder, sky, sums, counts, **changes):
    """Our writer's file: sums (time, baseline, channel, pair), counts (time, baseline, channel)."""
    path = folder / f"{len(list(folder.iterdir()))}.uvh5"
    (folder / "description").write_text("\n".join(description(sky, **changes)))
    with open(folder / "sums", "wb") as file:
        for uvw, one, count in zip(sky.uvw(), sums, counts, strict=True):
            file.write(uvw.astype("<f8").tobytes())
            file.write(one.astype("<c16").tobytes())
            file.write(count.astype("<u8").tobytes())
    call(BUILT / "examples" / "uvh5", folder / "description", folder / "sums", path)
    return path


def write_sky(folder, sky, full=100, **changes):
    """A file of the sky's unpolarized sources: all samples valid."""
    visibilities = sky.visibilities()
    sums = numpy.zeros((*visibilities.shape, 4), complex)
    sums[..., 0] = sums[..., 3] = full * visibilities
    counts = numpy.full(visibilities.shape, full)
    return write(folder, sky, sums, counts, full_count=full, **changes)


def write_ms(uvd, path):
    """pyuvdata's Measurement Set; a drift scan is phased to the first zenith."""
    drifts = uvd._check_for_cat_type("unprojected").any()
    with warnings.catch_warnings():
        # It says what a Measurement Set has no place for.
        warnings.simplefilter("ignore")
        uvd.write_ms(str(path), force_phase=bool(drifts))


@dataclasses.dataclass
class Image:
    """The brightest pixel of an image, the sky's place of it, and the beam's full width."""

    peak: float
    place: SkyCoord
    beam_arcsec: float

    def separation_arcsec(self, ra, dec):
        return SkyCoord(ra * u.deg, dec * u.deg, frame="icrs").separation(self.place).arcsec


def wsclean(path, size, scale_arcsec):
    """wsclean's dirty image of a Measurement Set; the test is skipped, and says so, without wsclean."""
    fetched = ROOT / "target" / "oracles" / "wsclean" / "run"
    program = fetched if fetched.exists() else shutil.which("wsclean")
    if program is None:
        pytest.skip("wsclean is not installed")
    name = pathlib.Path(path).parent / "image"
    options = ["-size", size, size, "-scale", f"{scale_arcsec}asec", "-weight", "natural"]
    call(program, "-name", name, "-pol", "I", "-niter", 0, "-make-psf", "-j", 1, *options, path)
    with fits.open(f"{name}-dirty.fits") as file:
        pixels, header = file[0].data[0, 0], file[0].header
    y, x = numpy.unravel_index(numpy.argmax(pixels), pixels.shape)
    place = WCS(header).celestial.pixel_to_world(x, y).icrs
    return Image(float(pixels[y, x]), place, 3600 * float(header["BMAJ"]))
