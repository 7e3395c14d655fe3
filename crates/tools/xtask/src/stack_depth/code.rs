//! Functions, and who calls whom, from the instructions of an image.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use iced_x86::{Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::{
    depths::Graph,
    image::{Frames, Image},
};

/// An indirect call or jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    pub address: u32,
    pub function: u32,
    pub is_jump: bool,
    /// The number of the type that it calls, if the compiler has noted one.
    pub kind: Option<u32>,
}

/// The code of an image.
pub struct Code {
    pub image: Image,
    /// What indirect calls can go to.
    pub targets: BTreeSet<u32>,
    pub graph: Graph,
    pub sites: Vec<Site>,
    /// Functions that keep the address of a routine of Windows in a register.
    pub keep_import: BTreeSet<u32>,
    /// The names of functions; several where equal ones have become one.
    pub names: BTreeMap<u32, BTreeSet<String>>,
    pub largest_frame: u64,
    functions: Functions,
}

/// Which function an address belongs to.
struct Functions {
    frames: Frames,
    leaves: BTreeSet<u32>,
}

impl Functions {
    /// The begin of what has a frame there.
    fn framed(&self, address: u32) -> Option<u32> {
        let (begin, (end, _)) = self.frames.functions.range(..=address).next_back()?;
        (address < *end).then_some(*begin)
    }

    /// The function. A part of another function is that function.
    fn owner(&self, address: u32) -> Option<u32> {
        let Some(mut begin) = self.framed(address) else {
            let leaf = self.leaves.range(..=address).next_back()?;
            let framed = self.frames.functions.range(..=address).next_back().map_or(0, |(begin, _)| *begin);
            return (*leaf >= framed).then_some(*leaf);
        };
        while let Some(whole) = self.frames.parts.get(&begin) {
            begin = *whole;
        }
        Some(begin)
    }
}

/// A direct call or jump.
struct Branch {
    address: u32,
    is_call: bool,
    target: u32,
}

impl Code {
    pub fn new(image: Image) -> Result<Self> {
        let (frames, targets, instructions) = (image.frames()?, image.guard()?, instructions(&image));
        let branches: Vec<_> = instructions.iter().filter_map(|one| direct(one, image.base)).collect();
        let mut functions = Functions { frames, leaves: BTreeSet::new() };
        // A leaf function has no entry in the unwind tables: it has no frame, and calls nobody, but may end with a jump to another
        // function. It begins where a call goes to, or a jump from elsewhere.
        let begins = |address: u32| functions.frames.functions.range(..=address).next_back().map(|(begin, _)| *begin);
        let is_apart = |branch: &Branch| {
            branch.is_call
                || functions.framed(branch.address).is_some()
                || begins(branch.address) != begins(branch.target)
        };
        let jumped = branches.iter().filter(|branch| is_apart(branch)).map(|branch| branch.target);
        let called = targets.iter().copied().chain([image.entry]).chain(jumped);
        let leaves = called.filter(|target| functions.framed(*target).is_none()).collect();
        functions.leaves = leaves;

        // A function has its frame, and the place where its caller's address lies.
        let framed = functions.frames.functions.iter().filter(|(begin, _)| !functions.frames.parts.contains_key(begin));
        let own: BTreeMap<_, _> = framed.map(|(begin, (_, frame))| (*begin, frame + 8)).collect();
        let mut graph = Graph::new(own.into_iter().chain(functions.leaves.iter().map(|leaf| (*leaf, 8))).collect());
        for Branch { address, is_call, target } in branches {
            let Some(here) = functions.owner(address) else { continue };
            let there = functions.owner(target).with_context(|| {
                format!("{}: {address:#x} goes to {target:#x}, where no function is", image.path.display())
            })?;
            if is_call || here != there {
                graph.add(here, there, !is_call);
            }
        }
        let largest_frame = functions.frames.functions.values().map(|(_, frame)| *frame).max().unwrap_or(0);
        let mut code = Self {
            image,
            targets,
            graph,
            sites: Vec::new(),
            keep_import: BTreeSet::new(),
            names: BTreeMap::new(),
            largest_frame,
            functions,
        };
        code.find_sites(&instructions);
        Ok(code)
    }

    fn find_sites(&mut self, instructions: &[Instruction]) {
        let imports =
            self.image.base + u64::from(self.image.imports.start)..self.image.base + u64::from(self.image.imports.end);
        for found in indirect(instructions, &imports) {
            let Some(address) = relative(found.address, self.image.base) else { continue };
            let Some(function) = self.functions.owner(address) else { continue };
            match found.what {
                What::KeepsImport => drop(self.keep_import.insert(function)),
                What::Goes { is_jump, kind } => self.sites.push(Site { address, function, is_jump, kind }),
            }
        }
    }

    /// The functions that others can call.
    pub fn entries(&self) -> BTreeSet<u32> {
        self.targets.iter().chain([&self.image.entry]).filter_map(|target| self.functions.owner(*target)).collect()
    }

    /// Lets a site go to a target.
    pub fn add(&mut self, site: Site, target: u32) {
        if let Some(target) = self.functions.owner(target) {
            self.graph.add(site.function, target, site.is_jump);
        }
    }

    pub fn name(&self, function: u32) -> String {
        let named = self.names.get(&function).and_then(BTreeSet::first).cloned();
        named.unwrap_or_else(|| format!("{:#x}", self.image.base + u64::from(function)))
    }
}

fn relative(address: u64, base: u64) -> Option<u32> {
    u32::try_from(address.checked_sub(base)?).ok()
}

/// All instructions, one behind the other. What lies between functions is decoded like them, and nobody goes there.
fn instructions(image: &Image) -> Vec<Instruction> {
    let mut all = Vec::new();
    for part in image.parts.iter().filter(|part| part.is_code) {
        all.extend(Decoder::with_ip(64, &part.bytes, image.base + u64::from(part.begin), DecoderOptions::NONE).iter());
    }
    all
}

fn direct(instruction: &Instruction, base: u64) -> Option<Branch> {
    let is_call = match instruction.flow_control() {
        FlowControl::Call => true,
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => false,
        _ => return None,
    };
    let target = relative(instruction.near_branch_target(), base)?;
    Some(Branch { address: relative(instruction.ip(), base)?, is_call, target })
}

/// What an instruction does with an address that is not in it.
#[derive(Debug, PartialEq, Eq)]
enum What {
    /// Reads the address of a routine of Windows.
    KeepsImport,
    /// Calls, or jumps to, another function of the image.
    Goes { is_jump: bool, kind: Option<u32> },
}

#[derive(Debug, PartialEq, Eq)]
struct Indirect {
    address: u64,
    what: What,
}

/// The indirect calls and jumps, but for those of Windows and those of a table of branches, which stay in their function.
///
/// Before one with a type stand `mov r10d, -TYPE` (or r11d), `add r10d, [target - 4]`, a branch that is taken, and `ud2`.
fn indirect(instructions: &[Instruction], imports: &std::ops::Range<u64>) -> Vec<Indirect> {
    let (mut found, mut sum, mut kind) = (Vec::new(), None, None);
    for one in instructions {
        if one.code() == Opcode::Mov_r32_imm32 && matches!(one.op0_register(), Register::R10D | Register::R11D) {
            sum = Some((one.op0_register(), one.immediate32()));
            continue;
        }
        if let (Opcode::Add_r32_rm32, Some((register, value))) = (one.code(), sum)
            && one.op0_register() == register
            && one.memory_displacement64() == 4_u64.wrapping_neg()
        {
            kind = Some(value.wrapping_neg());
            continue;
        }
        if kind.is_some() && matches!(one.mnemonic(), Mnemonic::Je | Mnemonic::Ud2) {
            continue;
        }
        let through = one.is_ip_rel_memory_operand().then(|| one.ip_rel_memory_address());
        let imported = through.is_some_and(|address| imports.contains(&address));
        let is_call = one.flow_control() == FlowControl::IndirectCall;
        // A jump to what a register has is one of a table of branches, unless it has a type.
        let is_jump = one.flow_control() == FlowControl::IndirectBranch && (kind.is_some() || through.is_some());
        let what = match imported {
            true if one.mnemonic() == Mnemonic::Mov && one.op1_kind() == OpKind::Memory => Some(What::KeepsImport),
            false if is_call || is_jump => Some(What::Goes { is_jump, kind }),
            _ => None,
        };
        found.extend(what.map(|what| Indirect { address: one.ip(), what }));
        (sum, kind) = (None, None);
    }
    found
}

#[test]
fn a_call_has_the_type_that_stands_before_it() {
    let bytes = [
        &[0x41, 0xBA, 0xFE, 0xFF, 0xFF, 0xFF][..], // 1000: mov r10d, -2
        &[0x44, 0x03, 0x50, 0xFC],                 // 1006: add r10d, [rax - 4]
        &[0x74, 0x02],                             // 100a: je 100e
        &[0x0F, 0x0B],                             // 100c: ud2
        &[0xFF, 0xD0],                             // 100e: call rax
        &[0xFF, 0xE0],                             // 1010: jmp rax, of a table
        &[0xFF, 0x15, 0xE8, 0x0F, 0, 0],           // 1012: call [2000], imported
        &[0x48, 0x8B, 0x35, 0xE1, 0x0F, 0, 0],     // 1018: mov rsi, [2000]
        &[0xFF, 0xD6],                             // 101f: call rsi
        &[0xFF, 0x25, 0xD9, 0x1F, 0, 0],           // 1021: jmp [3000]
    ]
    .concat();
    let decoded: Vec<_> = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).iter().collect();
    let goes = |address, is_jump, kind| Indirect { address, what: What::Goes { is_jump, kind } };
    let expected = [
        goes(0x100E, false, Some(2)),
        Indirect { address: 0x1018, what: What::KeepsImport },
        goes(0x101F, false, None),
        goes(0x1021, true, None),
    ];
    assert_eq!(indirect(&decoded, &(0x2000..0x2008)), expected);
}
