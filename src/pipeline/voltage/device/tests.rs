use super::*;
use crate::backend::Backend;
use crate::pipeline::voltage::ChannelizeOptions;
use crate::simulate::voltages::{Options, VoltageSimulator};
use crate::voltage::VoltageBlock;

/// Two antennas with gaps, some of them after the level's 1024 rows are complete.
fn filterbank(coherent_dm: Option<f64>, backend: &Backend) -> VoltageFilterbank {
    let mut options = Options::new(400e6, 3e6, 3, 40_000);
    // Recorded channels neither ascend nor descend.
    options.centres_hz.swap(0, 1);
    options.antennas = 2;
    options.gaps = vec![(3_000, 10), (20_000, 900), (22_000, 1), (33_000, 4_000), (39_000, 100)];
    let source = Box::new(VoltageSimulator::new(options).unwrap());
    let interpolate_dc = coherent_dm.is_some();
    let asked =
        ChannelizeOptions { taps: 4, coherent_dm, interpolate_dc, ..ChannelizeOptions::new(16) };
    VoltageFilterbank::new(source, &asked, backend).unwrap()
}

/// Returns `first` rows computed by the host followed by rows from the device, fed `times` samples at a time.
fn on_device(
    filterbank: &mut VoltageFilterbank,
    device: &Device,
    (first, times): (usize, usize),
) -> Vec<f32> {
    let elements = filterbank.row_elements();
    let mut all = vec![0.0; first * elements];
    assert_eq!(filterbank.read_rows(&mut all).unwrap(), first);
    assert!(filterbank.can_split());
    let (encoding, streams) = {
        let input = filterbank.plan().input();
        (input.encoding, input.streams())
    };
    let stream = device.stream().unwrap();
    let mut rows = DeviceRows::new(device, filterbank, times / 16 + 1).unwrap();
    loop {
        let mut memory = vec![0; streams * encoding.bytes(times)];
        let mut block = VoltageBlock::lent(&mut memory, encoding, streams, times).unwrap();
        let (mut unread, making) = filterbank.split();
        let times = unread.read(&mut block).unwrap();
        if times == 0 {
            return all;
        }
        let layout = DeviceVoltages { first_byte: 0, stride: block.stride(), times };
        let input = device.upload(&memory).unwrap();
        let made = rows.make(making, (&input, &[layout]), &stream).unwrap();
        let mut bytes = vec![0; 4 * elements * made];
        rows.rows().download(0, &mut bytes).unwrap();
        all.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    }
}

#[test]
fn rows_are_those_of_the_host() {
    let Some(gpu) = Backend::available(1).into_iter().find(Backend::is_gpu) else { return };
    let Backend::Cuda(device, _) = &gpu else { unreachable!("it is a GPU") };
    for (coherent_dm, parts) in [
        (None, &[(0, 40_000), (0, 7_777), (1500, 640), (2300, 3_000)][..]),
        (Some(5.0), &[(100, 4_000)]),
    ] {
        let mut host = filterbank(coherent_dm, &gpu);
        let mut expected = vec![0.0; 3000 * host.row_elements()];
        let times = host.read_rows(&mut expected).unwrap();
        expected.truncate(times * host.row_elements());
        assert!(host.gaps().len() > 4 && times > 2400);
        for part in parts {
            let rows = on_device(&mut filterbank(coherent_dm, &gpu), device, *part);
            let differing =
                rows.iter().zip(&expected).position(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(differing, None, "{part:?}, {} a row", host.row_elements());
            assert_eq!(rows.len(), expected.len(), "{part:?}");
        }
    }
}
