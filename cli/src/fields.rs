//! Parser of values such as `dm=500,time=3,width=0.002`.

use sidereal::{Error, Result};

use crate::numbers;

/// Numbers by name, from one option's value.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    option: &'static str,
    values: Vec<(String, f64)>,
}

impl Fields {
    /// Parses `text`; each name of `allowed` may occur at most once, others may not.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option and the part that is wrong.
    pub(crate) fn parse(option: &'static str, text: &str, allowed: &[&str]) -> Result<Self> {
        let mut values: Vec<(String, f64)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |rule: String| Err(Error::parameter(option, part, rule));
            let Some((name, number)) = part.split_once('=') else {
                return wrong("it must have the form name=number".to_owned());
            };
            let name = name.trim();
            if !allowed.contains(&name) {
                return wrong(format!("its names are {}", allowed.join(", ")));
            }
            if values.iter().any(|value| value.0 == name) {
                return wrong("it may be given once only".to_owned());
            }
            match numbers::finite(number.trim()) {
                Ok(number) => values.push((name.to_owned(), number)),
                Err(why) => return wrong(why),
            }
        }
        Ok(Self { option, values })
    }

    /// Returns a number, if given.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|value| value.0 == name).map(|value| value.1)
    }

    /// Returns a number, or its default.
    pub(crate) fn or(&self, name: &str, default: f64) -> f64 {
        self.get(name).unwrap_or(default)
    }

    /// Returns a required number.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming it.
    pub(crate) fn need(&self, name: &str) -> Result<f64> {
        let missing = || Error::parameter(self.option, format!("without {name}"), "it needs one");
        self.get(name).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_faults_named() {
        let names = ["dm", "time"];
        let fields = Fields::parse("--burst", "dm=5.5, time=-1e-3", &names).unwrap();
        assert_eq!((fields.get("dm"), fields.or("time", 2.0)), (Some(5.5), -1e-3));
        assert!(fields.need("width").is_err());
        for bad in ["dm", "dm=x", "dm=nan", "DM=5", "dm=1,dm=2", "snr=3", "dm=inf", "dm=1e-320"] {
            let error = Fields::parse("--burst", bad, &names).unwrap_err();
            assert!(error.to_string().contains("--burst"), "{bad}");
        }
    }
}
