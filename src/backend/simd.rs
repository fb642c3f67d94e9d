//! SIMD instruction levels. A level is created only by detection, so holding one proves that its instructions exist.
//!
//! Invariant: no public function creates a [`Level`] that this machine lacks.

use crate::error::{Error, Result};

/// Names of all levels, slowest first.
pub const NAMES: [&str; 3] = ["portable", "avx2", "avx512"];

/// Proof that AVX2 and FMA were detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx2(());

/// Proof that AVX-512 F, BW, VL and DQ were detected; also records whether VNNI was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avx512 {
    vnni: bool,
}

impl Avx512 {
    /// Returns whether sums of products of four bytes (AVX-512 VNNI) were detected.
    pub fn vnni(self) -> bool {
        self.vnni
    }
}

/// SIMD instruction level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Level {
    /// Code that runs on any machine of the architecture.
    Portable,
    /// 256-bit integers and floats (x86-64).
    Avx2(Avx2),
    /// 512-bit integers and floats (x86-64).
    Avx512(Avx512),
}

impl Level {
    /// Returns all levels of this machine, slowest first.
    pub fn available() -> Vec<Self> {
        let mut levels = vec![Self::Portable];
        levels.extend(detect_avx2());
        levels.extend(detect_avx512());
        levels
    }

    /// Like [`Self::available`], plus AVX-512 without VNNI.
    pub fn variants() -> Vec<Self> {
        let mut levels = Self::available();
        if let Some(Self::Avx512(Avx512 { vnni: true })) = levels.last() {
            levels.insert(levels.len() - 1, Self::Avx512(Avx512 { vnni: false }));
        }
        levels
    }

    /// Returns the fastest level of this machine.
    pub fn best() -> Self {
        detect_avx512().or_else(detect_avx2).unwrap_or(Self::Portable)
    }

    /// Returns the level with this name, if this machine has it.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an unknown name; [`Error::Unavailable`] for a level that this machine lacks.
    pub fn named(name: &str) -> Result<Self> {
        if !NAMES.contains(&name) {
            let rule = format!("it must be {}", NAMES.join(", "));
            return Err(Error::parameter("vector level", name, rule));
        }
        Self::available().into_iter().find(|level| level.name() == name).ok_or_else(|| {
            let has: Vec<_> = Self::available().into_iter().map(Self::name).collect();
            Error::Unavailable {
                what: format!("the vector level {name}"),
                why: format!("this machine has {}", has.join(", ")),
            }
        })
    }

    /// Returns `portable`, `avx2` or `avx512`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2(_) => "avx2",
            Self::Avx512(_) => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn detect_avx2() -> Option<Level> {
    let found = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    found.then_some(Level::Avx2(Avx2(())))
}

#[cfg(target_arch = "x86_64")]
fn detect_avx512() -> Option<Level> {
    let found = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq");
    found.then(|| Level::Avx512(Avx512 { vnni: is_x86_feature_detected!("avx512vnni") }))
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_avx2() -> Option<Level> {
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn detect_avx512() -> Option<Level> {
    None
}

/// Defines a safe function that dispatches on the level to a safe body of plain loops, which is inlined into
/// functions compiled with the level's instructions.
macro_rules! leveled {
    ($(#[$doc:meta])* $name:ident, $body:ident, ($($argument:ident: $type:ty),* $(,)?)) => {
        $(#[$doc])*
        #[allow(unsafe_code)]
        pub(super) fn $name(level: Level, $($argument: $type),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($argument: $type),*) {
                    $body($($argument),*);
                }
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                fn avx512($($argument: $type),*) {
                    $body($($argument),*);
                }
                match level {
                    // SAFETY: holding the level is the proof that its instructions exist.
                    Level::Avx512(_) => return unsafe { avx512($($argument),*) },
                    // SAFETY: as above.
                    Level::Avx2(_) => return unsafe { avx2($($argument),*) },
                    Level::Portable => {}
                }
            }
            let _ = level;
            $body($($argument),*);
        }
    };
}
pub(crate) use leveled;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_found_by_name() {
        for level in Level::available() {
            assert_eq!(Level::named(level.name()).unwrap(), level);
        }
        assert!(matches!(Level::named("sse"), Err(Error::Parameter { .. })));
        let lacking = NAMES.into_iter().filter(|name| Level::named(name).is_err());
        assert_eq!(lacking.count(), NAMES.len() - Level::available().len());
    }

    #[test]
    fn the_best_level_is_the_last_available() {
        assert_eq!(Level::available().last(), Some(&Level::best()));
        assert_eq!(Level::available()[0], Level::Portable);
        assert_eq!(Level::variants().last(), Some(&Level::best()));
        let plain = |level: &Level| matches!(level, Level::Avx512(found) if !found.vnni());
        let wide = |level: &Level| matches!(level, Level::Avx512(_));
        assert_eq!(Level::variants().iter().any(plain), Level::available().iter().any(wide));
    }
}
