//! Why a run on interfaces was not begun, or has ended early: one line that says what to do.

use control::{
    client::NetworkInterface,
    network::{Begun, Problem, Reason},
    test_device::{Progress, State},
};
use ndkpi::NtStatus;

/// What is wrong, and what to do. `all` are the interfaces of the machine, as far as the driver lists them.
pub fn problem(begun: &Begun, interface: &str, peer: &str, all: &[NetworkInterface]) -> Option<String> {
    let (option, name) = if begun.peer == 0 { ("--interface", interface) } else { ("--peer", peer) };
    let status = NtStatus::from_bits(begun.status);
    let number = if begun.index == 0 { String::new() } else { format!(" (index {})", begun.index) };
    Some(match Problem::from_number(begun.problem) {
        Some(Problem::None) => return None,
        Some(Problem::UnknownInterface) => {
            format!("{option}: there is no interface `{name}`; there are {}", names(all.iter()))
        }
        Some(Problem::UnknownAddress) => format!(
            "{option}: no interface has the address {name}, or not yet; `ndkctl adapters` lists those that are in use"
        ),
        Some(Problem::NoNdk) if status == NtStatus::NDIS_ADAPTER_NOT_READY => {
            format!("{option}: NDK is disabled on `{name}`{number}: Enable-NetAdapterRdma")
        }
        Some(Problem::NoNdk) if status == NtStatus::NDIS_BAD_VERSION => {
            format!("{option}: `{name}`{number} does not open with the NDKPI that is asked for: leave --ndkpi out")
        }
        Some(Problem::NoNdk) => format!(
            "{option}: `{name}`{number} has no NDK ({status}); with NDK there are {}",
            names(all.iter().filter(|one| one.facts.status == 0))
        ),
        Some(Problem::NoAddress) => format!(
            "{option}: `{name}`{number} has no address in use: give it one (New-NetIPAddress) and wait until it is preferred"
        ),
        Some(Problem::NoRoute) => format!(
            "--peer: there is no route from `{interface}` to `{peer}` ({status}): give both addresses of one network, or add a \
             route (New-NetRoute)"
        ),
        Some(Problem::Same) => {
            format!("--peer: `{peer}` and `{interface}` are one interface: name the other end of the cable")
        }
        Some(Problem::NoWinsock) => {
            format!("Winsock Kernel refuses ({status}): the network stack is not ready, try again later")
        }
        Some(Problem::UnknownCase) => {
            "the driver ndktest does not know this case: install the one of this version (ndkctl driver install)"
                .to_owned()
        }
        Some(Problem::BadMachine) => {
            format!(
                "{option}: `{name}` is no address: write @192.0.2.7, or @192.0.2.7:4792 with the agent's first port"
            )
        }
        Some(Problem::NoMachine) => format!(
            "{option}: {name} does not answer ({status}): start `ndkctl driver agent` there, with --calls-from and an address of this \
             machine, and let its eight UDP ports through the firewall"
        ),
        Some(Problem::BusyMachine) => {
            format!(
                "{option}: the agent of {name} has another run; wait for its end, or for 15 seconds after its machine has gone"
            )
        }
        Some(Problem::NoPort) => {
            format!("--port: the eight ports from {name} on cannot be had ({status}): name others")
        }
        None => "the driver has a problem that this program does not know: they are of different versions".to_owned(),
    })
}

/// Some interfaces, for a sentence.
fn names<'a>(some: impl Iterator<Item = &'a NetworkInterface>) -> String {
    let names: Vec<_> = some.map(|one| format!("`{}` (index {})", one.alias, one.facts.index)).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Looks that nobody but the person at this program has ended a run early.
///
/// # Errors
///
/// The driver has, or something has happened to the interfaces.
pub fn not_cancelled(last: &Progress) -> Result<(), String> {
    if last.state != State::Cancelled as u32 {
        return Ok(());
    }
    let what = match Reason::from_number(last.reason) {
        Some(Reason::AddressGone) => {
            "an address of its interfaces has gone: give it back (New-NetIPAddress) and start again"
        }
        Some(Reason::AdapterGone) => {
            "its adapter does not open any more: NDK was disabled (Enable-NetAdapterRdma), or the NIC restarts; start again"
        }
        Some(Reason::MachineGone) => "the other machine does not answer, or its ndktest is of another version",
        Some(Reason::AgentFailed) => {
            "Winsock Kernel has given up the agent's sockets: the network has gone; start again"
        }
        _ => "the provider's device or the driver's is going",
    };
    Err(format!("the run was cancelled: {what}"))
}

#[cfg(test)]
mod tests {
    use control::{
        client::NetworkInterface,
        network::{Begun, Interface, Problem, Reason},
        test_device::{Progress, State},
    };
    use ndkpi::NtStatus;

    use super::{not_cancelled, problem};

    fn machine() -> [NetworkInterface; 2] {
        [("Ethernet 3", 7, NtStatus::SUCCESS), ("Wi-Fi", 11, NtStatus::NOT_SUPPORTED)].map(|(alias, index, status)| {
            NetworkInterface {
                facts: Interface { index, status: status.to_bits(), ..Interface::default() },
                alias: alias.to_owned(),
                description: String::new(),
                addresses: Vec::new(),
            }
        })
    }

    #[test]
    fn each_problem_is_one_line_that_says_what_to_do() {
        let say = |kind: Problem, peer, status: NtStatus, index| {
            let begun = Begun { problem: kind as u32, peer, status: status.to_bits(), index };
            problem(&begun, "Wi-Fi", "10.0.0.9", &machine())
        };
        let none = NtStatus::SUCCESS;
        for (kind, peer, status, index, words) in [
            (Problem::UnknownInterface, 0, none, 0, "no interface `Wi-Fi`; there are `Ethernet 3` (index 7), `Wi-Fi`"),
            (Problem::UnknownAddress, 1, none, 0, "--peer: no interface has the address 10.0.0.9"),
            (
                Problem::NoNdk,
                0,
                NtStatus::NOT_SUPPORTED,
                11,
                "has no NDK (STATUS_NOT_SUPPORTED); with NDK there are `Ethernet 3`",
            ),
            (Problem::NoNdk, 0, NtStatus::NDIS_ADAPTER_NOT_READY, 11, "`Wi-Fi` (index 11): Enable-NetAdapterRdma"),
            (Problem::NoAddress, 0, none, 11, "New-NetIPAddress"),
            (Problem::NoNdk, 0, NtStatus::NDIS_BAD_VERSION, 11, "`Wi-Fi` (index 11) does not open with the NDKPI"),
            (Problem::UnknownCase, 0, none, 0, "ndkctl driver install"),
            (Problem::NoRoute, 1, NtStatus::NETWORK_UNREACHABLE, 11, "New-NetRoute"),
            (Problem::Same, 1, none, 11, "the other end of the cable"),
            (Problem::NoWinsock, 0, NtStatus::DEVICE_NOT_READY, 0, "try again later"),
            (Problem::BadMachine, 1, none, 0, "--peer: `10.0.0.9` is no address: write @192.0.2.7"),
            (
                Problem::NoMachine,
                1,
                NtStatus::IO_TIMEOUT,
                7,
                "does not answer (STATUS_IO_TIMEOUT): start `ndkctl driver agent`",
            ),
            (Problem::BusyMachine, 1, NtStatus::DEVICE_BUSY, 7, "the agent of 10.0.0.9 has another run"),
            (Problem::NoPort, 1, NtStatus::ADDRESS_ALREADY_EXISTS, 7, "--port: the eight ports"),
        ] {
            let text = say(kind, peer, status, index).expect("a problem");
            assert!(text.contains(words) && !text.contains('\n') && !text.contains("  "), "{text}");
        }
        assert_eq!(say(Problem::None, 0, none, 7), None);
        let later = Begun { problem: 99, ..Begun::default() };
        assert!(problem(&later, "7", "", &[]).is_some_and(|text| text.contains("different versions")));
    }

    #[test]
    fn an_early_end_says_why() {
        let ended = |reason| not_cancelled(&Progress { state: State::Cancelled as u32, reason, ..Progress::default() });
        for (reason, words) in [
            (Reason::None as u32, "device"),
            (Reason::AddressGone as u32, "an address of its interfaces has gone"),
            (Reason::AdapterGone as u32, "does not open any more"),
            (Reason::MachineGone as u32, "the other machine does not answer"),
            (Reason::AgentFailed as u32, "the agent's sockets"),
            (99, "device"),
        ] {
            assert!(ended(reason).is_err_and(|text| text.contains(words) && !text.contains("  ")), "{reason}");
        }
        let finished = Progress { state: State::Finished as u32, ..Progress::default() };
        assert_eq!(not_cancelled(&finished), Ok(()));
    }
}
