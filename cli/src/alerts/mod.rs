//! Triggers that reach a live search, and alerts that leave it.
//!
//! The search hands over its candidates and asks for triggers between gulps; it never waits for sockets, commands or files,
//! which have threads of their own behind bounded queues.

mod event;
mod files;
mod gcn;
mod heimdall;
mod inlet;
mod on_event;
mod record;
mod rules;
mod udp;
mod voevent;
mod worker;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use sidereal::io::candidates;
use sidereal::live::clock;
use sidereal::live::trigger::{Limits, Origin, Stream, Trigger};
use sidereal::single_pulse::Candidate;
use sidereal::units::Epoch;
use sidereal::{Error, Result};
use tracing::Level;

use event::{AskedDump, Marks};
use files::Files;
use gcn::Schema;
use heimdall::{Coincidencer, Gulp};
use inlet::{Arrival, Counters};
use record::{Counts, Fate, Record};
use rules::{DmRange, Rules, Verdict, read_vetoes};
use udp::Udp;

use crate::common::Common;
use crate::interrupt;
use crate::numbers;
use crate::say::{self, note, warning};

pub(crate) use event::{Event, EventState, Observation, iso};
pub(crate) use files::stem;
pub(crate) use inlet::Arrivals;
#[cfg(feature = "page")]
pub(crate) use inlet::{Inlet, Taken, inlet};
pub(crate) use on_event::{Hook, Message};
pub(crate) use record::TriggerLine;
pub(crate) use worker::{Fates, Worker};

/// Most events of a run among which a later one finds its predecessor, and a dump that is complete its event: more than can wait for
/// dumps.
const REMEMBERED: usize = 1024;

/// Most triggers of the search that wait.
const WAITING: usize = 64;

/// Most datagrams that are looked at between two gulps.
const LOOKED_AT: usize = 64;

/// Least time between two lines about triggers that were counted only.
const EVERY: Duration = Duration::from_secs(1);

/// Kinds of triggers that are counted only.
const KINDS: usize = 4;

/// Longest wait at the end for files and for the coincidencer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Options of triggers and alerts.
#[derive(Args, Clone, Debug)]
#[group(id = "alert_arguments")]
pub(crate) struct Arguments {
    /// Least S/N at which a candidate is an event: a trigger and an alert; without it none is.
    #[arg(long, value_name = "S/N", allow_negative_numbers = true, help_heading = "Triggers")]
    trigger_snr: Option<f64>,
    /// Dispersion measures of events; either end may be left out (100:).
    #[arg(
        long,
        value_name = "LOWEST:HIGHEST",
        value_parser = DmRange::parse,
        requires = "trigger_snr",
        allow_hyphen_values = true,
        help_heading = "Triggers"
    )]
    trigger_dm: Option<DmRange>,
    /// Widest pulse of an event, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "trigger_snr",
        allow_negative_numbers = true,
        help_heading = "Triggers"
    )]
    trigger_max_width: Option<f64>,
    /// File of DMs that are no events, as those of known pulsars.
    ///
    /// Lines `name,dm_min,dm_max`, or a TOML file with tables [[veto]] of these keys.
    #[arg(long, value_name = "FILE", requires = "trigger_snr", help_heading = "Triggers")]
    trigger_veto: Option<PathBuf>,
    /// Most events in an hour.
    #[arg(long, value_name = "N", default_value_t = 60, help_heading = "Triggers")]
    trigger_most: u64,
    /// Receive triggers of other programs as datagrams: udp://HOST:PORT, without HOST on this machine only.
    #[arg(long, value_name = "ADDRESS", help_heading = "Triggers")]
    triggers: Option<String>,
    /// Hosts whose triggers are accepted; without them those of this machine.
    #[arg(
        long,
        value_name = "IP",
        value_delimiter = ',',
        requires = "triggers",
        help_heading = "Triggers"
    )]
    trigger_from: Vec<IpAddr>,
    /// Most triggers in a second from each host, and over HTTP.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10.0,
        allow_negative_numbers = true,
        help_heading = "Triggers"
    )]
    trigger_rate: f64,
    /// Highest DM of a trigger, its error included.
    #[arg(
        long,
        value_name = "DM",
        default_value_t = 10_000.0,
        allow_negative_numbers = true,
        help_heading = "Triggers"
    )]
    trigger_max_dm: f64,
    /// Longest time from now to a trigger in the future, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10.0,
        allow_negative_numbers = true,
        help_heading = "Triggers"
    )]
    trigger_future: f64,
    /// Length of a sample in triggers that give the number of a sample, in seconds; by default that of the search.
    #[arg(
        long,
        value_name = "SECONDS",
        requires = "triggers",
        allow_negative_numbers = true,
        help_heading = "Triggers"
    )]
    trigger_sample: Option<f64>,
    /// Run a command for each message about an event, which is JSON on its standard input.
    ///
    /// Words are split as a shell splits them, but no shell runs: variables and pipes need a script. One command runs at a
    /// time, 64 messages wait, and what it prints is logged.
    #[arg(long, value_name = "COMMAND", requires = "trigger_snr", help_heading = "Alerts")]
    on_event: Option<String>,
    /// Time limit of a command in seconds; beyond it the command and its child processes are killed.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 30.0,
        allow_negative_numbers = true,
        help_heading = "Alerts"
    )]
    on_event_timeout: f64,
    /// Send candidates in Heimdall's columns: HOST:PORT for a connection per gulp, udp://HOST:PORT for datagrams.
    #[arg(long, value_name = "ADDRESS", help_heading = "Alerts")]
    coincidencer: Option<String>,
    /// Write each message about an event as a GCN notice and as a VOEvent to this folder.
    #[arg(long, value_name = "DIR", requires = "trigger_snr", help_heading = "Alerts")]
    alerts: Option<PathBuf>,
    /// Schema of the GCN notices.
    #[arg(long, value_enum, value_name = "NAME", default_value = "chime", help_heading = "Alerts")]
    alert_schema: Schema,
    /// Identifier of the author of VOEvents.
    #[arg(
        long,
        value_name = "IVORN",
        default_value = "ivo://localhost/sidereal",
        help_heading = "Alerts"
    )]
    alert_ivorn: String,
    /// Error of the header's position in degrees, as half the beam; without it alerts have no position.
    #[arg(long, value_name = "DEGREES", allow_negative_numbers = true, help_heading = "Alerts")]
    alert_radius: Option<f64>,
    /// Mark all events as tests.
    #[arg(long, help_heading = "Alerts")]
    alert_test: bool,
}

/// Dumps that events ask for.
struct Dumped {
    list: PathBuf,
    /// Seconds before and after a burst.
    margin_s: f64,
}

/// Arguments that were checked.
struct Checked {
    rules: Option<Rules>,
    hook: Option<Hook>,
    coincidencer: Option<Coincidencer>,
    udp: Option<udp::Options>,
}

impl Arguments {
    /// Returns whether something asks for dumps: the rules, or other programs.
    pub(crate) fn has_triggers(&self) -> bool {
        self.trigger_snr.is_some() || self.triggers.is_some()
    }

    /// Returns the most triggers in a second from a sender.
    #[cfg(feature = "page")]
    pub(crate) fn trigger_rate(&self) -> f64 {
        self.trigger_rate
    }

    /// Checks everything that needs no stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option; as [`read_vetoes`].
    pub(crate) fn check(&self) -> Result<()> {
        self.checked().map(drop)
    }

    fn checked(&self) -> Result<Checked> {
        numbers::within("--trigger-snr", self.trigger_snr.unwrap_or(1.0), 0.1..=1e6, "")?;
        let longest_s = self.trigger_max_width.unwrap_or(f64::INFINITY);
        numbers::within("--trigger-max-width", longest_s, 1e-9..=f64::INFINITY, "seconds")?;
        numbers::within("--trigger-rate", self.trigger_rate, 0.001..=1e6, "per second")?;
        numbers::within("--trigger-max-dm", self.trigger_max_dm, 0.0..=1e6, "pc cm^-3")?;
        numbers::within("--trigger-future", self.trigger_future, 0.0..=86_400.0, "seconds")?;
        let sample_s = self.trigger_sample.unwrap_or(1.0);
        numbers::within("--trigger-sample", sample_s, 1e-9..=1e3, "seconds")?;
        numbers::within("--on-event-timeout", self.on_event_timeout, 0.01..=3600.0, "seconds")?;
        let radius_deg = self.alert_radius.unwrap_or(1.0);
        numbers::within("--alert-radius", radius_deg, 1e-6..=180.0, "degrees")?;
        if !self.alert_ivorn.starts_with("ivo://") || self.alert_ivorn.contains(['#', ' ']) {
            let rule = "expected ivo://AUTHORITY/NAME";
            return Err(Error::parameter("--alert-ivorn", &*self.alert_ivorn, rule));
        }
        let rules = self.trigger_snr.map(|snr| {
            let all = DmRange { lowest: 0.0, highest: f64::INFINITY };
            let vetoes = self.trigger_veto.as_deref().map_or(Ok(Vec::new()), read_vetoes)?;
            let (dm, most) = (self.trigger_dm.unwrap_or(all), self.trigger_most);
            Ok(Rules { snr, dm, longest_s, vetoes, most, hour: Instant::now(), count: 0 })
        });
        let hook = self.on_event.as_deref();
        let udp = self.triggers.as_deref().map(|text| self.udp(text));
        Ok(Checked {
            rules: rules.transpose()?,
            hook: hook.map(|command| Hook::new(command, self.on_event_timeout)).transpose()?,
            coincidencer: self.coincidencer.as_deref().map(Coincidencer::new).transpose()?,
            udp: udp.transpose()?,
        })
    }

    fn udp(&self, text: &str) -> Result<udp::Options> {
        let address = udp::address("--triggers", text)?;
        if udp::is_open(&address) && self.trigger_from.is_empty() {
            let rule =
                "an address that other machines reach needs --trigger-from with their addresses";
            return Err(Error::parameter("--triggers", text, rule));
        }
        Ok(udp::Options { address, senders: self.trigger_from.clone(), per_s: self.trigger_rate })
    }
}

/// Triggers and alerts of a live search.
pub(crate) struct Alerts {
    rules: Option<Rules>,
    limits: Limits,
    marks: Marks,
    sample_s: Option<f64>,
    hook: Option<Worker<Event>>,
    hook_limit: Duration,
    files: Option<Worker<Event>>,
    coincidencer: Option<Worker<Gulp>>,
    udp: Option<Udp>,
    /// Triggers that come through the page.
    http: Option<Arrivals>,
    record: Option<Record>,
    observation: Option<Observation>,
    dumps: Option<Dumped>,
    /// Events that are neither final nor retracted, by the number of their candidate.
    events: HashMap<u64, Event>,
    /// Candidates that were passed over, each counted once.
    passed_over: HashSet<u64>,
    /// Latest events of the run.
    latest: VecDeque<Event>,
    /// Highest S/N of candidates sent to the coincidencer.
    sent: HashMap<u64, f64>,
    gulp: Gulp,
    /// Triggers of the search.
    own: VecDeque<Trigger>,
    counts: Counts,
    /// Counters as lines have them, and the time of the last look at them.
    told: [u64; KINDS],
    looked: Instant,
    is_quiet: bool,
}

impl Alerts {
    /// Checks the arguments, opens the sockets, finds the command, and starts the threads.
    ///
    /// # Errors
    /// As [`Arguments::check`]; [`Error::Unavailable`] for an address in use; [`Error::Io`].
    pub(crate) fn start(
        arguments: &Arguments,
        http: Option<Arrivals>,
        common: &Common,
    ) -> Result<Self> {
        let Checked { rules, hook, coincidencer, udp } = arguments.checked()?;
        let files = arguments.alerts.as_ref().map(|folder| Files {
            folder: folder.clone(),
            schema: arguments.alert_schema,
            authority: arguments.alert_ivorn.clone(),
        });
        Ok(Self {
            rules,
            limits: Limits {
                future_s: arguments.trigger_future,
                highest_dm: arguments.trigger_max_dm,
                ..Limits::default()
            },
            marks: Marks { is_test: arguments.alert_test, radius_deg: arguments.alert_radius },
            sample_s: arguments.trigger_sample,
            hook_limit: hook.as_ref().map_or(Duration::ZERO, Hook::limit),
            hook: hook.map(Hook::start).transpose()?,
            files: files.map(Files::start).transpose()?,
            coincidencer: coincidencer.map(Coincidencer::start).transpose()?,
            udp: udp.map(Udp::start).transpose()?,
            http,
            record: None,
            observation: None,
            dumps: None,
            events: HashMap::new(),
            passed_over: HashSet::new(),
            latest: VecDeque::new(),
            sent: HashMap::new(),
            gulp: Gulp { number: 0, lines: Vec::new() },
            own: VecDeque::new(),
            counts: Counts::default(),
            told: [0; KINDS],
            looked: Instant::now(),
            is_quiet: common.quiet,
        })
    }

    /// Begins an observation; lines about triggers go to `parent`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn observe(&mut self, parent: &Path, observation: Observation) -> Result<()> {
        if self.record.is_none()
            && (self.rules.is_some() || self.udp.is_some() || self.http.is_some())
        {
            self.record = Some(Record::open(parent)?);
        }
        if self.files.is_some() && observation.start().is_none() {
            warning!(quiet: self.is_quiet,
                "the start of the observation is unknown, and its alerts will have no time.");
        }
        self.observation = Some(observation);
        self.dumps = None;
        self.events.clear();
        self.passed_over.clear();
        self.sent.clear();
        Ok(())
    }

    /// Sets the list of the observation's dumps, and the time in seconds that a dump includes before and after a burst.
    pub(crate) fn dump_to(&mut self, list: PathBuf, margin_s: f64) {
        self.dumps = Some(Dumped { list, margin_s });
    }

    /// Adds the file of a complete dump to the events of these trigger names, and sends an update of each.
    pub(crate) fn dumped(&mut self, names: &[String], file: &Path) {
        for name in names {
            let Some(event) = self.latest.iter_mut().find(|event| event.id == *name) else {
                continue;
            };
            let Some(dump) = &mut event.dump else { continue };
            dump.file = Some(file.display().to_string());
            event.next(EventState::Update);
            let event = event.clone();
            self.send(&event);
            if let Some(own) = self.events.values_mut().find(|own| own.id == event.id) {
                *own = event;
            }
        }
    }

    /// Takes a candidate as it is now; its times count from the observation's first sample.
    pub(crate) fn candidate(&mut self, number: u64, candidate: &Candidate, is_final: bool) {
        self.coincide(number, candidate);
        let Some(observation) = &self.observation else { return };
        if let Some(event) = self.events.get_mut(&number) {
            event.measure(candidate, observation);
            event.is_final = is_final;
            event.next(EventState::Update);
            let event = event.clone();
            self.send(&event);
            if let Some(other) = self.latest.iter_mut().find(|other| other.id == event.id) {
                *other = event;
            }
        } else if let Some(rules) = &mut self.rules {
            match rules.judge(candidate, Instant::now()) {
                Verdict::Passes => self.announce(number, candidate, is_final),
                Verdict::Fails => {}
                Verdict::Vetoed => {
                    self.counts.vetoed += u64::from(self.passed_over.insert(number));
                }
                Verdict::Limited => {
                    self.counts.beyond_hour += u64::from(self.passed_over.insert(number));
                }
            }
        }
        if is_final {
            self.forget(number);
        }
    }

    /// Takes back a candidate, which is none or belongs to another one.
    pub(crate) fn retract(&mut self, number: u64) {
        if let Some(mut event) = self.events.remove(&number) {
            event.is_final = true;
            event.next(EventState::Retraction);
            self.latest.retain(|other| other.id != event.id);
            self.send(&event);
        }
        self.forget(number);
    }

    /// Sends the lines of a gulp to the coincidencer.
    pub(crate) fn end_gulp(&mut self) {
        let Some(coincidencer) = self.coincidencer.as_ref().filter(|_| !self.gulp.lines.is_empty())
        else {
            return;
        };
        let number = self.gulp.number + 1;
        coincidencer.offer(std::mem::replace(&mut self.gulp, Gulp { number, lines: Vec::new() }));
    }

    /// Returns the next trigger that is within the limits, if one waits; writes a line for each that it looks at.
    pub(crate) fn next_trigger(&mut self) -> Option<Trigger> {
        if self.looked.elapsed() >= EVERY {
            self.tell();
        }
        if let Some(trigger) = self.own.pop_front() {
            return Some(self.accept(trigger));
        }
        for _ in 0..LOOKED_AT {
            let Arrival { origin: source, message } = self.next_arrival()?;
            let mut message = match message {
                Ok(message) => message,
                Err(why) => {
                    self.write(&TriggerLine::malformed(source, why));
                    continue;
                }
            };
            if let (Some(dm), None) = (message.dm, message.dm_error) {
                message.dm_error = self.observation.as_ref().map(|own| own.dm_step(dm));
            }
            let name = message.name.clone();
            let trigger = match message.trigger(source, &self.stream()) {
                Ok(trigger) => trigger,
                Err(why) => {
                    self.counts.out_of_range += 1;
                    self.write(&TriggerLine::malformed(source, format!("{name}: {why}")));
                    continue;
                }
            };
            match self.limits.check(&trigger, &clock::now()) {
                Ok(()) => return Some(self.accept(trigger)),
                Err(why) => {
                    self.counts.out_of_range += 1;
                    self.write(&TriggerLine::of(&trigger, Some(why.to_string())));
                }
            }
        }
        None
    }

    /// Returns the next message of another program.
    fn next_arrival(&self) -> Option<Arrival> {
        let http = self.http.as_ref().and_then(Arrivals::next);
        http.or_else(|| self.udp.as_ref()?.arrivals.next())
    }

    /// Refuses the triggers that still wait: no search will look at them.
    fn refuse_rest(&mut self) {
        let why = "the search has ended";
        while let Some(trigger) = self.own.pop_front() {
            self.counts.too_late += 1;
            self.write(&TriggerLine::of(&trigger, Some(why.to_owned())));
        }
        while let Some(Arrival { origin, message }) = self.next_arrival() {
            let why = match message {
                Ok(message) => {
                    self.counts.too_late += 1;
                    format!("{}: {why}", message.name)
                }
                Err(why) => why,
            };
            self.write(&TriggerLine::malformed(origin, why));
        }
    }

    /// Waits a limited time for what is not sent yet, ends the threads, and writes the counters.
    pub(crate) fn finish(mut self) {
        // Every wait has a limit, also after a request to stop.
        interrupt::finishing();
        if let Some(udp) = &mut self.udp {
            udp.finish();
        }
        self.refuse_rest();
        if let Some(files) = &mut self.files {
            files.finish(PATIENCE);
        }
        if let Some(coincidencer) = &mut self.coincidencer {
            coincidencer.finish(PATIENCE);
        }
        if let Some(hook) = &mut self.hook {
            hook.finish(self.hook_limit + PATIENCE);
        }
        self.tell();
        let counts = self.counts();
        self.write(&TriggerLine::summary(counts));
        let has_begun = self.record.is_some() && (self.rules.is_some() || self.udp.is_some());
        if !self.is_quiet && has_begun {
            let Counts { received, accepted, events, vetoed, .. } = counts;
            note!(
                "{events} events, {vetoed} vetoed; {received} triggers received, {accepted} accepted"
            );
        }
        let lost = |what: &str, [_, failed, dropped]: [u64; 3]| {
            if failed + dropped > 0 {
                warning!(quiet: self.is_quiet, "{what}: {failed} failed, {dropped} left out.");
            }
        };
        lost("commands of --on-event", counts.commands);
        lost("messages of --alerts", counts.alerts);
        lost("gulps of --coincidencer", counts.gulps);
    }

    /// Makes an event of a candidate.
    fn announce(&mut self, number: u64, candidate: &Candidate, is_final: bool) {
        let Some(observation) = &self.observation else { return };
        let mut event = Event::new(number, candidate, observation, self.marks);
        let earlier = self.latest.iter().rev().find(|other| {
            other.agrees(event.dm, event.dm_error)
                && (other.ra_deg, other.dec_deg) == (event.ra_deg, event.dec_deg)
        });
        event.follows = earlier.map(|other| other.id.clone());
        event.is_final = is_final;
        let is_first = event.follows.is_none();
        event.next(if is_first { EventState::Initial } else { EventState::Subsequent });
        if let Some(start) = observation.time(candidate.peak_begin_s) {
            let trigger = own_trigger(&event, start, observation.header.band.highest_hz());
            if self.own.len() < WAITING {
                event.dump = self.dumps.as_ref().map(|dumps| AskedDump {
                    list: dumps.list.display().to_string(),
                    trigger: event.id.clone(),
                    start: event::iso(&start.plus_s(-dumps.margin_s)),
                    end: event::iso(&start.plus_s(event.width_s + dumps.margin_s)),
                    file: None,
                });
                self.own.push_back(trigger);
            } else {
                self.counts.overflowed += 1;
            }
        }
        self.counts.events += 1;
        self.send(&event);
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(event.clone());
        self.events.insert(number, event);
    }

    fn send(&self, event: &Event) {
        for worker in [&self.hook, &self.files].into_iter().flatten() {
            worker.offer(event.clone());
        }
    }

    fn forget(&mut self, number: u64) {
        self.events.remove(&number);
        self.passed_over.remove(&number);
        self.sent.remove(&number);
    }

    /// Adds a candidate to the gulp, unless it was sent with the same S/N or a higher one.
    fn coincide(&mut self, number: u64, candidate: &Candidate) {
        let Some(observation) = self.observation.as_ref().filter(|_| self.coincidencer.is_some())
        else {
            return;
        };
        let sent = self.sent.entry(number).or_insert(0.0);
        if candidate.snr <= *sent {
            return;
        }
        *sent = candidate.snr;
        let header = &observation.header;
        let record = candidates::Record {
            snr: candidate.snr,
            time_s: candidate.time_s,
            width_s: candidate.width_s,
            dm: candidate.dm,
            dm_trial: candidate.trial,
            members: candidate.members,
            begin_s: candidate.begin_s,
            end_s: candidate.end_s,
            tsamp_s: header.tsamp_s,
            mjd: None,
            barycentric_mjd: None,
            band_fraction: candidate.band_fraction,
        };
        self.gulp.lines.push(heimdall::line(&record, header.beam.map_or(0, |beam| beam.number)));
    }

    /// Returns what triggers by sample numbers, or without a DM, refer to.
    fn stream(&self) -> Stream {
        let observation = self.observation.as_ref();
        Stream {
            start: observation.and_then(Observation::start),
            sample_s: self.sample_s.or(observation.map(|own| own.header.tsamp_s)).unwrap_or(1.0),
            highest_dm: observation.map_or(0.0, Observation::highest_dm),
        }
    }

    fn accept(&mut self, trigger: Trigger) -> Trigger {
        self.counts.accepted += 1;
        self.write(&TriggerLine::of(&trigger, None));
        trigger
    }

    fn write(&mut self, line: &TriggerLine) {
        if let Some(record) = &mut self.record {
            record.write(line);
        }
    }

    /// Writes a line for each kind of triggers that are only counted.
    fn tell(&mut self) {
        self.looked = Instant::now();
        let counts = self.counts();
        let kinds: [(Fate, &str, u64); KINDS] = [
            (Fate::Refused, "from a host that --trigger-from does not name", counts.foreign),
            (Fate::Limited, "more than --trigger-rate from one host", counts.beyond_rate),
            (Fate::Limited, "the queue was full", counts.overflowed),
            (Fate::Limited, "the kernel's buffer was full", counts.dropped_by_kernel),
        ];
        for (place, (fate, why, count)) in kinds.into_iter().enumerate() {
            let more = count - self.told[place];
            if more > 0 {
                self.told[place] = count;
                say::log(Level::WARN, &format!("{more} triggers were not taken: {why}"));
                self.write(&TriggerLine::several(fate, why, more));
            }
        }
    }

    fn arrivals(&self) -> impl Iterator<Item = &Arrivals> {
        let udp = self.udp.as_ref().map(|udp| &udp.arrivals);
        udp.into_iter().chain(&self.http)
    }

    fn counts(&self) -> Counts {
        let mut counts = self.counts;
        for own in self.arrivals() {
            let own = &own.counters;
            counts.received += Counters::of(&own.received);
            counts.foreign += Counters::of(&own.foreign);
            counts.beyond_rate += Counters::of(&own.limited);
            counts.dropped_by_kernel += Counters::of(&own.dropped);
            counts.malformed += Counters::of(&own.malformed);
            counts.overflowed += Counters::of(&own.overflowed);
            counts.too_late += Counters::of(&own.too_late);
        }
        let of = |worker: &Option<Worker<Event>>| {
            worker.as_ref().map_or([0; 3], |worker| worker.fates.counts())
        };
        counts.commands = of(&self.hook);
        counts.alerts = of(&self.files);
        counts.gulps = self.coincidencer.as_ref().map_or([0; 3], |worker| worker.fates.counts());
        counts
    }
}

/// Makes the trigger of an event whose pulse begins at `start`, at the centre of the highest channel.
fn own_trigger(event: &Event, start: Epoch, highest_hz: f64) -> Trigger {
    Trigger {
        name: event.id.clone(),
        source: Origin::Search,
        start,
        reference_hz: Some(highest_hz),
        dm: event.dm,
        dm_error: event.dm_error,
        width_s: event.width_s,
        snr: Some(event.snr),
        priority: 0,
        is_test: event.is_test,
    }
}
