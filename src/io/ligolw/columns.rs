//! Columns of the event tables, with igwn-ligolw's names and types.

/// Name and type of a column.
pub(super) type Columns = [(&'static str, &'static str)];

const PROCESS_ID: (&str, &str) = ("process:process_id", "int_8s");
const COINC_EVENT_ID: (&str, &str) = ("coinc_event:coinc_event_id", "int_8s");

pub(super) const PROCESS: &Columns = &[
    ("process_id", "int_8s"),
    ("program", "lstring"),
    ("version", "lstring"),
    ("comment", "lstring"),
    ("ifos", "lstring"),
    ("start_time", "int_4s"),
    ("end_time", "int_4s"),
    ("is_online", "int_4s"),
    ("jobid", "int_4s"),
    ("unix_procid", "int_4s"),
    ("cvs_entry_time", "int_4s"),
    ("cvs_repository", "lstring"),
    ("domain", "lstring"),
    ("node", "lstring"),
    ("username", "lstring"),
];

pub(super) const PROCESS_PARAMS: &Columns = &[
    PROCESS_ID,
    ("program", "lstring"),
    ("param", "lstring"),
    ("type", "lstring"),
    ("value", "lstring"),
];

pub(super) const TIME_SLIDE: &Columns =
    &[PROCESS_ID, ("time_slide_id", "int_8s"), ("instrument", "lstring"), ("offset", "real_8")];

pub(super) const COINC_DEFINER: &Columns = &[
    ("coinc_def_id", "int_8s"),
    ("search", "lstring"),
    ("search_coinc_type", "int_4u"),
    ("description", "lstring"),
];

pub(super) const COINC_EVENT: &Columns = &[
    PROCESS_ID,
    ("coinc_event_id", "int_8s"),
    ("coinc_definer:coinc_def_id", "int_8s"),
    ("time_slide:time_slide_id", "int_8s"),
    ("instruments", "lstring"),
    ("nevents", "int_4u"),
    ("likelihood", "real_8"),
];

pub(super) const COINC_EVENT_MAP: &Columns =
    &[COINC_EVENT_ID, ("table_name", "char_v"), ("event_id", "int_8s")];

pub(super) const COINC_INSPIRAL: &Columns = &[
    COINC_EVENT_ID,
    ("ifos", "lstring"),
    ("end_time", "int_4s"),
    ("end_time_ns", "int_4s"),
    ("snr", "real_8"),
    ("combined_far", "real_8"),
    ("false_alarm_rate", "real_8"),
    ("mass", "real_8"),
    ("mchirp", "real_8"),
    ("minimum_duration", "real_8"),
];

/// Columns of `sngl_inspiral` with values.
pub(super) const SNGL_INSPIRAL: &Columns = &[
    PROCESS_ID,
    ("event_id", "int_8s"),
    ("ifo", "lstring"),
    ("search", "lstring"),
    ("end_time", "int_4s"),
    ("end_time_ns", "int_4s"),
    ("snr", "real_4"),
    ("coa_phase", "real_4"),
    ("chisq", "real_4"),
    ("chisq_dof", "int_4s"),
    ("eff_distance", "real_4"),
    ("sigmasq", "real_8"),
    ("template_duration", "real_8"),
    ("f_final", "real_4"),
    ("mass1", "real_4"),
    ("mass2", "real_4"),
    ("mchirp", "real_4"),
    ("mtotal", "real_4"),
    ("eta", "real_4"),
    ("spin1x", "real_4"),
    ("spin1y", "real_4"),
    ("spin1z", "real_4"),
    ("spin2x", "real_4"),
    ("spin2y", "real_4"),
    ("spin2z", "real_4"),
];

/// Empty columns of `sngl_inspiral`, for programs that require all columns.
pub(super) const SNGL_INSPIRAL_EMPTY: &Columns = &[
    ("channel", "lstring"),
    ("end_time_gmst", "real_8"),
    ("impulse_time", "int_4s"),
    ("impulse_time_ns", "int_4s"),
    ("event_duration", "real_8"),
    ("amplitude", "real_4"),
    ("tau0", "real_4"),
    ("tau2", "real_4"),
    ("tau3", "real_4"),
    ("tau4", "real_4"),
    ("tau5", "real_4"),
    ("ttotal", "real_4"),
    ("psi0", "real_4"),
    ("psi3", "real_4"),
    ("alpha", "real_4"),
    ("alpha1", "real_4"),
    ("alpha2", "real_4"),
    ("alpha3", "real_4"),
    ("alpha4", "real_4"),
    ("alpha5", "real_4"),
    ("alpha6", "real_4"),
    ("beta", "real_4"),
    ("kappa", "real_4"),
    ("chi", "real_4"),
    ("bank_chisq", "real_4"),
    ("bank_chisq_dof", "int_4s"),
    ("cont_chisq", "real_4"),
    ("cont_chisq_dof", "int_4s"),
    ("rsqveto_duration", "real_4"),
    ("Gamma0", "real_4"),
    ("Gamma1", "real_4"),
    ("Gamma2", "real_4"),
    ("Gamma3", "real_4"),
    ("Gamma4", "real_4"),
    ("Gamma5", "real_4"),
    ("Gamma6", "real_4"),
    ("Gamma7", "real_4"),
    ("Gamma8", "real_4"),
    ("Gamma9", "real_4"),
];
