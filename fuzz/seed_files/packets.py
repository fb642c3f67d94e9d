"""Packets of voltages: SPEAD, declared headers, VDIF over UDP."""

import struct

from seed_files.common import save


def spead(items, payload, heap=1, offset=0, heap_bytes=None, address=48):
    """A packet; items are (identifier, value, whether immediate)."""
    heap_bytes = len(payload) if heap_bytes is None else heap_bytes
    own = [(1, heap, True), (2, heap_bytes, True), (3, offset, True), (4, len(payload), True)]
    pointers = [now << 63 | item << address | value for item, value, now in own + items]
    header = struct.pack(">BBBBHH", 0x53, 4, 8 - address // 8, address // 8, 0, len(pointers))
    return header + struct.pack(f">{len(pointers)}Q", *pointers) + payload


def descriptor(item, name, kind, bits, shape, address=48):
    width = address // 8
    texts = name, b"", kind + bits.to_bytes(8 - width, "big"), shape
    items, payload = [(0x14, item, True)], b""
    for own, text in zip((0x10, 0x11, 0x13, 0x12), texts):
        items.append((own, len(payload), False))
        payload += text
    return spead(items, payload, address=address)


def spead_packets():
    samples = [(0x1600, 0x123456, True), (0x4300, 0, False)]
    for address in (32, 40, 48):
        save("spead", f"valid_samples_{address}.spead", spead(samples, bytes(range(64)), address=address))
        axis = bytes(1) + (3).to_bytes(address // 8, "big")
        first = descriptor(0x16, b"timestamp", b"u", 48, b"", address)
        second = descriptor(0x43, b"raw", b"i", 8, axis + b"\1" + bytes(address // 8), address)
        both = [(5, 0, False), (5, len(first), False)]
        save("spead", f"valid_descriptors_{address}.spead", spead(both, first + second, address=address))
    first = descriptor(0x16, b"timestamp", b"u", 48, b"")
    save("spead", "broken_descriptor.spead", spead([(5, 0, False)], first[:-1]))
    save("spead", "valid_stop.spead", spead([(6, 2, True), (0, 0, False)], b"\0"))
    save("spead", "valid_equal_addresses.spead", spead([(7, 4, False), (8, 4, False), (9, 0, False)], bytes(8)))
    save("spead", "broken_magic.spead", b"\x54" + spead(samples, bytes(8))[1:])
    save("spead", "broken_short.spead", spead(samples, bytes(8))[:-1])
    save("spead", "broken_beyond.spead", spead(samples, bytes(8), offset=8, heap_bytes=15))
    save("spead", "broken_far.spead", spead(samples, bytes(8), offset=2**48 - 1))


def save_packets(name, kind, packets, blocks=3, chunks=0):
    joined = b"".join(struct.pack("<H", len(packet)) + packet for packet in packets)
    save("packets", name, bytes([kind, blocks, chunks]) + joined)


def received_packets():
    def snap2(sequence, first_input=0, channel=2):
        return struct.pack(">QIHHHHIII", sequence, 0, 4, 8, 2, 6, 0, channel, first_input) + bytes(range(8))

    def chips(sequence, board=1, channel=2):
        return struct.pack(">6BHQ", board, 0, 2, 0, 0, 0, channel, sequence) + bytes(64)

    def odd(sequence):
        return b"\7" + (sequence << 2).to_bytes(5, "little") + b"\1" + bytes(9) + bytes(32)

    def frame(number, thread=0, second=1000):
        words = second, 40 << 24 | number, 1 << 29 | 8, 1 << 26 | thread << 16 | 0x4161, 0, 0, 0, 0
        return struct.pack("<Q8I", number, *words) + bytes(32)

    def heap(number, antenna=0, repeat=True):
        own = [(0x1600, number * 128, True), (0x4101, antenna, True), (0x4103, 2, True), (0x4300, 0, False)]
        payload, name = bytes(range(32)), 2 * number + antenna
        second = own if repeat else []
        return [spead(own, payload[:16], name, 0, 32), spead(second, payload[16:], name, 16, 32)]

    save_packets("valid_snap2", 0, [snap2(k, source % 2, 2 + source // 2 * 2) for k in range(9) for source in range(6)])
    save_packets("valid_snap2_restart", 0, [snap2(k) for k in (*range(5000, 5040), *range(60))])
    save_packets("valid_snap2_far", 0, [snap2(k) for k in (0, 2**63, 2**64 - 1, 1, 2, 3)])
    save_packets("valid_chips_shuffled", 1, [chips(1 + k * 7 % 40) for k in range(40)], chunks=2)
    save_packets("valid_chips_lost", 1, [chips(k) for k in range(1, 90) if k % 7 and not 30 < k < 60] * 2)
    save_packets("broken_chips_board", 1, [chips(1), chips(2, board=3)])
    start = 2**38 - 2**38 % 3 - 30
    save_packets("valid_wrap", 2, [odd((start + 3 * k) % 2**38) for k in range(40)])
    save_packets("broken_length", 2, [odd(0), odd(3)[:-1], odd(6)])
    both = [packet for k in range(12) for antenna in range(2) for packet in heap(k, antenna)]
    save_packets("valid_heaps", 3, both, blocks=4)
    save_packets("valid_heaps_granules", 3, both, blocks=0)
    first = [packet for k in range(12) for packet in heap(k, repeat=False)]
    save_packets("valid_heaps_first", 3, first)
    save_packets("broken_heaps_unplaced", 3, first[3:])
    save_packets("valid_vdif_numbered", 4, [frame(k % 25, second=1000 + k // 25) for k in range(60)])
    save_packets("valid_vdif_threads", 5, [frame(k // 2, thread=k % 2)[8:] for k in range(40)])
    save_packets("broken_vdif_thread", 5, [frame(0)[8:], frame(1, thread=2)[8:]])
    save_packets("broken_none", 0, [])


def behind_lengths(packets):
    return b"".join(struct.pack("<H", len(packet)) + packet for packet in packets)


def declared_packets():
    # Little-endian sequence of 5 bytes at 1, a source at 8, a constant at 9: 2 channels x 3 times of one byte.
    fields = bytes([1, 1, 5, 0, 40, 0, 8, 1, 0, 8, 0, 8, 1, 0, 8, 0, 9, 1, 0, 8])
    front = bytes([2, 1]) + fields + bytes([12, 1, 4, 2, 3, 1, 7, 2, 0, 2, 1, 3, 3, 7])
    counters = bytes(range(24))

    def packet(block, source):
        return b"\0" + (3 * block).to_bytes(5, "little") + bytes([0, 0, 4 + 2 * source, 7, 0, 0]) + bytes(range(6))

    good = [packet(block, source) for block in range(30) for source in range(3)]
    save("declared", "valid_three_sources", front + counters + behind_lengths(good))
    save("declared", "broken_source", front + counters + behind_lengths([*good, packet(3, 3)]))
    save("declared", "broken_field", bytes([2, 1, 0, 12, 1, 0, 8]) + front[7:])


def heap_packets():
    def heap(number, source, size=24):
        own = [(0x1600, number * 16, True), (0x4101, 2 + source, True), (0x4300, 0, False)]
        payload, name = bytes(range(size)), 2 * number + source
        return [spead(own, payload[:16], name, 0, size), spead(own, payload[16:], name, 16, size)]

    # A counter of 48 bits in steps of 16; sources 2 and 3 in item 0x4101; 24 bytes a heap in granules of 8.
    front = bytes([2, 1, 48, 16, 1, 0, 64, 2, 1, 2, 0, 0, 1, 0, 1, 1, 1, 24, 8, 4])
    both = [packet for number in range(20) for source in range(2) for packet in heap(number, source)]
    save("heaps", "valid_two_sources", front + behind_lengths(both))
    save("heaps", "broken_length", front + behind_lengths(both + heap(20, 0, 32)))
    save("heaps", "broken_bits", bytes([2, 1, 0]) + front[3:])


def vdif_packets():
    def frame(number, thread):
        words = 1000 + number // 25, 40 << 24 | number % 25, 1 << 29 | 8, 1 << 26 | thread << 16 | 1, 0, 0, 0, 0
        return struct.pack("<8I", *words) + bytes(32)

    # Threads 3 and 5 of station 1, 32 bytes of samples, 25 frames a second.
    front = bytes([2, 1, 2, 1, 3, 1, 5, 0, 4, 1])
    both = [frame(number, thread) for number in range(60) for thread in (3, 5)]
    save("frames", "valid_two_threads", front + behind_lengths(both))
    save("frames", "broken_thread", front + behind_lengths([frame(0, 3), frame(1, 4)]))
    save("frames", "broken_rate", front[:-1] + bytes([4]))


def vdif_streams():
    def frame(number, thread, station=1, rate=0, per_second=25, first=3):
        # Frames of 64 samples of 4 bits; the header has half of the rate of real samples, in kHz, or none.
        extended = (1 << 24 | rate, 0xACABFEED, 0, 0) if rate else (0, 0, 0, 0)
        words = 1000 + number // per_second, 40 << 24 | number % per_second, 1 << 29 | 8, first << 26 | thread << 16 | station
        return struct.pack("<8I", *words, *extended) + bytes(32)

    # Frames of 2 seconds and more show the rate.
    front = bytes([2, 1, 0, 0, 0])
    both = [frame(number, thread) for number in range(60) for thread in (3, 5)]
    save("discovery", "valid_two_threads", front + behind_lengths(both))
    stations = [frame(number, 0, station) for number in range(40) for station in (9, 0x4161)]
    save("discovery", "valid_known_rate", front[:3] + bytes([1, 0]) + behind_lengths(stations))
    stated = [b"sequence" + frame(number, 1, rate=16, per_second=500) for number in range(60)]
    save("discovery", "valid_stated_rate", bytes([2, 1, 1, 0, 0]) + behind_lengths(stated))
    foreign = [*both[:7], frame(3, 9, first=1), frame(4, 900, 2), b"short", *both[7:]]
    save("discovery", "broken_foreign", front + behind_lengths(foreign))
    save("discovery", "broken_rate", front[:3] + bytes([3, 0]) + behind_lengths(both))
    save("discovery", "broken_short", front + behind_lengths(both[:20]))
    uneven = [frame(number, thread, thread) for number in range(60) for thread in (3, 5)]
    save("discovery", "broken_stations", front + behind_lengths(uneven))


def placements():
    # Windows of 3 chunks of 2 blocks, two sources, 16 bytes a block in granules of 8, steps of 3, 24 bits of counter.
    front = bytes([2, 2, 0, 0, 24, 2, 16, 8, 1]) + (1 << 30).to_bytes(8, "big")
    good = b"".join(bytes([source == 0, source, 0, 16]) for _ in range(40) for source in range(2))
    far = b"".join(bytes([code, 0, 0, 16]) for code in (1, 63, 63, 129, 200, 255, 1, 1, 191, 1) * 20)
    save("placement", "valid_in_order", front + good)
    save("placement", "valid_far", front + far)
    save("placement", "broken_outside", front + bytes([0, 2, 0, 16, 0, 0, 4, 16, 0, 0, 255, 8]))
    save("placement", "broken_chunks", bytes([0]) + front[1:])


def stream_headers():
    spectra = {
        "HEADER": "DADA", "HDR_VERSION": "1.0", "HDR_SIZE": 4096, "SOURCE": "FRB", "UTC_START": "2024-01-02-03:04:05",
        "FREQ": 1400, "BW": -40, "TSAMP": 64, "NBIT": 8, "NDIM": 1, "NPOL": 1, "NCHAN": 4, "STATE": "Intensity",
    }
    exact = {"FCH1": 1415, "FOFF": -10, "TSAMP_S": 6.4e-5, "TSTART": 60311.5, "SPEAD_TIMES": 16, "SPEAD_FIRST": 9}
    voltages = {
        **spectra, "NDIM": 2, "NPOL": 2, "NANT": 3, "STATE": "Analytic", "BW": 4, "TSAMP": 1, "ORDER": "TFAP",
        "OBS_OFFSET": 96, "SPEAD_TIMES": 32,
    }

    def text(fields):
        return "".join(f"{key:<13}{value}\n" for key, value in fields.items()).encode()

    save("stream_header", "valid_heimdall", text(spectra))
    save("stream_header", "valid_spectra", text({**spectra, **exact}))
    save("stream_header", "valid_bits", text({**spectra, "NBIT": 2}))
    save("stream_header", "valid_floats", text({**spectra, "NBIT": 32}))
    save("stream_header", "valid_voltages", text(voltages))
    save("stream_header", "valid_lower", text({**voltages, "BW": -4}))
    save("stream_header", "broken_channels", text({**spectra, "NCHAN": 10**18}))
    save("stream_header", "broken_antennas", text({**voltages, "NANT": 10**12}))
    save("stream_header", "broken_streams", text({**voltages, "NANT": 2**20, "NCHAN": 2**20}))
    save("stream_header", "broken_start", text({**spectra, "UTC_START": "yesterday"}))


def packets():
    spead_packets()
    received_packets()
    declared_packets()
    heap_packets()
    vdif_packets()
    vdif_streams()
    placements()
    stream_headers()
