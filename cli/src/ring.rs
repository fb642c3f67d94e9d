//! `sidereal ring`: makes, shows, removes and repairs PSRDADA rings.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::live::ring::{self, Generation, Half, Key, Options, Peer, State};
use sidereal::{Error, Result};

use crate::common::{Common, parse_size};
use crate::json;
use crate::provenance::Made;

const EXAMPLES: &str = "Examples:\n  \
    sidereal ring create --blocks 8 --block-bytes 256MiB --readers 2\n  \
    sidereal ring show\n  \
    sidereal ring repair --key dadc\n  \
    sidereal ring destroy";

/// Make, show, remove and repair PSRDADA rings: blocks of shared memory between programs.
///
/// A ring passes observations from one writer to up to 8 readers, which may be programs of PSRDADA. It stays when no program
/// uses it, until it is destroyed or the machine restarts.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Make a ring.
    Create(CreateArguments),
    /// Show a ring: sizes, the writer's and the readers' processes and progress.
    Show(KeyArguments),
    /// Remove a ring.
    ///
    /// A ring in use is removed with --force only; the programs that use it end with an error then.
    Destroy(DestroyArguments),
    /// Free what a killed writer or reader holds.
    ///
    /// The transfer of a killed writer is ended with the blocks that it had filled. The block of a killed reader is put back for
    /// the reader that attaches next, which continues the transfer there. Programs that are attached are not disturbed.
    Repair(RepairArguments),
}

#[derive(Args, Clone, Copy, Debug)]
struct KeyArguments {
    /// Key of the ring, in hexadecimal digits; headers have the next key.
    #[arg(long, short = 'k', value_name = "HEX", default_value = "dada")]
    key: Key,
}

#[derive(Args, Clone, Debug)]
struct CreateArguments {
    #[command(flatten)]
    ring: KeyArguments,
    /// Blocks of data.
    #[arg(long, short = 'n', value_name = "N", default_value_t = Options::default().blocks)]
    blocks: usize,
    /// Bytes of a block, with or without a unit: 256MiB.
    #[arg(long, short = 'b', value_name = "SIZE", default_value = "512KiB", value_parser = parse_size)]
    block_bytes: u64,
    /// Programs that read the ring, each all of it: 1 to 8.
    #[arg(long, short = 'r', value_name = "N", default_value_t = Options::default().readers)]
    readers: usize,
    /// Bytes of a header.
    #[arg(long, short = 'a', value_name = "SIZE", default_value = "4096", value_parser = parse_size)]
    header_bytes: u64,
    /// Headers that the ring can hold.
    #[arg(long, value_name = "N", default_value_t = Options::default().header_blocks)]
    header_blocks: usize,
}

#[derive(Args, Clone, Copy, Debug)]
struct DestroyArguments {
    #[command(flatten)]
    ring: KeyArguments,
    /// Remove a ring that programs use.
    #[arg(long)]
    force: bool,
}

#[derive(Args, Clone, Copy, Debug)]
struct RepairArguments {
    #[command(flatten)]
    ring: KeyArguments,
    /// Also discard all data that wait for readers of which no program is attached.
    ///
    /// A writer that the ring's missing reader stops can then continue.
    #[arg(long)]
    discard: bool,
}

/// JSON document of a ring's state.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Hexadecimal digits.
    key: String,
    headers: HalfDocument,
    data: HalfDocument,
}

#[derive(Serialize, JsonSchema)]
struct HalfDocument {
    /// Whether the layout has a field for a GPU: rings made before 2017-07 have none.
    has_device: bool,
    blocks: usize,
    block_bytes: usize,
    /// Processes that have the memory attached.
    processes: u64,
    /// Process that made the ring.
    creator: i32,
    writer: WriterDocument,
    readers: Vec<ReaderDocument>,
}

#[derive(Serialize, JsonSchema)]
struct WriterDocument {
    /// Process that attached or detached last.
    process: i32,
    attached: bool,
    alive: bool,
    /// Whether a transfer has started and not ended.
    in_transfer: bool,
    /// Transfers that have ended.
    transfers: u64,
    /// Blocks that were written.
    blocks: u64,
}

#[derive(Serialize, JsonSchema)]
struct ReaderDocument {
    /// Process that attached or detached last.
    process: i32,
    attached: bool,
    alive: bool,
    in_transfer: bool,
    /// Transfers that were read to their ends.
    transfers: u64,
    /// Full blocks that it has not taken.
    full: i32,
    /// Blocks that it has taken and not returned.
    held: i64,
    /// Blocks that it has returned and the writer has not used again.
    clear: i32,
}

/// JSON document of a repair.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RepairDocument {
    /// Hexadecimal digits.
    key: String,
    /// Transfers of killed writers that were ended.
    transfers_ended: usize,
    /// Headers without data, which got an empty transfer.
    headers_completed: usize,
    /// Blocks and headers of killed readers that were put back.
    blocks_put_back: usize,
    /// Acknowledgements that killed programs had left undone.
    acknowledgements: usize,
    /// Bytes of data discarded on request.
    discarded_bytes: u64,
}

/// JSON document of a removal.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DestroyDocument {
    /// Hexadecimal digits.
    key: String,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    match &arguments.command {
        Command::Create(arguments) => create(arguments, common),
        Command::Show(arguments) => show(arguments.key, common),
        Command::Destroy(arguments) => destroy(*arguments, common),
        Command::Repair(arguments) => repair(*arguments, common),
    }
}

fn create(arguments: &CreateArguments, common: &Common) -> Result<()> {
    let key = arguments.ring.key;
    let mut options = Options::default();
    options.blocks = arguments.blocks;
    options.block_bytes = bytes("--block-bytes", arguments.block_bytes)?;
    options.header_blocks = arguments.header_blocks;
    options.header_bytes = bytes("--header-bytes", arguments.header_bytes)?;
    options.readers = arguments.readers;
    ring::create(key, &options)?;
    if common.quiet && !common.json { Ok(()) } else { show(key, common) }
}

fn bytes(option: &'static str, size: u64) -> Result<usize> {
    let rule = "it must fit the machine's addresses";
    usize::try_from(size).map_err(|_| Error::parameter(option, size, rule))
}

fn show(key: Key, common: &Common) -> Result<()> {
    let state = ring::state(key)?;
    if !common.json {
        return json::say(table(&state).trim_end());
    }
    let [headers, data] = [&state.headers, &state.data].map(HalfDocument::new);
    print(common, "ring", Document { key: key.to_string(), headers, data })
}

fn destroy(arguments: DestroyArguments, common: &Common) -> Result<()> {
    let key = arguments.ring.key;
    // A ring that is damaged or incomplete has no users that it could name.
    if let (false, Ok(state)) = (arguments.force, ring::state(key)) {
        let peers = state.data.readers.iter().map(|place| place.peer).chain([state.data.writer]);
        if let Some(peer) = peers.into_iter().find(|peer| peer.is_attached && peer.is_alive) {
            let why = format!("process {} uses it; stop that, or add --force", peer.process);
            return Err(Error::Unavailable { what: format!("removing ring {key}"), why });
        }
    }
    ring::destroy(key)?;
    match common.json {
        true => print(common, "ring-destroy", DestroyDocument { key: key.to_string() }),
        false if common.quiet => Ok(()),
        false => json::say(&format!("ring {key} is removed")),
    }
}

fn repair(arguments: RepairArguments, common: &Common) -> Result<()> {
    let key = arguments.ring.key;
    let repairs = ring::repair(key, arguments.discard)?;
    let document = RepairDocument {
        key: key.to_string(),
        transfers_ended: repairs.ended,
        headers_completed: repairs.completed,
        blocks_put_back: repairs.put_back,
        acknowledgements: repairs.acknowledged,
        discarded_bytes: repairs.discarded,
    };
    if common.json {
        return print(common, "ring-repair", document);
    }
    if common.quiet {
        return Ok(());
    }
    let lines = [
        (repairs.ended as u64, "transfers of killed writers ended"),
        (repairs.completed as u64, "headers without data given an empty transfer"),
        (repairs.put_back as u64, "blocks and headers of killed readers put back"),
        (repairs.acknowledged as u64, "acknowledgements completed"),
        (repairs.discarded, "bytes discarded"),
    ];
    let mut text = String::new();
    for (count, words) in lines.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "{count} {words}");
    }
    json::say(if text.is_empty() { "nothing to repair" } else { text.trim_end() })
}

fn print<T: Serialize>(common: &Common, name: &str, document: T) -> Result<()> {
    json::print(&Made::new(common, &[])?.product(name, document))
}

impl HalfDocument {
    fn new(half: &Half) -> Self {
        let readers = half.readers.iter().map(|place| ReaderDocument {
            process: place.peer.process,
            attached: place.peer.is_attached,
            alive: place.peer.is_alive,
            in_transfer: place.is_reading,
            transfers: place.transfers,
            full: place.full,
            held: place.held,
            clear: place.clear,
        });
        Self {
            has_device: half.generation == Generation::WithDevice,
            blocks: half.blocks,
            block_bytes: half.block_bytes,
            processes: half.attached,
            creator: half.creator,
            writer: WriterDocument {
                process: half.writer.process,
                attached: half.writer.is_attached,
                alive: half.writer.is_alive,
                in_transfer: half.is_writing,
                transfers: half.transfers,
                blocks: half.written,
            },
            readers: readers.collect(),
        }
    }
}

/// Formats a ring's state.
fn table(state: &State) -> String {
    let mut text = format!("Ring {}\n", state.key);
    for (name, half) in [("Data", &state.data), ("Headers", &state.headers)] {
        let layout = match half.generation {
            Generation::WithDevice => "",
            Generation::WithoutDevice => ", layout before 2017-07",
        };
        let _ = writeln!(
            text,
            "\n{name:<9}{} blocks of {} bytes, {} attached processes{layout}",
            half.blocks, half.block_bytes, half.attached
        );
        let progress = if half.is_writing { "in a transfer" } else { "between transfers" };
        let _ = writeln!(
            text,
            "  writer    {}; {progress}, {} transfers and {} blocks written",
            process(half.writer, half.is_writing),
            half.transfers,
            half.written
        );
        for (number, place) in half.readers.iter().enumerate() {
            let progress = if place.is_reading { "in a transfer" } else { "between transfers" };
            let _ = writeln!(
                text,
                "  reader {number}  {}; {progress}, {} transfers read, {} blocks full, {} held",
                process(place.peer, place.held > 0),
                place.transfers,
                place.full,
                place.held
            );
        }
    }
    text
}

/// Describes the process at one end, and whether it left something behind.
fn process(peer: Peer, left: bool) -> String {
    match (peer.is_attached, peer.is_alive) {
        (true, true) => format!("process {}", peer.process),
        (false, false) if left => format!("none, process {} has died", peer.process),
        (false, _) => "none".to_owned(),
        (true, false) => format!("process {}, which has died", peer.process),
    }
}
