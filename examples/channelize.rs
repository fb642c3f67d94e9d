//! Divides a file of raw voltages into channels: spectra, or powers, as raw little-endian floats.
//!
//!     cargo run --release --example channelize -- VOLTAGES OUTPUT encoding=complex8 channels=64 taps=8
//!
//! Further words: `window=hann` (or `hamming`, `blackman`, `kaiser:DB`, `rectangular`, the name of a file),
//! `oversample=P/Q`, `order=ascending` (or `natural`, `descending`), `polarizations=2` (all of one polarization, then
//! the other), `products=power` (or `I`, `IQUV`, `AABBCRCI`), `feed=circular`, `integrate=SPECTRA`, `threads=N`.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::{
    Channelizer, Detection, Feed, Form, Options, Order, Output, Plan, Products,
};
use sidereal::io::read_window;
use sidereal::voltage::{VoltageEncoding, Voltages};

/// Samples per block of input.
const GULP: usize = 1 << 16;

/// `key=value` words of the command line.
struct Words(Vec<(String, String)>);

impl Words {
    fn text(&self, key: &str, default: &'static str) -> &str {
        let mut found = self.0.iter().filter(|(name, _)| name == key);
        found.next_back().map_or(default, |(_, value)| value)
    }

    fn count(&self, key: &str, default: &'static str) -> Result<usize, String> {
        let value = self.text(key, default);
        value.parse().map_err(|_| format!("{key}={value} is not a whole number"))
    }

    /// Returns the element of `all` whose name in the library, ignoring case, is the value.
    fn one_of<T: Copy + std::fmt::Debug>(
        &self,
        key: &str,
        default: &'static str,
        all: &[T],
    ) -> Result<T, String> {
        let value = self.text(key, default);
        let is = |one: &&T| format!("{one:?}").eq_ignore_ascii_case(value);
        all.iter().find(is).copied().ok_or_else(|| format!("{key}={value}: there are {all:?}"))
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [input, output, rest @ ..] = words.as_slice() else {
        eprintln!("usage: channelize VOLTAGES OUTPUT encoding=complex8 channels=64 taps=8 ...");
        return ExitCode::from(2);
    };
    let pair = |word: &String| {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        (key.to_owned(), value.to_owned())
    };
    let words = Words(rest.iter().map(pair).collect());
    match options(&words).and_then(|options| channelize(input, output, options, &words)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("channelize: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Settings from the command line.
fn options(words: &Words) -> Result<Options, Box<dyn Error>> {
    let encoding = words.one_of("encoding", "complex8", &VoltageEncoding::ALL)?;
    let (channels, taps) = (words.count("channels", "64")?, words.count("taps", "8")?);
    let mut options = Options::new(channels, taps, encoding);
    options.input.polarizations = words.count("polarizations", "1")?;
    let points = if encoding.is_complex() { channels } else { 2 * channels };
    let window = words.text("window", "hann");
    options.window = match window.parse() {
        Ok(window) => window,
        Err(_) if Path::new(window).is_file() => read_window(window.as_ref(), taps, points)?,
        Err(error) => return Err(error.into()),
    };
    let oversampling = words.text("oversample", "1/1").split_once('/');
    let (p, q) = oversampling.ok_or("oversample is written as P/Q")?;
    options.oversampling = (p.parse()?, q.parse()?);
    let orders = [Order::Natural, Order::Ascending, Order::Descending];
    options.order = words.one_of("order", "ascending", &orders)?;
    if !words.text("products", "").is_empty() {
        let all = [Products::Power, Products::I, Products::Iquv, Products::Aabbcrci];
        options.form = Form::Detected(Detection {
            products: words.one_of("products", "", &all)?,
            feed: words.one_of("feed", "linear", &[Feed::Linear, Feed::Circular])?,
            spectra: words.count("integrate", "1")?,
            channels: 1,
            interpolate_dc: false,
        });
    }
    Ok(options)
}

fn channelize(
    input: &str,
    output: &str,
    options: Options,
    words: &Words,
) -> Result<(), Box<dyn Error>> {
    let plan = Plan::new(options)?;
    eprintln!("{}", plan.response());
    let (encoding, streams) = (plan.input().encoding, plan.input().streams());
    let bytes = fs::read(input)?;
    let stride = bytes.len() / streams;
    let unit = encoding.group_samples();
    let times = stride * 8 / encoding.sample_bits() / unit * unit;
    let voltages = Voltages::new(&bytes, encoding, streams, stride, times)?;

    let elements = plan.max_rows(GULP) * plan.row_elements();
    let detects = matches!(plan.options().form, Form::Detected(_));
    let mut channelizer = Channelizer::new(plan, &Backend::best(words.count("threads", "0")?))?;
    let mut file = BufWriter::new(File::create(output)?);
    let mut floats = vec![0.0f32; if detects { elements } else { 0 }];
    let mut spectra = vec![Complex::<f32>::ZERO; if detects { 0 } else { elements }];
    // The state of the filter is carried from one gulp to the next.
    for start in (0..times).step_by(GULP) {
        let gulp = voltages.slice(start, GULP.min(times - start))?;
        if detects {
            let done = channelizer.run(gulp, Output::F32(&mut floats))?;
            let rows = done.produced * channelizer.plan().row_elements();
            file.write_all(bytemuck::cast_slice(&floats[..rows]))?;
        } else {
            let done = channelizer.run(gulp, Output::Complex(&mut spectra))?;
            let rows = done.produced * channelizer.plan().row_elements();
            file.write_all(bytemuck::cast_slice(&spectra[..rows]))?;
        }
    }
    file.flush()?;
    Ok(())
}
