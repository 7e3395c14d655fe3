use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use regex::Regex;
use xshell::cmd;

use crate::context::{Context, have, root};

/// Where pictures of pages are that are as they should be.
const REFERENCES: &str = "docs/pictures/timeline";
/// The window of a page.
const WINDOW: (u32, u32) = (1400, 800);
/// Pictures are compared so much smaller, because fonts differ: what is left is where something is.
const SMALLER: usize = 16;
/// How much of what a picture shows may be something else: the differences of all places, of those from an empty page.
const DIFFERENCE: f64 = 0.3;

/// The reports that are looked at: their pictures, and which cases each is of.
const REPORTS: [(&str, &str); 3] =
    [("report-1", "arm.one-callback-per-arm"), ("report-some", "arm,results"), ("report-all", ".")];
/// The queue pairs of the recordings that failed cases of reports have.
const PAIRS: [u32; 3] = [1, 50, 500];
/// A report is no longer than this, in bytes, whatever was recorded.
const LARGEST_REPORT: usize = 8 << 20;

/// Has a browser draw pages of timelines and reports, and looks at what it has drawn
///
/// Of a small one: marks, a search, the text of a match with its rule, the text of what the pointer stands over. Of one under the adviser:
/// what it has found. Of one over a wire: packets, ACKs. Of one of 50 queue pairs: that no lane is empty. Of one of 500 queue pairs and a
/// million marks: density and what is said of it, groups, filters, hidden lanes, keys, a search that goes to the lane of its match, and each
/// within seconds. Of reports of one case, of some and of the whole suite, and of a case that failed with 1, 50 and 500 queue pairs: each case, its
/// recording, and how long they are. Pictures of all
/// are compared with those of docs/pictures/timeline, roughly: fonts differ. The browser has no window, and nothing is loaded from a network.
/// Minutes. Installs chromium from Debian if it is missing. NDKCTL names a build of ndkctl; without it one is made.
#[derive(clap::Args)]
pub struct Timeline {
    /// Make the pictures of docs/pictures/timeline anew
    #[arg(long)]
    keep: bool,
}

impl Timeline {
    pub fn run(&self, context: &Context) -> Result<()> {
        let name = if have("chromium-browser") { "chromium-browser" } else { "chromium" };
        context.need(&[(name, "chromium")])?;
        let sh = &context.sh;
        let scratch = sh.create_temp_dir()?;
        let browser = Browser { context, name, folder: scratch.path() };
        let ndkctl = context.ndkctl("dev")?;
        let page = |name: &str| scratch.path().join(name);

        let small = page("small.html");
        cmd!(sh, "{ndkctl} timeline --example merge --html {small}").run()?;
        let drawn = small_page(&browser, &small)?;

        let advised = page("advised.html");
        // Without the wire's lanes and with one seed, so that it is always the same.
        let of = ["--filter", "arm.merge-any-errors", "--deterministic", "--advise"];
        cmd!(sh, "{ndkctl} selftest {of...} --timeline {advised}").ignore_stdout().run()?;
        advised_page(&browser, &advised)?;

        let (recording, wire) = (page("wire.ndkrec"), page("wire.html"));
        let ping = cmd!(
            sh,
            "{ndkctl} ping --wire --notify any --count 20 --size 3000 --completion inline --record {recording}"
        );
        ping.ignore_stdout().run()?;
        cmd!(sh, "{ndkctl} timeline {recording} --html {wire}").run()?;
        wire_page(&browser, &wire)?;

        let middle = page("middle.html");
        let pages = context.example("large")?;
        cmd!(sh, "{pages} {middle} 50 25000").ignore_stdout().run()?;
        middle_page(&browser, &middle)?;

        let large = page("large.html");
        let made = cmd!(sh, "{pages} {large}").read()?;
        large_page(&browser, &large)?;
        println!("the page draws {drawn} marks, finds, tells, answers a pointer and zooms; so does one of {made}");

        for (page, part, name) in [
            (&small, "all", "one-pair"),
            (&middle, "all", "50-pairs"),
            (&large, "all", "500-pairs"),
            (&large, "zoom=0.0002&lanes=QP 7 ,CQ 7 ", "near"),
        ] {
            self.look(&browser, page, part, name)?;
        }
        self.reports(&browser, &ndkctl)
    }

    /// Compares the picture of a page with the one that is kept, or keeps it.
    fn look(&self, browser: &Browser<'_>, page: &Path, part: &str, name: &str) -> Result<()> {
        let sh = &browser.context.sh;
        let picture = browser.picture(page, part)?;
        let reference = root().join(REFERENCES).join(format!("{name}.png"));
        if self.keep {
            sh.create_dir(root().join(REFERENCES))?;
            sh.copy_file(&picture, &reference)?;
        }
        compare(&picture, &reference)
    }

    /// Reports of one case, of some, and of the suite.
    fn reports(&self, browser: &Browser<'_>, ndkctl: &Path) -> Result<()> {
        let sh = &browser.context.sh;
        for (name, filter) in REPORTS {
            let [results, recording, page] =
                ["json", "ndkrec", "html"].map(|kind| browser.folder.join(format!("{name}.{kind}")));
            let json = cmd!(sh, "{ndkctl} selftest --filter {filter} --deterministic --json --record {recording}");
            sh.write_file(&results, json.read()?)?;
            cmd!(sh, "{ndkctl} report {results} --html {page}").ignore_stdout().run()?;
            let shown = browser.elements(&page, "")?;
            let run: serde_json::Value = serde_json::from_str(&sh.read_file(&results)?)?;
            let cases = run["cases"].as_array().context("results have cases")?;
            let drawn = shown.matches("<details").count();
            ensure!(drawn == cases.len(), "{name}: {drawn} of {} cases are shown", cases.len());
            expect(&shown, "<figure><svg").with_context(|| format!("{name}: no recording"))?;
            ensure!(shown.len() < LARGEST_REPORT, "{name}: the page has {} bytes", shown.len());
            self.look(browser, &page, "", name)?;
            println!("a report of {drawn} cases in {} bytes", shown.len());
        }
        let consumer = browser.context.example("many_queue_pairs")?;
        for pairs in PAIRS {
            self.report_of(browser, ndkctl, &consumer, pairs)?;
        }
        Ok(())
    }

    /// A report of a case that failed, with the recording of a program that has so many queue pairs on either side. No case has: the results are
    /// those of one that passes, changed.
    fn report_of(&self, browser: &Browser<'_>, ndkctl: &Path, consumer: &Path, pairs: u32) -> Result<()> {
        let sh = &browser.context.sh;
        let name = format!("report-{pairs}-{}", if pairs == 1 { "pair" } else { "pairs" });
        let [results, recording, page] =
            ["json", "ndkrec", "html"].map(|kind| browser.folder.join(format!("{name}.{kind}")));
        let count = pairs.to_string();
        cmd!(sh, "{consumer} {count} 1").env("NDK_RECORD", &recording).ignore_stdout().run()?;
        let json = cmd!(sh, "{ndkctl} selftest --filter arm.one-callback-per-arm --deterministic --json").read()?;
        let mut run: serde_json::Value = serde_json::from_str(&json)?;
        let case = run["cases"][0]["name"].clone();
        (run["passed"], run["failed"]) = (0.into(), 1.into());
        run["cases"][0]["outcome"] = "failed".into();
        run["cases"][0]["text"] = format!("made up, for a recording of {pairs} queue pairs a side").into();
        run["recording"] = serde_json::json!({ "case": case, "file": recording.display().to_string() });
        sh.write_file(&results, run.to_string())?;
        cmd!(sh, "{ndkctl} report {results} --html {page}").ignore_stdout().run()?;
        let shown = browser.elements(&page, "")?;
        // A failed case is open, and shows its last moments: of more it says that it does not show them.
        expect(&shown, r#"<details class="failed"[^>]* open[\s\S]*<figure><svg"#)?;
        let left_out = Regex::new(r"The last (\d+) of (\d+) moments")?.is_match(&shown);
        ensure!(left_out == (pairs > 1), "{name}: whether something is left out is not said right");
        if left_out {
            // It is all in the page beside it.
            let whole = browser.folder.join(format!("{name}-timeline.html"));
            expect(&browser.elements(&whole, "all")?, r#"data-shown="[0-9]"#)?;
        }
        ensure!(shown.len() < LARGEST_REPORT, "{name}: the page has {} bytes", shown.len());
        self.look(browser, &page, "", &name)?;
        println!("a report of a case with {pairs} queue pairs a side in {} bytes", shown.len());
        Ok(())
    }
}

/// Looks at the page of a run under the adviser.
fn advised_page(browser: &Browser<'_>, page: &Path) -> Result<()> {
    let shown = browser.elements(page, "all&search=SN0004&next")?;
    for text in
        [r#"class="shape finding""#, r"SN0004 of CQ \d+, in NdkArmCq", r"NDKPI 7\.1\.4</a>", "findings.md#sn0004"]
    {
        expect(&shown, text)?;
    }
    Ok(())
}

/// Looks at the page of 50 queue pairs.
fn middle_page(browser: &Browser<'_>, page: &Path) -> Result<()> {
    let all = browser.elements(page, "all")?;
    expect(&all, r"\d+ of 102 lanes, scroll for \d+")?;
    // Each lane in sight has marks, or how many there are.
    let lanes: Vec<_> = all.split(r#"class="band""#).skip(1).collect();
    let empty = lanes.iter().position(|lane| !lane.contains(r#"class="shape"#) && !lane.contains(r#"class="many"#));
    ensure!(lanes.len() > 10 && empty.is_none(), "lane {empty:?} of {} shows nothing", lanes.len());
    Ok(())
}

/// Looks at the page of two arms that merge. Returns how many marks it has.
fn small_page(browser: &Browser<'_>, page: &Path) -> Result<u32> {
    let plain = browser.elements(page, "all")?;
    expect(&plain, r#"data-shown="[1-9]"#)?;
    for kind in ["armed", "merge", "decision", "callback", "poll", "request"] {
        expect(&plain, &format!(r#"class="shape {kind}""#))?;
    }
    expect(&plain, r#"class="arrow""#)?;
    expect(&plain, r#"id="foot">Point at a mark"#).context("something is told before anybody has pointed at it")?;
    expect(&plain, r">\S QP \d+ - QP \d+<").context("no group of a connection")?;
    let found = browser.elements(page, "all&search=both are one arm&next")?;
    for text in [">1 match<", "mark chosen", r#"class="mark dim""#, r"NDKPI 7\.1\.4</a>"] {
        expect(&found, text)?;
    }
    expect(&browser.elements(page, "all&point")?, r#"id="foot"><b>.*Armed for .*NDKPI 7\.1\.5</a>"#)?;
    let (near, all) = (number(&browser.elements(page, "all&zoom=0.2")?, "shown")?, number(&plain, "shown")?);
    ensure!(near < all, "a closer look shows no fewer marks: {near} of {all}");
    let without = browser.elements(page, "all&without=poll")?;
    ensure!(!without.contains(r#"class="shape poll""#) && without.contains("without poll"), "a kind is not left out");
    Ok(all)
}

/// Looks at the page of a recording over a wire.
fn wire_page(browser: &Browser<'_>, page: &Path) -> Result<()> {
    let drawn = browser.elements(page, "search=SEND only&all&lanes=QP 1,wire")?;
    for kind in ["packet", "ack"] {
        expect(&drawn, &format!(r#"class="(shape|many) {kind}"#))?;
    }
    // What belongs to no queue pair is below all of those.
    expect(&browser.elements(page, "all&lanes=wire")?, r#"class="(shape|many) management"#)?;
    expect(
        &browser.elements(page, "search=SEND first&next")?,
        r"Leaves, of QP \d+, .*SEND first, PSN .*Of NdkSend, context 0x2",
    )
}

/// Looks at the page of 500 queue pairs.
fn large_page(browser: &Browser<'_>, page: &Path) -> Result<()> {
    let all = browser.elements(page, "all")?;
    let took = number(&all, "milliseconds")?;
    ensure!(took < 60_000, "the page takes {took} ms");
    expect(&all, r"\d+ of 1002 lanes, scroll for \d+; \d+ marks of \d+ lanes as density: zoom in for each")?;
    ensure!(number(&all, "dense")? > 100_000, "the processors are not dense");
    let elements = all.matches("<rect").count() + all.matches("<path").count();
    ensure!(elements < 40_000, "{elements} shapes are too many for a browser");

    let folded = browser.elements(page, "all&fold")?;
    expect(&folded, r"QP \d+, 2 lanes")?;
    let filtered = browser.elements(page, "all&lanes=QP 500")?;
    expect(&filtered, r"2 of 1002 lanes.*; 1000 folded or not asked for")?;
    let hidden = browser.elements(page, "all&hide=QP 1")?;
    expect(&hidden, "1 hidden")?;
    ensure!(!hidden.contains(">QP 1</text>"), "the lane is not hidden");
    // A context is whole: 0x1 is not 0x10. A failure far away is found, and its lane is brought into sight.
    expect(&browser.elements(page, "all&search=context:0x1")?, ">[1-9] matches<")?;
    let found = browser.elements(page, "all&search=status:CANCELLED&next&press=n&press=N")?;
    expect(&found, r#"id="foot"><b>(QP|CQ) \d+, .*STATUS_CANCELLED"#)?;
    expect(&found, "mark chosen")?;
    let lane =
        Regex::new(r#"data-lane="((?:QP|CQ) \d+)""#)?.captures(&found).context("no lane is gone to")?[1].to_owned();
    expect(&found, &format!(">{lane}</text>")).context("the lane of the match is not in sight")?;
    let (wide, near) = (number(&all, "dense")?, number(&browser.elements(page, "all&press=+&press=+")?, "dense")?);
    ensure!(near < wide, "a key does not zoom");
    Ok(())
}

/// A browser without a window.
struct Browser<'a> {
    context: &'a Context,
    name: &'static str,
    folder: &'a Path,
}

impl Browser<'_> {
    fn open(&self, page: &Path, part: &str, what: &[&str]) -> Result<String> {
        let (sh, browser) = (&self.context.sh, self.name);
        let address = format!("file://{}#{part}", page.display());
        let folder = format!("--user-data-dir={}", self.folder.join("profile").display());
        let window = format!("--window-size={},{}", WINDOW.0, WINDOW.1);
        let browser = cmd!(sh, "{browser} --headless --no-sandbox --disable-gpu --disable-background-networking");
        let browser =
            browser.args(["--disable-component-update", &folder, &window, "--host-resolver-rules=MAP * ~NOTFOUND"]);
        Ok(browser.args(what).arg(address).quiet().ignore_stderr().read()?)
    }

    /// The elements of a page after its program has run.
    fn elements(&self, page: &Path, part: &str) -> Result<String> {
        self.open(page, part, &["--dump-dom"])
    }

    /// A picture of a page.
    fn picture(&self, page: &Path, part: &str) -> Result<PathBuf> {
        let file = self.folder.join("picture.png");
        self.open(page, part, &["--hide-scrollbars", &format!("--screenshot={}", file.display())])?;
        Ok(file)
    }
}

/// How light each place of a picture is, and how many places are beside each other.
fn places(path: &Path) -> Result<(Vec<f64>, usize)> {
    let named = || path.display().to_string();
    let mut decoder = png::Decoder::new(BufReader::new(File::open(path).with_context(named)?));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().with_context(named)?;
    let mut bytes = vec![0; reader.output_buffer_size().with_context(named)?];
    let frame = reader.next_frame(&mut bytes).with_context(named)?;
    let (width, samples) = (frame.width as usize, frame.color_type.samples());
    let beside = width / SMALLER;
    let mut sums = vec![0.0; beside * (frame.height as usize / SMALLER)];
    for (number, pixel) in bytes.chunks_exact(samples).enumerate() {
        let (across, down) = (number % width / SMALLER, number / width / SMALLER);
        if across < beside
            && let Some(sum) = sums.get_mut(down * beside + across)
        {
            *sum += pixel.iter().take(3).copied().map(f64::from).sum::<f64>();
        }
    }
    let most = f64::from(u32::try_from(SMALLER * SMALLER * samples.min(3))?);
    Ok((sums.into_iter().map(|sum| sum / most).collect(), beside))
}

/// Fails if two pictures show something else.
fn compare(picture: &Path, reference: &Path) -> Result<()> {
    let ((ours, width), (theirs, other)) = (places(picture)?, places(reference)?);
    ensure!(ours.len() == theirs.len() && width == other, "{}: another size", reference.display());
    let differs =
        |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(one, other)| (one - other).abs()).sum::<f64>();
    // What most places have is the paper.
    let mut sorted = theirs.clone();
    sorted.sort_by(f64::total_cmp);
    let paper = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    let shown = differs(&theirs, &vec![paper; theirs.len()]);
    let difference = differs(&ours, &theirs) / shown.max(1.0);
    ensure!(
        difference <= DIFFERENCE,
        "{}: {:.0} % of what it shows differs; --keep takes it as it is",
        reference.display(),
        100.0 * difference
    );
    Ok(())
}

fn expect(page: &str, pattern: &str) -> Result<()> {
    ensure!(Regex::new(pattern)?.is_match(page), "the page does not show: {pattern}");
    Ok(())
}

/// A number that a page says of itself.
fn number(page: &str, what: &str) -> Result<u32> {
    let found = Regex::new(&format!(r#"data-{what}="(\d+)"#))?.captures(page);
    Ok(found.with_context(|| format!("the page does not say: {what}"))?[1].parse()?)
}
