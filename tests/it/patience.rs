//! One reapd at a time for each user, and many tests: whoever finds another at work waits for it.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// Runs a command of reapd's, again while another reapd of this user is at work; fails after a minute.
pub(crate) fn patiently(command: &mut Command) -> Output {
    let end = Instant::now() + Duration::from_mins(1);
    loop {
        let output = command.output().unwrap();
        let busy = b"another reapd of this user is at work";
        let says = |text: &[u8]| text.windows(busy.len()).any(|part| part == busy);
        if output.status.code() != Some(3) || !(says(&output.stdout) || says(&output.stderr)) {
            return output;
        }
        assert!(Instant::now() < end, "another reapd is at work for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
}
