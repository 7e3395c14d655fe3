//! What somebody types, or has a script type, that cannot be: one line that says what is wrong, and nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::text;

/// Command lines, with words in quotes where one is empty or has a space. The files that they name are those of [`Folder`].
const WRONG: &[&str] = &[
    "ping --size 0",
    "ping --size 1.5",
    "ping --size 4Q",
    "ping --size ''",
    "ping --size -1",
    "ping --size 99999999999999999999999",
    "ping --count 0",
    "ping --count 1e3",
    "ping --lose 1",
    "ping --wire --lose 101",
    "ping --wire --lose x",
    "ping --record dir",
    "ping --record /no/such/dir/x",
    "ping --record-slots 4K",
    "ping --record x --record-slots 7",
    "ping --processors 0",
    "ping --processors 65",
    "ping --profile nothing",
    "ping extra",
    "selftest --seed 0x",
    "selftest --seed 0xFFFFFFFFFFFFFFFFFF",
    "selftest --filter ,",
    "selftest --filter ' '",
    "selftest --filter arm --exclude exclude",
    "selftest --exclude dir",
    "selftest --exclude binary",
    "selftest --filter arm.any --exclude empty --from zzz",
    "selftest --filter arm.one-callback-per-arm --junit dir",
    "selftest --filter arm.one-callback-per-arm --record dir",
    "selftest --filter arm.one-callback-per-arm --timeline dir",
    "selftest --list --junit x.xml",
    "selftest --list --record x",
    "selftest --markdown",
    "selftest --fault nonsense",
    "selftest --fault late,chance=2000000",
    "selftest --fault late,delay=5..1",
    "selftest --fault late,nth=0",
    "selftest --fault fail,function=NdkFoo",
    "selftest --fault fail,function=NdkConnect,status=STATUS_FOO",
    "selftest --faults each-call --fault late",
    "selftest --resume --progress /no/such",
    "selftest --resume --progress empty",
    "selftest --resume --progress binary",
    "soak --minutes 0",
    "soak --rounds 0",
    "soak --minutes 1 --rounds 1",
    "soak --workers 0",
    "info --profile x",
    "explain",
    "explain SN9999",
    "explain SR99999",
    "explain 0xZZ",
    "explain ''",
    "explain --list SN0001",
    "faults",
    "faults --list --off",
    "faults --rule",
    "faults --of nobody --off",
    "bench --filter ''",
    "timeline",
    "timeline text.ndkrec",
    "timeline text.ndkrec --html x.html",
    "timeline empty --html x.html",
    "timeline dir --html x.html",
    "timeline --example merge --html dir",
    "timeline --example nope --html x",
    "timeline --example merge --svg x.svg --lanes 'QP 99'",
    "timeline --example merge --html x.html --lanes 'QP 1'",
    "timeline --example merge --html x.html --order",
    "timeline empty --example merge --html x.html",
    "replay empty",
    "replay dir",
    "replay /no/such",
    "packets empty x",
    "packets binary dir",
    "report",
    "report bad.json --html x.html",
    "report empty --html x.html",
    "report dir --html x.html",
    "report binary --baseline empty",
    "report bad.json --json --html x",
    "run",
    "run --script script.toml",
    "run --script b.toml",
    "run --script nul.toml",
    "run --script dir",
    "run empty",
    "run binary",
    "run dir",
    "run empty --seeds 0..",
    "run empty --seeds 5..1",
    "run empty --seeds ''",
    "run empty --seeds 1,,2",
    "run empty --seeds 18446744073709551616",
    "run empty --jobs 0",
    "run empty --limit 0",
    "run empty --threads 0",
    "run empty --threads 65",
    "run empty --pdb /no/such",
    "run empty --registry b.toml",
    "run --imports",
    "run --imports empty",
    "run --imports empty --script x",
    "run empty --fault late --imports",
    "run empty --faults -1",
    "run empty --faults ''",
    "completions tcsh",
    "new",
    "new consumer-rust ''",
    "new consumer-pascal x",
    "netstat --of softndk",
    "record x",
    "record x --memory empty",
    "record x --memory dir",
    "record x --memory binary",
    "record --seconds 0 x",
    "wire",
    "wire serve",
    "wire serve --local 10.0.0.1",
    "wire serve --local 10.0.0.1/33",
    "wire serve --local 10.0.0.300/24",
    "wire ping",
    "wire ping nohost --local 10.0.0.2/24 --peer 127.0.0.1:1",
    "wire ping 10.0.0.1 --local 10.0.0.2/24 --peer 127.0.0.1:99999",
    "wire ping 10.0.0.1 --local 10.0.0.2/24 --peer 127.0.0.1:7777 --count 0",
    "wire ping 10.0.0.1 --local 10.0.0.2/24 --peer 127.0.0.1:7777 --connections 0",
    "wire ping 10.0.0.1 --local 10.0.0.2/24 --peer 127.0.0.1:7777 --wait -1",
    "wire ping 10.0.0.1 --local 10.0.0.2/24 --peer 127.0.0.1:7777 --perftest send",
    "wire ping 10.0.0.1 --local 10.0.0.2/24 --peer 127.0.0.1:7777 --perftest send-bw --read",
    "wire serve --local 10.0.0.2/24 --peer 127.0.0.1:7777 --perftest send-bw --ucmatose",
    "wire serve --local 10.0.0.2/24 --peer 127.0.0.1:7777 --count 0 --ucmatose",
    "wire info --local x",
    "nd2",
    "nd2 install nothing.dll",
    "nd2 foo",
    "nd2-selftest --filter ''",
    "nd2-selftest --filter zz",
    "help foo",
    "help nd2 foo bar",
    "driver",
    "driver foo",
    "driver settings --completion x",
    "doctor foo",
    "nic",
    "nic pair --addresses x",
    "--jsn",
    "-v",
    "SELFTEST",
];

/// Each argument for a file to write, with what else its command needs: neither a folder nor a file in a folder that is not there.
const WRITES: &[&str] = &[
    "ping --count 100000000 --record",
    "ping --count 100000000 --timeline",
    "selftest --record",
    "selftest --timeline",
    "selftest --junit",
    "soak --minutes 60 --record",
    "run text.ndkrec --record",
    "run text.ndkrec --timeline",
    "run text.ndkrec --junit",
    "timeline --example merge --html",
    "timeline --example merge --svg",
    "timeline --example merge --perfetto",
    "packets empty",
    "report bad.json --html",
    "bench --json",
    "bench --report",
    "bench --counts",
    "wire serve --local 10.0.0.1/24 --peer 127.0.0.1:7777 --pcap",
    "wire serve --local 10.0.0.1/24 --peer 127.0.0.1:7777 --record",
    "record",
];

/// Each argument for a filter.
const FILTERS: &[&str] = &["selftest --filter", "selftest --list --filter", "nd2-selftest --filter", "bench --filter"];

/// A folder with files of every wrong kind, which goes with its test.
struct Folder(PathBuf);

impl Folder {
    fn make(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ndkctl-wrong-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("dir/inside")).expect("a folder");
        let all: Vec<u8> = (0..=255).cycle().take(2560).collect();
        for (file, bytes) in [
            ("empty", &b""[..]),
            ("text.ndkrec", b"hello"),
            ("bad.json", b"{\"a\":"),
            ("nul.toml", &[0; 3]),
            ("b.toml", b"x = ["),
            ("script.toml", b"[[image]]\nname=\"a\"\nfile=\"missing.sys\"\n[[step]]\nfoo=\"bar\"\n"),
            ("exclude", b"no.such.case\n"),
            ("binary", &all),
        ] {
            fs::write(path.join(file), bytes).expect("room");
        }
        Self(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut names: Vec<_> = fs::read_dir(&self.0).expect("it is there").flatten().map(|one| one.path()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The words of a line; those in quotes are whole.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut rest) = (Vec::new(), line.trim());
    while !rest.is_empty() {
        let (word, behind) = rest.strip_prefix('\'').map_or_else(
            || rest.split_once(' ').unwrap_or((rest, "")),
            |quoted| quoted.split_once('\'').expect("quotes end"),
        );
        words.push(word.to_owned());
        rest = behind.trim_start();
    }
    words
}

/// What the program says, without a terminal, in a folder. It does not begin what it cannot do.
fn said_in(folder: &Path, words: &[String]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ndkctl"))
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let begun = Instant::now();
    while child.try_wait().expect("it can be waited for").is_none() {
        if begun.elapsed() > Duration::from_mins(2) {
            child.kill().expect("it runs");
            panic!("{words:?} goes on and on");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

/// One line, a code that says so, and no word on the standard output.
fn refused(folder: &Path, words: &[String]) -> (i32, String) {
    let output = said_in(folder, words);
    let (said, shown) = (text(&output.stderr), text(&output.stdout));
    let code = output.status.code().unwrap_or(-1);
    assert!((1..=9).contains(&code), "{words:?}: {code}: {said}{shown}");
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    assert!(!said.contains("panicked") && said.trim().len() > 10, "{words:?}: {said}");
    assert!(shown.trim().is_empty(), "{words:?}: {shown}");
    (code, said)
}

#[test]
fn each_wrong_line_gets_one_line_and_leaves_nothing() {
    let folder = Folder::make("lines");
    let before = folder.files();
    for line in WRONG {
        refused(&folder.0, &words(line));
    }
    assert_eq!(folder.files(), before, "no file is made for what is refused");
}

#[test]
fn where_nothing_can_be_written_nothing_is_begun() {
    let folder = Folder::make("writes");
    let before = folder.files();
    for line in WRITES {
        for (name, part) in [("dir", "folder"), ("no/such/folder", "no folder"), ("''", "name a file")] {
            let (code, said) = refused(&folder.0, &words(&format!("{line} {name}")));
            assert!(code == 2 && said.contains(part), "{line} {name}: {code}: {said}");
        }
    }
    assert_eq!(folder.files(), before);
}

#[test]
fn an_empty_filter_is_refused() {
    let folder = Folder::make("filters");
    for line in FILTERS {
        for filter in ["''", "' '", "','", "'arm,'"] {
            let (code, said) = refused(&folder.0, &words(&format!("{line} {filter}")));
            assert!(code == 2 && said.contains("parts of names"), "{line} {filter}: {code}: {said}");
        }
    }
}

/// The table of users.md has a row for each command with several lines, one for all others, and one for each of the other lists.
#[test]
fn the_table_counts_the_wrong_lines() {
    let page =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/users.md")).expect("the page");
    let rows: Vec<(&str, usize)> = page
        .lines()
        .filter_map(|line| {
            let [_, what, count, _] = line.split('|').map(str::trim).collect::<Vec<_>>()[..] else { return None };
            Some((what, count.parse().ok()?))
        })
        .collect();
    let mut rest = WRONG.len();
    for (what, count) in &rows {
        let Some(command) = what.strip_prefix("an argument of `").and_then(|rest| rest.strip_suffix('`')) else {
            continue;
        };
        let lines = WRONG.iter().filter(|line| line.split(' ').next() == Some(command)).count();
        assert_eq!(*count, lines, "{command}");
        rest -= lines;
    }
    let of_lists = [("another command", rest), ("a file to write", 3 * WRITES.len()), ("a filter", 4 * FILTERS.len())];
    for (what, lines) in of_lists {
        let row = rows.iter().find(|(row, _)| row.contains(what)).unwrap_or_else(|| panic!("no row for {what}"));
        assert_eq!(row.1, lines, "{what}");
    }
    let all: usize = rows.iter().map(|(_, count)| count).sum();
    assert!(all > 200 && page.contains(&format!("{all} wrong command lines")), "the page should say {all}");
}
