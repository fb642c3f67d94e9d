//! Channels to mask, from the text files of other programs.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::{Error, Result};
use crate::units::Band;

/// Largest size of a list in bytes: every channel of the widest band, in words of eight bytes.
const MOST_BYTES: u64 = 8 << 20;

/// Option of Heimdall that names the first and the last channel of a range.
const HEIMDALL: &str = "-zap_chans";

/// Form of a list of channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelForm {
    /// Channel numbers and ranges (`10:20`), counted from 0 in the order of the recording.
    Numbers,
    /// The same, counted from the lowest frequency, as PRESTO counts.
    Presto,
    /// One 0 or 1 for each channel, where 0 masks, as in the kill masks of dedisp and peasoup.
    Keep,
    /// One 0 or 1 for each channel, where 1 masks.
    Kill,
}

impl ChannelForm {
    /// Every form.
    pub const ALL: [Self; 4] = [Self::Numbers, Self::Presto, Self::Keep, Self::Kill];

    /// Returns the form's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::Presto => "presto",
            Self::Keep => "keep",
            Self::Kill => "kill",
        }
    }
}

/// Reads the channels of a list, ascending and each once, in the order of `band`.
///
/// The words are separated by white space or commas; `#` starts a comment. Without a form the words decide it: options
/// of Heimdall (`-zap_chans 10 20`), which may be in any file; zeros and ones only, which are a [`ChannelForm::Keep`]
/// unless they could be the channels 0 and 1; numbers and ranges otherwise. A file without words masks no channel.
///
/// # Errors
/// [`Error::Format`] naming the line for a word that is no channel of the band, for another count of zeros and ones
/// than there are channels, and without a form for zeros and ones that mask most channels or could be numbers;
/// [`Error::Io`].
/// # Source
/// PRESTO's `-ignorechan` and `.zapchans` (rfifind.py), from the lowest frequency on ([`ChannelForm::Presto`]);
/// Heimdall's `-zap_chans` (parse_command_line.C), both ends included; peasoup's kill files (dedisperser.hpp);
/// `.bad_chans` of your_rfimask.py (numbers in one line).
pub fn read_channels(path: &Path, form: Option<ChannelForm>, band: &Band) -> Result<Vec<usize>> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(|error| Error::io(path, error))?;
    if bytes.len() as u64 > MOST_BYTES {
        let why = format!("found more than {MOST_BYTES} bytes, expected a list of channels");
        return Err(Error::format(path, "file", 0, why));
    }
    let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| {
        let why = "found bytes that are no text, expected a list of channels; `rfi_mask` takes masks of rfifind";
        Error::format(path, "file", 0, why)
    })?;
    let list = List { path, words: words(text), channels: band.channels() };
    let mut masked = list.masked(form)?;
    if form == Some(ChannelForm::Presto) && band.foff_mhz() < 0.0 {
        masked.reverse();
    }
    Ok(masked
        .iter()
        .enumerate()
        .filter(|(_, masked)| **masked)
        .map(|(channel, _)| channel)
        .collect())
}

/// Word of a list.
#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    /// Number of its line, from 1.
    line: usize,
    offset: usize,
}

/// Returns the words of a text without comments; a backslash before a line's end is no word.
fn words(text: &str) -> Vec<Word<'_>> {
    let place = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    let in_line = |(index, line): (usize, &'_ str)| {
        let line = line.split('#').next().unwrap_or_default();
        let parts = line.split(|letter: char| letter.is_whitespace() || letter == ',');
        let parts = parts.filter(|part| !part.is_empty() && *part != "\\");
        parts.map(|part| (index + 1, place(part), part.len())).collect::<Vec<_>>()
    };
    let found = text.lines().enumerate().flat_map(in_line);
    found
        .map(|(line, offset, bytes)| Word { text: &text[offset..offset + bytes], line, offset })
        .collect()
}

/// Words of a file, for a band with this number of channels.
struct List<'a> {
    path: &'a Path,
    words: Vec<Word<'a>>,
    channels: usize,
}

impl List<'_> {
    /// Returns whether each channel is masked, in the order in which the list counts.
    fn masked(&self, form: Option<ChannelForm>) -> Result<Vec<bool>> {
        if self.words.iter().any(|word| word.text == HEIMDALL) {
            return self.heimdall();
        }
        match form.map_or_else(|| self.form(), Ok)? {
            ChannelForm::Numbers | ChannelForm::Presto => self.numbers(),
            ChannelForm::Keep => self.flags("0"),
            ChannelForm::Kill => self.flags("1"),
        }
    }

    /// Returns the form of the words.
    fn form(&self) -> Result<ChannelForm> {
        let (zeros, count) = (self.count("0"), self.words.len());
        let ones = self.count("1");
        if zeros + ones < count || count == 0 {
            return Ok(ChannelForm::Numbers);
        }
        // A list of numbers has no channel twice.
        let could_be_numbers = zeros <= 1 && ones <= 1;
        if could_be_numbers && count != self.channels {
            return Ok(ChannelForm::Numbers);
        }
        if could_be_numbers {
            return Err(self.ambiguous("zeros and ones that could be the channels 0 and 1"));
        }
        if count == self.channels && 2 * zeros > count {
            return Err(self.ambiguous(&format!("{zeros} zeros in {count} values of 0 and 1")));
        }
        Ok(ChannelForm::Keep)
    }

    /// Returns how often a word occurs.
    fn count(&self, text: &str) -> usize {
        self.words.iter().filter(|word| word.text == text).count()
    }

    /// Makes the error of a list whose form is not clear.
    fn ambiguous(&self, found: &str) -> Error {
        let path = self.path.display();
        let why = format!(
            "found {found}, expected a list whose form is clear; name it: numbers:{path} for channel numbers, \
             keep:{path} if 0 masks a channel, kill:{path} if 1 does"
        );
        Error::format(self.path, "form", 0, why)
    }

    /// Masks the channels of numbers and ranges.
    fn numbers(&self) -> Result<Vec<bool>> {
        let mut masked = vec![false; self.channels];
        for word in &self.words {
            let parts: Vec<&str> = word.text.split(':').collect();
            let (first, last, step) = match parts[..] {
                [only] => (only, only, "1"),
                [first, last] => (first, last, "1"),
                [first, last, step] => (first, last, step),
                _ => {
                    let why =
                        format!("found {:?}, expected FIRST:LAST or FIRST:LAST:STEP", word.text);
                    return Err(self.fault(word, why));
                }
            };
            let range = self.channel(word, first)?..=self.channel(word, last)?;
            let step = step.parse().ok().filter(|step| *step > 0).ok_or_else(|| {
                let why = format!("found {:?}, expected a step of at least 1", word.text);
                self.fault(word, why)
            })?;
            self.mask(&mut masked, word, range, step)?;
        }
        Ok(masked)
    }

    /// Masks the channels of Heimdall's options.
    fn heimdall(&self) -> Result<Vec<bool>> {
        let mut masked = vec![false; self.channels];
        for option in self.words.chunks(3) {
            let [name, first, last] = option else {
                let found = option.len() - 1;
                let why = format!("found {found} numbers after {HEIMDALL}, expected 2");
                return Err(self.fault(&option[0], why));
            };
            if name.text != HEIMDALL {
                let why = format!("found {:?}, expected {HEIMDALL} and two channels", name.text);
                return Err(self.fault(name, why));
            }
            let range = self.channel(first, first.text)?..=self.channel(last, last.text)?;
            self.mask(&mut masked, first, range, 1)?;
        }
        Ok(masked)
    }

    /// Masks the channels whose flag is `masked`.
    fn flags(&self, masked: &str) -> Result<Vec<bool>> {
        if let Some(word) = self.words.iter().find(|word| !["0", "1"].contains(&word.text)) {
            return Err(self.fault(word, format!("found {:?}, expected 0 or 1", word.text)));
        }
        if self.words.len() != self.channels {
            let (found, expected) = (self.words.len(), self.channels);
            let why = format!(
                "found {found} values of 0 and 1, expected {expected}, one for each channel"
            );
            return Err(Error::format(self.path, "channels", 0, why));
        }
        Ok(self.words.iter().map(|word| word.text == masked).collect())
    }

    /// Parses a channel that is `text` in a word.
    fn channel(&self, word: &Word<'_>, text: &str) -> Result<usize> {
        let number = text.parse::<usize>().ok().filter(|_| !text.starts_with('+'));
        number.filter(|channel| *channel < self.channels).ok_or_else(|| {
            let last = self.channels - 1;
            let why = format!("found {:?}, expected a channel from 0 to {last}", word.text);
            self.fault(word, why)
        })
    }

    /// Masks every `step`-th channel of a range, which must not run backwards.
    fn mask(
        &self,
        masked: &mut [bool],
        word: &Word<'_>,
        range: std::ops::RangeInclusive<usize>,
        step: usize,
    ) -> Result<()> {
        if range.is_empty() {
            let (first, last) = (range.start(), range.end());
            let why = format!("found the range {first} to {last}, expected its lower end first");
            return Err(self.fault(word, why));
        }
        range.step_by(step).for_each(|channel| masked[channel] = true);
        Ok(())
    }

    /// Makes the error of a word.
    fn fault(&self, word: &Word<'_>, why: String) -> Error {
        Error::format(self.path, format!("line {}", word.line), word.offset as u64, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], form: Option<ChannelForm>, channels: usize) -> Result<Vec<usize>> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("list.txt");
        std::fs::write(&path, text).expect("a file");
        let band = Band::uniform(1500.0, -1.0, channels).expect("a band");
        read_channels(&path, form, &band)
    }

    fn found(text: &str, channels: usize) -> Vec<usize> {
        read(text.as_bytes(), None, channels).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn fault(text: &str, form: Option<ChannelForm>, channels: usize) -> String {
        read(text.as_bytes(), form, channels).expect_err(text).to_string()
    }

    #[test]
    fn every_form_is_recognized() {
        assert_eq!(found("0:3,40\n", 64), [0, 1, 2, 3, 40], "numbers");
        assert_eq!(found("0:30:10,40\n", 64), [0, 10, 20, 30, 40], "a step");
        for wrong in ["0:30:0", "0:30:x", "0:30:1:1"] {
            assert!(fault(wrong, None, 64).contains(&format!("found {wrong:?}")), "{wrong}");
        }
        assert_eq!(found("# edges\n0:1, 2:3 # low\r\n\n 62\n", 64), [0, 1, 2, 3, 62]);
        assert_eq!(found("12 3 60 ", 64), [3, 12, 60], "your");
        assert_eq!(found("12,3,3", 64), [3, 12]);
        let options = "-zap_chans 2 4 -zap_chans\n60 60 \\\n-zap_chans 3 5\n";
        assert_eq!(found(options, 64), [2, 3, 4, 5, 60], "Heimdall");
        assert_eq!(found("1\n0\n1\n0\n1\n1\n", 6), [1, 3], "a kill mask");
        assert_eq!(found("1 0", 64), [0, 1], "numbers");
        assert_eq!(found(" \n# none\n", 64), [0; 0]);
    }

    #[test]
    fn a_given_form_decides() {
        let read = |text: &str, form, channels| read(text.as_bytes(), Some(form), channels);
        let flags = "1 0 0 0";
        assert_eq!(read(flags, ChannelForm::Keep, 4).unwrap(), [1, 2, 3]);
        assert_eq!(read(flags, ChannelForm::Kill, 4).unwrap(), [0]);
        assert_eq!(read(flags, ChannelForm::Numbers, 4).unwrap(), [0, 1]);
        assert_eq!(read("0:1,5", ChannelForm::Presto, 8).unwrap(), [2, 6, 7]);
    }

    #[test]
    fn what_is_not_clear_asks_for_the_form() {
        for (text, channels) in [("1\n0\n0\n0\n", 4), ("0 1", 2), ("1", 1)] {
            let message = fault(text, None, channels);
            for form in ["numbers:", "keep:", "kill:", "list.txt: form"] {
                assert!(message.contains(form), "{message}");
            }
        }
    }

    #[test]
    fn no_words_make_it_panic() {
        let parts =
            ["0", "1", "7", ":", ",", " ", "\n", "#", "-zap_chans", "\\", "x", "\u{a0}", "9999"];
        let mut state = 1_u64;
        for _ in 0..3000 {
            let mut next = || {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as usize
            };
            let text: String = (0..next() % 9).map(|_| parts[next() % parts.len()]).collect();
            let form = ChannelForm::ALL.get(next() % 5).copied();
            let list = List { path: Path::new("x"), words: words(&text), channels: 8 };
            if let Ok(masked) = list.masked(form) {
                assert_eq!(masked.len(), 8, "{text:?}");
            }
        }
    }

    #[test]
    fn errors_name_the_line_and_both_values() {
        let cases = [
            ("1\n2\nx\n", None, "line 3 (at byte 4): found \"x\", expected a channel from 0 to 63"),
            ("0:31,64", None, "line 1 (at byte 5): found \"64\""),
            ("3:", None, "found \"3:\""),
            ("1,-2", None, "found \"-2\""),
            ("5:2", None, "found the range 5 to 2"),
            ("1.5", None, "found \"1.5\""),
            ("99999999999999999999999", None, "expected a channel from 0 to 63"),
            ("-zap_chans 1 2\n-dm 0 5", None, "line 2 (at byte 15): found \"-dm\""),
            ("-zap_chans 1", None, "found 1 numbers after -zap_chans, expected 2"),
            ("-zap_chans 4 2", None, "found the range 4 to 2"),
            ("-zap_chans 4 64", None, "found \"64\""),
            ("0 1 1", None, "found 3 values of 0 and 1, expected 64"),
            ("0 2 1", Some(ChannelForm::Kill), "found \"2\", expected 0 or 1"),
        ];
        for (text, form, expected) in cases {
            let message = fault(text, form, 64);
            assert!(message.contains("list.txt") && message.contains(expected), "{message}");
        }
        for bytes in [&b"\xff\xfe1"[..], b"1\0", &[0; 100]] {
            let message = read(bytes, None, 64).unwrap_err().to_string();
            assert!(message.contains("no text") && message.contains("`rfi_mask`"), "{message}");
        }
        let long = "1 ".repeat(5 << 20);
        assert!(fault(&long, None, 64).contains("more than"));
    }
}
