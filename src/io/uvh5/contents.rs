//! Contents of a UVH5 file's group `Header`, except its row data.

use hdf5_pure::{
    CompoundTypeBuilder, Datatype, EnumTypeBuilder, FormatError, GroupBuilder, make_f32_type,
    make_f64_type, make_i8_type, make_i32_type,
};

use super::header::{Header, Keyword, PhaseCentre};
use super::rows::{Element, Rows};

/// Rotation of the Earth, in degrees per day of UT1: 1.00273781191135448 turns of the Earth rotation angle.
///
/// # Source
/// IERS Conventions (2010), eq. 5.15.
const EARTH_DEGREES_PER_DAY: f64 = 360.0 * 1.002_737_811_911_354_5;

/// Result of hdf5-pure's builders.
pub(super) type Built<T = ()> = std::result::Result<T, FormatError>;

/// Counts known only at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) integrations: usize,
    pub(super) rows: u64,
}

impl Counts {
    pub(super) fn new(header: &Header, integrations: usize) -> Self {
        let rows = integrations as u64 * header.baselines.len() as u64;
        Self { integrations, rows }
    }
}

/// Fills the group `Header`.
pub(super) fn fill(group: &mut GroupBuilder, header: &Header, counts: Counts) -> Built {
    for rows in Rows::ALL.into_iter().filter(|rows| !rows.is_data()) {
        add_rows(group, rows)?;
    }
    fill_counts(group, header, counts);
    fill_telescope(group, header)?;
    fill_antennas(group, header)?;
    let channels = header.channels();
    group.create_dataset("freq_array").with_f64_data(&header.frequencies_hz);
    group.create_dataset("channel_width").with_f64_data(&vec![header.channel_width_hz; channels]);
    group.create_dataset("spw_array").with_i32_data(&[0]);
    group.create_dataset("flex_spw_id_array").with_i64_data(&vec![0; channels]);
    group.create_dataset("polarization_array").with_i32_data(header.feeds.polarization_numbers());
    // Time is the slower row axis: each integration has all its baselines in a row.
    add_bool(group, "blts_are_rectangular", true)?;
    add_bool(group, "time_axis_faster_than_bls", false)?;
    fill_phase_centre(group, &header.phase_centre)?;
    fill_keywords(group, &header.keywords)
}

fn fill_counts(group: &mut GroupBuilder, header: &Header, counts: Counts) {
    let numbers = [
        ("Nants_data", header.antennas_used() as i64),
        ("Nants_telescope", header.antennas.len() as i64),
        ("Nbls", header.baselines.len() as i64),
        ("Nblts", counts.rows as i64),
        ("Nfeeds", header.feeds.feeds().len() as i64),
        ("Nfreqs", header.channels() as i64),
        ("Nphase", 1),
        ("Npols", header.pairs() as i64),
        ("Nspws", 1),
        ("Ntimes", counts.integrations as i64),
    ];
    for (name, number) in numbers {
        group.create_dataset(name).with_i64_data(&[number]).with_shape(&[]);
    }
}

fn fill_telescope(group: &mut GroupBuilder, header: &Header) -> Built {
    let place = header.location;
    let numbers = [
        ("latitude", place.latitude_deg),
        ("longitude", place.longitude_deg),
        ("altitude", place.height_m),
        ("dut1", header.dut1_s),
        ("earth_omega", EARTH_DEGREES_PER_DAY),
    ];
    for (name, number) in numbers {
        add_number(group, name, number);
    }
    let texts = [
        ("version", "1.2"),
        ("telescope_frame", "itrs"),
        ("telescope_name", &header.telescope),
        ("instrument", &header.instrument),
        ("vis_units", "uncalib"),
        ("timesys", "UTC"),
        ("history", &header.history),
    ];
    for (name, text) in texts {
        add_text(group, name, text)?;
    }
    if let Some(day) = &header.reference_day {
        add_number(group, "gst0", day.gst0_deg);
        add_text(group, "rdate", &day.date)?;
    }
    Ok(())
}

fn fill_antennas(group: &mut GroupBuilder, header: &Header) -> Built {
    let antennas = &header.antennas;
    let count = antennas.len();
    let names: Vec<&str> = antennas.iter().map(|antenna| &*antenna.name).collect();
    group.create_dataset("antenna_names").with_ascii_strings(&names)?;
    let numbers: Vec<i32> = antennas.iter().map(|antenna| antenna.number as i32).collect();
    group.create_dataset("antenna_numbers").with_i32_data(&numbers);
    let offsets: Vec<f64> = antennas.iter().flat_map(|antenna| antenna.itrf_offset_m).collect();
    let offsets_shape = [count as u64, 3];
    group.create_dataset("antenna_positions").with_f64_data(&offsets).with_shape(&offsets_shape);
    let diameters: Option<Vec<f64>> = antennas.iter().map(|antenna| antenna.diameter_m).collect();
    if let Some(diameters) = diameters {
        group.create_dataset("antenna_diameters").with_f64_data(&diameters);
    }
    let mounts = vec![header.mount.name(); count];
    group.create_dataset("mount_type").with_ascii_strings(&mounts)?;
    let feeds = header.feeds.feeds();
    let shape = [count as u64, feeds.len() as u64];
    let letters: Vec<&str> = feeds.iter().map(|feed| feed.letter()).collect();
    let letters = letters.repeat(count);
    group.create_dataset("feed_array").with_ascii_strings(&letters)?.with_shape(&shape);
    let angles: Vec<f64> = feeds.iter().map(|feed| feed.angle_deg(header).to_radians()).collect();
    let angles = angles.repeat(count);
    group.create_dataset("feed_angle").with_f64_data(&angles).with_shape(&shape);
    Ok(())
}

fn fill_phase_centre(group: &mut GroupBuilder, centre: &PhaseCentre) -> Built {
    let mut catalogue = group.create_group("phase_center_catalog");
    let mut entry = catalogue.create_group("0");
    match centre {
        PhaseCentre::Sidereal { name, ra_deg, dec_deg } => {
            add_text(&mut entry, "cat_name", name)?;
            add_text(&mut entry, "cat_type", "sidereal")?;
            add_text(&mut entry, "cat_frame", "icrs")?;
            add_number(&mut entry, "cat_epoch", 2000.0);
            add_number(&mut entry, "cat_lon", ra_deg.to_radians());
            add_number(&mut entry, "cat_lat", dec_deg.to_radians());
        }
        PhaseCentre::Drift { name } => {
            add_text(&mut entry, "cat_name", name)?;
            add_text(&mut entry, "cat_type", "unprojected")?;
            // The zenith.
            add_text(&mut entry, "cat_frame", "altaz")?;
            add_number(&mut entry, "cat_lon", 0.0);
            add_number(&mut entry, "cat_lat", std::f64::consts::FRAC_PI_2);
        }
    }
    catalogue.add_group(entry.finish());
    group.add_group(catalogue.finish());
    Ok(())
}

fn fill_keywords(group: &mut GroupBuilder, keywords: &[(String, Keyword)]) -> Built {
    if keywords.is_empty() {
        return Ok(());
    }
    let mut inner = group.create_group("extra_keywords");
    for (name, value) in keywords {
        match value {
            Keyword::Text(text) => add_text(&mut inner, name, text)?,
            Keyword::Integer(number) => {
                inner.create_dataset(name).with_i64_data(&[*number]).with_shape(&[]);
            }
            Keyword::Float(number) => add_number(&mut inner, name, *number),
        }
    }
    group.add_group(inner.finish());
    Ok(())
}

fn add_number(group: &mut GroupBuilder, name: &str, number: f64) {
    group.create_dataset(name).with_f64_data(&[number]).with_shape(&[]);
}

fn add_text(group: &mut GroupBuilder, name: &str, text: &str) -> Built {
    // HDF5 does not allow strings of width 0.
    let width = text.len().max(1) as u32;
    let dataset = group.create_dataset(name);
    let dataset = match text.is_ascii() {
        true => dataset.with_ascii_strings_sized(&[text], width)?,
        false => dataset.with_strings_sized(&[text], width)?,
    };
    dataset.with_shape(&[]);
    Ok(())
}

fn add_bool(group: &mut GroupBuilder, name: &str, value: bool) -> Built {
    let kind = datatype(Element::Bool)?;
    group.create_dataset(name).with_raw_data(kind, vec![u8::from(value)], 1).with_shape(&[]);
    Ok(())
}

/// Adds a row data set with one placeholder element.
pub(super) fn add_rows(group: &mut GroupBuilder, rows: Rows) -> Built {
    let zeros = vec![0; rows.element().bytes()];
    group
        .create_dataset(rows.name())
        .with_raw_data(datatype(rows.element())?, zeros, 1)
        .with_shape(&vec![1; rows.rank()]);
    Ok(())
}

fn datatype(element: Element) -> Built<Datatype> {
    Ok(match element {
        Element::I32 => make_i32_type(),
        Element::F32 => make_f32_type(),
        Element::F64 => make_f64_type(),
        Element::Complex => CompoundTypeBuilder::new().f32_field("r").f32_field("i").build()?,
        Element::Bool => {
            let byte = EnumTypeBuilder::with_base(make_i8_type());
            byte.value("FALSE", 0).value("TRUE", 1).build()?
        }
    })
}
