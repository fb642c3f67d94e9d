"""Frame files (GWF), as LIGO-T970130 has them, of any version, order of bytes and compression."""

import struct
import zlib

import numpy

from seed_files.common import save

START = 1126259446

VECTOR = "FrVect"
# Fields of each class; a channel's own come between its name and its pointer to the vector.
CLASSES = {
    "FrameH": "name STRING, run INT_4S, frame INT_4U, dataQuality INT_4U, GTimeS INT_4U, GTimeN INT_4U, ULeapS INT_2U, dt REAL_8",
    "FrProcData": "name STRING, type INT_2U, timeOffset REAL_8, nAuxParam INT_2U, auxParam REAL_8[nAuxParam], "
    "auxParamNames STRING[nAuxParam], data PTR_STRUCT(FrVect *)",
    "FrAdcData": "name STRING, bias REAL_4, slope REAL_4, timeOffset REAL_8, dataValid INT_2U, data PTR_STRUCT(FrVect *), "
    "aux PTR_STRUCT(FrVect *)",
    "FrSimData": "name STRING, sampleRate REAL_4, timeOffset REAL_8, data PTR_STRUCT (FrVect*)",
    VECTOR: "name STRING, compress INT_2U, type INT_2U, nData INT_8U, nBytes INT_8U, data CHAR[nBytes], nDim INT_4U, "
    "nx INT_8U[nDim], dx REAL_8[nDim], startX REAL_8[nDim], unitX STRING[nDim], unitY STRING, next PTR_STRUCT(FrVect *)",
    "FrEndOfFrame": "run INT_4S, frame INT_4U, GTimeS INT_4U, GTimeN INT_4U",
    "FrTOC": "nFrame INT_4U, GTimeS INT_4U[nFrame], GTimeN INT_4U[nFrame], dt REAL_8[nFrame], "
    "nADC INT_4U, name STRING[nADC], positionADC INT_8U[nADC][nFrame], "
    "nProc INT_4U, nameProc STRING[nProc], positionProc INT_8U[nProc][nFrame], "
    "nSim INT_4U, nameSim STRING[nSim], positionSim INT_8U[nSim][nFrame]",
    "FrEndOfFile": "nFrames INT_4U, nBytes INT_8U, seekTOC INT_8U",
}
KINDS = {"adc": "FrAdcData", "proc": "FrProcData", "sim": "FrSimData"}
TYPES = {"i1": 0, "i2": 1, "f8": 2, "f4": 3, "i4": 4, "i8": 5, "c8": 6, "u2": 9, "u4": 10, "u8": 11, "u1": 12}


def cksum(content):
    """POSIX cksum."""
    rest, left = 0, len(content)
    while left:
        content, left = content + bytes([left & 255]), left >> 8
    for byte in content:
        rest ^= byte << 24
        for _ in range(8):
            rest = (rest << 1 ^ 0x04C11DB7 * (rest >> 31)) & 0xFFFFFFFF
    return rest ^ 0xFFFFFFFF


def suppressed(values, block=8):
    """Differences with as few bits as the greatest of a block needs."""
    width = values.itemsize
    unsigned = values.view(f"<u{width}")
    steps = numpy.diff(unsigned, prepend=unsigned[:1] * 0).astype(f"<u{width}").view(f"<i{width}")
    bits = [(block, 16)]
    for start in range(0, len(steps), block):
        part = [int(step) for step in steps[start : start + block]]
        size = 1
        while any(not -(2 ** (size - 1)) < step <= 2 ** (size - 1) for step in part) or (size == 1 and any(part)):
            size += 1
        bits.append((size - 1, {2: 4, 4: 5, 8: 6}[width]))
        if size > 1:
            bits += [(step + 2 ** (size - 1) - 1, size) for step in part]
    number, place = 0, 0
    for value, size in bits:
        number |= value << place
        place += size
    words = -(-place // (8 * width))
    return number.to_bytes(words * width, "little")


class Writer:
    """A frame file in the making."""

    def __init__(self, version=8, order="<", sums=True, table=True, absent=False):
        self.version, self.order, self.sums, self.table, self.absent = version, order, sums, table, absent
        self.content = b"IGWD\0" + bytes([version, 0, 2, 4, 8, 4, 8])
        self.content += struct.pack(order + "HIQfd", 0x1234, 0x12345678, 0x123456789ABCDEF, 3.1415927, 3.141592653589793)
        self.content += bytes([1, int(sums)]) if version >= 8 else b"AZ"
        self.known, self.count, self.frames, self.places = {}, {}, [], {}

    def text(self, text):
        text = text.encode() + b"\0"
        return struct.pack(self.order + "H", len(text)) + text

    def structure(self, class_number, body):
        """Appends a structure; returns its offset and instance."""
        instance = self.count.get(class_number, 0)
        self.count[class_number] = instance + 1
        offset, newer = len(self.content), self.version >= 8
        length = 14 + len(body) + 4 * newer
        kind = struct.pack(self.order + "BB", self.sums, class_number) if newer else struct.pack(self.order + "H", class_number)
        whole = struct.pack(self.order + "Q", length) + kind + struct.pack(self.order + "I", instance) + body
        if newer:
            whole += struct.pack(self.order + "I", cksum(whole) if self.sums else 0)
        self.content += whole
        return offset, instance

    def learn(self, name):
        """Defines a class at its first use; returns its number."""
        if name not in self.known:
            # Classes 1 and 2 are those of definitions.
            self.known[name] = 3 + len(self.known)
            self.structure(1, self.text(name) + struct.pack(self.order + "H", self.known[name]) + self.text(""))
            fields = [field.split(" ", 1) for field in CLASSES[name].split(", ")]
            for field, kind in fields + ([["chkSum", "INT_4U"]] if self.version >= 8 else []):
                self.structure(2, self.text(field) + self.text(kind) + self.text(""))
        return self.known[name]

    def frame(self, seconds, channels, nanoseconds=0, length=1.0):
        """Appends a frame of channels, each a dictionary for `channel`."""
        times = struct.pack(self.order + "II", seconds, nanoseconds)
        number = len(self.frames)
        self.frames.append((seconds, nanoseconds, length))
        head = self.text("test") + struct.pack(self.order + "iII", 0, number, 0) + times
        self.structure(self.learn("FrameH"), head + struct.pack(self.order + "Hd", 37, length))
        for channel in channels:
            self.channel(**channel)
        self.structure(self.learn("FrEndOfFrame"), struct.pack(self.order + "iI", 0, number) + times)

    def channel(self, name, values, rate, kind="proc", compress=0, **changes):
        order = self.order
        get = changes.get
        vector = self.learn(VECTOR)
        pointer = struct.pack(order + "HI", get("vector", vector), get("instance", self.count.get(vector, 0)))
        offset_s = get("offset", 0.0)
        if kind == "proc":
            own = struct.pack(order + "HdHd", get("type", 1), offset_s, 1, 2.5) + self.text("parameter")
        elif kind == "adc":
            own = struct.pack(order + "ffdH", get("bias", 0), get("slope", 0), offset_s, get("invalid", 0))
        else:
            own = struct.pack(order + "fd", rate, offset_s)
        flags = get("flags")
        if kind == "adc":
            pointer += struct.pack(order + "HI", vector, get("aux_instance", self.count.get(vector, 0) + 1)) if flags is not None else bytes(6)
        place, _ = self.structure(self.learn(KINDS[kind]), self.text(name) + own + pointer)
        self.places.setdefault((kind, name), {})[len(self.frames) - 1] = get("place", place)
        self.vector(name, values, rate, compress, changes)
        if flags is not None:
            self.vector(get("flags_name", "dataValid"), flags, rate * len(flags) / len(values), 0, {})

    def vector(self, name, values, rate, compress, changes):
        order, get, vector = self.order, changes.get, self.known[VECTOR]
        # Bit 8 says that the samples are little endian.
        little = compress & 256 or compress == 0 and order == "<"
        data = values.astype(values.dtype.newbyteorder("<" if little else ">"))
        scheme = compress & 255
        if scheme == 3:
            data = numpy.diff(values, prepend=values[:1] * 0).astype(data.dtype)
        packed = zlib.compress(data.tobytes()) if scheme in (1, 3) else data.tobytes()
        if scheme in (5, 8, 10):
            packed = suppressed(values.astype(values.dtype.newbyteorder("<")))
            if not little:
                width = values.itemsize
                packed = numpy.frombuffer(packed, f"<u{width}").astype(f">u{width}").tobytes()
        packed = packed[: get("keep")]
        body = self.text(name) + struct.pack(order + "HH", get("compress_as", compress), TYPES[values.dtype.str[1:]])
        body += struct.pack(order + "QQ", get("samples", len(values)), get("bytes", len(packed))) + packed
        body += struct.pack(order + "IQdd", 1, get("axis", len(values)), get("spacing", 1 / rate), get("first", 0.0))
        self.structure(vector, body + self.text("s") + self.text("strain") + struct.pack(order + "HI", 0, 0))

    def contents(self):
        """The table of contents; returns its offset."""
        number, order = self.learn("FrTOC"), self.order
        seconds, nanoseconds, lengths = zip(*self.frames)
        frames = len(seconds)
        body = struct.pack(order + "I", frames) + struct.pack(f"{order}{frames}I{frames}I{frames}d", *seconds, *nanoseconds, *lengths)
        for wanted in ("adc", "proc", "sim"):
            found = {name: places for (kind, name), places in self.places.items() if kind == wanted}
            # frameCPP says so that a list is absent.
            count = 2**32 - 1 if self.absent and not found else len(found)
            body += struct.pack(order + "I", count) + b"".join(self.text(name) for name in found)
            for places in found.values():
                body += struct.pack(f"{order}{frames}Q", *(places.get(frame, 0) for frame in range(frames)))
        return self.structure(number, body)[0]

    def finish(self):
        """The whole file."""
        table = self.contents() if self.table else None
        number, order = self.learn("FrEndOfFile"), self.order
        offset = len(self.content)
        length = 42 if self.version < 8 else 46 if self.version == 8 else 50
        total = offset + length
        counts = struct.pack(order + "IQ", len(self.frames), total)
        seek = struct.pack(order + "Q", total - table if table else 0)
        head = struct.pack(order + "Q", length)
        if self.version < 8:
            return self.content + head + struct.pack(order + "HI", number, 0) + counts + bytes(8) + seek
        sums = bytes(4 * (self.version > 8))
        sums += struct.pack(order + "I", cksum(self.content[:40]) if self.sums else 0)
        whole = head + struct.pack(order + "BBI", self.sums, number, 0) + counts + seek + sums
        whole += struct.pack(order + "I", cksum(whole) if self.sums else 0)
        content = self.content + whole
        return content + struct.pack(order + "I", cksum(content) if self.sums else 0)


def ramp(kind, count=64):
    """Values of which every type holds the same numbers."""
    return ((numpy.arange(count) * 7) % 50).astype(kind)


def strain(**changes):
    return {"name": "H1:TEST_STRAIN", "values": ramp("f8") * 1e-21, "rate": 64} | changes


def made(*frames, **options):
    writer = Writer(**options)
    for number, channels in enumerate(frames):
        writer.frame(START + number, channels)
    return writer.finish()


def flipped(content, place):
    """The content with one byte changed, near the `place`-th occurrence from the end of the samples."""
    content = bytearray(content)
    content[place] ^= 1
    return bytes(content)


def gwf_files():
    def put(name, content):
        save("gwf", f"{name}.gwf", content)

    all_kinds = [
        strain(name=f"H1:{kind}_{scheme}", values=ramp(kind), compress=scheme | 256)
        for kind in ("i2", "i4", "i8", "f4", "f8", "u1", "u2", "u4", "u8", "i1")
        for scheme in (0, 1, 3, {"2": 5, "4": 8, "8": 10}.get(kind[1], 0))
        if scheme != 3 or kind[0] != "f"
    ]
    plain = made([strain()], [strain()])
    put("valid_plain", plain)
    put("valid_all_kinds", made(all_kinds))
    put("valid_big_endian", made([one | {"compress": one["compress"] & 255} for one in all_kinds], order=">"))
    put("valid_version_6", made([strain()], [strain(compress=257)], version=6))
    put("valid_version_9", made([strain(compress=257)], version=9, table=False))
    put("valid_no_table", made([strain()], [strain()], table=False))
    put("valid_no_sums", made([strain(compress=1)], [strain()], sums=False))
    put("valid_no_sums_no_table", made([strain()], [strain(compress=257)], sums=False, table=False))
    put("valid_version_6_big_endian", made([strain(values=ramp("i4"), compress=8)], version=6, order=">", table=False))
    adc = strain(kind="adc", values=ramp("i2"), bias=2, slope=0.5)
    put("valid_adc", made([adc, strain(name="H1:b", kind="sim")], [adc | {"invalid": 1}]))
    flags = numpy.array([0, 0, 1, 0, 0, 0, 2, 0], "i2")
    put("valid_flags", made([adc | {"flags": flags}], [adc | {"flags": flags, "flags_name": "other"}], [adc]))
    put("valid_absent_lists", made([strain()], [strain()], absent=True))
    put("broken_flags", made([adc | {"flags": flags[:7]}]))
    put("broken_flags_missing", made([adc | {"flags": flags, "aux_instance": 9}]))
    good = numpy.array([3, 3, 1, 2], "i4")
    long = strain(name="H1:TEST_STRAIN", values=ramp("f8", 256))
    mask = {"name": "H1:TEST_DQMASK", "values": good, "rate": 1}
    put("valid_mask", made([long, mask, mask | {"name": "H1:TEST_INJMASK", "values": good[::-1].copy()}]))
    writer = Writer()
    writer.frame(START, [strain()])
    writer.frame(START + 3, [strain(offset=0.25, first=0.25)], nanoseconds=500_000_000)
    put("valid_gap", writer.finish())
    writer = Writer()
    writer.frame(START, [strain()])
    writer.frame(START + 1, [])
    writer.frame(START + 2, [strain()])
    put("valid_channel_comes_and_goes", writer.finish())
    put("cut_second_frame", plain[: plain.rindex(b"H1:TEST_STRAIN", 0, plain.rindex(b"FrTOC"))])
    put("cut_end", plain[:-10])
    no_table = made([strain()], [strain()], table=False)
    put("cut_no_table", no_table[: no_table.rindex(b"H1:TEST_STRAIN") + 100])
    put("broken_header_only", plain[:40])
    put("broken_short", plain[:39])
    put("broken_first_frame", plain[: plain.index(b"H1:TEST_STRAIN") + 10])
    put("broken_version_4", made([strain()], version=4))
    put("broken_sum_of_samples", flipped(plain, plain.index(b"strain\0") - 100))
    put("broken_sum_of_header", flipped(plain, 36))
    put("broken_sum_of_file", flipped(plain, len(plain) - 1))
    put("broken_type", made([strain(values=ramp("c8"))]))
    put("broken_compression", made([strain(compress_as=7)]))
    put("broken_zlib", made([strain(compress=257, keep=20)]))
    put("broken_suppressed", made([strain(values=ramp("i4"), compress=264, keep=20)]))
    put("broken_bytes", made([strain(bytes=2**62)], sums=False))
    put("broken_samples", made([strain(compress=257, samples=2**60, axis=2**60)], sums=False))
    put("broken_axis", made([strain(axis=2**63)]))
    put("broken_spacing", made([strain(spacing=-1.0)]))
    put("broken_vector", made([strain(instance=77)]))
    put("broken_place", made([strain(place=45)]))
    put("broken_place_far", made([strain(place=2**63)]))
    put("broken_mask_short", made([long, mask | {"values": good[:2]}]))
    put("broken_overlap", Writer.finish(overlapping()))


def overlapping():
    writer = Writer()
    writer.frame(START, [strain()])
    writer.frame(START, [strain()])
    return writer
