//! Input of a site: the table `[input]`, which describes packets that carry no header.

use std::fs;
use std::path::Path;
use std::time::Duration;

use sidereal::io::FilterbankHeader;
use sidereal::io::voltages::VoltageHeader;
use sidereal::live::cores::Cores;
use sidereal::live::description::Description;
use sidereal::live::header::Content;
use sidereal::live::packet::Format as _;
use sidereal::live::socket;
use sidereal::live::target::{Port, Target};
use sidereal::sample::Encoding;
use sidereal::units::{Band, HZ_PER_MHZ};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};
use toml::{Table, Value};

use super::clock::Times;
use super::presets::{self, Form, Preset, Protocol, Sizes};
use super::{Section, Word};

/// Tables of a site's file that other parts of the program read.
const OTHERS: [&str; 4] = ["search", "channelize", "correlate", "record"];

/// Bytes of a socket's buffer, unless the file has another number.
const BUFFER_BYTES: usize = 64 << 20;

/// Input that a file describes.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) description: Description,
    pub(crate) sockets: Vec<socket::Options>,
    /// Difference between packets and the system's clock that is reported, in seconds.
    pub(crate) clock_alarm_s: f64,
}

/// Reads the input of a site's file.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read; [`Error::Format`] naming the key at fault and what is expected.
pub(crate) fn read(path: &Path) -> Result<Input> {
    parse(&table(path)?, path)
}

/// Reads the tables of a site's file.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read; [`Error::Format`] for one that is not TOML.
pub(crate) fn table(path: &Path) -> Result<Table> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to() as u64;
        Error::format(path, "text", offset, "it is not UTF-8")
    })?;
    tables(&text, path)
}

fn tables(text: &str, path: &Path) -> Result<Table> {
    text.parse().map_err(|error: toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start) as u64;
        Error::format(path, "TOML", offset, error.message().to_owned())
    })
}

/// Reads an input from the keys of its table.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_table(input: Table, path: &Path) -> Result<Input> {
    parse(&Table::from_iter([("input".to_owned(), Value::Table(input))]), path)
}

fn parse(table: &Table, path: &Path) -> Result<Input> {
    let whole = Section::new(path, String::new(), table);
    for other in OTHERS {
        whole.section(other)?;
    }
    let input = whole.needed("input", whole.section("input")?, "a table [input]")?;
    whole.finish()?;
    let read = self::input(&input, path)?;
    input.finish()?;
    Ok(read)
}

/// Kind of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Voltages,
    Spectra,
}

const KINDS: [Word<Kind>; 2] =
    [Word::new("voltages", Kind::Voltages), Word::new("spectra", Kind::Spectra)];

const PROTOCOLS: [Word<Protocol>; 2] =
    [Word::new("packets", Protocol::Packets), Word::new("spead", Protocol::Spead)];

const VOLTAGES: [Word<VoltageEncoding>; 10] = [
    Word::new("complex4", VoltageEncoding::Complex4),
    Word::new("complex8", VoltageEncoding::Complex8),
    Word::new("complex-offset8", VoltageEncoding::ComplexOffset8),
    Word::new("complex16", VoltageEncoding::Complex16),
    Word::new("complex-f32", VoltageEncoding::ComplexF32),
    Word::new("real8", VoltageEncoding::Real8),
    Word::new("real-offset8", VoltageEncoding::RealOffset8),
    Word::new("real16", VoltageEncoding::Real16),
    Word::new("real10", VoltageEncoding::Real10),
    Word::new("real-f32", VoltageEncoding::RealF32),
];

/// Encoding of spectra, and the real encoding of the same size.
#[derive(Clone, Copy, Debug)]
struct Detected {
    encoding: Encoding,
    storage: VoltageEncoding,
}

impl Detected {
    const fn new(encoding: Encoding, storage: VoltageEncoding) -> Self {
        Self { encoding, storage }
    }
}

const SPECTRA: [Word<Detected>; 5] = [
    Word::new("u8", Detected::new(Encoding::U8, VoltageEncoding::Real8)),
    Word::new("i8", Detected::new(Encoding::I8, VoltageEncoding::Real8)),
    Word::new("u16", Detected::new(Encoding::U16, VoltageEncoding::Real16)),
    Word::new("i16", Detected::new(Encoding::I16, VoltageEncoding::Real16)),
    Word::new("f32", Detected::new(Encoding::F32, VoltageEncoding::RealF32)),
];

fn input(input: &Section<'_>, path: &Path) -> Result<Input> {
    let protocol = input.word("protocol", &PROTOCOLS)?;
    let preset = input.word("preset", &Preset::WORDS)?;
    if let (Some(protocol), Some(preset)) = (protocol, preset)
        && preset.protocol() != protocol
    {
        return Err(input.fault("protocol", "found another one than that of the preset"));
    }
    let times = Times::read(input)?;
    let kind = input.word("kind", &KINDS)?;
    let mut detected = None;
    let form = match preset {
        Some(preset) => {
            if kind == Some(Kind::Spectra) {
                return Err(input.fault("kind", "found \"spectra\", but the preset has voltages"));
            }
            presets::preset(input, preset, times.counter_bits)?
        }
        None => {
            let protocol = input.needed("protocol", protocol, "\"packets\" or \"spead\"")?;
            let kind = input.needed("kind", kind, "\"voltages\" or \"spectra\"")?;
            let needed = "the encoding of the samples";
            let encoding = match kind {
                Kind::Voltages => {
                    input.needed("encoding", input.word("encoding", &VOLTAGES)?, needed)?
                }
                Kind::Spectra => {
                    let own =
                        input.needed("encoding", input.word("encoding", &SPECTRA)?, needed)?;
                    detected = Some(own.encoding);
                    own.storage
                }
            };
            let channels = input.needed("channels", input.size("channels")?, "a whole number")?;
            let (antennas, polarizations) = match kind {
                Kind::Spectra => (1, 1),
                Kind::Voltages => (
                    input.size("antennas")?.unwrap_or(1),
                    input.count("polarizations", 1..=2)?.unwrap_or(1) as usize,
                ),
            };
            let sizes = Sizes { antennas, polarizations, channels, encoding };
            presets::explicit(input, protocol, sizes, times.counter_bits)?
        }
    };
    let units = form.units();
    let tsamp_s = times.tsamp_s(input, units)?;
    let clock = times.clock(input, tsamp_s, units, form.packets.shape().period)?;
    let content = match detected {
        Some(encoding) => Content::Spectra(spectra(input, path, &form, encoding, tsamp_s)?),
        None => Content::Voltages(voltages(input, path, &form, tsamp_s)?),
    };
    let sockets = sockets(input, form.packet_bytes)?;
    let idle_s = input.number("idle_s", "s")?;
    let mut description =
        Description::new(content, form.packets, &form.axes).map_err(|error| input.locate(error))?;
    if let Some(clock) = clock {
        description = description.with_clock(clock);
    }
    if let Some(idle_s) = idle_s {
        let idle = Duration::try_from_secs_f64(idle_s);
        let fault = || input.fault("idle_s", format!("found {idle_s}, expected 0.1 s or more"));
        description =
            idle.ok().and_then(|idle| description.with_idle(idle).ok()).ok_or_else(fault)?;
    }
    if let Some(cores) = cores(input)? {
        description = description.with_cores(cores);
    }
    Ok(Input { description, sockets, clock_alarm_s: times.alarm_s })
}

/// Reads the cores of the thread that receives: by number, or those of a NUMA node.
fn cores(input: &Section<'_>) -> Result<Option<Cores>> {
    let cores = input.counts("cores", 0..=1 << 20, "the numbers of cores")?;
    let node = input.count("numa_node", 0..=1 << 20)?.map(|node| node as usize);
    let found = match (&cores, node) {
        (None, None) => return Ok(None),
        (None, Some(node)) => Cores::of_node(node),
        (Some(cores), _) => {
            Cores::new(&cores.iter().map(|core| *core as usize).collect::<Vec<_>>())
        }
    };
    let key = if cores.is_some() { "cores" } else { "numa_node" };
    let found = found.map_err(|error| match error {
        Error::Parameter { value, rule, .. } => {
            input.fault(key, format!("found {value}, but {rule}"))
        }
        other => other,
    })?;
    match node {
        Some(node) if node != found.node() => {
            let why = format!("found {node}, but the cores are those of node {}", found.node());
            Err(input.fault("numa_node", why))
        }
        _ => Ok(Some(found)),
    }
}

/// Returns the centre of each channel in Hz.
fn centres_hz(input: &Section<'_>, channels: usize) -> Result<Vec<f64>> {
    let list = input.numbers("centres_hz", "Hz")?;
    let centre = input.number("centre_hz", "Hz")?;
    let bandwidth = input.number("bandwidth_hz", "Hz")?;
    let is_descending = input.flag("descending")?;
    let centres = match (list, centre, bandwidth) {
        (Some(list), None, None) => list,
        (Some(_), ..) => {
            return Err(
                input.fault("centres_hz", "expected either it, or centre_hz and bandwidth_hz")
            );
        }
        (None, centre, bandwidth) => {
            let centre = input.needed("centre_hz", centre, "the middle of the band")?;
            let width = input.needed("bandwidth_hz", bandwidth, "the width of the band")?;
            if width <= 0.0 {
                return Err(input.fault("bandwidth_hz", format!("found {width}, expected above 0")));
            }
            let step = width / channels as f64;
            let place = |channel: usize| channel as f64 + 0.5 - 0.5 * channels as f64;
            (0..channels).map(|channel| centre + place(channel) * step).collect()
        }
    };
    if centres.len() != channels {
        let why = format!("found {} of them, expected {channels}, as channels says", centres.len());
        return Err(input.fault("centres_hz", why));
    }
    Ok(if is_descending { centres.into_iter().rev().collect() } else { centres })
}

fn name(input: &Section<'_>, key: &'static str) -> Result<String> {
    Ok(input.text(key)?.unwrap_or_default().to_owned())
}

fn voltages(input: &Section<'_>, path: &Path, form: &Form, tsamp_s: f64) -> Result<VoltageHeader> {
    let sizes = form.sizes;
    let centres = centres_hz(input, sizes.channels)?;
    // Checks the frequencies.
    Band::from_centres(centres.clone(), 1.0 / tsamp_s).map_err(|error| input.locate(error))?;
    let mut header = VoltageHeader::new(centres, tsamp_s, sizes.encoding);
    let feeds = [Word::new("linear", false), Word::new("circular", true)];
    header.path = path.to_path_buf();
    header.format = "packets";
    header.source_name = name(input, "source")?;
    header.telescope = name(input, "telescope")?;
    header.ra_deg = input.number("ra_deg", "degrees")?;
    header.dec_deg = input.number("dec_deg", "degrees")?;
    header.lower_sideband = input.flag("lower_sideband")?;
    (header.antennas, header.polarizations) = (sizes.antennas, sizes.polarizations);
    header.circular = input.word("feeds", &feeds)?;
    Ok(header)
}

fn spectra(
    input: &Section<'_>,
    path: &Path,
    form: &Form,
    encoding: Encoding,
    tsamp_s: f64,
) -> Result<FilterbankHeader> {
    let centres = centres_hz(input, form.sizes.channels)?;
    let width = match centres.as_slice() {
        [first, .., last] => (last - first).abs() / (centres.len() - 1) as f64,
        _ => input.number("bandwidth_hz", "Hz")?.unwrap_or(HZ_PER_MHZ),
    };
    let band = Band::from_centres(centres, width).map_err(|error| input.locate(error))?;
    Ok(FilterbankHeader {
        path: path.to_path_buf(),
        format: "packets",
        source_name: name(input, "source")?,
        telescope: name(input, "telescope")?,
        ra_deg: input.number("ra_deg", "degrees")?,
        dec_deg: input.number("dec_deg", "degrees")?,
        beam: None,
        tstart_mjd: 0.0,
        tsamp_s,
        band,
        encoding,
        recorded_bits: encoding.bits(),
        recorded_polarizations: 1,
        times: None,
    })
}

/// Reads where packets are received.
fn sockets(input: &Section<'_>, packet_bytes: usize) -> Result<Vec<socket::Options>> {
    let expected = "\"udp://HOST:PORT\", or a list of such addresses";
    let addresses = input.needed("address", input.texts("address")?, expected)?;
    if addresses.len() > socket::MOST_RECEIVERS {
        let why = format!("found {}, expected {} at most", addresses.len(), socket::MOST_RECEIVERS);
        return Err(input.fault("address", why));
    }
    let interface = input.text("interface")?;
    let buffer_bytes = input.count("buffer_bytes", 1..=1 << 30)?;
    let socket = |text: &&str| {
        let fault = |why: &str| input.fault("address", format!("found {text:?}, but {why}"));
        let rest = text.strip_prefix("udp://").filter(|rest| rest.contains(':'));
        let rest = rest.ok_or_else(|| fault("it must be udp://HOST:PORT"))?;
        if rest.contains('?') {
            return Err(fault("the interface has a key of its own"));
        }
        let query = interface.map_or(String::new(), |name| format!("?interface={name}"));
        let Port { address, interface } = match format!("spead://{rest}{query}").parse() {
            Ok(Target::Spead(port)) => port,
            Err(Error::Parameter { rule, .. }) => return Err(fault(&rule)),
            _ => return Err(fault("it must be udp://HOST:PORT")),
        };
        let buffer_bytes = buffer_bytes.map_or(BUFFER_BYTES, |bytes| bytes as usize);
        Ok(socket::Options {
            interface,
            buffer_bytes,
            packet_bytes,
            ..socket::Options::new(address)
        })
    };
    addresses.iter().map(socket).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAP: &str = r#"
        [input]
        address = ["udp://:10000", "udp://239.1.2.3:10000"]
        preset = "snap"
        telescope = "ATA"
        antennas = 2
        channels = 512
        first_channel = 256
        centre_hz = 1400e6
        bandwidth_hz = 256e6
        tsamp_s = 4e-6

        [input.time]
        sync = 2026-01-01T00:00:00Z
        allow_expired_leap_seconds = true

        [search]
        anything = 1
    "#;

    const PACKETS: &str = r#"
        [input]
        address = "udp://:10000"
        protocol = "packets"
        kind = "spectra"
        encoding = "u16"
        channels = 64
        centre_hz = 1400e6
        bandwidth_hz = 64e6
        descending = true

        [input.packet]
        header_bytes = 16
        sequence = { offset = 0, bytes = 8, order = "little" }
        step = 4
        axes = [{ time = 4 }, { channel = 32 }]
        source = [{ axis = "channel", offset = 8, bytes = 2, first = 0, step = 32, count = 2 }]
        constant = [{ offset = 10, bytes = 1, value = 7 }]

        [input.time]
        sync = 1_700_000_000
        scale = "tai"
        counter_hz = 1000
        counter_bits = 38
        allow_expired_leap_seconds = true
    "#;

    const HEAPS: &str = r#"
        [input]
        address = "udp://:7148"
        protocol = "spead"
        kind = "voltages"
        encoding = "complex8"
        antennas = 2
        polarizations = 2
        channels = 4
        centre_hz = 1400e6
        bandwidth_hz = 4e6
        tsamp_s = 1e-6

        [input.heap]
        counter = 0x1600
        samples = 0x4300
        step = 16
        axes = [{ channel = 4 }, { time = 16 }, { polarization = 2 }]
        source = [{ axis = "antenna", item = 0x4101, count = 2 }]
    "#;

    fn parsed(text: &str, path: &Path) -> Result<Input> {
        parse(&tables(text, path)?, path)
    }

    fn error(text: &str) -> String {
        parsed(text, Path::new("site.toml")).unwrap_err().to_string()
    }

    #[test]
    fn files_describe_streams() {
        let path = Path::new("site.toml");
        let snap = parsed(SNAP, path).unwrap();
        assert_eq!(snap.sockets.len(), 2);
        assert_eq!(snap.description.packets().shape().sources, 4);
        assert!(snap.description.cores().is_none());
        let pinned = SNAP.replacen("preset", "cores = [0]\npreset", 1);
        assert_eq!(parsed(&pinned, path).unwrap().description.cores().unwrap().numbers(), [0]);
        let clock = snap.description.clock().unwrap();
        assert_eq!(clock.utc(250_000, 0).unwrap().seconds, 1.0);
        let packets = parsed(PACKETS, path).unwrap();
        let shape = packets.description.packets().shape();
        assert_eq!((shape.period, shape.step, shape.block_bytes), (Some(1 << 38), 4, 256));
        // TAI was 37 s ahead.
        let clock = packets.description.clock().unwrap();
        assert_eq!(clock.utc(0, 0).unwrap().seconds, f64::from(1_700_000_000 % 86_400 - 37));
        assert!(parsed(HEAPS, path).unwrap().description.clock().is_none());
        for preset in ["grex", "chips", "snap2", "meerkat-feng", "meerkat-digitiser"] {
            let own = match preset {
                "grex" | "meerkat-digitiser" => String::new(),
                "meerkat-feng" => {
                    "antennas = 16\nchannels = 512\nsamples_per_spectrum = 8192".into()
                }
                _ => "antennas = 16\nchannels = 96\nfirst_channel = 96".to_owned(),
            };
            let text = format!(
                "[input]\naddress = 'udp://:1'\npreset = '{preset}'\ncentre_hz = 1e9\nbandwidth_hz = 1e8\n{own}\n\
                 tsamp_s = 1e-6"
            );
            parsed(&text, path).unwrap();
        }
    }

    #[test]
    fn every_mistake_has_an_error_of_its_own() {
        for (text, from, to, expected) in [
            (SNAP, "[input]", "[inputs]", ["inputs", "no such key"]),
            (SNAP, "[search]", "[serch]", ["serch", "search"]),
            (SNAP, "[input]", "[input", ["TOML", ""]),
            (SNAP, "antennas = 2", "antenas = 2", ["input.antennas", "missing"]),
            (SNAP, "telescope", "telescop", ["input.telescop", "telescope"]),
            (SNAP, "antennas = 2", "antennas = 'two'", ["input.antennas", "whole number"]),
            (SNAP, "antennas = 2", "antennas = 0", ["input.antennas", "1 to"]),
            (SNAP, "channels = 512", "channels = 500", ["input.channels", "multiple of the 256"]),
            (SNAP, "\"snap\"", "\"snip\"", ["input.preset", "\"snap2\""]),
            (SNAP, "preset", "protocol = 'spead'\npreset", ["input.protocol", "preset"]),
            (SNAP, "preset", "kind = 'spectra'\npreset", ["input.kind", "voltages"]),
            (SNAP, "udp://:10000", "tcp://:10000", ["input.address", "udp://HOST:PORT"]),
            (SNAP, "udp://:10000", "udp://:0", ["input.address", "1 to 65535"]),
            (SNAP, "preset", "interface = 'eth0'\npreset", ["input.address", "multicast"]),
            (SNAP, "preset", "buffer_bytes = 0\npreset", ["input.buffer_bytes", "1 to"]),
            (SNAP, "preset", "cores = 0\npreset", ["input.cores", "list of whole numbers"]),
            (SNAP, "preset", "cores = [-1]\npreset", ["input.cores", "the numbers of cores"]),
            (SNAP, "preset", "cores = []\npreset", ["input.cores", "the numbers of cores"]),
            (SNAP, "preset", "cores = [99999]\npreset", ["input.cores", "this machine has the"]),
            (
                SNAP,
                "preset",
                "numa_node = 999\npreset",
                ["input.numa_node", "this machine has the"],
            ),
            (SNAP, "preset", "idle_s = 0\npreset", ["input.idle_s", "0.1 s"]),
            (SNAP, "centre_hz = 1400e6", "", ["input.centre_hz", "missing"]),
            (SNAP, "centre_hz = 1400e6", "centre_hz = nan", ["input.centre_hz", "not a number"]),
            (SNAP, "centre_hz = 1400e6", "centre_hz = -1e9", ["input", "frequency"]),
            (SNAP, "bandwidth_hz = 256e6", "bandwidth_hz = -1", ["input.bandwidth_hz", "above 0"]),
            (SNAP, "centre_hz", "centres_hz = [1e9]\ncentre_hz", ["input.centres_hz", "either"]),
            (SNAP, "tsamp_s = 4e-6", "", ["input.tsamp_s", "counter_hz"]),
            (SNAP, "tsamp_s = 4e-6", "tsamp_s = 0", ["input.tsamp_s", "above 0"]),
            (SNAP, "sync =", "counter_hz = 1e6\nsync =", ["input.tsamp_s", "per sample"]),
            (SNAP, "2026-01-01T00:00:00Z", "'soon'", ["input.time.sync", "YYYY-MM-DD"]),
            (SNAP, "2026-01-01T00:00:00Z", "true", ["input.time.sync", "ISO 8601"]),
            (SNAP, "2026-01-01T00:00:00Z", "'1960-01-01T00:00:00'", ["input", "1972"]),
            (SNAP, "sync =", "counter_bits = 65\nsync =", ["input.time.counter_bits", "8 to 64"]),
            (SNAP, "sync =", "clock_alarm_s = 0\nsync =", ["input.time.clock_alarm_s", "above 0"]),
            (SNAP, "sync =", "scale = 'gps'\nsync =", ["input.time.scale", "\"tai\""]),
            (SNAP, "sync =", "start =", ["input.time.sync", "missing"]),
            (PACKETS, "kind = \"spectra\"", "", ["input.kind", "\"voltages\""]),
            (PACKETS, "\"u16\"", "\"complex8\"", ["input.encoding", "\"u8\""]),
            (PACKETS, "header_bytes = 16", "", ["input.packet.header_bytes", "missing"]),
            (PACKETS, "header_bytes = 16", "header_bytes = 8", ["input", "lie in the header"]),
            (PACKETS, "offset = 0,", "", ["input.packet.sequence.offset", "missing"]),
            (PACKETS, "\"little\"", "\"middle\"", ["input.packet.sequence.order", "\"big\""]),
            (PACKETS, "{ time = 4 }", "{ times = 4 }", ["input.packet.axes 1.times", "time"]),
            (PACKETS, "{ channel = 32 }", "{ channel = 31 }", ["input", "channels"]),
            (
                PACKETS,
                "axis = \"channel\"",
                "axis = \"time\"",
                ["input.packet.source 1.axis", "antenna"],
            ),
            (PACKETS, "value = 7", "value = 256", ["input", "8 bits"]),
            (PACKETS, "value = 7", "valeu = 7", ["input.packet.constant 1.value", "missing"]),
            (
                PACKETS,
                "count = 2",
                "count = 2, width = 1",
                ["input.packet.source 1.width", "count"],
            ),
            (PACKETS, "[input.packet]", "[input.heap]", ["input.packet", "preset"]),
            (HEAPS, "samples = 0x4300", "", ["input.heap.samples", "an item's number"]),
            (HEAPS, "item = 0x4101,", "", ["input.heap.source 1.item", "missing"]),
            (HEAPS, "antennas = 2", "antennas = 3", ["input", "antennas"]),
            (HEAPS, "step = 16", "", ["input.heap.step", "missing"]),
        ] {
            assert!(text.contains(from), "{from}");
            let found = error(&text.replacen(from, to, 1));
            assert!(found.starts_with("site.toml: "), "{found}");
            assert!(expected.iter().all(|part| found.contains(part)), "{from} -> {to}: {found}");
        }
    }
}
