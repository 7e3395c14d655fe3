use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{Cmd, cmd};

use crate::context::{Context, Needed};

const TSHARK: Needed = ("tshark", "tshark");

/// What no packet may be: malformed, or with a wrong checksum.
const BAD: &str = r#"_ws.malformed || ip.checksum.status == "Bad" || icmpv6.checksum.status == "Bad""#;

/// What a recording made here has: send, write, read request, read response, acknowledgement, message of the connection manager.
const OPCODES: [u8; 6] = [4, 10, 12, 16, 17, 100];

/// Has tshark read the packets of a recording over a wire
///
/// Each was sent, or came in: those of RoCEv2 have a good IP checksum, and none is malformed, neither by a field nor by what the column of
/// information says. The others are of ARP. Every one has its direction, and a comment. Without a recording it makes one over a wire in
/// memory that loses frames, in which every kind of request has to be found, packets that were sent again, and more that left than came in.
/// Seconds. Installs tshark from Debian if it is missing. NDKCTL names a build of ndkctl; without it one is made.
#[derive(clap::Args)]
pub struct Packets {
    recording: Option<PathBuf>,
}

impl Packets {
    pub fn run(&self, context: &Context) -> Result<()> {
        context.need(&[TSHARK])?;
        let sh = &context.sh;
        let scratch = sh.create_temp_dir()?;
        let ndkctl = context.ndkctl("dev")?;
        let made = scratch.path().join("recording");
        if self.recording.is_none() {
            let soak =
                cmd!(sh, "{ndkctl} soak --rounds 1 --workers 4 --wire --lose 2 --record-slots 4M --record {made}");
            soak.ignore_stdout().run()?;
        }
        let (recording, capture) = (self.recording.as_ref().unwrap_or(&made), scratch.path().join("packets.pcapng"));
        cmd!(sh, "{ndkctl} packets {recording} {capture}").run()?;

        let capture = Capture { context, file: &capture };
        let (all, known, bad) = (capture.count("frame")?, capture.count("infiniband.bth")?, capture.count(BAD)?);
        let (others, commented) = (capture.count("arp || icmpv6")?, capture.count("frame.comment")?);
        let [arrived, left] = [1, 2].map(|way| capture.count(&format!("frame.packet_flags_direction == {way}")));
        let (arrived, left) = (arrived?, left?);
        let again = capture.count("frame.comment contains \"sent before\"")?;
        let column = capture.tshark().args(["-T", "fields", "-e", "_ws.col.Info"]).read()?.to_lowercase();
        let said =
            column.lines().filter(|line| ["invalid", "malformed", "unknown"].iter().any(|word| line.contains(word)));
        let said = said.count();
        for opcode in OPCODES.iter().filter(|_| self.recording.is_none()) {
            let found =
                capture.tshark().args(["-c", "5000", "-Y", &format!("infiniband.bth.opcode == {opcode}")]).read()?;
            ensure!(!found.is_empty(), "no packet with opcode {opcode}");
        }
        println!(
            "{all} packets, {left} that left and {arrived} that came in: {known} of RoCEv2, {others} of neighbours, {again} sent again, \
             {bad} malformed, {said} of which the column says so"
        );
        ensure!(
            known > 0 && known + others == all && commented == all && arrived + left == all && bad == 0 && said == 0,
            "tshark reads other packets than were meant"
        );
        ensure!(self.recording.is_some() || (again > 0 && left > arrived), "nothing was lost");
        Ok(())
    }
}

/// Has tshark read the frames that the crate `roce` sends
///
/// None may be malformed, and all but ARP and neighbour discovery are RoCEv2. Without a capture it makes one, of two stacks that exchange
/// every kind of request. Seconds. Installs tshark from Debian if it is missing.
#[derive(clap::Args)]
pub struct Frames {
    capture: Option<PathBuf>,
}

impl Frames {
    pub fn run(&self, context: &Context) -> Result<()> {
        let sh = &context.sh;
        let scratch = sh.create_temp_dir()?;
        if let Some(capture) = &self.capture {
            return read_frames(context, capture);
        }
        let capture = scratch.path().join("frames.pcap");
        let pair = context.example("pair")?;
        cmd!(sh, "{pair} {capture}").run()?;
        read_frames(context, &capture)
    }
}

/// Fails if tshark finds other frames in a capture than the crate `roce` sends.
pub fn read_frames(context: &Context, file: &Path) -> Result<()> {
    context.need(&[TSHARK])?;
    let capture = Capture { context, file };
    let (all, known) = (capture.count("frame")?, capture.count("infiniband.bth")?);
    let (others, bad) = (capture.count("arp || icmpv6")?, capture.count(BAD)?);
    println!("{all} frames, {known} of RoCEv2, {others} of neighbours, {bad} malformed");
    ensure!(
        known > 0 && known + others == all && bad == 0,
        "tshark reads other frames in {} than were meant",
        file.display()
    );
    Ok(())
}

struct Capture<'a> {
    context: &'a Context,
    file: &'a Path,
}

impl<'a> Capture<'a> {
    /// What messages carry are no protocols: tshark is not to guess one (docs/reference/rocev2.md 0.11).
    fn tshark(&self) -> Cmd<'a> {
        let (sh, file) = (&self.context.sh, self.file);
        let tshark = cmd!(sh, "tshark -r {file} -o ip.check_checksum:TRUE --disable-heuristic rpcrdma_infiniband");
        tshark.quiet().ignore_stderr()
    }

    /// How many frames a filter finds.
    fn count(&self, filter: &str) -> Result<usize> {
        Ok(self.tshark().args(["-Y", filter]).read()?.lines().count())
    }
}
