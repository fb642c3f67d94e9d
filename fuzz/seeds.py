"""Writes the seed corpus: small valid files of each format, and some that are cut or broken.

A seed's name begins with what becomes of it (tests/seeds.rs holds it to that): valid_ is read to its end, cut_ to its
last whole piece, broken_ is refused.

    target/oracles/<hash>/bin/python fuzz/seeds.py

Needs NumPy, h5py and hdf5plugin (the oracle tests' environment has them). Inputs that once were
findings lie beside these under names that begin with `found_`; they are kept by hand.
"""

from seed_files.arrays import antennas, uvh5_files
from seed_files.filterbanks import filterbanks, fits, hdf5
from seed_files.gwf import gwf_files
from seed_files.packets import packets
from seed_files.pipelines import kept, pipelines, windows
from seed_files.searches import masks, series, texts
from seed_files.strain import bank_h5_files, ligolw_files, psd_files, strain, template_files
from seed_files.triggers import triggers
from seed_files.vlbi import vlbi
from seed_files.voltages import voltages

if __name__ == "__main__":
    bank_h5_files()
    template_files()
    psd_files()
    ligolw_files()
    gwf_files()
    strain()
    uvh5_files()
    voltages()
    filterbanks()
    series()
    masks()
    fits()
    hdf5()
    texts()
    vlbi()
    antennas()
    packets()
    triggers()
    pipelines()
    kept()
    windows()
