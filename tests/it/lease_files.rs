//! Lease directories with every kind of file that must not count, and the cookies of real processes.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reapd::model::id::{Pid, Uid};
use reapd::model::known::Reason;
use reapd::model::lease::{COOKIE, Lease, LeaseId, Release};
use reapd::model::look::{Gap, Scope, Snapshot};
use reapd::model::world;
use reapd::observe::{LeaseDirectory, Observer, Setup};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::planted::{MARK, wait_for};

/// Nobody, of no group that anything belongs to.
const STRANGER: u32 = 65_533;

/// A lease directory of ours, and an observer that reads it.
struct Desk {
    base: tempfile::TempDir,
    observer: Observer,
}

impl Desk {
    /// Starts with an empty directory.
    fn new() -> Desk {
        let desk = Desk::without();
        fs::create_dir(desk.directory()).unwrap();
        desk.allow("", 0o700);
        desk
    }

    /// Starts with no directory at all.
    fn without() -> Desk {
        Desk::below("leases")
    }

    /// Starts with no directory at all, and looks for it there.
    fn below(path: &str) -> Desk {
        let base = tempfile::tempdir().unwrap();
        let leases = vec![LeaseDirectory { path: base.path().join(path), owner: own() }];
        let observer = Observer::open(Setup {
            scope: Scope::User,
            probe_timeout: Duration::from_secs(5),
            env_names: BTreeSet::new(),
            aside: PathBuf::from(env!("CARGO_BIN_EXE_reapd")),
            home: None,
            leases,
            registries: Vec::new(),
            engines: None,
        });
        Desk { base, observer: observer.unwrap() }
    }

    fn directory(&self) -> PathBuf {
        self.base.path().join("leases")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory().join(name)
    }

    /// Writes a file with the umask's usual rights.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.allow(name, 0o644);
        self.path(name)
    }

    /// Sets the permissions of a file, or of the directory where the name is empty.
    fn allow(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), Permissions::from_mode(mode)).unwrap();
    }

    fn look(&mut self) -> Snapshot {
        self.observer.table().unwrap()
    }

    /// Looks, and says that one file and nothing else is faulty, and why.
    fn fault(&mut self, stem: &str) -> (Reason, String) {
        let look = self.look();
        let stems: Vec<String> = look.leases.faulty.iter().map(|faulty| faulty.stem.to_string()).collect();
        assert_eq!(stems, [stem], "{:?}", look.leases);
        assert_eq!(look.leases.faulty[0].owner, Some(own()));
        let gaps = gaps(&look);
        assert_eq!(gaps.len(), 1, "{gaps:?}");
        assert!(gaps[0].source.contains(stem), "{gaps:?}");
        assert!(gaps[0].cure.is_some(), "{gaps:?}");
        assert_eq!(gaps[0].why, look.leases.faulty[0].why);
        (gaps[0].why.reason, gaps[0].why.what.clone())
    }
}

fn own() -> Uid {
    Uid(rustix::process::geteuid().as_raw())
}

fn is_root() -> bool {
    own() == Uid::ROOT
}

fn sound(id: &str) -> String {
    format!(r#"{{"v":1,"id":"{id}","ttl":600,"covers":{{"env":"{id}"}}}}"#)
}

fn gaps(look: &Snapshot) -> Vec<Gap> {
    look.gaps.iter().filter(|gap| gap.source.starts_with("lease")).cloned().collect()
}

fn ids(look: &Snapshot) -> Vec<&str> {
    look.leases.list.iter().map(|lease| lease.id.as_str()).collect()
}

fn lease<'a>(look: &'a Snapshot, id: &str) -> &'a Lease {
    look.leases.get(own(), &LeaseId::new(id).unwrap()).unwrap_or_else(|| panic!("{:?}", look.leases))
}

#[test]
fn sound_files_are_leases_and_other_names_are_nobodys_business() {
    let mut desk = Desk::new();
    desk.write("b.json", &sound("b"));
    desk.write("a.json", &sound("a"));
    for name in [".c.json", ".c.1.tmp", "README", "c.json~"] {
        desk.write(name, "half a le");
    }
    let look = desk.look();
    assert_eq!(ids(&look), ["a", "b"]);
    assert_eq!(look.leases.faulty, []);
    assert_eq!(gaps(&look), []);
    assert_eq!(lease(&look, "a").file.owner, own());
    assert!(lease(&look, "a").file.modified > 1_700_000_000_000_000_000);
}

#[test]
fn what_a_file_says_wrongly_is_unknown_and_the_next_one_counts() {
    for (text, reason, says) in [
        ("not json", Reason::Unsound, "line 1"),
        (r#"{"v":1,"id":"bad","ttl":600,"cov"#, Reason::Unsound, "EOF"),
        ("", Reason::Unsound, "EOF"),
        (r#"{"v":1,"id":"other","ttl":600}"#, Reason::Unsound, "named otherwise"),
        (&sound("bad").replace("600", &" ".repeat(70_000)), Reason::Truncated, "bytes"),
    ] {
        let mut desk = Desk::new();
        desk.write("good.json", &sound("good"));
        desk.write("bad.json", text);
        let (found, what) = desk.fault("bad");
        assert_eq!(found, reason, "{what}");
        assert!(what.contains(says), "{what}");
        assert_eq!(ids(&desk.look()), ["good"]);
        desk.write("bad.json", &sound("bad"));
        assert_eq!(ids(&desk.look()), ["bad", "good"], "mended, it counts");
    }
}

#[test]
fn links_do_not_count_s5() {
    let mut desk = Desk::new();
    let elsewhere = desk.base.path().join("elsewhere");
    fs::write(&elsewhere, sound("linked")).unwrap();
    symlink(&elsewhere, desk.path("linked.json")).unwrap();
    let (reason, what) = desk.fault("linked");
    assert_eq!(reason, Reason::Unsound);
    assert!(what.contains("symbolic link"), "{what}");
    fs::remove_file(desk.path("linked.json")).unwrap();
    fs::hard_link(&elsewhere, desk.path("linked.json")).unwrap();
    let (_, what) = desk.fault("linked");
    assert!(what.contains("2 names"), "{what}");
    fs::remove_file(&elsewhere).unwrap();
    assert_eq!(ids(&desk.look()), ["linked"], "the twin with one name");
}

#[test]
fn a_file_that_others_can_reach_and_write_does_not_count() {
    let mut desk = Desk::new();
    desk.write("open.json", &sound("open"));
    desk.allow("open.json", 0o666);
    assert_eq!(ids(&desk.look()), ["open"], "nobody else gets through the directory");
    for (directory, file) in [(0o750, 0o664), (0o755, 0o646)] {
        desk.allow("", directory);
        desk.allow("open.json", file);
        let (_, what) = desk.fault("open");
        assert!(what.contains("others may write"), "{what}");
    }
    desk.allow("open.json", 0o644);
    assert_eq!(ids(&desk.look()), ["open"]);
}

#[test]
fn a_fifo_is_neither_opened_nor_waited_for_s1() {
    let mut desk = Desk::new();
    for name in ["waited.json", "held.json"] {
        let made = Command::new("mkfifo").arg(desk.path(name)).status().unwrap();
        assert!(made.success());
    }
    fs::create_dir(desk.path("folder.json")).unwrap();
    // A reader at the first one would let this thread go on.
    let (path, released) = (desk.path("waited.json"), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&released);
    let writer = std::thread::spawn(move || {
        let _end = File::options().write(true).open(path).unwrap();
        flag.store(true, Ordering::SeqCst);
    });
    // A writer at the second one would leave a hang-up behind.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap();
    let held = File::options().read(true).custom_flags(nonblocking).open(desk.path("held.json")).unwrap();
    let look = desk.look();
    let stems: Vec<String> = look.leases.faulty.iter().map(|faulty| faulty.stem.to_string()).collect();
    assert_eq!(stems, ["folder", "held", "waited"]);
    assert!(look.leases.faulty.iter().all(|faulty| faulty.why.what.contains("no regular file")));
    assert!(!released.load(Ordering::SeqCst), "it was opened for reading");
    let mut ends = [PollFd::new(&held, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    assert!(ends[0].revents().is_empty(), "it was opened for writing: {:?}", ends[0].revents());
    let _end = File::options().read(true).custom_flags(nonblocking).open(desk.path("waited.json")).unwrap();
    writer.join().unwrap();
}

#[test]
fn a_strangers_file_or_directory_does_not_count_f13() {
    if !is_root() {
        return;
    }
    let mut desk = Desk::new();
    let file = desk.write("gw.json", &sound("gw"));
    chown(&file, Some(STRANGER), None).unwrap();
    let (reason, what) = desk.fault("gw");
    assert_eq!(reason, Reason::Unsound);
    assert!(what.contains("belongs to user 65533"), "{what}");
    chown(&file, Some(0), None).unwrap();
    assert_eq!(ids(&desk.look()), ["gw"]);
    chown(desk.directory(), Some(STRANGER), None).unwrap();
    assert_whole(&mut desk, "belongs to user 65533");
    chown(desk.directory(), Some(0), None).unwrap();
    chown(desk.base.path(), Some(STRANGER), None).unwrap();
    assert_whole(&mut desk, "somebody else could change");
    chown(desk.base.path(), Some(0), None).unwrap();
    assert_eq!(ids(&desk.look()), ["gw"]);
}

#[test]
fn a_link_on_the_way_that_a_stranger_may_point_elsewhere_does_not_count() {
    use std::os::unix::fs::lchown;
    if !is_root() {
        return;
    }
    // As in `/tmp`: whoever came first made the directory above ours a link, to another directory of ours.
    let mut desk = Desk::below("way/leases");
    let link = desk.base.path().join("way");
    symlink(desk.base.path(), &link).unwrap();
    fs::create_dir(desk.directory()).unwrap();
    desk.allow("", 0o700);
    desk.write("gw.json", &sound("gw"));
    assert_eq!(ids(&desk.look()), ["gw"], "the twin where the link is ours");
    lchown(&link, Some(STRANGER), None).unwrap();
    assert_whole(&mut desk, "somebody else could change");
}

/// Looks, and says that nothing is known of the whole directory.
fn assert_whole(desk: &mut Desk, says: &str) {
    let (_, what) = desk.fault("");
    assert!(what.contains(says), "{what}");
    assert_eq!(ids(&desk.look()), [] as [&str; 0]);
}

#[test]
fn a_directory_that_others_could_change_does_not_count() {
    let mut desk = Desk::new();
    desk.write("gw.json", &sound("gw"));
    for mode in [0o720, 0o702, 0o1777] {
        desk.allow("", mode);
        assert_whole(&mut desk, "others may write");
    }
    desk.allow("", 0o755);
    assert_eq!(ids(&desk.look()), ["gw"]);
    fs::set_permissions(desk.base.path(), Permissions::from_mode(0o777)).unwrap();
    assert_whole(&mut desk, "somebody else could change");
    fs::set_permissions(desk.base.path(), Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(ids(&desk.look()), ["gw"], "the twin where nobody may rename it");
}

#[test]
fn a_missing_directory_says_nothing_and_any_other_trouble_is_unknown() {
    let mut desk = Desk::without();
    let look = desk.look();
    assert_eq!((&look.leases, gaps(&look)), (&reapd::model::lease::Leases::default(), Vec::new()));
    fs::write(desk.directory(), "").unwrap();
    assert_whole(&mut desk, "no directory");
    fs::remove_file(desk.directory()).unwrap();
    let elsewhere = desk.base.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, desk.directory()).unwrap();
    assert_whole(&mut desk, "no directory");
    fs::remove_file(desk.directory()).unwrap();
    fs::rename(&elsewhere, desk.directory()).unwrap();
    desk.allow("", 0o700);
    desk.write("gw.json", &sound("gw"));
    assert_eq!(ids(&desk.look()), ["gw"]);
    if !is_root() {
        desk.allow("", 0o300);
        let (reason, _) = desk.fault("");
        assert_eq!(reason, Reason::Denied);
        desk.allow("", 0o600);
        let (reason, _) = desk.fault("");
        assert_eq!(reason, Reason::Denied, "to be listed and not to be searched");
        desk.allow("", 0o700);
    }
    fs::remove_dir_all(desk.directory()).unwrap();
    assert_eq!(desk.look().leases, reapd::model::lease::Leases::default());
}

#[test]
fn more_files_than_the_bounds_allow_leave_the_whole_directory_unknown() {
    let mut desk = Desk::new();
    for number in 0..4_097 {
        fs::write(desk.path(&format!("n{number}.json")), sound(&format!("n{number}"))).unwrap();
    }
    let (reason, _) = desk.fault("");
    assert_eq!(reason, Reason::Truncated);
    fs::remove_file(desk.path("n0.json")).unwrap();
    assert_eq!(desk.look().leases.list.len(), 4_096);
    let large = sound("large").replace("}}", &format!("}},\"note\":\"{}\"}}", "x".repeat(60_000)));
    for number in 1..80 {
        let id = format!("n{number}");
        fs::write(desk.path(&format!("{id}.json")), large.replace("large", &id)).unwrap();
    }
    let (reason, what) = desk.fault("");
    assert_eq!(reason, Reason::Truncated);
    assert!(what.contains("bytes"), "{what}");
}

#[test]
fn many_faulty_files_make_few_gaps() {
    let mut desk = Desk::new();
    for number in 10..30 {
        desk.write(&format!("n{number}.json"), "{");
    }
    let look = desk.look();
    assert_eq!(look.leases.faulty.len(), 20);
    let gaps = gaps(&look);
    assert_eq!(gaps.len(), 9);
    assert!(gaps[8].why.what.contains("12 more"), "{gaps:?}");
}

#[test]
fn renewal_release_and_replacement_are_seen_at_the_next_look() {
    let mut desk = Desk::new();
    let path = desk.write("gw.json", &sound("gw"));
    let old = std::time::SystemTime::now() - Duration::from_hours(1);
    let age = |path: &Path| File::options().write(true).open(path).unwrap().set_modified(old).unwrap();
    age(&path);
    let first = desk.look();
    let again = desk.look();
    assert_eq!(first.leases.list, again.leases.list);
    File::options().write(true).open(&path).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let renewed = desk.look();
    let (one, other) = (lease(&first, "gw").file, lease(&renewed, "gw").file);
    assert_eq!(one.file, other.file, "touching it leaves it the same file");
    assert!(one.modified < other.modified);
    let fresh = desk.write(".gw.tmp", &sound("gw").replace("{\"v\"", "{\"released\":true,\"v\""));
    fs::rename(fresh, &path).unwrap();
    let released = desk.look();
    assert_eq!(lease(&released, "gw").release, Release::Released(None));
    assert_ne!(lease(&released, "gw").file.file, other.file);
    // Within one tick of the clock, of the same size, with the old time of modification.
    for text in ["one", "two", "six"] {
        fs::write(&path, sound("gw").replace("gw\"}", &format!("{text}\"}}"))).unwrap();
        age(&path);
        assert_eq!(lease(&desk.look(), "gw").covers.env.as_ref().unwrap(), text);
    }
}

/// A process of ours, ended with the test.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Started {
        let command = command.env(MARK, std::process::id().to_string()).stdin(Stdio::null());
        Started(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::new(i32::try_from(self.0.id()).unwrap()).unwrap()
    }

    fn is_running(&self, program: &str) -> bool {
        fs::read_to_string(format!("/proc/{}/comm", self.0.id())).is_ok_and(|name| name.trim() == program)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cookie(look: &Snapshot, started: &Started) -> Option<String> {
    let id = look.table.at(started.pid()).expect("it is in the table").id;
    look.leases.cookies.get(&id).map(|cookie| cookie.as_ref().unwrap().to_string())
}

#[test]
fn cookies_are_found_and_followed_through_an_exec_f4() {
    let mut desk = Desk::new();
    let carrier = Started::new(Command::new("sleep").arg("300").env(COOKIE, "gw-1"));
    let plain = Started::new(Command::new("sleep").arg("300").env_remove(COOKIE));
    let go = desk.base.path().join("go");
    let script = format!(
        "until [ -e {0} ]; do read -t 0.05 <> {0}.fifo; done; exec env {COOKIE}=gw-2 sleep 300",
        go.display()
    );
    assert!(Command::new("mkfifo").arg(desk.base.path().join("go.fifo")).status().unwrap().success());
    let changing = Started::new(Command::new("bash").args(["-c", &script]).env(COOKIE, "gw-1"));
    let wiped = Started::new(Command::new("env").args(["-i", "sleep", "300"]).env(COOKIE, "gw-1"));
    wait_for("the processes", || {
        [&carrier, &plain, &wiped].iter().all(|one| one.is_running("sleep")) && changing.is_running("bash")
    });

    let before = desk.look();
    assert!(before.leases.cookies.is_empty(), "without a lease nobody is read");

    desk.write("gw-1.json", &sound("gw-1"));
    let look = desk.look();
    assert_eq!(cookie(&look, &carrier).as_deref(), Some("gw-1"));
    assert_eq!(cookie(&look, &changing).as_deref(), Some("gw-1"));
    assert_eq!(cookie(&look, &plain), None);
    let again = desk.look();
    assert_eq!((cookie(&again, &carrier), cookie(&again, &plain)), (Some("gw-1".to_owned()), None));

    fs::write(&go, "").unwrap();
    wait_for("the exec", || changing.is_running("sleep"));
    let after = desk.look();
    assert_eq!(cookie(&after, &changing).as_deref(), Some("gw-2"), "another program, another environment");
    assert_eq!(cookie(&after, &carrier).as_deref(), Some("gw-1"));
    assert_eq!(cookie(&after, &wiped), None, "an empty environment holds none");

    desk.write("gw-1.json", "{");
    let faulty = desk.look();
    assert_eq!(faulty.leases.list, []);
    assert_eq!(cookie(&faulty, &carrier).as_deref(), Some("gw-1"), "a faulty lease may be the one");
}

#[test]
fn a_saved_look_carries_leases_without_their_names() {
    let desk = Desk::new();
    desk.write("gw-secret.json", &sound("gw-secret").replace("}}", "},\"note\":\"hunter2\"}"));
    desk.write("bad-secret.json", r#"{"v":"hunter3"}"#);
    let carrier = Started::new(Command::new("sleep").arg("300").env(COOKIE, "gw-secret"));
    wait_for("the carrier", || carrier.is_running("sleep"));
    let saved = desk.base.path().join("world.txt");
    let reapd = Command::new(env!("CARGO_BIN_EXE_reapd"))
        .args(["observe", "--save"])
        .arg(&saved)
        .env("REAPD_LEASES", desk.directory())
        .env("HOME", desk.base.path())
        .env("XDG_STATE_HOME", desk.base.path().join("state"))
        .output()
        .unwrap();
    assert!(reapd.status.success(), "{}", String::from_utf8_lossy(&reapd.stderr));
    let text = fs::read_to_string(saved).unwrap();
    for secret in ["secret", "hunter"] {
        assert!(!text.contains(secret), "{secret} in:\n{text}");
    }
    let look = &world::parse(&text).unwrap()[0];
    let leases = &look.snapshot.leases;
    assert_eq!((leases.list.len(), leases.faulty.len()), (1, 1));
    let id = look.snapshot.table.at(carrier.pid()).unwrap().id;
    assert_eq!(leases.cookies[&id].as_ref().ok(), leases.list[0].covers.env.as_ref());
}
