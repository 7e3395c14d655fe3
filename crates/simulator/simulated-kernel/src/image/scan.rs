//! Which instructions of an image ask for the processor's block.
//!
//! In a kernel `gs` points to the block of the processor (`KPCR`), in a process to that of the thread: such an instruction reads
//! something else there and nobody notices. So they are looked for when the image is checked, and replaced by breakpoints when it is
//! loaded. The sections of code are decoded from their beginning, and again from the beginning of each function in the table for
//! unwinding, because data between functions can hide the first instructions behind it. An instruction counts if it names a place by
//! `gs` with an offset and no register, within the block: what compilers make of the macros of the kit. That data looks like that by
//! chance takes nine certain bytes.

use iced_x86::{Decoder, DecoderOptions, Instruction, Register};
use image_loader::{Image, Section};

/// Bytes of the block that compilers use.
const BLOCK: u64 = 0x1000;

/// The addresses of the instructions, sorted.
pub fn by_gs(image: &Image) -> Vec<u32> {
    let mut found = Vec::new();
    for section in image.sections.iter().filter(|section| section.access.execute) {
        let end = section.address + section.size.min(image.size() - section.address);
        let inside = image.functions().filter(|&start| start > section.address && start < end);
        let edges: Vec<u32> = std::iter::once(section.address).chain(inside).chain([end]).collect();
        for edge in edges.windows(2) {
            decode(image, section, edge[0], edge[1], &mut found);
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn decode(image: &Image, section: &Section, begin: u32, end: u32, found: &mut Vec<u32>) {
    debug_assert!(section.address <= begin);
    let Some(bytes) = image.slice(begin, end - begin) else { return };
    // Most parts have none: a look at the bytes is cheaper than decoding them.
    if !bytes.contains(&0x65) {
        return;
    }
    let mut decoder = Decoder::with_ip(64, bytes, u64::from(begin), DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if is_by_gs(&instruction) {
            found.extend(u32::try_from(instruction.ip()));
        }
    }
}

/// Returns true for an instruction that names a place of the processor's block.
pub fn is_by_gs(instruction: &Instruction) -> bool {
    instruction.segment_prefix() == Register::GS
        && instruction.memory_base() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() < BLOCK
}
