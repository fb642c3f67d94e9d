# needs: h5py
# %% [markdown]
# # An array of antennas: voltages, visibilities, an image
#
# An interferometer multiplies the voltages of every pair of antennas. The mean of such a product is a *visibility*: one Fourier component
# of the brightness of the sky, at a spatial frequency given by the distance of the two antennas, as seen from the source, in wavelengths. Many
# pairs give many components, and their sum is an image.
#
# This notebook simulates the voltages of twelve antennas, correlates them, and makes the image in NumPy. It needs no recording.

# %%
import csv
import subprocess

import h5py
import matplotlib.pyplot as plt
import numpy as np
import sidereal_dsp as sd

plt.rcParams.update({"figure.dpi": 72, "figure.figsize": (5.5, 4.5), "image.cmap": "magma"})


def sidereal(*words):
    """Runs a verb of the command line, which the package has too."""
    subprocess.run(["sidereal", *map(str, words), "--quiet"], check=True)


# %% [markdown]
# ## The voltages
#
# Two sources of 40 and 25 Jy, five arc minutes apart, observed for half a second by antennas on the arms of a Y. The noise of each
# antenna is that of a source of 120 Jy (its *system equivalent flux density*).

# %%
first, second = (139.5, -12.1), (139.57, -12.05)
sidereal(
    *("simulate", "array", "-o", "array", "--layout", "12,1500,wye", "--sefd", 120, "--seed", 7),
    *("--source", f"{first[0]},{first[1]},40,first", "--source", f"{second[0]},{second[1]},25,second"),
    *("--freq", 1420, "--bandwidth", 1, "--seconds", 0.5, "--start", "2025-01-01T01:00:00"),
)
with open("array/antennas.csv") as file:
    rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
print(f"{len(rows)} antennas; columns: {', '.join(rows[0])}")

# %% [markdown]
# A PSRDADA file has a header of 4096 bytes and, here, complex samples of 8 bits of both polarizations. Read as an array, two
# antennas are correlated by hand: a filter bank divides the band into channels, and the correlator multiplies and adds.

# %%
def voltages(name):
    """Returns the samples of an antenna as complex64; axes: polarization and time."""
    raw = np.fromfile(f"array/{name}.dada", dtype=np.int8, offset=4096).reshape(-1, 2, 2).astype(np.float32)
    return np.ascontiguousarray(raw.view(np.complex64)[..., 0].T)


pair = np.stack([voltages("ant00"), voltages("ant01")])
spectra = sd.channelize(pair, 32, taps=8)
print("voltages:", pair.shape, "antenna, polarization, time")
print("spectra: ", spectra.shape, "time, antenna, polarization, channel")
matrix = sd.correlate(spectra).matrix()[:, :, 0, :, 0]
auto = np.sqrt(matrix[:, 0, 0].real * matrix[:, 1, 1].real)
print(f"correlation coefficient of the two antennas, mean of the channels: {np.abs(matrix[:, 0, 1] / auto).mean():.2f}")

# %% [markdown]
# The coefficient has the order of 65 / (120 + 65), the part of the power that both antennas have in common.
#
# ## The visibilities of all pairs
#
# A wave reaches one antenna before the other. `sidereal correlate` computes these delays from the positions and the direction
# observed (the *phase centre*), corrects them, and writes UVH5, the format of pyuvdata.

# %%
sidereal(
    *("correlate", *sorted(str(f"array/{row['name']}.dada") for row in rows), "-o", "array.uvh5"),
    *("--antennas", "array/antennas.csv", "--channels", 32, "--integration", 0.1, "--no-plots"),
)
with h5py.File("array.uvh5") as file:
    header = file["Header"]
    frequencies = header["freq_array"][:]
    uvw = header["uvw_array"][:]
    one, two = header["ant_1_array"][:], header["ant_2_array"][:]
    # The first two products of polarizations are XX and YY; half of their sum is the total brightness.
    visibilities = file["Data/visdata"][:, :, :2].mean(axis=2)
cross = one != two
print(f"{cross.sum()} visibilities of {len(frequencies)} channels: {len(set(zip(one[cross], two[cross])))} pairs, 5 times")

# %% [markdown]
# The distances in wavelengths (u to the east, v to the north) of all pairs and channels. Each visibility and its conjugate are
# one component, thus two dots:

# %%
wavelengths = uvw[cross][:, np.newaxis] * (frequencies / 299_792_458.0)[:, np.newaxis]
u, v = wavelengths[:, :, 0].ravel(), wavelengths[:, :, 1].ravel()
fig, ax = plt.subplots()
ax.plot(np.r_[u, -u] / 1e3, np.r_[v, -v] / 1e3, ".", markersize=1.5)
ax.set(xlabel="u (1000 wavelengths)", ylabel="v (1000 wavelengths)", aspect="equal", title="Fourier components measured")
plt.show()

# %% [markdown]
# ## The image
#
# Directions are angles l (east) and m (north) from the phase centre. A source there gives each visibility the phase 2π (u l + v m).
# The image at a direction is the mean of all visibilities with this phase removed: a source adds up where it is. Imagers such as wsclean
# use fast Fourier transforms for this sum, and remove the side lobes.

# %%
size, cell = 128, np.deg2rad(6 / 3600)
angle = (np.arange(size) - size // 2) * cell
# The exponential of the sum u l + v m is the product of those of u l and of v m.
east, north = np.exp(-2j * np.pi * np.outer(angle, u)), np.exp(-2j * np.pi * np.outer(angle, v))
values = visibilities[cross].ravel()
image = ((north * values) @ east.T).real / len(values)

found = []
left = image.copy()
for _ in range(2):
    row, column = np.unravel_index(left.argmax(), left.shape)
    found.append((angle[column], angle[row], image[row, column]))
    left[max(row - 15, 0) : row + 16, max(column - 15, 0) : column + 16] = 0

minutes = np.rad2deg(angle) * 60
fig, ax = plt.subplots()
picture = ax.imshow(image / image.max(), origin="lower", extent=(minutes[0], minutes[-1], minutes[0], minutes[-1]))
ax.invert_xaxis()
fig.colorbar(picture, label="brightness, the maximum is 1")
ax.set(xlabel="east (arc minutes)", ylabel="north (arc minutes)", title="the image, with the side lobes of 66 pairs")
plt.show()

# %% [markdown]
# The brightest point is the source at the phase centre. The second, east and north of it, is where it was simulated. The side lobes of the
# first add to its brightness, as long as they are not removed:

# %%
expected = np.array([(second[0] - first[0]) * np.cos(np.deg2rad(first[1])), second[1] - first[1]]) * 60
(l0, m0, peak0), (l1, m1, peak1) = found
print(f"first:  {np.rad2deg(l0) * 60:5.2f} east, {np.rad2deg(m0) * 60:5.2f} north")
print(f"second: {np.rad2deg(l1) * 60:5.2f} east, {np.rad2deg(m1) * 60:5.2f} north; simulated at {expected[0]:.2f}, {expected[1]:.2f}")
print(f"ratio of their brightness: {peak1 / peak0:.1f}; simulated: {25 / 40:.1f}")
assert abs(np.rad2deg([l1, m1]) * 60 - expected).max() < 0.15, "more than one and a half cells away"

# %% [markdown]
# From here: [a first array](../src/first_array.md) of the guide makes the image with wsclean, [your own array](../src/arrays.md) is about
# recordings of your own.
