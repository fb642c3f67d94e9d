//! SIGPROC's telescope numbers.
//!
//! Invariant: reading a number and writing its name gives the number back.

/// Number and name. Of several names with one number, a reader returns the first, and a writer accepts all.
const TELESCOPES: &[(i32, &str)] = &[
    (0, "Fake"),
    (1, "Arecibo"),
    (2, "Ooty"),
    (3, "Nancay"),
    (4, "Parkes"),
    (4, "Murriyang"),
    (5, "Jodrell"),
    (5, "Lovell"),
    (6, "GBT"),
    (7, "GMRT"),
    (7, "uGMRT"),
    (8, "Effelsberg"),
    (9, "ATA"),
    (10, "SRT"),
    (11, "LOFAR"),
    (12, "VLA"),
    (20, "CHIME"),
    (21, "FAST"),
    (64, "MeerKAT"),
    (65, "KAT-7"),
    (82, "eMerlin"),
];

/// Returns a telescope's name; an unknown number stays a number: `telescope 77`.
pub fn name(number: i32) -> String {
    let known = TELESCOPES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("telescope {number}"), |(_, name)| (*name).to_string())
}

/// Returns a telescope's number, ignoring case; 0 if SIGPROC has none.
pub fn number(name: &str) -> i32 {
    let known = TELESCOPES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name.trim()));
    let written = || name.trim().strip_prefix("telescope ").and_then(|text| text.parse().ok());
    known.map(|(number, _)| *number).or_else(written).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_go_round() {
        for id in [-1, 0, 4, 6, 21, 64, 77, 1916] {
            assert_eq!(number(&name(id)), id);
        }
        assert_eq!(number("meerkat"), 64);
        assert_eq!(number("a garden dish"), 0);
    }
}
