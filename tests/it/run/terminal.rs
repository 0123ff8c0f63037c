//! At a terminal: it stays one, a shell's job control works, and Ctrl-C comes once.

use std::path::Path;
use std::process::Stdio;

use super::{Field, wait_for};

fn shape(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes").join(name).display().to_string()
}

#[test]
fn a_shells_job_control_works_as_without_us() {
    let field = Field::new();
    let python = "python3".to_owned();
    let bare = [python.clone(), shape("at-a-terminal.py")];
    let mut ours = field.prefix(&[]);
    ours.extend(bare.clone());
    for words in [bare.to_vec(), ours] {
        let mut all = vec![python.clone(), shape("job-control.py")];
        all.extend(words);
        let mut command = field.command(&all);
        command.env_remove("PYTHONHOME");
        let done = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(said.trim_end().ends_with("well"), "{said}{}", String::from_utf8_lossy(&done.stderr));
    }
    wait_for("everybody to be gone", || field.alive().is_empty());
    assert!(field.leases().is_empty(), "{:?}", field.leases());
    assert_eq!(field.journal(), "");
}
