//! Writes small PSRFITS search-mode files for the tests.

/// One row of the SUBINT table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// DATA: axes time, polarization, channel.
    pub(crate) samples: Vec<f64>,
    /// DAT_SCL: axes polarization, channel.
    pub(crate) scales: Vec<f32>,
    /// DAT_OFFS: axes polarization, channel.
    pub(crate) offsets: Vec<f32>,
    /// DAT_WTS, one a channel.
    pub(crate) weights: Vec<f32>,
    /// OFFS_SUB in seconds.
    pub(crate) centre_s: f64,
}

/// A file under construction.
#[derive(Clone, Debug)]
pub(crate) struct SearchFile {
    pub(crate) channels: usize,
    pub(crate) polarizations: usize,
    pub(crate) block_times: usize,
    pub(crate) bits: usize,
    /// The DATA column's TFORM letter.
    pub(crate) letter: char,
    /// Cards of the SUBINT header beyond the usual ones; a key here replaces the usual card.
    pub(crate) cards: Vec<(&'static str, String)>,
    pub(crate) first_mhz: f64,
    pub(crate) step_mhz: f64,
    pub(crate) tsamp_s: f64,
    /// Puts DATA before the other columns, an unused column between them, and a heap after the table.
    pub(crate) unusual: bool,
    pub(crate) rows: Vec<Row>,
}

impl SearchFile {
    /// A file without rows: 1500 MHz downwards, 1 ms.
    pub(crate) fn new(
        channels: usize,
        polarizations: usize,
        block_times: usize,
        bits: usize,
    ) -> Self {
        let letter = match bits {
            16 => 'I',
            32 => 'E',
            _ => 'B',
        };
        let (first_mhz, step_mhz, tsamp_s) = (1500.0, -0.5, 1e-3);
        let (cards, unusual, rows) = (Vec::new(), false, Vec::new());
        Self {
            channels,
            polarizations,
            block_times,
            bits,
            letter,
            cards,
            first_mhz,
            step_mhz,
            tsamp_s,
            unusual,
            rows,
        }
    }

    /// Adds a row with factors 1, 0 and 1, following the last one in time.
    pub(crate) fn push(&mut self, samples: Vec<f64>) -> &mut Row {
        assert_eq!(samples.len(), self.block_times * self.polarizations * self.channels);
        let products = self.polarizations * self.channels;
        self.rows.push(Row {
            samples,
            scales: vec![1.0; products],
            offsets: vec![0.0; products],
            weights: vec![1.0; self.channels],
            centre_s: (self.rows.len() as f64 + 0.5) * self.block_times as f64 * self.tsamp_s,
        });
        self.rows.last_mut().unwrap()
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = header(&[
            ("SIMPLE", "T".into()),
            ("BITPIX", "8".into()),
            ("NAXIS", "0".into()),
            ("FITSTYPE", "'PSRFITS '".into()),
            ("OBS_MODE", "'SEARCH  '".into()),
            ("TELESCOP", "'Testing ' / a comment".into()),
            ("SRC_NAME", "'B0531+21'".into()),
            ("RA", "'05:34:31.9'".into()),
            ("DEC", "'-00:30:36.0'".into()),
            ("STT_IMJD", "58000".into()),
            ("STT_SMJD", "43200".into()),
            ("STT_OFFS", "0.5".into()),
        ]);
        bytes.extend(header(&[
            ("XTENSION", "'BINTABLE'".into()),
            ("BITPIX", "8".into()),
            ("NAXIS", "2".into()),
            ("NAXIS1", "4".into()),
            ("NAXIS2", "3".into()),
            ("PCOUNT", "0".into()),
            ("GCOUNT", "1".into()),
            ("TFIELDS", "1".into()),
            ("TTYPE1", "'X'".into()),
            ("TFORM1", "'1J'".into()),
            ("EXTNAME", "'HISTORY '".into()),
        ]));
        bytes.resize(bytes.len() + 2880, 7);
        let rows: Vec<u8> = self.rows.iter().flat_map(|row| self.row_bytes(row)).collect();
        bytes.extend(header(&self.subint_cards(rows.len())));
        bytes.extend(rows);
        if self.unusual {
            bytes.extend([0xaa; 100]);
        }
        bytes.resize(bytes.len().next_multiple_of(2880), 0);
        bytes
    }

    fn columns(&self) -> Vec<(&'static str, String)> {
        let products = self.channels * self.polarizations;
        let samples = products * self.block_times;
        let per_row = match self.letter {
            'B' => (samples * self.bits).div_ceil(8),
            'X' => samples * self.bits,
            _ => samples,
        };
        let data = ("DATA", format!("{per_row}{}", self.letter));
        let others = vec![
            ("TSUBINT", "1D".to_string()),
            ("OFFS_SUB", "1D".to_string()),
            ("DAT_FREQ", format!("{}D", self.channels)),
            ("DAT_WTS", format!("{}E", self.channels)),
            ("DAT_OFFS", format!("{products}E")),
            ("DAT_SCL", format!("{products}E")),
        ];
        if self.unusual {
            [vec![data, ("UNUSED", "3A".to_string())], others].concat()
        } else {
            [others, vec![data]].concat()
        }
    }

    fn subint_cards(&self, data_bytes: usize) -> Vec<(&'static str, String)> {
        let columns = self.columns();
        let mut cards: Vec<(&'static str, String)> = vec![
            ("XTENSION", "'BINTABLE'".into()),
            ("BITPIX", "8".into()),
            ("NAXIS", "2".into()),
            ("NAXIS1", (data_bytes / self.rows.len().max(1)).to_string()),
            ("NAXIS2", self.rows.len().to_string()),
            ("PCOUNT", if self.unusual { "100" } else { "0" }.into()),
            ("GCOUNT", "1".into()),
            ("TFIELDS", columns.len().to_string()),
            ("EXTNAME", "'SUBINT  '".into()),
            ("POL_TYPE", "'AA+BB   '".into()),
            ("NPOL", self.polarizations.to_string()),
            ("TBIN", format!("{:E}", self.tsamp_s)),
            ("NBITS", self.bits.to_string()),
            ("NCHAN", self.channels.to_string()),
            ("CHAN_BW", self.step_mhz.to_string()),
            ("NSBLK", self.block_times.to_string()),
            ("NSUBOFFS", "0".into()),
            ("NCHNOFFS", "'*       '".into()),
        ];
        cards.retain(|(key, _)| self.cards.iter().all(|(other, _)| other != key));
        for (index, (name, form)) in columns.iter().enumerate() {
            cards.push((leak(format!("TTYPE{}", index + 1)), format!("'{name:<8}'")));
            cards.push((leak(format!("TFORM{}", index + 1)), format!("'{form:<8}'")));
        }
        cards.extend(self.cards.iter().cloned());
        cards
    }

    fn row_bytes(&self, row: &Row) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, _) in self.columns() {
            match name {
                "TSUBINT" => {
                    bytes.extend((self.block_times as f64 * self.tsamp_s).to_be_bytes());
                }
                "OFFS_SUB" => bytes.extend(row.centre_s.to_be_bytes()),
                "DAT_FREQ" => {
                    for channel in 0..self.channels {
                        let centre = self.first_mhz + channel as f64 * self.step_mhz;
                        bytes.extend(centre.to_be_bytes());
                    }
                }
                "DAT_WTS" => row.weights.iter().for_each(|x| bytes.extend(x.to_be_bytes())),
                "DAT_OFFS" => row.offsets.iter().for_each(|x| bytes.extend(x.to_be_bytes())),
                "DAT_SCL" => row.scales.iter().for_each(|x| bytes.extend(x.to_be_bytes())),
                "DATA" => bytes.extend(self.pack(&row.samples)),
                _ => bytes.extend([0x55; 3]),
            }
        }
        bytes
    }

    /// Samples as the file stores them: big endian, the first of a byte most significant.
    fn pack(&self, samples: &[f64]) -> Vec<u8> {
        match (self.bits, self.letter) {
            (8, _) => samples.iter().map(|x| *x as i64 as u8).collect(),
            (16, 'B') => samples.iter().flat_map(|x| (*x as i64 as u16).to_le_bytes()).collect(),
            (16, _) => samples.iter().flat_map(|x| (*x as i64 as u16).to_be_bytes()).collect(),
            (32, _) => samples.iter().flat_map(|x| (*x as f32).to_be_bytes()).collect(),
            (bits, _) => {
                let mut bytes = vec![0u8; (samples.len() * bits).div_ceil(8)];
                for (index, sample) in samples.iter().enumerate() {
                    let value = (*sample as i64 as u8) & ((1 << bits) - 1);
                    let bit = index * bits;
                    bytes[bit / 8] |= value << (8 - bits - bit % 8);
                }
                bytes
            }
        }
    }
}

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn header(cards: &[(&str, String)]) -> Vec<u8> {
    let mut bytes: Vec<u8> = cards
        .iter()
        .flat_map(|(key, value)| format!("{:<80}", format!("{key:<8}= {value}")).into_bytes())
        .collect();
    bytes.extend(format!("{:<80}", "END").into_bytes());
    bytes.resize(bytes.len().next_multiple_of(2880), b' ');
    bytes
}
