//! Linux' NVMe target over rxe as the judge of examples/nvme_read: blocks are compared on both sides.

use std::{
    fs,
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use super::{Network, PORTS, Ports, Running, guest::Guest};
use crate::context::{Context, absolute};

/// Bytes of a block: those of the file system in memory, on which the namespace lies.
const BLOCK: usize = 4096;
/// Blocks of the namespace.
const BLOCKS: usize = 512;
/// Which of them are written, and how many: more than one command takes.
const FIRST: usize = 16;
const WRITTEN: usize = 25;

/// What the guest does: a target with one namespace, whose bytes it compares with those that should be there.
const JOB: &str = "\
while read -r file; do insmod /modules/$file 2>/dev/null; done < /modules/nvmet-rdma.list
mount -t configfs c /sys/kernel/config
cp /disk.bin /tmp/disk; cp /disk.bin /tmp/expected
dd if=/written.bin of=/tmp/expected bs=4096 seek=16 conv=notrunc 2>/dev/null
cd /sys/kernel/config/nvmet
name=nqn.2014-08.org.softndk:memory
mkdir subsystems/$name subsystems/$name/namespaces/1 ports/1
echo 1 > subsystems/$name/attr_allow_any_host
echo -n /tmp/disk > subsystems/$name/namespaces/1/device_path
echo 1 > subsystems/$name/namespaces/1/buffered_io
echo 1 > subsystems/$name/namespaces/1/enable
echo -n rdma > ports/1/addr_trtype; echo -n ipv4 > ports/1/addr_adrfam
echo -n 10.0.0.1 > ports/1/addr_traddr; echo -n 4420 > ports/1/addr_trsvcid
ln -s $PWD/subsystems/$name ports/1/subsystems/
echo 'NVME is there'
n=0; until cmp -s /tmp/disk /tmp/expected || [ $n -gt 120 ]; do n=$((n+1)); sleep 1; done
echo \"NVME blocks: rc $((n > 120))\"
";

/// Bytes that differ from block to block.
fn bytes(blocks: usize, seed: u32) -> Vec<u8> {
    let words = (0..).map(|at: u32| (at ^ seed).wrapping_mul(0x9E37_79B1).rotate_left(11));
    words.take(blocks * BLOCK / 4).flat_map(u32::to_le_bytes).collect()
}

/// Reads the whole namespace, writes some blocks and reads them again.
pub fn judge(context: &Context, guest: &Guest) -> Result<()> {
    let sh = &context.sh;
    let program = context.example("nvme_read")?;
    let scratch = absolute("target/rxe/nvme");
    sh.remove_path(&scratch)?;
    let (disk, written) = (bytes(BLOCKS, 1), bytes(WRITTEN, 2));
    for (name, bytes) in [("job/job.sh", JOB.as_bytes()), ("job/disk.bin", &disk), ("job/written.bin", &written)] {
        sh.write_file(scratch.join(name), bytes)?;
    }
    let log = scratch.join("guest.txt");
    let begun = Instant::now();
    let mut running = Running::start(context, guest, &scratch, Network::Dgram, PORTS)?;
    said(&log, "NVME is there")?;
    let (all, back) = (scratch.join("all.bin"), scratch.join("back.bin"));
    host(&program, &["--blocks", &BLOCKS.to_string()], &all)?;
    ensure!(fs::read(&all)? == disk, "the namespace was read otherwise than it is");
    let path = scratch.join("job/written.bin").display().to_string();
    let some = ["--first", &FIRST.to_string(), "--blocks", &WRITTEN.to_string(), "--write", &path];
    host(&program, &some, &back)?;
    ensure!(fs::read(&back)? == written, "what was written was read otherwise");
    said(&log, "NVME blocks: rc 0")?;
    running.stop();
    println!("nvme: Linux' target agrees, {} s", begun.elapsed().as_secs());
    Ok(())
}

/// Runs the host, which writes what it has read to a file.
fn host(program: &Path, arguments: &[&str], out: &Path) -> Result<()> {
    let mut host = Command::new(program);
    host.args(["--target", "10.0.0.1", "--local", "10.0.0.2", "--network", "dgram", "--out"]).arg(out).args(arguments);
    let Ports { here, there } = PORTS;
    host.args(["--bind", &format!("127.0.0.1:{here}"), "--peer", &format!("127.0.0.1:{there}")]);
    let output = host.output()?;
    ensure!(output.status.success(), "nvme_read {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Waits until the guest says a line.
fn said(log: &Path, line: &str) -> Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(3) {
        let text = fs::read(log).unwrap_or_default();
        if String::from_utf8_lossy(&text).contains(line) {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    anyhow::bail!("the guest does not say \"{line}\": {} has what it says", log.display())
}

#[test]
fn the_guest_expects_what_is_written_where_it_is_written() {
    assert!(JOB.contains(&format!("bs={BLOCK} seek={FIRST} ")));
    assert_eq!(bytes(1, 1).len(), BLOCK);
    assert_ne!(bytes(2, 1)[..BLOCK], bytes(2, 1)[BLOCK..]);
}
