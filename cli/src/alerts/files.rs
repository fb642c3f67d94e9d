//! Messages about events as files in a folder (`--alerts`): a GCN notice and a VOEvent for each.

use std::fs;
use std::path::{Path, PathBuf};

use sidereal::io::atomic;
use sidereal::{Error, Result};
use tracing::Level;

use super::event::{Event, EventState};
use super::gcn::{self, Schema};
use super::voevent;
use super::worker::{Fates, Worker};
use crate::say::{self, warning};

/// Most messages that wait to be written.
const WAITING: usize = 256;

/// Folder of messages, and what all of them have.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) folder: PathBuf,
    pub(super) schema: Schema,
    /// Identifier of the author: `ivo://institute/instrument`.
    pub(super) authority: String,
}

impl Files {
    /// Makes the folder and starts the thread that writes.
    ///
    /// # Errors
    /// [`Error::Io`] if the folder cannot be written; as [`Worker::start`].
    pub(super) fn start(self) -> Result<Worker<Event>> {
        let failed = |error| Error::io(&self.folder, error);
        fs::create_dir_all(&self.folder).map_err(failed)?;
        tempfile::tempfile_in(&self.folder).map_err(failed)?;
        let mut has_warned = false;
        Worker::start("alerts", WAITING, move |event: Event, fates: &Fates| {
            match self.write(&event) {
                Ok(()) => Fates::count(&fates.done),
                Err(error) => {
                    Fates::count(&fates.failed);
                    let words = format!("the alert of {} was not written: {error}", event.id);
                    if std::mem::replace(&mut has_warned, true) {
                        say::log(Level::WARN, &words);
                    } else {
                        warning!(quiet: false, "{words}; further failures are only logged.");
                    }
                }
            }
        })
    }

    fn write(&self, event: &Event) -> Result<()> {
        let stem = self.folder.join(stem(&event.id, event.state, event.sequence));
        let with = |ending: &str| PathBuf::from(format!("{}.{ending}", stem.display()));
        let write = |path: &Path, text: String| atomic::write(path, text.as_bytes());
        write(&with("json"), gcn::text(event, self.schema)?)?;
        write(&with("xml"), voevent::text(event, &self.authority))
    }
}

/// Returns the name of a message's files without their endings: `ID.STATE`, and `ID.update-3` of later updates.
pub(crate) fn stem(id: &str, state: EventState, sequence: u32) -> String {
    let name = state.name();
    if state == EventState::Update && sequence > 2 {
        format!("{id}.{name}-{}", sequence - 1)
    } else {
        format!("{id}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::event;
    use super::*;

    #[test]
    fn each_message_has_files_of_its_own() {
        let mut own = event(EventState::Initial);
        let stem = |own: &Event| stem(&own.id, own.state, own.sequence);
        assert_eq!(stem(&own), "2023-02-25-12-00-00_0003.initial");
        own.next(EventState::Update);
        assert_eq!(stem(&own), "2023-02-25-12-00-00_0003.update");
        own.next(EventState::Update);
        assert_eq!(stem(&own), "2023-02-25-12-00-00_0003.update-2");
        let home = tempfile::tempdir().unwrap();
        let files = Files {
            folder: home.path().to_path_buf(),
            schema: Schema::Chime,
            authority: "ivo://example.org/live".into(),
        };
        files.write(&own).unwrap();
        for ending in ["json", "xml"] {
            let path = home.path().join(format!("2023-02-25-12-00-00_0003.update-2.{ending}"));
            assert!(fs::metadata(path).unwrap().len() > 500);
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
    }
}
