//! The code of x86-64.

use std::collections::BTreeMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction as Decoded, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

use super::{Found, FrameSlot, Imports, Instruction, Next, Routine, State, Value};

/// Follows the code of a function that begins at `address`. `imports` has the addresses of the pointers to the routines.
pub fn follow(code: &[u8], address: u64, imports: &Imports) -> Found {
    let mut information = InstructionInfoFactory::new();
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let instructions = decoder.into_iter().map(|decoded| {
        let used = information.info(&decoded).used_registers().iter();
        let written = used.filter(|used| {
            matches!(
                used.access(),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        });
        let written = written.filter_map(|used| number(used.register())).collect();
        (decoded.ip(), Known { decoded, written })
    });
    super::follow(instructions.collect::<BTreeMap<_, _>>(), address, imports)
}

/// An instruction, and the registers that it writes.
struct Known {
    decoded: Decoded,
    written: Vec<u8>,
}

const RSP: u8 = 4;

/// The general register that a register is a part of.
fn number(register: Register) -> Option<u8> {
    let full = register.full_register();
    full.is_gpr64().then(|| u8::try_from(full.number()).unwrap_or(0))
}

/// What is known of a register. A part of an address is none.
fn get(state: &State, register: Register) -> Option<Value> {
    register.is_gpr64().then(|| number(register)).flatten().and_then(|number| state.get(number))
}

fn set(state: &mut State, register: Register, value: Option<Value>) {
    if let Some(number) = number(register) {
        state.set(number, value.filter(|_| register.is_gpr64()));
    }
}

/// The place of the frame that an instruction's operand in memory is.
fn place(state: &State, decoded: &Decoded) -> Option<FrameSlot> {
    if decoded.memory_index() != Register::None {
        return None;
    }
    match get(state, decoded.memory_base()) {
        Some(Value::Frame(place)) => Some(place.plus(decoded.memory_displacement64().cast_signed())),
        _ => None,
    }
}

/// The routine to which the pointer leads that an instruction has as an operand.
fn pointer(decoded: &Decoded, imports: &Imports) -> Option<Routine> {
    let is_fixed = decoded.is_ip_rel_memory_operand();
    is_fixed.then(|| imports.get(&decoded.ip_rel_memory_address()).copied()).flatten()
}

fn is_immediate(decoded: &Decoded) -> bool {
    !matches!(decoded.op1_kind(), OpKind::Register | OpKind::Memory)
}

/// An instruction writes to memory. What it writes into the frame is known afterwards, or is not.
fn write(state: &mut State, decoded: &Decoded, value: Option<Value>) {
    if let Some(place) = place(state, decoded) {
        let size = i64::try_from(decoded.memory_size().size()).unwrap_or(i64::MAX);
        state.store(place, size, value);
    }
}

impl Instruction for Known {
    const STACK_POINTER: u8 = RSP;
    /// RCX and RDX.
    const ARGUMENTS: [u8; 2] = [1, 2];

    fn following(&self) -> u64 {
        self.decoded.next_ip()
    }

    fn is_filler(&self) -> bool {
        matches!(self.decoded.mnemonic(), Mnemonic::Int3 | Mnemonic::Nop | Mnemonic::Ud2 | Mnemonic::INVALID)
    }

    fn next(&self) -> Next {
        let target = self.decoded.near_branch_target();
        match self.decoded.flow_control() {
            FlowControl::UnconditionalBranch => Next::To(target),
            FlowControl::ConditionalBranch => Next::Fork(target),
            FlowControl::IndirectBranch => Next::Computed,
            FlowControl::Return | FlowControl::Exception | FlowControl::Interrupt => Next::Nowhere,
            _ => Next::On,
        }
    }

    fn routine(&self, state: &State, imports: &Imports) -> Option<Routine> {
        if !matches!(self.decoded.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch) {
            return None;
        }
        match self.decoded.op0_kind() {
            OpKind::Memory => pointer(&self.decoded, imports),
            OpKind::Register => match get(state, self.decoded.op0_register()) {
                Some(Value::Routine(routine)) => Some(routine),
                _ => None,
            },
            _ => None,
        }
    }

    fn step(&self, state: &mut State, imports: &Imports) {
        let decoded = &self.decoded;
        match decoded.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => {
                for volatile in [
                    Register::RAX,
                    Register::RCX,
                    Register::RDX,
                    Register::R8,
                    Register::R9,
                    Register::R10,
                    Register::R11,
                ] {
                    set(state, volatile, None);
                }
                return;
            }
            FlowControl::IndirectBranch => return,
            _ => {}
        }
        let (first, second) = (decoded.op0_register(), decoded.op1_register());
        let (to_register, to_memory) = (decoded.op0_kind() == OpKind::Register, decoded.op0_kind() == OpKind::Memory);
        let stack = state.get(RSP);
        match decoded.mnemonic() {
            Mnemonic::Lea => {
                let value = place(state, decoded).map(Value::Frame);
                set(state, first, value);
            }
            Mnemonic::Mov if to_register && decoded.op1_kind() == OpKind::Register => {
                let value = get(state, second);
                set(state, first, value);
            }
            Mnemonic::Mov if to_register && decoded.op1_kind() == OpKind::Memory => {
                let stored = place(state, decoded).and_then(|place| state.load(place));
                let value = stored.or_else(|| pointer(decoded, imports).map(Value::Routine));
                set(state, first, value);
            }
            Mnemonic::Mov if to_memory => {
                let value = if decoded.op1_kind() == OpKind::Register { get(state, second) } else { None };
                write(state, decoded, value);
            }
            Mnemonic::Push => {
                let value = if to_register { get(state, first) } else { None };
                state.set(RSP, stack.and_then(|stack| stack.plus(-8)));
                if let Some(Value::Frame(place)) = state.get(RSP) {
                    state.store(place, 8, value);
                }
            }
            Mnemonic::Pop => {
                let value = if let Some(Value::Frame(place)) = stack { state.load(place) } else { None };
                state.set(RSP, stack.and_then(|stack| stack.plus(8)));
                if to_register {
                    set(state, first, value);
                }
            }
            Mnemonic::Add | Mnemonic::Sub if to_register && is_immediate(decoded) => {
                let by = decoded.immediate(1).cast_signed();
                let by = if decoded.mnemonic() == Mnemonic::Add { by } else { by.wrapping_neg() };
                let value = get(state, first).and_then(|value| value.plus(by));
                set(state, first, value);
            }
            // From here on the frame is counted anew: how far it was moved is not known.
            Mnemonic::And if first == Register::RSP => {
                state.set(RSP, Some(Value::Frame(FrameSlot { base: decoded.ip(), offset: 0 })));
            }
            _ => {
                for &register in &self.written {
                    state.set(register, None);
                }
                if to_memory {
                    write(state, decoded, None);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{super::Routine, follow};

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

    /// `test eax, eax; jne` to the second of `lea rcx, [rsp + 0x50]; jmp` and `lea rcx, [rsp + 0x30]`, which meet at one call.
    const ONE_OF_TWO: Fragment =
        Bytes(&[0x85, 0xC0, 0x75, 0x07, 0x48, 0x8D, 0x4C, 0x24, 0x50, 0xEB, 0x05, 0x48, 0x8D, 0x4C, 0x24, 0x30]);
    /// `lea rdx, [rsp + 0x30]`
    const SECOND_IS_30: Fragment = Bytes(&[0x48, 0x8D, 0x54, 0x24, 0x30]);

    #[test]
    fn a_call_that_two_ways_share_is_right_with_either_handle() {
        let fragments =
            [ENTER, SECOND_IS_50, Call(ACQUIRE), SECOND_IS_30, Call(ACQUIRE), ONE_OF_TWO, Call(RELEASE), LEAVE];
        assert_eq!(counts(&fragments), [2, 1, 0, 0]);
    }

    #[test]
    fn a_call_that_two_ways_share_is_wrong_if_one_handle_is() {
        let fragments = [ENTER, SECOND_IS_50, Call(ACQUIRE), ONE_OF_TWO, Call(RELEASE), LEAVE];
        assert_eq!(counts(&fragments), [1, 0, 1, 0]);
        let fragments = [ENTER, SECOND_IS_30, Call(ACQUIRE), ONE_OF_TWO, Call(RELEASE), LEAVE];
        assert_eq!(counts(&fragments), [1, 0, 1, 0]);
    }
}
