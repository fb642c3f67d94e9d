"""Template banks and spectra that the real clients write, read by us."""

import gzip
import json

import numpy
import pytest
from conftest import BUILT, call, client

h5py = client("h5py")
ROWS = [(1.4, 1.3, 0.0, 0.0), (30.0, 22.5, 0.5, -0.25), (5.0, 1.4, -0.875, 0.125)]
NAMES = ("mass1", "mass2", "spin1z", "spin2z")


def read(*arguments):
    lines = call(BUILT / "examples" / "templates", *arguments).splitlines()
    return [json.loads(line) for line in lines]


def binaries(path):
    found = read(path)
    return [row["name"] for row in found], numpy.array([row["binary"] for row in found])


def test_pycbc_bank(tmp_path):
    """A bank as pycbc.waveform.bank writes it, hashes and all."""
    client("pycbc")
    from pycbc.waveform.bank import TemplateBank

    path = tmp_path / "bank.hdf"
    with h5py.File(path, "w") as file:
        for name, column in zip(NAMES, zip(*ROWS)):
            file[name] = numpy.array(column)
        file.attrs["parameters"] = list(NAMES)
    bank = TemplateBank(str(path), approximant="TaylorT4")
    again = tmp_path / "again.hdf"
    bank.write_to_hdf(str(again)).close()
    with h5py.File(again) as file:
        hashes = [str(number) for number in file["template_hash"][()]]
    names, found = binaries(again)
    assert names == hashes
    expected = numpy.array([[bank.table[name][row] for name in NAMES] for row in range(len(ROWS))])
    assert (found == expected).all()


@pytest.mark.parametrize("packed", [False, True])
def test_ligolw(packed, tmp_path):
    client("igwn_ligolw")
    from igwn_ligolw import ligolw, lsctables, utils

    document = ligolw.Document()
    document.appendChild(ligolw.LIGO_LW())
    table = lsctables.New(lsctables.SnglInspiralTable, columns=["event_id", *NAMES])
    document.childNodes[0].appendChild(table)
    for number, numbers in enumerate(ROWS):
        row = table.RowType()
        row.event_id = 10 + number
        for name, value in zip(NAMES, numbers):
            setattr(row, name, value)
        table.append(row)
    path = tmp_path / ("bank.xml.gz" if packed else "bank.xml")
    utils.write_filename(document, str(path))
    assert (gzip.open(path).read(1) == b"<") if packed else path.read_bytes().startswith(b"<")
    names, found = binaries(path)
    assert names == ["10", "11", "12"]
    assert abs(found - numpy.array(ROWS)).max() < 1e-6


@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "shuffle": True, "chunks": (1, 100)}, {"compression": "lzf"}])
@pytest.mark.parametrize("kind", ["f4", "f8", ">f4"])
def test_series(options, kind, tmp_path):
    random = numpy.random.default_rng(3)
    rows = random.normal(size=(2, 1000)).astype(kind)
    path = tmp_path / "waves.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("template", data=rows, **options)
        file.create_group("meta").attrs["fs"] = numpy.int64(2048)
    [found] = read(path)
    peak = abs(rows[0] - 1j * rows[1]).argmax()
    assert (found["rate_hz"], found["samples"], found["peak"]) == (2048, 1000, peak)
    assert (found["plus"], found["cross"]) == tuple(float(number) for number in rows[:, peak])


@pytest.mark.parametrize("kind", ["c8", "c16", ">c16"])
def test_complex(kind, tmp_path):
    random = numpy.random.default_rng(4)
    wave = (random.normal(size=500) + 1j * random.normal(size=500)).astype(kind)
    path = tmp_path / "waves.h5"
    with h5py.File(path, "w") as file:
        file["first"] = wave
        file["first"].attrs["delta_t"] = 1 / 4096
    [found] = read(path)
    peak = abs(wave).argmax()
    assert (found["name"], found["rate_hz"], found["peak"]) == ("waves_first", 4096, peak)
    assert found["plus"] - 1j * found["cross"] == complex(wave[peak])


def test_pycbc_series(tmp_path):
    """What PyCBC's TimeSeries.save writes has its step in the attribute delta_t."""
    client("pycbc")
    from pycbc.types import TimeSeries

    path = tmp_path / "waves.hdf"
    numbers = numpy.sin(numpy.arange(1, 300.0))
    TimeSeries(numbers, delta_t=1 / 512).save(str(path), group="first/plus")
    TimeSeries(numbers[::-1], delta_t=1 / 512).save(str(path), group="first/cross")
    [found] = read(path)
    assert (found["name"], found["rate_hz"], found["samples"]) == ("first", 512, 299)


def test_spectra(tmp_path):
    client("pycbc")
    from pycbc.psd import aLIGOZeroDetHighPower

    psd = aLIGOZeroDetHighPower(4097, 0.25, 10)
    psd.save(str(tmp_path / "psd.txt"))
    [found] = read("--psd", tmp_path / "psd.txt")
    values = numpy.array(found["densities"], float)
    known = psd.numpy() > 0
    assert found["spacing_hz"] == 0.25 and len(values) == 4097
    assert abs(values[known] / psd.numpy()[known] - 1).max() < 1e-9
    assert numpy.isnan(values[~known]).all()
    columns = numpy.stack([psd.sample_frequencies.numpy(), numpy.sqrt(psd.numpy())], axis=1)
    numpy.save(tmp_path / "asd.npy", columns)
    [found] = read("--asd", tmp_path / "asd.npy")
    values = numpy.array(found["densities"], float)
    assert abs(values[known] / psd.numpy()[known] - 1).max() < 1e-9


@pytest.mark.parametrize("kind", ["real", "complex"])
def test_series_of_pycbc(kind, tmp_path):
    """What TimeSeries.save writes of a waveform, as the README's guide says it."""
    client("pycbc")
    from pycbc.types import TimeSeries
    from pycbc.waveform import get_td_waveform

    plus, cross = get_td_waveform(approximant="IMRPhenomD", mass1=39, mass2=34, f_lower=18, delta_t=1 / 4096)
    wave = plus if kind == "real" else TimeSeries(plus.numpy() - 1j * cross.numpy(), delta_t=plus.delta_t)
    path = tmp_path / "wave.hdf"
    wave.save(str(path))
    [found] = read(path)
    first = numpy.flatnonzero(plus.numpy() - 1j * cross.numpy())[0]
    peak = abs(plus.numpy() - 1j * cross.numpy()).argmax() - first
    assert found["rate_hz"] == 4096 and abs(found["peak"] - peak) <= 2
