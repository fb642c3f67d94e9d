"""Strain, templates, spectra and banks."""

import gzip
import io

import h5py
import numpy

from seed_files.common import save


def ligolw(rows, columns, table="sngl_inspiral:table", head="<?xml version='1.0' encoding='utf-8'?>"):
    """A LIGO_LW document with one table of (name, type) columns."""
    fields = "".join(f'<Column Name="{name}" Type="{kind}"/>\n' for name, kind in columns)
    stream = f'<Stream Name="{table}" Type="Local" Delimiter=",">\n{rows}\n</Stream>'
    text = f'{head}\n<LIGO_LW>\n<Table Name="{table}">\n{fields}{stream}\n</Table>\n</LIGO_LW>\n'
    return text.encode()


def ligolw_files():
    new = [("sngl_inspiral:event_id", "int_8s"), ("ifo", "lstring"), ("mass1", "real_4")]
    rows = '0,"H1",1.4,\n1,"L\\"1&amp;&#65;\\\\",1e1'
    plain = ligolw(rows, new)
    save("ligolw", "valid_plain.xml", plain)
    save("ligolw", "valid_plain.xml.gz", gzip.compress(plain, mtime=0))
    save("ligolw", "broken_cut.xml.gz", gzip.compress(plain, mtime=0)[:120])
    old = [("sngl_inspiralgroup:sngl_inspiral:event_id", "ilwd:char"), ("mass1", "real_8"), ("end_time", "int_4s")]
    name = "sngl_inspiralgroup:sngl_inspiral:table"
    save("ligolw", "valid_old.xml", ligolw('"sngl_inspiral:event_id:0",inf,-5', old, name))
    save("ligolw", "valid_empty_cells.xml", ligolw(",,1,\n7,\"\",", new))
    save("ligolw", "valid_no_rows.xml", ligolw("", new))
    save("ligolw", "broken_no_columns.xml", ligolw("1,2", []))
    save("ligolw", "broken_short_row.xml", ligolw('0,"H1",1.4,1', new))
    save("ligolw", "broken_open_quote.xml", ligolw('0,"H1,1.4', new))
    save("ligolw", "broken_odd_type.xml", ligolw("1", [("a", "complex_16")]))
    laugh = '<!DOCTYPE LIGO_LW [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'
    save("ligolw", "broken_entities.xml", ligolw("&b;", [("a", "lstring")], head=laugh))
    save("ligolw", "broken_deep.xml", b"<LIGO_LW>" * 2000)
    save("ligolw", "broken_bomb.xml.gz", gzip.compress(ligolw("," * (1 << 20), new), mtime=0))


def gwosc(times=640, rate=64, chunks=(100,), **changes):
    """The smallest file of strain in GWOSC's layout."""
    out = io.BytesIO()
    with h5py.File(out, "w", libver=changes.pop("libver", None)) as file:
        values = numpy.arange(times) * 1e-21
        packing = {"chunks": chunks, "compression": "gzip", "fletcher32": True} if chunks else {}
        series = file.create_dataset("strain/Strain", data=values, **packing)
        series.attrs["Xstart"] = changes.pop("start", 1126259446)
        series.attrs["Xspacing"] = changes.pop("spacing", 1 / rate)
        for group, name, bits in [("simple", "DQ", b"DATA CBC_CAT1"), ("injections", "Inj", b"NO_CBC_HW_INJ")]:
            mask = numpy.full(changes.get("seconds", times // rate), 3, "u4")
            mask[1:2] = 0
            file[f"quality/{group}/{name}mask"] = mask
            file[f"quality/{group}/{name}Shortnames"] = numpy.array(bits.split())
        file["meta/Detector"] = "H1"
        file["meta/GPSstart"] = 1126259446
    return out.getvalue()


def strain():
    save("strain", "valid_gwosc.hdf5", gwosc())
    save("strain", "valid_filtered.hdf5", gwosc(2048, 256))
    save("strain", "valid_one_piece.hdf5", gwosc(chunks=None))
    save("strain", "broken_latest.hdf5", gwosc(libver="latest"))
    save("strain", "broken_short_mask.hdf5", gwosc(seconds=2))
    save("strain", "broken_spacing.hdf5", gwosc(spacing=1e-300))
    save("strain", "broken_start.hdf5", gwosc(start=2**62))
    save("strain", "broken_cut.hdf5", gwosc()[:5000])
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file["strain"] = numpy.arange(100.0)
        file["strain"].attrs.update(x0=1e9, dx=0.25, channel="L1:STRAIN")
    save("strain", "valid_gwpy.h5", out.getvalue())
    out = io.BytesIO()
    numpy.save(out, numpy.array([1.0, numpy.nan, numpy.inf, -1.0]))
    save("strain", "valid_raw.npy", out.getvalue())
    save("strain", "cut_raw.npy", out.getvalue()[:-3])


def hdf5_of(datasets, attributes=None, **options):
    """An HDF5 file of data sets, with attributes by the path of what has them."""
    out = io.BytesIO()
    with h5py.File(out, "w", **options) as file:
        for name, value in datasets.items():
            file[name] = value
        for path, found in (attributes or {}).items():
            file.require_group(path) if path not in file else None
            file[path].attrs.update(found)
    return out.getvalue()


def template_files():
    wave = numpy.sin(numpy.arange(40.0))
    rate = {"meta": {"fs": 4096, "m1": 30.0, "m2": 25.0}}
    rows = numpy.array([wave, wave[::-1]])
    save("templates", "valid_two_rows.h5", hdf5_of({"template": rows.astype("f4")}, rate))
    save("templates", "valid_pair.h5", hdf5_of({"a/plus": wave, "a/cross": wave}, {"a/plus": {"dt": 1 / 2048}}))
    save("templates", "valid_pairs.h5", hdf5_of({"hp": rows, "hc": rows}, {"/": {"sample_rate": 512}}))
    save("templates", "valid_complex.h5", hdf5_of({"h": rows.astype("c8"), "g": wave.astype("c16")}, libver="latest"))
    save("templates", "broken_lonely.h5", hdf5_of({"plus": wave}))
    save("templates", "broken_nothing.h5", hdf5_of({"data": wave.astype("i4")}))
    save("templates", "broken_not_finite.h5", hdf5_of({"plus": wave, "cross": wave * numpy.nan}))
    bank = {"mass1": [30.0, 1.4], "mass2": [25.0, 1.4], "spin1z": [0.1, 0.0], "template_hash": [7, -7]}
    save("templates", "valid_bank.hdf", hdf5_of(bank))
    save("templates", "broken_bank_short.hdf", hdf5_of(bank | {"spin1z": [0.1]}))
    save("templates", "broken_bank_across.hdf", hdf5_of(bank | {"spin1x": [0.1, 0.0]}))
    out = io.BytesIO()
    with h5py.File(out, "w") as file:
        file.create_dataset("template", data=rows, chunks=(1, 16), compression="gzip", shuffle=True)
        file["template"].attrs["rate"] = 4096
    save("templates", "valid_chunks.h5", out.getvalue())
    save("templates", "broken_chunks_cut.h5", out.getvalue()[:-200])
    save("templates", "valid_masses.csv", b"# a bank\nname,mass1,mass2,spin1z\n\"a, b\",5,1.4,-0.5\n,3,2,\n")
    save("templates", "broken_bad.csv", b"mass1,mass2\n1.4,1e5\n")
    columns = [("event_id", "int_8s"), ("mass1", "real_4"), ("mass2", "real_4"), ("spin1z", "real_4")]
    save("templates", "valid_table.xml", ligolw("0,1.4,1.3,0.1,\n1,30,20,0", columns))
    old = [("sngl_inspiral:event_id", "ilwd:char"), ("mass1", "real_4"), ("mass2", "real_4")]
    save("templates", "valid_old.xml.gz", gzip.compress(ligolw('"sngl_inspiral:event_id:3",1.4,1.3', old), mtime=0))


def psd_files():
    save("psd", "valid_uniform.txt", b"# f S\n0 0\n0.5 1e-46\n1 2e-46\n")
    save("psd", "valid_points.txt", b"10,1e-22\n% a remark\n20.5\t3e-23\n1000 4e-24")
    save("psd", "broken_bad.txt", b"10 1e-22\n9 1e-22\n")
    save("psd", "valid_close.txt", b"1 1\n1.0000000001 1\n1e300 1\n")
    save("psd", "valid_huge.txt", b"0 1e300\n1e-300 1e-300\n")
    for name, array in (("columns", numpy.array([[0, 1.0], [1, 2], [2, 3]])), ("rows", numpy.array([[0, 1.0, 2], [1, 2, 3]]))):
        out = io.BytesIO()
        numpy.save(out, array)
        save("psd", f"valid_{name}.npy", out.getvalue())


def bank_h5(**changes):
    """A filter bank of two templates; `changes` are data sets by name, without one for None."""
    out = io.BytesIO()
    scalars = ("fit", "placement_fit", "epsilon", "sigma_1mpc", "horizon_mpc", "peak_offset_s",
               "duration_s", "f_low_hz", "f_final_hz", "mass1_msun", "mass2_msun", "spin1z", "spin2z")  # fmt: skip
    sets = {f"templates/{name}": numpy.array([0.5, 2.0]) for name in scalars} | {
        "templates/name": numpy.array(["a", "b"], h5py.string_dtype()),
        "templates/autocorrelation_norm": numpy.ones(2, "f4"),
        "psd/densities": numpy.array([1e-46, 2e-46, 3e-46]),
        "filters/offset": numpy.array([0, 2, 3], "u8"),
        "filters/halvings": numpy.array([0, 1, 0], "u4"),
        "filters/delay": numpy.array([0, 7, 9], "u4"),
        "filters/a": numpy.full(3, 0.5 + 0.25j, "c8"),
        "filters/b": numpy.full(3, 1 - 1j, "c8"),
        "autocorrelation/offset": numpy.array([0, 1, 4], "u8"),
        "autocorrelation/values": numpy.ones(4, "c8"),
        "whitened/offset": numpy.zeros(3, "u8"),
        "options/name": numpy.array(["epsilon"], h5py.string_dtype()),
        "options/value": numpy.array([0.02]),
        "resampler/down": numpy.ones(3, "f4"),
        "resampler/up": numpy.ones(3, "f4"),
    }
    with h5py.File(out, "w", libver=changes.pop("libver", None)) as file:
        file.attrs.update({"format": "sidereal filter bank", "version": changes.pop("version", 1), "rate_hz": 4096})
        for name, value in (sets | changes).items():
            if value is not None:
                file[name] = value
        file["psd"].attrs["spacing_hz"] = 0.25
        file["resampler"].attrs.update({"down_delay": 1, "up_delay": 0})
    return out.getvalue()


def bank_h5_files():
    save("bank_h5", "valid_plain.h5", bank_h5())
    save("bank_h5", "valid_latest.h5", bank_h5(libver="latest"))
    save("bank_h5", "broken_version_9.h5", bank_h5(version=9))
    save("bank_h5", "broken_cut.h5", bank_h5()[:5000])
    save("bank_h5", "broken_falling.h5", bank_h5(**{"filters/offset": numpy.array([0, 3, 2], "u8")}))
    save("bank_h5", "broken_far.h5", bank_h5(**{"whitened/offset": numpy.array([0, 0, 2**63], "u8")}))
    save("bank_h5", "broken_short.h5", bank_h5(**{"filters/a": numpy.ones(2, "c8")}))
    save("bank_h5", "broken_missing.h5", bank_h5(**{"templates/fit": None}))
    save("bank_h5", "broken_not_finite.h5", bank_h5(**{"templates/fit": numpy.array([numpy.nan, 1])}))
