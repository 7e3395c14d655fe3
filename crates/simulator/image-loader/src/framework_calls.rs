//! Which functions of the framework an image calls.
//!
//! An image does not import them: it binds to the framework, which gives it a table, and calls by index. The headers make of each call a
//! load of the pointer to the table, a load from the table, and a call of that. So the loads of the pointer are looked for, whose place is
//! named by the structure that the image binds with, and what follows is decoded to see which place of the table it asks for. Registers
//! are followed along jumps, and small constants too, from which a compiler makes the index if it does not optimise.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, OpKind, Register,
};

use crate::image::{Image, Section};

/// Bytes of a place in the table.
const PLACE: u64 = 8;
/// Drivers of KMDF 1.1 and before have room for the table itself; later ones for a pointer to it.
const COPIED: u32 = 386;
/// More functions no version has.
const MOST: u32 = 4096;
/// Instructions that are decoded at most, so that a broken image ends too.
const STEPS: u32 = 1 << 23;

/// How an image uses the framework.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framework {
    /// The version that it was built for, such as (1, 15).
    pub version: (u32, u32),
    /// How many functions that version has.
    pub count: u32,
    /// The indices of the functions that it calls, with the first place of each, relative to the image.
    pub called: BTreeMap<u32, u32>,
    /// Places where the pointer to the table is read and it is not seen what for.
    pub unclear: BTreeSet<u32>,
}

impl Image {
    /// How the image uses the framework; `None` if it does not bind to it.
    ///
    /// Code is decoded, and what it does with the table is followed as far as registers have it: a call that goes through memory in
    /// between is not found, and the place is listed as unclear.
    #[must_use]
    pub fn framework(&self) -> Option<Framework> {
        let binding = Binding::find(self)?;
        let mut search = Search {
            image: self,
            binding: &binding,
            info: InstructionInfoFactory::new(),
            called: BTreeMap::new(),
            loads: BTreeMap::new(),
            seen: HashSet::new(),
            open: Vec::new(),
            left: STEPS,
        };
        for section in self.sections.iter().filter(|section| section.access.execute) {
            search.section(section);
            search.hidden_loads(section);
        }
        while let Some((address, registers)) = search.open.pop() {
            search.follow(address, registers);
        }
        let unclear = search.loads.into_iter().filter_map(|(place, used)| (!used).then_some(place)).collect();
        Some(Framework { version: binding.version, count: binding.count, called: search.called, unclear })
    }

    fn long(&self, address: u32) -> Option<u64> {
        self.slice(address, 8).and_then(<[u8]>::first_chunk).map(|&bytes| u64::from_le_bytes(bytes))
    }

    fn word(&self, address: u32) -> Option<u32> {
        self.slice(address, 4).and_then(<[u8]>::first_chunk).map(|&bytes| u32::from_le_bytes(bytes))
    }
}

/// What the image binds with: `WDF_BIND_INFO`.
struct Binding {
    version: (u32, u32),
    count: u32,
    /// The variable with the pointer to the table, or the table itself.
    table: u32,
}

impl Binding {
    /// Offsets of its fields: the framework's name, the version, the count of functions, the table.
    const COMPONENT: u32 = 8;
    const VERSION: u32 = 16;
    const COUNT: u32 = 28;
    const TABLE: u32 = 32;
    /// It is the one structure with a pointer to the framework's name.
    const NAME: &str = "KmdfLibrary\0";

    fn find(image: &Image) -> Option<Self> {
        let name: Vec<u8> = Self::NAME.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let length = u32::try_from(name.len()).ok()?;
        image.relocations.iter().find_map(|&place| {
            let named = image.relative(image.long(place)?)?;
            let info = place.checked_sub(Self::COMPONENT)?;
            if image.slice(named, length)? != name {
                return None;
            }
            let field = |offset| info.checked_add(offset);
            let count = image.word(field(Self::COUNT)?).filter(|count| (1..=MOST).contains(count))?;
            let version = (image.word(field(Self::VERSION)?)?, image.word(field(Self::VERSION + 4)?)?);
            let table = image.relative(image.long(field(Self::TABLE)?)?)?;
            Some(Self { version, count, table })
        })
    }

    /// The offset in the table of an address, for images that have the table themselves.
    fn inside(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(u64::from(self.table))?;
        (self.count <= COPIED && offset < PLACE * u64::from(self.count)).then_some(offset)
    }
}

/// What a register holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Value {
    #[default]
    Unknown,
    Number(u64),
    /// The address of the variable.
    Variable,
    /// The table's address and so many bytes; read at that place.
    Table {
        offset: u64,
        load: u32,
    },
}

/// All sixteen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Registers([Value; 16]);

impl Registers {
    fn get(&self, register: Register) -> Value {
        if register == Register::None {
            return Value::Number(0);
        }
        if register.is_gpr64() { self.0.get(register.number()).copied().unwrap_or_default() } else { Value::Unknown }
    }

    fn set(&mut self, register: Register, value: Value) {
        if !register.is_gpr() {
            return;
        }
        // A write of 32 bits clears the others; of fewer, the rest stays, and is not known together.
        let whole = register.is_gpr64() || register.is_gpr32();
        if let Some(place) = self.0.get_mut(register.full_register().number()) {
            *place = if whole { value } else { Value::Unknown };
        }
    }

    fn have_table(&self) -> bool {
        self.0.iter().any(|value| matches!(value, Value::Table { .. } | Value::Variable))
    }

    /// What a call may change.
    fn forget_volatile(&mut self) {
        for register in
            [Register::RAX, Register::RCX, Register::RDX, Register::R8, Register::R9, Register::R10, Register::R11]
        {
            self.set(register, Value::Unknown);
        }
    }
}

/// An operand in memory.
enum Memory {
    Other,
    /// What points to the variable since the image was linked: so does code reach what it takes for another module's.
    Pointer,
    /// The variable that points to the table.
    Variable,
    /// The table, at that offset.
    Table {
        offset: u64,
        load: u32,
    },
}

struct Search<'image> {
    image: &'image Image,
    binding: &'image Binding,
    info: InstructionInfoFactory,
    called: BTreeMap<u32, u32>,
    /// Where the pointer is read, and whether a function was seen.
    loads: BTreeMap<u32, bool>,
    seen: HashSet<(u32, Registers)>,
    open: Vec<(u32, Registers)>,
    left: u32,
}

impl Search<'_> {
    /// Decodes a section: from its beginning, and again from the beginning of each function, because of the data between them.
    fn section(&mut self, section: &Section) {
        let end = section.address + section.size.min(self.image.size().saturating_sub(section.address));
        let inside = self.image.functions().filter(|&start| start > section.address && start < end);
        let edges: Vec<u32> = std::iter::once(section.address).chain(inside).chain([end]).collect();
        for edge in edges.windows(2) {
            let Some(bytes) = edge[1].checked_sub(edge[0]).and_then(|length| self.image.slice(edge[0], length)) else {
                continue;
            };
            let mut decoder = Decoder::with_ip(64, bytes, u64::from(edge[0]), DecoderOptions::NONE);
            let mut registers = Registers::default();
            while decoder.can_decode() && self.step() {
                let instruction = decoder.decode();
                self.carry_out(&instruction, &mut registers);
                if matches!(
                    instruction.flow_control(),
                    FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
                ) {
                    registers = Registers::default();
                }
            }
        }
    }

    /// Data may still hide the first instructions of a function that needs no entry in the table of functions. So the loads are also
    /// looked for by their bytes: the place of the variable is four of seven.
    fn hidden_loads(&mut self, section: &Section) {
        let Some(bytes) = self.image.slice(section.address, section.size) else { return };
        for (offset, window) in bytes.windows(7).enumerate() {
            let [0x48 | 0x4C, 0x8B, operands, ref displacement @ ..] = *window else { continue };
            let relative = displacement.first_chunk().map_or(0, |&bytes| i32::from_le_bytes(bytes));
            let Some(address) = u32::try_from(offset).ok().and_then(|offset| section.address.checked_add(offset))
            else {
                return;
            };
            let target = address.wrapping_add(7).wrapping_add_signed(relative);
            let by_address = operands & 0xC7 == 0x05;
            let wanted = by_address && (target == self.binding.table || self.points_to_variable(u64::from(target)));
            if wanted && !self.loads.contains_key(&address) && self.seen.insert((address, Registers::default())) {
                self.open.push((address, Registers::default()));
            }
        }
    }

    /// Goes on at the target of a jump, or at a load, for as long as a register leads to the table.
    fn follow(&mut self, address: u32, mut registers: Registers) {
        let image = self.image;
        let Some(section) = image.section(address).filter(|section| section.access.execute) else { return };
        let end = section.address + section.size.min(image.size().saturating_sub(section.address));
        let Some(bytes) = end.checked_sub(address).and_then(|length| image.slice(address, length)) else { return };
        let mut decoder = Decoder::with_ip(64, bytes, u64::from(address), DecoderOptions::NONE);
        while decoder.can_decode() && self.step() {
            let instruction = decoder.decode();
            self.carry_out(&instruction, &mut registers);
            let ends = !registers.have_table();
            if ends
                || matches!(
                    instruction.flow_control(),
                    FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
                )
            {
                return;
            }
        }
    }

    /// Returns false once enough was decoded.
    fn step(&mut self) -> bool {
        self.left = self.left.saturating_sub(1);
        self.left > 0
    }

    fn carry_out(&mut self, instruction: &Instruction, registers: &mut Registers) {
        let place = u32::try_from(instruction.ip()).unwrap_or(u32::MAX);
        let memory = self.memory(instruction, registers);
        if let Memory::Table { offset, load } = memory
            && instruction.code() != Code::Lea_r64_m
        {
            self.use_of(offset, load, place);
        }
        let result = result(instruction, registers, &memory, place);
        if matches!(result, Some((_, Value::Table { load, .. })) if load == place) {
            self.loads.entry(place).or_insert(false);
        }
        let written = self.info.info(instruction).used_registers().iter().filter(|used| {
            matches!(
                used.access(),
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            )
        });
        for used in written {
            registers.set(used.register(), Value::Unknown);
        }
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            registers.forget_volatile();
        }
        if let Some((register, value)) = result {
            registers.set(register, value);
        }
        let branches =
            matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
        if branches
            && registers.have_table()
            && let Ok(target) = u32::try_from(instruction.near_branch_target())
            && self.seen.insert((target, *registers))
        {
            self.open.push((target, *registers));
        }
    }

    fn use_of(&mut self, offset: u64, load: u32, place: u32) {
        self.loads.insert(load, true);
        let index = u32::try_from(offset / PLACE).ok().filter(|&index| index < self.binding.count);
        if let Some(index) = index.filter(|_| offset.is_multiple_of(PLACE)) {
            self.called.entry(index).and_modify(|first| *first = place.min(*first)).or_insert(place);
        }
    }

    /// Linkers put such a pointer among the data that may be written, too (`__imp_` of a symbol that turned out to be the image's own).
    fn points_to_variable(&self, address: u64) -> bool {
        let data = u32::try_from(address)
            .ok()
            .filter(|&address| self.image.access(address).is_some_and(|access| !access.execute));
        let value = data.and_then(|address| self.image.relative(self.image.long(address)?));
        value == Some(self.binding.table)
    }

    fn memory(&self, instruction: &Instruction, registers: &Registers) -> Memory {
        if !instruction.op_kinds().any(|kind| kind == OpKind::Memory) {
            return Memory::Other;
        }
        let displacement = instruction.memory_displacement64();
        if instruction.is_ip_rel_memory_operand() {
            return match self.binding.inside(displacement) {
                Some(offset) => Memory::Table { offset, load: u32::try_from(instruction.ip()).unwrap_or(u32::MAX) },
                None if displacement == u64::from(self.binding.table) => Memory::Variable,
                None if self.points_to_variable(displacement) => Memory::Pointer,
                None => Memory::Other,
            };
        }
        let base = registers.get(instruction.memory_base());
        let index = registers.get(instruction.memory_index());
        let scale = u64::from(instruction.memory_index_scale());
        match (base, index) {
            (Value::Table { offset, load }, Value::Number(number)) => {
                let offset = offset.wrapping_add(number.wrapping_mul(scale)).wrapping_add(displacement);
                Memory::Table { offset, load }
            }
            (Value::Number(number), Value::Table { offset, load }) if scale == 1 => {
                Memory::Table { offset: offset.wrapping_add(number).wrapping_add(displacement), load }
            }
            (Value::Variable, Value::Number(number)) if number.wrapping_mul(scale).wrapping_add(displacement) == 0 => {
                Memory::Variable
            }
            _ => Memory::Other,
        }
    }
}

/// The register that an instruction writes, if what it then has is known.
fn result(instruction: &Instruction, registers: &Registers, memory: &Memory, place: u32) -> Option<(Register, Value)> {
    let target = instruction.op0_register();
    let source = registers.get(instruction.op1_register());
    let value = match instruction.code() {
        Code::Mov_r64_rm64 | Code::Lea_r64_m if instruction.op1_kind() == OpKind::Memory => {
            let is_address = instruction.code() == Code::Lea_r64_m;
            match memory {
                Memory::Variable if is_address => Value::Variable,
                Memory::Pointer if !is_address => Value::Variable,
                Memory::Variable => Value::Table { offset: 0, load: place },
                Memory::Table { offset, load } if is_address => Value::Table { offset: *offset, load: *load },
                _ => return None,
            }
        }
        Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => source,
        Code::Mov_r32_imm32 | Code::Mov_r64_imm64 | Code::Mov_rm64_imm32 | Code::Mov_rm32_imm32 => {
            Value::Number(instruction.immediate(1))
        }
        Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Xor_r64_rm64 | Code::Xor_rm64_r64
            if instruction.op1_kind() == OpKind::Register && instruction.op1_register() == target =>
        {
            Value::Number(0)
        }
        Code::Imul_r64_rm64_imm8 | Code::Imul_r64_rm64_imm32 => {
            let Value::Number(number) = source else { return None };
            Value::Number(number.wrapping_mul(instruction.immediate(2)))
        }
        Code::Add_rm64_imm8 | Code::Add_rm64_imm32 | Code::Add_RAX_imm32 => match registers.get(target) {
            Value::Number(number) => Value::Number(number.wrapping_add(instruction.immediate(1))),
            Value::Table { offset, load } => {
                Value::Table { offset: offset.wrapping_add(instruction.immediate(1)), load }
            }
            _ => return None,
        },
        Code::Shl_rm64_imm8 => {
            let Value::Number(number) = registers.get(target) else { return None };
            Value::Number(number.checked_shl(instruction.immediate(1).try_into().ok()?)?)
        }
        _ => return None,
    };
    Some((target, value))
}
