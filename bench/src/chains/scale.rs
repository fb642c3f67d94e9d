//! `bench scale`: whole verbs on 1, 2, 4 and more GPUs or threads, or in as many ranks of MPI, with the same data or with data that grow
//! with them, or in as many independent processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sidereal::backend::Backend;
use sidereal::backend::cuda::measure::ExchangeRates;
use sidereal::backend::cuda::{Device, measure};
use sidereal::backend::threads::Threads;
use sidereal::pipeline::{ExchangeRates as RankRates, Ranks};
use sidereal::trace::Work;
use sidereal::{Error, Result};

use super::cases::{Chain, Size, Sizes, Verb};
use super::child::{Runs, Shares, mpirun, remove, trace_in};
use super::inputs::Maker;
use super::{file_system, place};
use crate::runner::{Csv, Document, Session, say};

/// Measure whole verbs on several GPUs or threads, or in several processes.
///
/// `--over ranks` needs a program with the feature `mpi`, and its mpirun.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Verbs to measure [default: search, channelize, correlate and spiir; with --over ranks correlate, spiir and beams].
    #[arg(long, value_enum, value_name = "VERBS", value_delimiter = ',')]
    verbs: Vec<Verb>,
    /// Vary the number of these [default: GPUs with --device cuda, otherwise threads].
    #[arg(long, value_enum, value_name = "WHAT")]
    over: Option<Over>,
    /// Numbers to measure [default: 1, 2, 4 and so on, as many as there are GPUs or cores].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1024))]
    numbers: Vec<u16>,
    /// Let the data grow with the number of GPUs, threads or ranks: the time should stay the same.
    #[arg(long)]
    weak: bool,
    /// Measure small data once, to test that everything works: the rates mean nothing.
    #[arg(long)]
    quick: bool,
    /// N times the data, longer recordings and more templates, so that the start of a run counts less.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    longer: u64,
    /// Measure data for a machine of a few cores.
    #[arg(long, conflicts_with = "quick")]
    small: bool,
    /// Measure the exchange between the ranks that mpirun started and exit: the parent process reads its rates.
    #[arg(long, hide = true)]
    exchange: bool,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Folder for inputs and products, which are deleted at the end [default: as of `bench chains`].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Runs of each case, of which the median counts [default: 3, with --quick 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: Option<u16>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

/// Resource whose number varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Over {
    /// GPUs of one run.
    Gpus,
    /// Threads of one run.
    Threads,
    /// Ranks of one run, which mpirun starts: they share the threads and the GPUs.
    Ranks,
    /// Processes that make one run each at the same time, as tasks of an archive do: they share the threads, and the GPUs are assigned to them in order.
    Processes,
}

/// Verbs that divide their work among GPUs.
const VERBS: [Verb; 4] = [Verb::Search, Verb::Channelize, Verb::Correlate, Verb::Spiir];

/// Verbs that divide their work among ranks.
const DIVIDED: [Verb; 3] = [Verb::Correlate, Verb::Spiir, Verb::Beams];

/// Bytes of a message between two ranks, and number of exchanges that are measured.
const MESSAGE_BYTES: usize = 4 << 20;
const EXCHANGES: usize = 16;

/// Least templates for ranks, each of which has some that are computed together.
const TEMPLATES: usize = 32;

/// Starts of processes that are measured.
const STARTS: usize = 3;

/// Bytes that are divided among the GPUs in an exchange.
const PEER_BYTES: usize = 1 << 30;
/// The same in a quick run.
const QUICK_PEER_BYTES: usize = 1 << 20;
/// Bytes of a row in an exchange.
const PEER_ROW_BYTES: usize = 1 << 16;

const ABOUT: &str = "\
Whole runs of the command line, from the start of the program to its end: the median in seconds. Number: of GPUs,
threads, ranks or processes; one rank is a run without mpirun. Speed-up: the time of the first number over this time;
where the work grows with the number (--weak, --over processes), multiplied by this number over the first. Efficiency:
the speed-up times the first number over this number. Start-up: the seconds before the first kernel of dedispersion or
of a filter bank. Then the seconds in which kernels (on any GPU), copies to, from and between GPUs, reads,
computations and the exchange between ranks (with waiting for the others) were under way, from the time stamps of
another run (of one of the processes; of rank 0). K speed-up: that of the seconds of kernels. Same: whether the
products have the bytes of the first number.";

const HEADER: [&str; 11] = [
    "number",
    "wall",
    "speed-up",
    "efficiency",
    "start-up",
    "kernels",
    "k speed-up",
    "copies",
    "read",
    "compute",
    "exchange",
];

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    session.check(0.0)?;
    let over = arguments.over(session)?;
    if over == Over::Ranks {
        check_mpirun()?;
    }
    let numbers = arguments.numbers(over, &session.backend)?;
    let verbs = arguments.verbs(over)?;
    let most = if arguments.weak { numbers.iter().copied().max().unwrap_or(1) } else { 1 };
    let least = if over == Over::Ranks { TEMPLATES } else { 0 };
    let sizes = |factor: usize| {
        Sizes::of(arguments.size()).with_templates(least).times(factor as u64 * arguments.longer)
    };
    let processes =
        if over == Over::Processes { numbers.iter().max().map_or(1, |n| *n as u64) } else { 1 };
    let need =
        verbs.iter().map(|verb| (1 + processes) * verb.need(&sizes(most))).max().unwrap_or(0);
    let place = place(arguments.folder.as_deref(), need)?;
    let home = tempfile::Builder::new().prefix("sidereal-scale-").tempdir_in(&place);
    let home = home.map_err(|error| Error::io(&place, error))?;
    let _held = session.caller.hold(home.path());
    let threads = Threads::new(session.threads);
    let maker = Maker { threads: &threads, caller: session.caller };
    if session.talks() {
        say(ABOUT)?;
        let (folder, system) = (place.display(), file_system(&place));
        say(&format!("In {folder} ({system}), on {}.", session.backend.name()))?;
        for count in &numbers {
            if let Some(words) = exchange_text(over, *count, arguments.quick, session)? {
                say(&words)?;
            }
        }
        say(&line("case", &HEADER.map(str::to_owned), "same"))?;
    }
    let bench = Bench { arguments, session, home: home.path(), over };
    // Factors of the data, each with the numbers that are measured on these data.
    let data: Vec<(usize, Vec<usize>)> = match arguments.weak {
        true => numbers.iter().map(|number| (*number, vec![*number])).collect(),
        false => vec![(1, numbers)],
    };
    let (inputs, kept) = (home.path().join("inputs"), home.path().join("first"));
    let mut rows: Vec<Row> = Vec::new();
    for verb in verbs {
        let mut firsts: Vec<Option<Row>> = Vec::new();
        for (factor, numbers) in &data {
            std::fs::create_dir_all(&inputs).map_err(|error| Error::io(&inputs, error))?;
            let chains = verb.make(&sizes(*factor), &inputs, &maker)?;
            let chains = scaled(chains, if arguments.quick { QUICK_DENSE } else { DENSE });
            firsts.resize(chains.len(), None);
            for (chain, first) in chains.iter().zip(&mut firsts) {
                if arguments.only.as_deref().is_some_and(|part| !chain.name.contains(part)) {
                    continue;
                }
                remove(&kept)?;
                for &number in numbers {
                    let row = bench.measure(chain, number, first.as_ref(), &kept)?;
                    if session.talks() {
                        say(&row.line())?;
                    }
                    if first.is_none() {
                        *first = Some(row.clone());
                    }
                    rows.push(row);
                    bench.write_csv(&rows)?;
                }
            }
            remove(&inputs)?;
        }
    }
    if session.json {
        let lines = rows.iter().map(|row| {
            let cells = row.cells().into_iter().map(|(name, cell)| (name.to_owned(), cell));
            Value::Object(cells.collect())
        });
        session.caller.print(&Document::Lines(lines.collect()))?;
    }
    match rows.iter().find(|row| row.is_same == Some(false)) {
        Some(row) => Err(Error::Unavailable {
            what: format!("the products of {} on {}", row.case, row.number),
            why: "they differ from those of the first number".to_owned(),
        }),
        None => Ok(()),
    }
}

/// Options of a search with many trials (25001), in which kernels take a larger part, and those of a quick run.
const DENSE: &str = "--dm-max 1000 --dm-step 0.04";
const QUICK_DENSE: &str = "--dm-max 1000 --dm-step 4";

/// Returns the chains that are measured: without short ones and those with pictures, with a dense plan for each search, and
/// with the same products in every run.
fn scaled(chains: Vec<Chain>, dense: &str) -> Vec<Chain> {
    let mut found = Vec::new();
    for mut chain in chains {
        if chain.name.ends_with(", pictures") || chain.name.ends_with(", a few seconds") {
            continue;
        }
        chain.words.push("--reproducible".to_owned());
        if chain.words[0] == "search" {
            let mut other = chain.clone();
            other.name = format!("{}, dense plan", chain.name);
            other.words.extend(dense.split_whitespace().map(str::to_owned));
            found.extend([chain, other]);
        } else {
            found.push(chain);
        }
    }
    found
}

impl Arguments {
    /// Returns whether the processes that mpirun starts measure the exchange between them.
    pub(crate) fn is_exchange(&self) -> bool {
        self.exchange
    }

    /// Returns the amount of data.
    fn size(&self) -> Size {
        match (self.quick, self.small) {
            (true, _) => Size::Quick,
            (_, true) => Size::Small,
            _ => Size::Scale,
        }
    }

    /// Returns the verbs to measure.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a verb that ranks do not divide.
    fn verbs(&self, over: Over) -> Result<Vec<Verb>> {
        let usual = if over == Over::Ranks { &DIVIDED[..] } else { &VERBS };
        let is_other = |verb: &&Verb| over == Over::Ranks && !DIVIDED.contains(verb);
        if let Some(other) = self.verbs.iter().find(is_other) {
            let rule = "ranks divide correlate, spiir and beams";
            return Err(Error::parameter("--verbs", format!("{other:?}").to_lowercase(), rule));
        }
        Ok(if self.verbs.is_empty() { usual.to_vec() } else { self.verbs.clone() })
    }

    /// Returns what there are several of.
    ///
    /// # Errors
    /// [`Error::Parameter`] for GPUs without one, and for ranks without MPI.
    fn over(&self, session: &Session<'_>) -> Result<Over> {
        let backend = &session.backend;
        let usual = if backend.is_gpu() { Over::Gpus } else { Over::Threads };
        match self.over.unwrap_or(usual) {
            Over::Gpus if !backend.is_gpu() => {
                Err(Error::parameter("--over", "gpus", "--device cuda has GPUs"))
            }
            Over::Threads if backend.is_gpu() => {
                Err(Error::parameter("--over", "threads", "--device cpu has threads alone"))
            }
            Over::Ranks if !session.caller.has_ranks() => Err(Error::parameter(
                "--over",
                "ranks",
                "this program was built without MPI: build it with `--features mpi`",
            )),
            Over::Processes if self.weak => Err(Error::parameter(
                "--weak",
                "given",
                "with --over processes the work always grows",
            )),
            over => Ok(over),
        }
    }

    /// Returns the numbers of GPUs, threads or processes.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more GPUs than there are.
    fn numbers(&self, over: Over, backend: &Backend) -> Result<Vec<usize>> {
        let most = match backend {
            Backend::Cuda(..) if over == Over::Gpus => Device::count()?,
            _ => std::thread::available_parallelism().map_or(1, usize::from),
        };
        if self.numbers.is_empty() {
            let doubled = std::iter::successors(Some(1_usize), |number| Some(2 * number));
            return Ok(doubled.take_while(|number| *number <= most).collect());
        }
        let numbers: Vec<usize> = self.numbers.iter().map(|number| usize::from(*number)).collect();
        match numbers.iter().find(|number| over == Over::Gpus && **number > most) {
            Some(number) => {
                let rule = format!("this machine has {most} GPUs");
                Err(Error::parameter("--numbers", *number, rule))
            }
            None => Ok(numbers),
        }
    }

    fn runs(&self) -> usize {
        self.runs.map_or(if self.quick { 1 } else { 3 }, usize::from)
    }
}

/// Measures the exchange among `count` GPUs; `None` for one.
fn exchange_rates(count: usize, quick: bool) -> Result<Option<ExchangeRates>> {
    let bytes = if quick { QUICK_PEER_BYTES } else { PEER_BYTES };
    let devices: Vec<Device> = Device::all().into_iter().take(count).collect();
    (devices.len() > 1).then(|| measure::exchange(&devices, bytes, PEER_ROW_BYTES)).transpose()
}

/// Measures the exchange among a number of GPUs or ranks, and describes it; `None` for one.
fn exchange_text(
    over: Over,
    count: usize,
    quick: bool,
    session: &Session<'_>,
) -> Result<Option<String>> {
    Ok(match over {
        Over::Gpus => exchange_rates(count, quick)?.map(|ExchangeRates { contiguous, rows }| {
            let (rows, contiguous) = (rows * 1e-9, contiguous * 1e-9);
            format!(
                "Exchange among {count} GPUs: each receives {rows:.1} GB/s in rows of a corner turn, {contiguous:.1} GB/s in one piece."
            )
        }),
        Over::Ranks if count > 1 => {
            let launch_s = launch_s(count, session)?;
            let RankRates { agreement_s, received } = rates_of_ranks(count)?;
            let (agreement_us, rate) = (agreement_s * 1e6, received * 1e-9);
            Some(format!(
                "{count} ranks: mpirun takes {launch_s:.2} s to start and end them. Roof of their exchange: each receives {rate:.2} GB/s \
                 in messages of {} MiB, and an agreement takes {agreement_us:.0} us.",
                MESSAGE_BYTES >> 20
            ))
        }
        _ => None,
    })
}

/// Measures the exchange between ranks as one of them; returns the rates at rank 0.
///
/// # Errors
/// Errors of the exchange.
pub fn measure_exchange(mut ranks: Ranks) -> Result<Option<Value>> {
    let RankRates { agreement_s, received } = ranks.measure(MESSAGE_BYTES, EXCHANGES)?;
    let count = ranks.count();
    Ok((ranks.own() == 0).then(|| {
        json!({
            "bench": "exchange", "ranks": count, "message_bytes": MESSAGE_BYTES,
            "agreement_s": agreement_s, "received_bytes_per_s": received,
        })
    }))
}

/// Fails unless mpirun can be started.
fn check_mpirun() -> Result<()> {
    let mut command = Command::new("mpirun");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(_) => Ok(()),
        Err(error) => {
            let why =
                format!("{error}; it comes with the MPI library that this program was built with");
            Err(Error::Unavailable { what: "mpirun".to_owned(), why })
        }
    }
}

/// Returns the output of this program in several processes that mpirun starts.
fn run_ranks(count: usize, words: &[&str]) -> Result<Vec<u8>> {
    let program = std::env::current_exe().map_err(|error| Error::io("sidereal", error))?;
    let mut command = mpirun(count, &program);
    command.args(words).stdin(Stdio::null()).stderr(Stdio::inherit());
    let ended = command.output().map_err(|error| Error::io("mpirun", error))?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    let (what, why) = (format!("{count} ranks"), format!("mpirun ended with {}", ended.status));
    Err(Error::Unavailable { what, why })
}

/// Returns the median seconds that mpirun takes to start and end processes without work.
fn launch_s(count: usize, session: &Session<'_>) -> Result<f64> {
    let mut seconds = Vec::new();
    for _ in 0..STARTS {
        session.caller.check_interrupt()?;
        let begin = Instant::now();
        run_ranks(count, &["--version"])?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(measure::median(&seconds))
}

/// Measures the exchange among ranks.
fn rates_of_ranks(count: usize) -> Result<RankRates> {
    let text = run_ranks(count, &["bench", "scale", "--exchange", "--json", "--device", "cpu"])?;
    let found: Value = serde_json::from_slice(&text).unwrap_or_default();
    let number = |name: &str| found[name].as_f64();
    match number("agreement_s").zip(number("received_bytes_per_s")) {
        Some((agreement_s, received)) => Ok(RankRates { agreement_s, received }),
        None => {
            let what = format!("the exchange of {count} ranks");
            let why = format!("it printed {:?}", String::from_utf8_lossy(&text));
            Err(Error::Unavailable { what, why })
        }
    }
}

/// Measurement in progress.
struct Bench<'a> {
    arguments: &'a Arguments,
    session: &'a Session<'a>,
    home: &'a Path,
    over: Over,
}

impl Bench<'_> {
    /// Measures a chain on a number of GPUs or threads; the products of the first number are kept in `kept`, with which
    /// later ones are compared.
    fn measure(
        &self,
        chain: &Chain,
        number: usize,
        first: Option<&Row>,
        kept: &Path,
    ) -> Result<Row> {
        let session = self.session;
        let is_gpu = session.backend.is_gpu();
        let ordinals: Vec<String> = (0..number).map(|ordinal| ordinal.to_string()).collect();
        let mut ranks = None;
        let (devices, threads) = match self.over {
            Over::Ranks => {
                ranks = (number > 1).then_some(number);
                let device = if is_gpu { "cuda:all" } else { "cpu" };
                let threads = Threads::new(session.threads).count();
                (vec![device.to_owned()], (threads / number).max(1))
            }
            Over::Gpus => (vec![format!("cuda:{}", ordinals.join(","))], session.threads),
            Over::Threads => (vec!["cpu".to_owned()], number),
            Over::Processes => {
                let gpus = if is_gpu { Device::count()?.max(1) } else { 1 };
                let device = |process: usize| match is_gpu {
                    true => format!("cuda:{}", process % gpus),
                    false => "cpu".to_owned(),
                };
                let threads = Threads::new(session.threads).count();
                ((0..number).map(device).collect(), (threads / number).max(1))
            }
        };
        let (products, cache) = (self.home.join("products"), self.home.join("cache"));
        let piped = false;
        let runs = Runs { chain, devices, ranks, threads, piped, products, cache, cold: false };
        let trace = trace_in(self.home);
        if is_gpu {
            // Fills the cache of kernels.
            runs.once(None, session.caller)?;
        }
        runs.once(Some(&trace), session.caller)?;
        let shares = Shares::read(&trace)?;
        let made: Vec<PathBuf> = (0..runs.devices.len()).map(|one| runs.products_of(one)).collect();
        for folder in &made {
            for later in &chain.kept {
                let from = folder.join(&later.from);
                std::fs::rename(&from, &later.to).map_err(|error| Error::io(&from, error))?;
            }
        }
        let is_same = match first {
            _ if self.arguments.weak => None,
            Some(_) => {
                let same = made.iter().map(|folder| same_files(folder, kept));
                Some(same.collect::<Result<Vec<bool>>>()?.into_iter().all(|is_same| is_same))
            }
            None => {
                let moved = std::fs::rename(&made[0], kept);
                moved.map_err(|error| Error::io(kept, error))?;
                None
            }
        };
        let mut wall_s = Vec::new();
        for _ in 0..self.arguments.runs() {
            wall_s.push(runs.once(None, session.caller)?.wall_s);
        }
        remove(&runs.products)?;
        wall_s.sort_by(f64::total_cmp);
        let row = Row {
            case: chain.name.clone(),
            number,
            start_up_s: shares.start_up_s.unwrap_or(0.0),
            kernels_s: shares.busy_s(Work::Kernel),
            copies_s: shares.busy_s(Work::ToDevice) + shares.busy_s(Work::FromDevice),
            read_s: shares.busy_s(Work::Read),
            compute_s: shares.busy_s(Work::Compute),
            exchange_s: shares.busy_s(Work::Exchange),
            scaling: match self.over {
                Over::Processes => Scaling::Processes,
                _ if self.arguments.weak => Scaling::Weak,
                _ => Scaling::Strong,
            },
            is_same,
            wall_s,
            first: None,
        };
        Ok(row.relative_to(first))
    }

    fn write_csv(&self, rows: &[Row]) -> Result<()> {
        match &self.arguments.csv {
            Some(path) => Csv::of(rows.iter().map(Row::cells)).write(path),
            None => Ok(()),
        }
    }
}

/// Growth of the work with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scaling {
    /// The data stay the same.
    Strong,
    /// The data grow with the number.
    Weak,
    /// Each process makes a run of its own.
    Processes,
}

impl Scaling {
    fn name(self) -> &'static str {
        match self {
            Self::Strong => "strong",
            Self::Weak => "weak",
            Self::Processes => "processes",
        }
    }
}

/// Measured chain on a number of GPUs or threads, or in a number of ranks or processes.
#[derive(Clone, Debug)]
struct Row {
    case: String,
    number: usize,
    /// Wall times in ascending order.
    wall_s: Vec<f64>,
    start_up_s: f64,
    kernels_s: f64,
    copies_s: f64,
    read_s: f64,
    compute_s: f64,
    exchange_s: f64,
    scaling: Scaling,
    /// Whether the products are those of the first number; `None` if this is the first, or if the data differ.
    is_same: Option<bool>,
    first: Option<First>,
}

/// Number, median wall time and seconds of kernels of the first measurement of a chain.
#[derive(Clone, Copy, Debug)]
struct First {
    number: usize,
    wall_s: f64,
    kernels_s: f64,
}

impl Row {
    fn relative_to(self, first: Option<&Self>) -> Self {
        let of = |row: &Self| First {
            number: row.number,
            wall_s: row.median_s(),
            kernels_s: row.kernels_s,
        };
        let first = Some(of(first.unwrap_or(&self)));
        Self { first, ..self }
    }

    fn median_s(&self) -> f64 {
        measure::median(&self.wall_s)
    }

    /// Returns the speed-up of the wall time, its part of the ideal one, and the speed-up of the kernels.
    fn speed_ups(&self) -> [f64; 3] {
        let Some(First { number, wall_s, kernels_s }) = self.first else { return [1.0; 3] };
        let ideal = self.number as f64 / number as f64;
        let grown = if self.scaling == Scaling::Strong { 1.0 } else { ideal };
        let wall = grown * wall_s / self.median_s();
        let kernels = if self.kernels_s > 0.0 { grown * kernels_s / self.kernels_s } else { 0.0 };
        [wall, wall / ideal, kernels]
    }

    fn cells(&self) -> Vec<(&'static str, Value)> {
        let [wall, efficiency, kernels] = self.speed_ups();
        vec![
            ("bench", json!("scale")),
            ("case", json!(self.case)),
            ("number", json!(self.number)),
            ("scaling", json!(self.scaling.name())),
            ("runs", json!(self.wall_s.len())),
            ("wall_s", json!(self.median_s())),
            ("wall_min_s", json!(self.wall_s.first())),
            ("wall_max_s", json!(self.wall_s.last())),
            ("speed_up", json!(wall)),
            ("efficiency", json!(efficiency)),
            ("start_up_s", json!(self.start_up_s)),
            ("kernels_s", json!(self.kernels_s)),
            ("kernels_speed_up", json!(kernels)),
            ("copies_s", json!(self.copies_s)),
            ("read_s", json!(self.read_s)),
            ("compute_s", json!(self.compute_s)),
            ("exchange_s", json!(self.exchange_s)),
            ("same_products", json!(self.is_same)),
        ]
    }

    fn line(&self) -> String {
        let [wall, efficiency, kernels] = self.speed_ups();
        let numbers = [
            self.median_s(),
            wall,
            efficiency,
            self.start_up_s,
            self.kernels_s,
            kernels,
            self.copies_s,
            self.read_s,
            self.compute_s,
            self.exchange_s,
        ];
        let mut cells = numbers.map(|number| format!("{number:.3}")).to_vec();
        cells.insert(0, self.number.to_string());
        let same = match self.is_same {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        line(&self.case, &cells, same)
    }
}

fn line(case: &str, cells: &[String], last: &str) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
    format!("{case:<58}{cells}  {last}")
}

/// Extensions of the products' documents that name the device and times.
const DOCUMENTS: [&str; 2] = ["json", "html"];

/// Returns whether two folders have the same files with the same bytes, except for documents that name the device.
fn same_files(a: &Path, b: &Path) -> Result<bool> {
    let (own, other) = (files(a)?, files(b)?);
    if own != other {
        return Ok(false);
    }
    for name in own {
        let read = |folder: &Path| {
            let path = folder.join(&name);
            std::fs::read(&path).map_err(|error| Error::io(&path, error))
        };
        if read(a)? != read(b)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the paths of a folder's files relative to it, in order, without documents that name the device.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::new()];
    while let Some(part) = open.pop() {
        let path = folder.join(&part);
        let io = |error| Error::io(&path, error);
        for entry in std::fs::read_dir(&path).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = part.join(entry.file_name());
            let is_document =
                name.extension().is_some_and(|end| DOCUMENTS.iter().any(|one| end == *one));
            if entry.file_type().map_err(io)?.is_dir() {
                open.push(name);
            } else if !is_document {
                found.push(name);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: usize, wall_s: f64, scaling: Scaling) -> Row {
        Row {
            case: "a case".to_owned(),
            number,
            wall_s: vec![wall_s],
            start_up_s: 0.5,
            kernels_s: wall_s / 2.0,
            copies_s: 0.1,
            read_s: 0.2,
            compute_s: 0.3,
            exchange_s: 0.0,
            scaling,
            is_same: None,
            first: None,
        }
    }

    #[test]
    fn speed_ups_are_relative_to_the_first_number() {
        let one = row(1, 10.0, Scaling::Strong).relative_to(None);
        assert_eq!(one.speed_ups(), [1.0, 1.0, 1.0]);
        let four = row(4, 4.0, Scaling::Strong).relative_to(Some(&one));
        assert_eq!(four.speed_ups(), [2.5, 0.625, 2.5]);
        let grown = row(4, 12.5, Scaling::Weak).relative_to(Some(&row(1, 10.0, Scaling::Weak)));
        let [wall, efficiency, _] = grown.speed_ups();
        assert!((wall - 3.2).abs() < 1e-12 && (efficiency - 0.8).abs() < 1e-12);
    }

    #[test]
    fn products_are_compared_without_documents() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        for (place, device) in [(&a, "cuda:0"), (&b, "cuda:0,1")] {
            std::fs::create_dir_all(place.join("x")).unwrap();
            std::fs::write(place.join("x/list.csv"), "1,2\n").unwrap();
            std::fs::write(place.join("run.json"), device).unwrap();
        }
        assert!(same_files(&a, &b).unwrap());
        std::fs::write(b.join("x/list.csv"), "1,3\n").unwrap();
        assert!(!same_files(&a, &b).unwrap());
        std::fs::write(b.join("x/list.csv"), "1,2\n").unwrap();
        std::fs::write(b.join("more.csv"), "").unwrap();
        assert!(!same_files(&a, &b).unwrap());
    }
}
