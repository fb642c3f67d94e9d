use super::*;

const LINE: &str = "695.12, 700.00, 1500, 1980";

fn card(power_w: f64) -> Card {
    Card { power_w, most_w: 700.0, clock_mhz: 1500.0, most_mhz: 1980.0 }
}

#[test]
fn a_line_of_nvidia_smi_is_read() {
    assert_eq!(Card::read(&format!("{LINE}\n")), Some(card(695.12)));
    for other in ["[N/A], 700.00, 1500, 1980", "695, 700", "nan, 1, 1, 1", "No devices were found"]
    {
        assert_eq!(Card::read(other), None, "{other}");
    }
}

#[test]
fn the_middle_reading_is_that_of_the_middle_power() {
    assert_eq!(middle([3.0, 1.0, 2.0].map(card).to_vec()), Ok(card(2.0)));
    assert_eq!(middle([1.0, 2.0].map(card).to_vec()), Ok(card(2.0)));
    assert!(middle(Vec::new()).unwrap_err().contains("ended before"));
}

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

#[cfg(unix)]
fn shell(script: &str) -> Command {
    let mut program = Command::new("sh");
    program.args(["-c", script]);
    program
}

/// Returns the reading while the work lasts as long as a reading is awaited, and the work's duration.
fn read(program: Command, patience: Duration) -> (Duration, std::result::Result<Card, Why>) {
    let settled = Duration::from_millis(20);
    let work = |is_awaited: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while is_awaited() {
            assert!(begin.elapsed() < 2 * LONG, "it never ends");
            std::thread::sleep(LOOK);
        }
        begin.elapsed()
    };
    Reader::by(program, settled, patience).meanwhile(work)
}

#[cfg(unix)]
#[test]
fn work_goes_on_until_the_first_reading_came() {
    let (lasted, read) = read(shell(&format!("sleep 0.4; echo {LINE}")), LONG);
    assert_eq!(read, Ok(card(695.12)));
    assert!(lasted >= Duration::from_millis(400), "{lasted:?}");
}

#[cfg(unix)]
#[test]
fn what_is_no_reading_is_told_and_ends_the_wait() {
    let cases = [
        ("true", "sh said nothing"),
        ("echo No devices were found; exit 6", "sh said \"No devices were found\""),
        ("echo '[N/A], [N/A], 1500, 1980'", "sh said \"[N/A], [N/A], 1500, 1980\""),
        ("printf '\\377\\376, 1'", "sh said"),
    ];
    for (script, expected) in cases {
        let (_, read) = read(shell(script), LONG);
        let why = read.expect_err(script);
        assert!(why.contains(expected), "{script}: {why}");
    }
}

#[cfg(unix)]
#[test]
fn a_program_that_does_not_end_is_stopped() {
    for script in ["exec sleep 600", "while :; do echo 1, 2, 3, 4; done"] {
        let (lasted, read) = read(shell(script), SHORT);
        assert_eq!(read, Err("sh gave no reading within 300ms".to_owned()), "{script}");
        assert!(lasted >= SHORT, "{script} {lasted:?}");
    }
}

#[test]
fn a_missing_program_is_told_and_ends_the_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (_, read) = read(Command::new(folder.path().join("nvidia-smi")), LONG);
    let why = read.unwrap_err();
    assert!(why.contains("nvidia-smi can't be run: "), "{why}");
}

#[cfg(unix)]
#[test]
fn readings_that_fail_later_and_those_of_a_card_at_rest_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let script = format!("if test -e {0}; then exit 1; fi; touch {0}; echo {LINE}", mark.display());
    let mut reader = Reader::by(shell(&script), Duration::ZERO, LONG);
    let ((), read) = reader.meanwhile(|is_awaited| {
        while is_awaited() {
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(3 * PAUSE);
    });
    assert_eq!(read, Ok(card(695.12)));
    let slow = shell(&format!("sleep 0.5; echo {LINE}"));
    let ((), read) =
        Reader::by(slow, Duration::ZERO, LONG).meanwhile(|_| std::thread::sleep(PAUSE));
    assert!(read.unwrap_err().contains("ended before"));
}
