//! Cores for the threads that receive packets: those of the machine, those that the process may use, and the NUMA node of each.
//!
//! Linux places a page of memory on the node of the thread that writes to it first. A thread that is pinned before it allocates thus
//! has its memory on the node of its cores; on a machine with one node only its caches gain.

use std::fs;
use std::io;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::error::{Error, Result};

/// Folder in which Linux describes cores and nodes.
const SYSTEM: &str = "/sys/devices/system";

/// Cores on which a thread may run, all of one NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores {
    cores: Vec<usize>,
    node: usize,
}

impl Cores {
    /// Selects cores of this machine by their numbers.
    ///
    /// # Errors
    /// [`Error::Parameter`] for no core, a core that the machine lacks, one that this process may not use, and cores of several
    /// nodes; [`Error::Unavailable`] if the system does not say which cores there are.
    pub fn new(cores: &[usize]) -> Result<Self> {
        Machine::read()?.select(cores)
    }

    /// Selects the cores of a NUMA node that this process may use.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a node that the machine lacks, or of which this process may use no core; [`Error::Unavailable`] as
    /// for [`Cores::new`].
    pub fn of_node(node: usize) -> Result<Self> {
        Machine::read()?.node(node)
    }

    /// Returns the numbers of the cores, in ascending order.
    pub fn numbers(&self) -> &[usize] {
        &self.cores
    }

    /// Returns the number of their NUMA node, 0 on a machine without nodes.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Moves the calling thread to these cores, on which it stays. Threads that it starts afterwards inherit them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the system refuses it.
    pub fn pin(&self) -> Result<()> {
        let mut set = CpuSet::new();
        self.cores.iter().for_each(|core| set.set(*core));
        sched_setaffinity(None, &set).map_err(|error| Error::Unavailable {
            what: format!("a thread on {}", listed("core", &self.cores)),
            why: io::Error::from(error).to_string(),
        })
    }
}

/// Cores of a machine.
#[derive(Clone, Debug)]
struct Machine {
    /// Cores in operation.
    online: Vec<usize>,
    /// Cores that this process may use.
    allowed: Vec<usize>,
    /// Cores of each node; empty if the system knows no nodes.
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    number: usize,
    cores: Vec<usize>,
}

impl Machine {
    fn read() -> Result<Self> {
        let system = Path::new(SYSTEM);
        let unknown = |what: &str, why: String| Error::Unavailable { what: what.to_owned(), why };
        let set = sched_getaffinity(None).map_err(|error| {
            unknown("the list of cores for this process", io::Error::from(error).to_string())
        })?;
        let allowed: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
        // A hidden /sys leaves only the cores that may be used.
        let online = list_of(&system.join("cpu/online")).unwrap_or_else(|| allowed.clone());
        let mut nodes = Vec::new();
        for entry in fs::read_dir(system.join("node")).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
            if let (Some(number), Some(cores)) = (number, list_of(&entry.path().join("cpulist"))) {
                nodes.push(Node { number, cores });
            }
        }
        nodes.sort_unstable_by_key(|node| node.number);
        Ok(Self { online, allowed, nodes })
    }

    fn select(&self, cores: &[usize]) -> Result<Cores> {
        let mut cores = cores.to_vec();
        cores.sort_unstable();
        cores.dedup();
        let Some(first) = cores.first() else {
            return Err(Error::parameter("cores", "none", "there must be one or more"));
        };
        for core in &cores {
            if !self.online.contains(core) {
                let rule = format!("this machine has the {}", listed("core", &self.online));
                return Err(Error::parameter("cores", core, rule));
            }
            if !self.allowed.contains(core) {
                let rule =
                    format!("this process may use the {} only", listed("core", &self.allowed));
                return Err(Error::parameter("cores", core, rule));
            }
        }
        let node = self.node_of(*first);
        if let Some(other) = cores.iter().find(|core| self.node_of(**core) != node) {
            let rule = format!(
                "it is of NUMA node {}, but core {first} of node {node}: the memory is on one node",
                self.node_of(*other)
            );
            return Err(Error::parameter("cores", other, rule));
        }
        Ok(Cores { cores, node })
    }

    fn node_of(&self, core: usize) -> usize {
        self.nodes.iter().find(|node| node.cores.contains(&core)).map_or(0, |node| node.number)
    }

    fn node(&self, number: usize) -> Result<Cores> {
        let own: &[usize] = match self.nodes.iter().find(|node| node.number == number) {
            Some(node) => &node.cores,
            None if self.nodes.is_empty() && number == 0 => &self.online,
            None => {
                let numbers: Vec<_> = match self.nodes.as_slice() {
                    [] => vec![0],
                    nodes => nodes.iter().map(|node| node.number).collect(),
                };
                let rule = format!("this machine has the {}", listed("node", &numbers));
                return Err(Error::parameter("numa_node", number, rule));
            }
        };
        let usable: Vec<_> =
            own.iter().copied().filter(|core| self.allowed.contains(core)).collect();
        if usable.is_empty() {
            let rule = format!(
                "this process may use the {} only, none of this node",
                listed("core", &self.allowed)
            );
            return Err(Error::parameter("numa_node", number, rule));
        }
        self.select(&usable)
    }
}

/// Reads a file with a list of numbers as Linux writes it; `None` if there is none.
fn list_of(path: &Path) -> Option<Vec<usize>> {
    parse(&fs::read_to_string(path).ok()?)
}

/// Reads a list such as `0-3,8`; `None` for any other text.
fn parse(text: &str) -> Option<Vec<usize>> {
    let mut numbers = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= 1 << 20 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

/// Formats numbers as Linux does: `cores 0-3, 8`.
fn listed(noun: &str, numbers: &[usize]) -> String {
    let plural = if numbers.len() == 1 { "" } else { "s" };
    let ranges = numbers.chunk_by(|number, next| *next == number + 1).map(|range| match range {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    format!("{noun}{plural} {}", ranges.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let node = |number, text| Node { number, cores: parse(text).unwrap() };
        Machine {
            online: parse("0-7,16-23\n").unwrap(),
            allowed: parse("2-5,16-17").unwrap(),
            nodes: vec![node(0, "0-3,16-19"), node(1, "4-7,20-23"), node(2, "")],
        }
    }

    #[test]
    fn cores_have_a_node() {
        let cores = machine().select(&[17, 2, 2]).unwrap();
        assert_eq!((cores.numbers(), cores.node()), (&[2, 17][..], 0));
        assert_eq!(machine().select(&[5]).unwrap().node(), 1);
        assert_eq!(machine().node(1).unwrap().numbers(), [4, 5]);
        let single = Machine { nodes: Vec::new(), ..machine() };
        assert_eq!(single.select(&[2, 5]).unwrap().node(), 0);
        assert_eq!(single.node(0).unwrap().numbers(), [2, 3, 4, 5, 16, 17]);
    }

    #[test]
    fn cores_that_cannot_be_used_are_named() {
        let error = |cores: &[usize]| machine().select(cores).unwrap_err().to_string();
        assert!(error(&[]).contains("one or more"), "{}", error(&[]));
        assert!(error(&[2, 9]).contains("cores 0-7, 16-23"), "{}", error(&[2, 9]));
        assert!(error(&[7]).contains("may use the cores 2-5, 16-17"), "{}", error(&[7]));
        assert!(error(&[3, 4]).contains("NUMA node 1"), "{}", error(&[3, 4]));
        let error = |node| machine().node(node).unwrap_err().to_string();
        assert!(error(3).contains("nodes 0-2"), "{}", error(3));
        assert!(error(2).contains("none of this node"), "{}", error(2));
        let single = Machine { nodes: Vec::new(), ..machine() };
        assert!(single.node(1).unwrap_err().to_string().contains("node 0"));
    }

    #[test]
    fn lists_are_those_of_linux() {
        assert_eq!(parse("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse("\n"), Some(vec![]));
        assert_eq!((parse("a"), parse("1-"), parse("0-99999999")), (None, None, None));
        assert_eq!(listed("core", &[3]), "core 3");
        assert_eq!(listed("core", &[0, 1, 2, 5, 7, 8]), "cores 0-2, 5, 7-8");
    }

    #[test]
    fn a_pinned_thread_stays_on_its_core() {
        let first = Machine::read().unwrap().allowed[0];
        let cores = Cores::new(&[first]).unwrap();
        let run = move || {
            cores.pin().unwrap();
            let set = sched_getaffinity(None).unwrap();
            (set.count(), set.is_set(first), rustix::thread::sched_getcpu())
        };
        assert_eq!(std::thread::spawn(run).join().unwrap(), (1, true, first));
        assert!(Cores::new(&[CpuSet::MAX_CPU]).is_err());
    }
}
