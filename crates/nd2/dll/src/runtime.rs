//! The machine and the adapter: started for the first client, stopped when the last has gone.

use std::{
    env,
    net::IpAddr,
    sync::{Mutex, MutexGuard, PoisonError},
};

use engine::connection::{InterfaceAddress, Wire};
use fallible::Shared;
use host::machine::Machine;
use nd2::{Config, Device, Platform, abi::HRESULT, class::can_unload_now};
use ndkpi::NtStatus;

use crate::platform::WindowsPlatform;

struct Runtime {
    device: Shared<Device<WindowsPlatform>>,
    machine: Machine,
}

static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);

fn runtime() -> MutexGuard<'static, Option<Runtime>> {
    RUNTIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The adapters, made if there are none.
///
/// # Errors
///
/// `ND_NO_MEMORY`, and `ND_INVALID_ADDRESS` if the environment names an address that no adapter can have.
pub fn devices() -> Result<[Shared<Device<WindowsPlatform>>; 1], HRESULT> {
    let mut runtime = runtime();
    if let Some(runtime) = &*runtime {
        return Ok([runtime.device.clone()]);
    }
    let machine = Machine::threads().start();
    let device = make(&machine).map_err(|status| match status {
        NtStatus::INSUFFICIENT_RESOURCES => HRESULT::ND_NO_MEMORY,
        status => status.into(),
    })?;
    Ok([runtime.insert(Runtime { device, machine }).device.clone()])
}

fn make(machine: &Machine) -> Result<Shared<Device<WindowsPlatform>>, NtStatus> {
    let platform = WindowsPlatform::new(machine);
    let wire = Wire::try_new(platform.os())?;
    let named = env::var("SOFTND_ADDRESSES").unwrap_or_else(|_| "127.0.0.1,::1".to_owned());
    let mut addresses = Vec::new();
    for name in named.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let address: IpAddr = name.parse().map_err(|_| NtStatus::INVALID_ADDRESS)?;
        addresses.push(InterfaceAddress { address, prefix: if address.is_ipv4() { 8 } else { 64 } });
    }
    Device::try_new(&platform, &wire, &addresses, Config::default())
}

/// Stops the machine if nobody uses it. `S_OK` if the library can be unloaded.
pub fn stop() -> HRESULT {
    let mut place = runtime();
    if can_unload_now() != HRESULT::S_OK {
        return HRESULT::S_FALSE;
    }
    if let Some(Runtime { device, machine }) = place.take() {
        // What still runs refers to the adapter until it has ended.
        for _ in 0..4 {
            machine.flush();
        }
        if Shared::references_now(&device) != 1 || machine.leaks().is_some() {
            *place = Some(Runtime { device, machine });
            return HRESULT::S_FALSE;
        }
        drop(device);
        machine.shutdown();
    }
    HRESULT::S_OK
}
