//! Copies of single instructions, each with a place of simulated memory for its operand, that jump back behind the original.
//!
//! They lie near the simulated memory, within reach of an operand that is relative to the instruction.

use std::{
    collections::HashMap,
    ptr,
    sync::{Mutex, OnceLock},
};

use iced_x86::{Code, Encoder, Instruction, MemoryOperand, OpKind, Register};
use windows_sys::Win32::System::Memory::{
    MEM_COMMIT, MEM_RESERVE, PAGE_EXECUTE_READWRITE, PAGE_NOACCESS, PAGE_READWRITE, VirtualAlloc,
};

use crate::state::lock;

/// Bytes for the simulated memory, and behind it for the copies.
const MEMORY: usize = 40 << 20;
const CODE: usize = 24 << 20;
/// So many bytes of it become usable at a time.
const STEP: usize = 64 << 10;
/// Bytes of a copy and its jump at most: an instruction has fifteen.
const ONE: usize = 32;

#[derive(Default)]
struct Copies {
    used: usize,
    memory: usize,
    /// By the address of the instruction and that of its operand.
    known: HashMap<(u64, usize), usize>,
}

static COPIES: Mutex<Option<Copies>> = Mutex::new(None);

fn base() -> usize {
    static BASE: OnceLock<usize> = OnceLock::new();
    *BASE.get_or_init(|| {
        // SAFETY: new addresses of the system's choice, which nobody has.
        let base = unsafe { VirtualAlloc(ptr::null(), MEMORY + CODE, MEM_RESERVE, PAGE_NOACCESS) };
        assert!(!base.is_null(), "no addresses for simulated memory");
        base.expose_provenance()
    })
}

fn commit(address: usize, length: usize, executable: bool) -> bool {
    let protection = if executable { PAGE_EXECUTE_READWRITE } else { PAGE_READWRITE };
    // SAFETY: pages of the reservation that nobody uses yet.
    let there = unsafe { VirtualAlloc(ptr::with_exposed_provenance(address), length, MEM_COMMIT, protection) };
    !there.is_null()
}

/// Memory that copies can reach: so many bytes, all zero, for good. `None` if there is no more.
pub fn memory(bytes: usize) -> Option<usize> {
    let mut copies = lock(&COPIES);
    let copies = copies.get_or_insert_default();
    let bytes = bytes.next_multiple_of(4096);
    let start = copies.memory;
    if start + bytes > MEMORY || !commit(base() + start, bytes, false) {
        return None;
    }
    copies.memory += bytes;
    Some(base() + start)
}

/// A copy of an instruction that reads memory, which reads at `operand` instead. `None` if it cannot be copied, or if there are too many.
pub fn reading(instruction: &Instruction, operand: usize) -> Option<usize> {
    let mut copies = lock(&COPIES);
    let copies = copies.get_or_insert_default();
    let key = (instruction.ip(), operand);
    if let Some(&known) = copies.known.get(&key) {
        return Some(known);
    }
    let place = base() + MEMORY + copies.used;
    let copy = with_operand(instruction, operand as u64)?;
    let mut encoder = Encoder::new(64);
    encoder.encode(&copy, place as u64).ok()?;
    let mut bytes = encoder.take_buffer();
    // jmp [rip], and the address behind it.
    bytes.extend([0xFF, 0x25, 0, 0, 0, 0]);
    bytes.extend(instruction.next_ip().to_le_bytes());
    if bytes.len() > ONE || copies.used + ONE > CODE {
        return None;
    }
    if copies.used.is_multiple_of(STEP) && !commit(place, STEP, true) {
        return None;
    }
    // SAFETY: committed pages, and nobody runs this part of them yet.
    unsafe { ptr::with_exposed_provenance_mut::<u8>(place).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    copies.used += ONE;
    copies.known.insert(key, place);
    Some(place)
}

/// The same instruction with an operand at that address.
fn with_operand(instruction: &Instruction, operand: u64) -> Option<Instruction> {
    // These have the whole address in them, and no form that is relative.
    let short = match instruction.code() {
        Code::Mov_AL_moffs8 => Some((Code::Mov_r8_rm8, Register::AL)),
        Code::Mov_AX_moffs16 => Some((Code::Mov_r16_rm16, Register::AX)),
        Code::Mov_EAX_moffs32 => Some((Code::Mov_r32_rm32, Register::EAX)),
        Code::Mov_RAX_moffs64 => Some((Code::Mov_r64_rm64, Register::RAX)),
        _ => None,
    };
    if let Some((code, register)) = short {
        let place = MemoryOperand::with_base_displ(Register::RIP, operand.cast_signed());
        return Instruction::with2(code, register, place).ok();
    }
    if !instruction.op_kinds().any(|kind| kind == OpKind::Memory) {
        return None;
    }
    let mut copy = *instruction;
    copy.set_segment_prefix(Register::None);
    copy.set_memory_base(Register::RIP);
    copy.set_memory_index(Register::None);
    copy.set_memory_index_scale(1);
    copy.set_memory_displ_size(8);
    copy.set_memory_displacement64(operand);
    Some(copy)
}
