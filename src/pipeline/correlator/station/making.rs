//! Channelization and alignment of an antenna's samples, and measurement of its gains.

use std::time::Instant;

use num_complex::Complex;

use super::{Run, Scratch, Station};
use crate::delay::{self, Aligner, Rows};
use crate::error::{Error, Result};
use crate::pipeline::correlator::flags::Bad;
use crate::pipeline::correlator::level::Powers;
use crate::pipeline::correlator::window::Window;
use crate::voltage::Voltages;

impl Station {
    /// Measures gains if the measurement is due with the window's samples.
    #[cfg(feature = "cuda")]
    pub(in crate::pipeline::correlator) fn settle(
        &mut self,
        window: &Window,
        scratch: &mut Scratch,
    ) {
        self.outcome = self.measure_due(window, scratch);
    }

    /// Computes the prepared spectra into the rows (axes polarization, time, channel) from time 0 on.
    pub(in crate::pipeline::correlator) fn run(
        &mut self,
        window: &Window,
        rows: &mut [u8],
        scratch: &mut Scratch,
    ) {
        self.outcome = self.make(window, rows, scratch);
    }

    fn make(&mut self, window: &Window, rows: &mut [u8], scratch: &mut Scratch) -> Result<()> {
        self.measure_due(window, scratch)?;
        let Some(base) = self.runs.first().map(|run| run.spectra.start) else { return Ok(()) };
        let runs = std::mem::take(&mut self.runs);
        for run in runs.iter().filter(|run| run.inside) {
            self.make_run(run, (run.spectra.start - base) as usize, window, (rows, scratch))?;
        }
        self.runs = runs;
        let bad = std::mem::take(&mut self.bad);
        bad.iter().for_each(|bad| self.blank(bad, base, rows));
        self.bad = bad;
        Ok(())
    }

    fn measure_due(&mut self, window: &Window, scratch: &mut Scratch) -> Result<()> {
        scratch.resize(self.tile * self.level.elements(), Complex::ZERO);
        let due = self.measure.take();
        due.map_or(Ok(()), |(start, shift)| self.measure(window, start, shift, scratch))
    }

    /// Measures gains and creates the aligner.
    fn measure(
        &mut self,
        window: &Window,
        start: u64,
        shift: i64,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if self.level.is_measured() {
            let spectra = self.measured(start, shift);
            let mut bad = Vec::new();
            self.find_bad(&spectra, shift, &mut bad);
            let mut powers = Powers::new(&self.level);
            let samples = self.samples(&spectra, shift);
            let mut input = window.voltages(self.place.streams.clone(), samples)?;
            let mut spectrum = spectra.start;
            self.bank.reset();
            while spectrum < spectra.end {
                let made = self.spectra(&mut input, scratch)?;
                for row in scratch.chunks_exact(self.level.elements()).take(made) {
                    powers.add(row, spectrum, &bad);
                    spectrum += 1;
                }
            }
            self.next = None;
            self.level.set(&powers);
        }
        let plan = delay::Plan::new(self.level.align_options())?;
        self.aligner = Some(Aligner::new(plan, &self.backend));
        Ok(())
    }

    /// Fills the scratch memory with spectra of the next samples of `input`.
    fn spectra(&mut self, input: &mut Voltages<'_>, scratch: &mut Scratch) -> Result<usize> {
        let begin = Instant::now();
        let progress = self.bank.run(*input, scratch)?;
        *input = input.slice(progress.consumed, input.times() - progress.consumed)?;
        self.elapsed.channelize_s += begin.elapsed().as_secs_f64();
        if progress.produced == 0 {
            let (expected, actual) = (1, 0);
            return Err(Error::Shape { what: "spectra of a run", expected, actual });
        }
        Ok(progress.produced)
    }

    fn make_run(
        &mut self,
        run: &Run,
        first: usize,
        window: &Window,
        (rows, scratch): (&mut [u8], &mut Scratch),
    ) -> Result<()> {
        if self.aligner.is_none() {
            // Without gains all spectra of the run are flagged.
            return Ok(());
        }
        let samples = self.samples(&run.spectra, run.shift);
        let from = match self.next {
            Some((shift, spectrum, sample))
                if (shift, spectrum) == (run.shift, run.spectra.start) =>
            {
                sample
            }
            _ => {
                self.bank.reset();
                samples.start
            }
        };
        let mut input = window.voltages(self.place.streams.clone(), from..samples.end)?;
        let times = (run.spectra.end - run.spectra.start) as usize;
        let mut done = 0;
        while done < times {
            let made = self.spectra(&mut input, scratch)?;
            self.align((first + done, made), scratch, rows)?;
            done += made;
        }
        self.next = Some((run.shift, run.spectra.end, samples.end));
        Ok(())
    }

    /// Aligns spectra into the rows, starting at time `first`.
    fn align(
        &mut self,
        (first, times): (usize, usize),
        scratch: &Scratch,
        rows: &mut [u8],
    ) -> Result<()> {
        let begin = Instant::now();
        let coarse = self.level.coarse();
        if let (Some(aligner), Some(slopes)) = (&mut self.aligner, &self.slopes) {
            aligner.run(
                &scratch[..times * self.level.elements()],
                &slopes[first * coarse..(first + times) * coarse],
                Rows { bytes: rows, times: self.capacity, first },
            )?;
        }
        self.elapsed.align_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Fills invalid spectra with zeros.
    fn blank(&self, bad: &Bad, base: u64, rows: &mut [u8]) {
        let (elements, fine) = (self.level.elements(), self.level.fine());
        let channels = self.level.coarse() * fine;
        let size = self.level.encoding().sample_bits() / 8;
        for polarization in 0..elements / channels {
            for spectrum in bad.spectra.clone() {
                let time = (spectrum - base) as usize;
                let row = (polarization * self.capacity + time) * channels;
                let bytes =
                    (row + bad.coarse.start * fine) * size..(row + bad.coarse.end * fine) * size;
                rows[bytes].fill(0);
            }
        }
    }
}
