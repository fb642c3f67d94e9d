"""Antennas' positions and visibilities."""

import io

import h5py
import numpy

from seed_files.common import save


def antennas():
    place = "# telescope=Small\n# longitude_deg=21.4439\n# latitude_deg=-30.7130\n# height_m=1053\n"
    enu = "name,east,north,up,number,diameter,delay_ns\n"
    rows = 'a,-8.264,-207.29,8.6,0,13.5,-1.5\n"b, ""c""",1.25,171.7,8.4,7,,\nd,0,0,0\n'
    save("antennas", "valid_enu.csv", f"{place}{enu}{rows}".encode())
    save("antennas", "broken_no_place.csv", f"{enu}{rows}".encode())
    vla = "name,x,y,z\nea01,-1601188.99,-5042000.49,3554843.43\nea02,-1601225.23,-5041980.39,3554855.71\n"
    save("antennas", "valid_itrf.csv", vla.encode())
    save("antennas", "valid_itrf_place.csv", f"\ufeff{place}# a remark\r\n\r\n{vla}".encode())
    save("antennas", "broken_local_as_itrf.csv", b"name,x,y,z\na,1,2,3\n")
    save("antennas", "broken_quotes.csv", b'name,x,y,z\n"a,1,2,3\n"b"c,1,2,3\n')
    save("antennas", "broken_huge.csv", b"name,east,north,up,number,delay_ns\na,1e999,-nan,inf,99999999999999999999,1e308\n")
    save("antennas", "broken_twice.csv", f"{enu}a,1,2,3,0,,\na,1,2,3,0,,\n".encode())
    save("antennas", "broken_cut.csv", f"{place}name,east,nor".encode())
    save("antennas", "broken_empty.csv", b"")


def uvh5(**changes):
    """The smallest file of visibilities: two antennas, two channels, one row."""
    header = {
        "Nblts": 1, "Nfreqs": 2, "Nants_data": 2, "Nbls": 1, "Ntimes": 1, "longitude": 21.4,
        "latitude": -30.7, "altitude": 1050.0, "antenna_names": numpy.array([b"a", b"b"]),
        "freq_array": numpy.array([1e9, 2e9]), "channel_width": numpy.array([1e9, 1e9]),
        "polarization_array": numpy.array([-5], "i4"), "integration_time": numpy.array([2.0]),
        "time_array": numpy.array([2460000.5]), "telescope_name": numpy.bytes_("house"),
        "version": numpy.bytes_("1.2"), "phase_center_catalog/0/cat_type": numpy.bytes_("sidereal"),
        "phase_center_catalog/0/cat_name": numpy.bytes_("x"),
        "phase_center_catalog/0/cat_lon": 1.0, "phase_center_catalog/0/cat_lat": 0.5,
    }  # fmt: skip
    out = io.BytesIO()
    with h5py.File(out, "w", libver=changes.pop("libver", None)) as file:
        file["Data/visdata"] = numpy.zeros(changes.pop("shape", (1, 2, 1)), "c8")
        for name, value in (header | changes).items():
            if value is not None:
                file[f"Header/{name}"] = value
    return out.getvalue()


def uvh5_files():
    save("uvh5", "valid_plain.uvh5", uvh5())
    save("uvh5", "valid_latest.uvh5", uvh5(libver="latest"))
    old = {"shape": (1, 1, 2, 1), "freq_array": numpy.array([[1e9, 2e9]]), "channel_width": 1e9}
    save("uvh5", "valid_version_1.uvh5", uvh5(**old))
    save("uvh5", "valid_texts.uvh5", uvh5(telescope_name="house", antenna_names=["a", "b"]))
    save("uvh5", "broken_bare.uvh5", uvh5(antenna_names=None))
    save("uvh5", "broken_huge.uvh5", uvh5(Nbls=2**63 - 1, time_array=numpy.array([1e300])))
    save("uvh5", "broken_cut.uvh5", uvh5()[:3000])
