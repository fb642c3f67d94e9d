//! 128-bit hash (FNV-1a) that is identical on all machines and in all versions.

/// State of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::backend::cuda) struct Hash(u128);

const START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Hash {
    /// Returns the hash of no bytes.
    pub(in crate::backend::cuda) fn new() -> Self {
        Self(START)
    }

    /// Appends bytes.
    #[must_use]
    pub(in crate::backend::cuda) fn bytes(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME)))
    }

    /// Appends a text and its length, so that consecutive texts are unambiguous.
    #[must_use]
    pub(in crate::backend::cuda) fn text(self, text: &str) -> Self {
        self.bytes(&(text.len() as u64).to_le_bytes()).bytes(text.as_bytes())
    }

    /// Returns the hash value.
    pub(in crate::backend::cuda) fn value(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hashes() {
        let hash = |text: &str| Hash::new().bytes(text.as_bytes()).value();
        assert_eq!(hash(""), START);
        assert_eq!(hash("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(hash("foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn texts_do_not_run_into_each_other() {
        assert_ne!(Hash::new().text("ab").text("c"), Hash::new().text("a").text("bc"));
    }
}
