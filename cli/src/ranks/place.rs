//! Place of a process among those that mpirun started.

use sidereal::Error;

/// Option that an error names.
pub(crate) const OPTION: &str = "the number of processes (mpirun -n)";

/// Place of this process among those that mpirun started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// Number among the processes on this machine.
    pub(crate) local: usize,
}

impl Place {
    /// Returns the place that the environment states; `None` for a process that is alone.
    pub(crate) fn of_environment() -> Option<Self> {
        Self::stated(&|name| std::env::var(name).ok()?.parse().ok())
    }

    fn stated(number: &dyn Fn(&str) -> Option<usize>) -> Option<Self> {
        let open_mpi =
            ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"];
        let mpich = ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"];
        // Other starters of the same interface, such as those of MVAPICH and of Cray's MPI.
        let others = ["MV2_COMM_WORLD_LOCAL_RANK", "PMI_LOCAL_RANK"];
        let [rank, ranks, local] = match number(open_mpi[1]) {
            Some(_) => open_mpi,
            // srun sets these variables for independent runs, too.
            None if number("SLURM_STEP_ID").is_some() => return None,
            None => mpich,
        };
        let (rank, ranks) = (number(rank)?, number(ranks)?);
        let local = [local].into_iter().chain(others).find_map(number).unwrap_or(rank);
        (ranks > 1).then_some(Self { rank, ranks, local })
    }

    /// Makes the error of a verb that does not divide its work among processes; every rank exits with it, and only rank 0 prints
    /// it.
    pub(crate) fn alone(self, verb: &str) -> Error {
        let rule = format!(
            "{verb} does not divide its work among processes, and each would write the same output: run it without mpirun"
        );
        Error::parameter(OPTION, self.ranks, rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(known: &[(&str, usize)]) -> Option<Place> {
        Place::stated(&|name| known.iter().find(|own| own.0 == name).map(|own| own.1))
    }

    #[test]
    fn the_environment_states_the_place() {
        let open_mpi = |rank, ranks| {
            [
                ("OMPI_COMM_WORLD_RANK", rank),
                ("OMPI_COMM_WORLD_SIZE", ranks),
                ("OMPI_COMM_WORLD_LOCAL_RANK", 1),
            ]
        };
        assert_eq!(place(&open_mpi(3, 4)), Some(Place { rank: 3, ranks: 4, local: 1 }));
        assert_eq!(place(&open_mpi(0, 1)), None);
        let mpich = [("PMI_RANK", 2), ("PMI_SIZE", 3)];
        assert_eq!(place(&mpich), Some(Place { rank: 2, ranks: 3, local: 2 }));
        let stated = [mpich[0], mpich[1], ("PMI_LOCAL_RANK", 1)];
        assert_eq!(place(&stated), Some(Place { rank: 2, ranks: 3, local: 1 }));
        // Independent runs that srun starts.
        assert_eq!(place(&[mpich[0], mpich[1], ("SLURM_STEP_ID", 0)]), None);
        assert_eq!(place(&[]), None);
    }

    #[test]
    fn an_error_names_the_verb_and_the_number() {
        let error = Place { rank: 0, ranks: 4, local: 0 }.alone("search").to_string();
        assert!(error.contains("search") && error.contains(" is 4"), "{error}");
    }
}
