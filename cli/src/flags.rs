//! Names of the library's options on the command line, and the texts of its errors with them.

use sidereal::Error;
use sidereal::pipeline::Ending;

use crate::output::with_final_names;

/// Fields of the library's options, as its errors name them, and their names on the command line.
const FLAGS: &[(&str, &str)] = &[
    ("PhaseCentre::Drift", "--drift"),
    ("adjacency.radius_deg", "--adjacent"),
    ("allow_gaps", "--allow-gaps"),
    ("array.channel_width_hz", "--bandwidth over --channels (Hz)"),
    ("array.channels", "--channels"),
    ("array.polarizations", "--polarizations"),
    ("array.times", "--seconds (samples)"),
    ("auto_mask: false", "--no-auto-mask"),
    ("average_channels", "--average-channels"),
    ("Backend::Cpu", "--device cpu"),
    ("band.fch1_mhz", "--fch1 and --foff"),
    ("bandwidth_hz", "--bandwidth (Hz)"),
    ("baseline_s", "--baseline"),
    ("baselines", "--baselines"),
    ("bits", "--nbits"),
    ("broad.rate_hz", "--rfi-broad"),
    ("broad.snr", "S/N of --rfi-broad"),
    ("broad.width_s", "width of --rfi-broad"),
    ("burst.channels", "--channels"),
    ("centre_hz", "--freq"),
    ("centre_mhz", "--freq (MHz)"),
    ("channelize.antenna", "--antenna"),
    ("channelize.channels", "--channels"),
    ("coherent_dm", "--coherent-dm"),
    ("correlate.nbits", "--nbits"),
    ("dm_constant", "--dm-constant"),
    ("dm_max", "--dm-max"),
    ("dm_min", "--dm-min"),
    ("dm_step", "--dm-step"),
    ("downsample_tolerance", "--downsample-tol"),
    ("dut1_s", "--dut1"),
    ("frames", "--frames"),
    ("frames.channels", "--channel"),
    ("frames.channels.bits", "--quality"),
    ("gains", "--gains"),
    ("impair.duplicate", "--duplicate"),
    ("impair.loss", "--loss"),
    ("impair.reorder", "--reorder"),
    ("impair.span", "--reorder-span"),
    ("integrate", "--integrate"),
    ("integration_s", "--integration"),
    ("interface", "--interface"),
    ("interpolate_dc", "--dc"),
    ("mark5b_bits", "--mark5b-bits"),
    ("mark5b_channels", "--mark5b-channels"),
    ("mark5b_near_mjd", "--mark5b-near-mjd"),
    ("max_flagged", "--max-flagged"),
    ("memory", "--memory"),
    ("min_band", "--min-band"),
    ("most_beams", "--max-beams"),
    ("missing: Flag", "--missing flag"),
    ("narrow.channels", "--rfi-narrow"),
    ("narrow.strength", "strength of --rfi-narrow"),
    ("oversampling", "--oversample"),
    ("path", "--output"),
    ("polarizations", "--pols"),
    ("precision", "--precision"),
    ("products", "--stokes"),
    ("payload_bytes", "--packet-bytes"),
    ("pulse_width_s", "--pulse-width"),
    ("ranks", "the number of processes (mpirun -n)"),
    ("rate_hz", "--rate (Hz)"),
    ("rfi_mask", "--rfi-mask"),
    ("ring.block_bytes", "--block-bytes"),
    ("ring.blocks", "--blocks"),
    ("ring.header_blocks", "--header-blocks"),
    ("ring.header_bytes", "--header-bytes"),
    ("ring.key", "--key"),
    ("ring.readers", "--readers"),
    ("rms", "--rms"),
    ("sample_rate_hz", "--sample-rate"),
    ("samples per frame", "--heap-times"),
    ("samples per heap", "--heap-times"),
    ("sefd_jy", "--sefd (Jy)"),
    ("selection.channels", "--channels"),
    ("selection.polarization", "--pol"),
    ("send.first", "--first-count"),
    ("send.heap_times", "--heap-times"),
    ("send.rate", "--rate"),
    ("send.restart_s", "--restart (s)"),
    ("shortest", "--shortest"),
    ("strain.channel", "--channel"),
    ("taps", "--taps"),
    ("telescope", "--telescope"),
    ("time_range", "--time-range"),
    ("time_range.from", "start of --time-range"),
    ("time_range.length_s", "length of --time-range (s)"),
    ("time_resolution_s", "--time-res"),
    ("tolerance", "--dm-tol"),
    ("tsamp_s", "--tsamp"),
    ("unpack_ratio", "--unpack-ratio"),
    ("voltages.antennas", "--antennas"),
    ("voltages.channel_width_hz", "--bandwidth over --coarse-channels (Hz)"),
    ("voltages.channels", "--coarse-channels"),
    ("voltages.gaps", "--gap (samples)"),
    ("voltages.polarizations", "--pols"),
    ("voltages.times", "--duration (samples)"),
    ("window", "--window"),
    ("zapped", "--zap-chans"),
];

/// Returns the name of a field of the library's options on the command line.
fn flag(field: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(name, _)| *name == field).map(|(_, flag)| *flag)
}

/// Returns an error's text for users: options instead of the library's fields, final names of files.
pub(crate) fn text(error: &Error) -> String {
    match error {
        Error::Parameter { name, value, rule } => {
            let name = flag(name).unwrap_or(name);
            named(&format!("{name} is {value}, but {rule}"))
        }
        other => named(&other.to_string()),
    }
}

/// Returns why a run is incomplete, as its document has it.
pub(crate) fn reason(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Failed(error) => Some(text(error)),
        other => other.reason().as_deref().map(named),
    }
}

/// Replaces internal names in a message: fields in back quotes become options, files get their final names, `-` becomes
/// standard input.
pub(crate) fn named(message: &str) -> String {
    let words = FLAGS.iter().fold(message.to_owned(), |words, (field, flag)| {
        words.replace(&format!("`{field}`"), flag)
    });
    let message = with_final_names(&words);
    match message.strip_prefix("-: ") {
        Some(rest) => format!("standard input: {rest}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_an_error_become_options() {
        let error = Error::parameter("dm_max", 1.5, "it must not be below `dm_min`, 2");
        assert_eq!(text(&error), "--dm-max is 1.5, but it must not be below --dm-min, 2");
        let error = Error::parameter("channels", 0, "see `sidereal help`; `shortest` helps");
        assert_eq!(text(&error), "channels is 0, but see `sidereal help`; --shortest helps");
        assert_eq!(named("-: `allow_gaps` fills it"), "standard input: --allow-gaps fills it");
    }
}
