//! Many files on a cluster: `plan-jobs` writes a list of tasks, which any scheduler runs with `run-task`, and `merge` makes one list
//! of what the searches found.

mod estimate;
mod manifest;
mod merge;
mod plan;
mod product;
mod run;
mod scripts;
mod status;
mod task;

pub(crate) use merge::{Arguments as MergeArguments, Document as MergeDocument, run as merge};
pub(crate) use plan::{Arguments as PlanArguments, Document as PlanDocument, run as plan_jobs};
pub(crate) use run::{Arguments as RunArguments, run as run_task};
pub(crate) use status::{Document as StatusDocument, Failure};
pub(crate) use task::Task;
