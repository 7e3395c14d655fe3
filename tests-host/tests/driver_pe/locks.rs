//! An image releases each queued spin lock with the handle that acquired it: seen from its code, for x86-64.
//!
//! Windows finds a handle again by its address, and a compiler is free to move a value that the program moves. So the program alone
//! does not show it. The code of each function is followed along every path, with what is known of its registers: addresses in
//! its frame, and routines. At a call of a release the address that is passed must be one that was passed to an acquisition on a way
//! there.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// A routine of the kernel that has to do with handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routine {
    /// Acquires a queued spin lock; the handle is the second argument.
    Acquire,
    /// Releases one; the handle is the first argument.
    Release,
}

impl Routine {
    /// The routine of that name, if it is one of them.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "KeAcquireInStackQueuedSpinLock" | "KeAcquireInStackQueuedSpinLockAtDpcLevel" => Some(Self::Acquire),
            "KeReleaseInStackQueuedSpinLock" | "KeReleaseInStackQueuedSpinLockFromDpcLevel" => Some(Self::Release),
            _ => None,
        }
    }
}

/// What was found, each with the address of the call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Acquisitions with a handle in the function's frame.
    pub acquired: BTreeSet<u64>,
    /// Releases with a handle that was acquired on a way there.
    pub released: BTreeSet<u64>,
    /// Releases with another place of the frame.
    pub elsewhere: BTreeSet<u64>,
    /// Acquisitions and releases with a handle that could not be followed.
    pub unknown: BTreeSet<u64>,
}

impl Found {
    /// Puts together what was found in two functions.
    pub fn add(&mut self, other: Self) {
        self.acquired.extend(other.acquired);
        self.released.extend(other.released);
        self.elsewhere.extend(other.elsewhere);
        self.unknown.extend(other.unknown);
    }
}

/// What a register or a place in the frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// An address in the frame, counted from the stack pointer at the function's entry, or after the instruction there that has
    /// aligned it.
    Frame(Place),
    /// The address of a routine.
    Routine(Routine),
}

/// An address in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    base: u64,
    offset: i64,
}

impl Place {
    const fn plus(self, offset: i64) -> Self {
        Self { base: self.base, offset: self.offset.wrapping_add(offset) }
    }
}

/// What is known at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// Registers whose value is known.
    registers: BTreeMap<u8, Value>,
    /// Places of the frame whose value is known.
    memory: BTreeMap<Place, Value>,
    /// Handles that may hold a lock.
    held: BTreeSet<Place>,
}

/// The general register that a register is a part of.
fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| u8::try_from(full.number()).unwrap_or(0))
}

impl State {
    fn at_entry() -> Self {
        let stack = Value::Frame(Place { base: 0, offset: 0 });
        let registers = number(Register::RSP).into_iter().map(|number| (number, stack)).collect();
        Self { registers, memory: BTreeMap::new(), held: BTreeSet::new() }
    }

    fn get(&self, register: Register) -> Option<Value> {
        // A part of an address is none.
        if !register.is_gpr64() {
            return None;
        }
        number(register).and_then(|number| self.registers.get(&number)).copied()
    }

    fn set(&mut self, register: Register, value: Option<Value>) {
        let Some(number) = number(register) else { return };
        match value {
            Some(value) => self.registers.insert(number, value),
            None => self.registers.remove(&number),
        };
    }

    /// The place of the frame that an instruction's operand in memory is.
    fn place(&self, instruction: &Instruction) -> Option<Place> {
        if instruction.memory_index() != Register::None {
            return None;
        }
        match self.get(instruction.memory_base()) {
            Some(Value::Frame(place)) => Some(place.plus(instruction.memory_displacement64().cast_signed())),
            _ => None,
        }
    }

    /// Adds what is known on another way to the same instruction: what is not known on both is not known, and what may be held on one
    /// may be held. Returns true if that changes anything.
    fn join(&mut self, other: &Self) -> bool {
        let before = self.clone();
        self.registers.retain(|number, value| other.registers.get(number) == Some(value));
        self.memory.retain(|place, value| other.memory.get(place) == Some(value));
        self.held.extend(&other.held);
        *self != before
    }
}

/// Follows the code of a function.
struct Function<'image> {
    instructions: BTreeMap<u64, Instruction>,
    /// The routines, by the addresses of the pointers to them.
    imports: &'image BTreeMap<u64, Routine>,
    states: BTreeMap<u64, State>,
    /// What is known where the function goes on at an address that it has computed.
    computed: Option<State>,
    found: Found,
}

/// Follows the code of a function that begins at `address`. `imports` has the addresses of the pointers to the routines.
pub fn follow(code: &[u8], address: u64, imports: &BTreeMap<u64, Routine>) -> Found {
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let instructions = decoder.into_iter().map(|instruction| (instruction.ip(), instruction)).collect();
    let mut function =
        Function { instructions, imports, states: BTreeMap::new(), computed: None, found: Found::default() };
    function.walk(vec![(address, State::at_entry())]);
    // What only a table of addresses leads to: the arms of a `match`.
    while let Some(state) = function.computed.clone() {
        let unseen = function.instructions.values().find(|instruction| {
            !function.states.contains_key(&instruction.ip())
                && !matches!(instruction.mnemonic(), Mnemonic::Int3 | Mnemonic::Nop | Mnemonic::Ud2 | Mnemonic::INVALID)
        });
        let Some(next) = unseen.map(Instruction::ip) else { break };
        function.walk(vec![(next, state)]);
    }
    function.found
}

impl Function<'_> {
    fn walk(&mut self, mut ahead: Vec<(u64, State)>) {
        let mut information = InstructionInfoFactory::new();
        while let Some((address, state)) = ahead.pop() {
            let Some(instruction) = self.instructions.get(&address).copied() else { continue };
            let state = if let Some(known) = self.states.get_mut(&address) {
                if !known.join(&state) {
                    continue;
                }
                known.clone()
            } else {
                self.states.insert(address, state.clone());
                state
            };
            let after = self.step(&instruction, state, &mut information);
            let target = instruction.near_branch_target();
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch => ahead.push((target, after)),
                FlowControl::ConditionalBranch => {
                    ahead.push((target, after.clone()));
                    ahead.push((instruction.next_ip(), after));
                }
                FlowControl::IndirectBranch => match &mut self.computed {
                    Some(known) => {
                        known.join(&after);
                    }
                    none => *none = Some(after),
                },
                FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => {}
                _ => ahead.push((instruction.next_ip(), after)),
            }
        }
    }

    /// The routine that an instruction calls or goes to.
    fn called(&self, instruction: &Instruction, state: &State) -> Option<Routine> {
        match instruction.op0_kind() {
            OpKind::Memory => self.pointer(instruction),
            OpKind::Register => match state.get(instruction.op0_register()) {
                Some(Value::Routine(routine)) => Some(routine),
                _ => None,
            },
            _ => None,
        }
    }

    /// The routine to which the pointer leads that an instruction has as an operand.
    fn pointer(&self, instruction: &Instruction) -> Option<Routine> {
        let is_fixed = instruction.is_ip_rel_memory_operand();
        is_fixed.then(|| self.imports.get(&instruction.ip_rel_memory_address()).copied()).flatten()
    }

    /// What is known after an instruction.
    fn step(&mut self, instruction: &Instruction, mut state: State, information: &mut InstructionInfoFactory) -> State {
        let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        if is_call || instruction.flow_control() == FlowControl::IndirectBranch {
            if let Some(routine) = self.called(instruction, &state) {
                self.handle(instruction.ip(), routine, &mut state);
            }
            if is_call {
                for volatile in [
                    Register::RAX,
                    Register::RCX,
                    Register::RDX,
                    Register::R8,
                    Register::R9,
                    Register::R10,
                    Register::R11,
                ] {
                    state.set(volatile, None);
                }
            }
            return state;
        }
        let (first, second) = (instruction.op0_register(), instruction.op1_register());
        let (to_register, to_memory) =
            (instruction.op0_kind() == OpKind::Register, instruction.op0_kind() == OpKind::Memory);
        let stack = state.get(Register::RSP);
        let moved = |by: i64| match stack {
            Some(Value::Frame(place)) => Some(Value::Frame(place.plus(by))),
            other => other,
        };
        match instruction.mnemonic() {
            Mnemonic::Lea => {
                let value = state.place(instruction).map(Value::Frame);
                state.set(first, value);
            }
            Mnemonic::Mov if to_register && instruction.op1_kind() == OpKind::Register => {
                let value = state.get(second).filter(|_| first.is_gpr64());
                state.set(first, value);
            }
            Mnemonic::Mov if to_register && instruction.op1_kind() == OpKind::Memory => {
                let place = state.place(instruction);
                let stored = place.and_then(|place| state.memory.get(&place)).copied();
                let value = stored.or_else(|| self.pointer(instruction).map(Value::Routine));
                state.set(first, value.filter(|_| first.is_gpr64()));
            }
            Mnemonic::Mov if to_memory => {
                let value = if instruction.op1_kind() == OpKind::Register { state.get(second) } else { None };
                write(&mut state, instruction, value);
            }
            Mnemonic::Push => {
                let value = if to_register { state.get(first) } else { None };
                state.set(Register::RSP, moved(-8));
                if let Some(Value::Frame(place)) = state.get(Register::RSP) {
                    state.memory.remove(&place);
                    state.memory.extend(value.map(|value| (place, value)));
                }
            }
            Mnemonic::Pop => {
                let place = stack.and_then(|value| if let Value::Frame(place) = value { Some(place) } else { None });
                let value = place.and_then(|place| state.memory.get(&place)).copied();
                state.set(Register::RSP, moved(8));
                if to_register {
                    state.set(first, value);
                }
            }
            Mnemonic::Add | Mnemonic::Sub if to_register && is_immediate(instruction) => {
                let by = instruction.immediate(1).cast_signed();
                let by = if instruction.mnemonic() == Mnemonic::Add { by } else { by.wrapping_neg() };
                let value = match state.get(first) {
                    Some(Value::Frame(place)) => Some(Value::Frame(place.plus(by))),
                    _ => None,
                };
                state.set(first, value);
            }
            // From here on the frame is counted anew: how far it was moved is not known.
            Mnemonic::And if first == Register::RSP => {
                state.set(first, Some(Value::Frame(Place { base: instruction.ip(), offset: 0 })));
            }
            _ => {
                for used in information.info(instruction).used_registers() {
                    if matches!(
                        used.access(),
                        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
                    ) {
                        state.set(used.register(), None);
                    }
                }
                if to_memory {
                    write(&mut state, instruction, None);
                }
            }
        }
        state
    }

    /// A routine is called.
    fn handle(&mut self, address: u64, routine: Routine, state: &mut State) {
        let argument = if routine == Routine::Acquire { Register::RDX } else { Register::RCX };
        let Some(Value::Frame(place)) = state.get(argument) else {
            self.found.unknown.insert(address);
            return;
        };
        match routine {
            Routine::Acquire => {
                state.held.insert(place);
                self.found.acquired.insert(address);
            }
            // A call may be seen several times, each time with more that may be held.
            Routine::Release if state.held.remove(&place) => {
                self.found.elsewhere.remove(&address);
                self.found.released.insert(address);
            }
            Routine::Release => {
                if !self.found.released.contains(&address) {
                    self.found.elsewhere.insert(address);
                }
            }
        }
    }
}

fn is_immediate(instruction: &Instruction) -> bool {
    !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
}

/// An instruction writes to memory. What it writes into the frame is known afterwards, or is not.
fn write(state: &mut State, instruction: &Instruction, value: Option<Value>) {
    let Some(place) = state.place(instruction) else { return };
    let size = i64::try_from(instruction.memory_size().size()).unwrap_or(i64::MAX);
    state.memory.retain(|known, _| {
        known.base != place.base
            || known.offset + 8 <= place.offset
            || known.offset >= place.offset.saturating_add(size)
    });
    state.memory.extend(value.map(|value| (place, value)));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Routine, follow};

    const ACQUIRE: u64 = 0x9000;
    const RELEASE: u64 = 0x9008;
    const BEGIN: u64 = 0x1000;

    /// A function, of bytes and of calls through the pointers at these addresses.
    enum Fragment {
        Bytes(&'static [u8]),
        Call(u64),
    }
    use Fragment::{Bytes, Call};

    /// How many acquisitions, right releases, wrong releases and calls that could not be followed it has.
    fn counts(fragments: &[Fragment]) -> [usize; 4] {
        let mut code = Vec::new();
        for fragment in fragments {
            match fragment {
                Bytes(bytes) => code.extend_from_slice(bytes),
                Call(pointer) => {
                    let next = BEGIN + code.len() as u64 + 6;
                    let distance = i32::try_from(pointer.cast_signed() - next.cast_signed()).expect("a near address");
                    code.extend([0xFF, 0x15]);
                    code.extend(distance.to_le_bytes());
                }
            }
        }
        let imports = BTreeMap::from([(ACQUIRE, Routine::Acquire), (RELEASE, Routine::Release)]);
        let found = follow(&code, BEGIN, &imports);
        [found.acquired.len(), found.released.len(), found.elsewhere.len(), found.unknown.len()]
    }

    /// `sub rsp, 0x88`
    const ENTER: Fragment = Bytes(&[0x48, 0x81, 0xEC, 0x88, 0, 0, 0]);
    /// `add rsp, 0x88; ret`
    const LEAVE: Fragment = Bytes(&[0x48, 0x81, 0xC4, 0x88, 0, 0, 0, 0xC3]);
    /// `lea rdx, [rsp + 0x50]`
    const SECOND_IS_50: Fragment = Bytes(&[0x48, 0x8D, 0x54, 0x24, 0x50]);
    /// `lea rcx, [rsp + 0x50]`
    const FIRST_IS_50: Fragment = Bytes(&[0x48, 0x8D, 0x4C, 0x24, 0x50]);
    /// `lea rcx, [rsp + 0x30]`
    const FIRST_IS_30: Fragment = Bytes(&[0x48, 0x8D, 0x4C, 0x24, 0x30]);

    #[test]
    fn the_same_place_of_the_frame_is_right() {
        assert_eq!(counts(&[ENTER, SECOND_IS_50, Call(ACQUIRE), FIRST_IS_50, Call(RELEASE), LEAVE]), [1, 1, 0, 0]);
    }

    /// What a compiler makes of a guard that is moved: `movaps xmm0, [rsp+0x50]; movaps [rsp+0x30], xmm0`.
    #[test]
    fn another_place_is_wrong_also_if_the_handle_was_copied_there() {
        let copy = Bytes(&[0x0F, 0x28, 0x44, 0x24, 0x50, 0x0F, 0x29, 0x44, 0x24, 0x30]);
        assert_eq!(
            counts(&[ENTER, SECOND_IS_50, Call(ACQUIRE), copy, FIRST_IS_30, Call(RELEASE), LEAVE]),
            [1, 0, 1, 0]
        );
    }

    /// `lea rsi, [rsp+0x50]; mov rdx, rsi` and `mov rcx, rsi`; then `mov [rsp+0x20], rsi`, another `rsi`, and back.
    #[test]
    fn an_address_is_followed_through_registers_and_the_stack() {
        let (first, second) = (Bytes(&[0x48, 0x89, 0xF1]), Bytes(&[0x48, 0x8D, 0x74, 0x24, 0x50, 0x48, 0x89, 0xF2]));
        assert_eq!(counts(&[ENTER, second, Call(ACQUIRE), first, Call(RELEASE), LEAVE]), [1, 1, 0, 0]);
        let (spill, load) =
            (Bytes(&[0x48, 0x89, 0x74, 0x24, 0x20, 0x31, 0xF6]), Bytes(&[0x48, 0x8B, 0x4C, 0x24, 0x20]));
        let second = Bytes(&[0x48, 0x8D, 0x74, 0x24, 0x50, 0x48, 0x89, 0xF2]);
        assert_eq!(counts(&[ENTER, second, Call(ACQUIRE), spill, load, Call(RELEASE), LEAVE]), [1, 1, 0, 0]);
    }

    /// `test eax, eax; jne` over a release on one of two ways, each of which has one.
    #[test]
    fn every_way_is_followed() {
        let skip = Bytes(&[0x85, 0xC0, 0x75, 0x0D]);
        // `jmp` over the other release.
        let jump = Bytes(&[0xEB, 0x0B]);
        let fragments = [
            ENTER,
            SECOND_IS_50,
            Call(ACQUIRE),
            skip,
            FIRST_IS_50,
            Call(RELEASE),
            jump,
            FIRST_IS_30,
            Call(RELEASE),
            LEAVE,
        ];
        assert_eq!(counts(&fragments), [1, 1, 1, 0]);
    }

    #[test]
    fn a_release_of_what_was_released_is_wrong() {
        let fragments =
            [ENTER, SECOND_IS_50, Call(ACQUIRE), FIRST_IS_50, Call(RELEASE), FIRST_IS_50, Call(RELEASE), LEAVE];
        assert_eq!(counts(&fragments), [1, 1, 1, 0]);
    }

    /// `mov rcx, [rax]`
    #[test]
    fn a_handle_from_elsewhere_is_not_known() {
        let fragments = [ENTER, SECOND_IS_50, Call(ACQUIRE), Bytes(&[0x48, 0x8B, 0x08]), Call(RELEASE), LEAVE];
        assert_eq!(counts(&fragments), [1, 0, 0, 1]);
    }
}
