//! The bytes of a SIGPROC header to be written.

/// Builds a header's bytes, field by field.
#[derive(Debug)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// `HEADER_START`.
    pub(super) fn new() -> Self {
        let mut encoder = Self { bytes: Vec::new() };
        encoder.word("HEADER_START");
        encoder
    }

    pub(super) fn word(&mut self, text: &str) {
        self.bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn integer(&mut self, keyword: &str, value: i32) {
        self.word(keyword);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn float(&mut self, keyword: &str, value: f64) {
        self.word(keyword);
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn byte(&mut self, keyword: &str, value: u8) {
        self.word(keyword);
        self.bytes.push(value);
    }

    /// Text, cut to the 79 bytes that every reader takes.
    pub(super) fn text(&mut self, keyword: &str, value: &str) {
        let mut end = value.len().min(79);
        while !value.is_char_boundary(end) {
            end -= 1;
        }
        self.word(keyword);
        self.word(if end == 0 { "unknown" } else { &value[..end] });
    }

    pub(super) fn frequencies(&mut self, centres_mhz: impl Iterator<Item = f64>) {
        self.word("FREQUENCY_START");
        for centre in centres_mhz {
            self.float("fchannel", centre);
        }
        self.word("FREQUENCY_END");
    }

    /// `HEADER_END`, and all bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.word("HEADER_END");
        self.bytes
    }
}
