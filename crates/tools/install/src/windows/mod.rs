//! A machine with Windows.
//!
//! All unsafe calls are in [`calls`].

mod calls;
mod packages;
mod wait;

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ::windows::core::GUID;

use crate::{
    AddressState, Certificate, Device, Driver, Facts, Fault, Firewall, Interface, Machine, Restart, Result, Staged,
    Store,
};

use wait::Bell;

/// This machine.
#[derive(Debug)]
pub struct Windows(());

impl Windows {
    /// This machine. Nothing that it does asks a person anything.
    #[must_use]
    pub fn new() -> Self {
        calls::ask_nobody();
        Self(())
    }
}

impl Default for Windows {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of a GUID, as `{...}`.
fn braced(guid: &GUID) -> String {
    format!("{{{guid:?}}}")
}

/// The GUID of `{...}`.
fn guid_of(braced: &str) -> Result<GUID> {
    let digits: String = braced.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    number.map(GUID::from_u128).ok_or_else(|| Fault::new("GUID", 0, format!("`{braced}` is none")))
}

/// Looks until `found` says something, after each ring of the bell, for so long.
fn until<T>(bell: &Bell, within: Duration, mut found: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let end = Instant::now() + within;
    loop {
        if let Some(value) = found()? {
            return Ok(Some(value));
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !bell.wait(left) {
            return found();
        }
    }
}

impl Machine for Windows {
    fn facts(&self) -> Result<Facts> {
        let integrity = calls::code_integrity();
        let bit = |bit: u32| integrity.map(|options| options & bit != 0);
        Ok(Facts {
            version: calls::version()?,
            processor: calls::native_processor()?,
            elevated: calls::is_elevated()?,
            test_signing: bit(calls::TEST_SIGNING),
            secure_boot: calls::secure_boot(),
            hvci: bit(calls::HVCI),
        })
    }

    fn trusts(&self, store: Store, certificate: &Certificate) -> Result<bool> {
        let store = calls::certificates(store.name(), false)?;
        Ok(calls::find_certificate(&store, &certificate.der)?.is_some())
    }

    fn trust(&self, store: Store, certificate: &Certificate) -> Result<()> {
        calls::add_certificate(&calls::certificates(store.name(), true)?, &certificate.der)
    }

    fn distrust(&self, store: Store, certificate: &Certificate) -> Result<()> {
        let store = calls::certificates(store.name(), true)?;
        calls::find_certificate(&store, &certificate.der)?.map_or(Ok(()), calls::delete_certificate)
    }

    fn staged(&self, driver: &Driver) -> Result<Vec<Staged>> {
        packages::staged(driver)
    }

    fn stage(&self, inf: &Path) -> Result<()> {
        calls::stage(inf)
    }

    fn unstage(&self, package: &Staged) -> Result<()> {
        calls::unstage(&package.name)
    }

    fn keep(&self, driver: &Driver, package: &Staged) -> Result<PathBuf> {
        packages::keep(driver, package)
    }

    fn drop_kept(&self, inf: &Path) -> Result<()> {
        let folder = inf.parent().unwrap_or(inf);
        fs::remove_dir_all(folder).map_err(|error| packages::fault("delete", folder, &error))
    }

    fn devices(&self, driver: &Driver) -> Result<Vec<Device>> {
        let mut found = Vec::new();
        for node in calls::root_devices()?.iter() {
            let node = node?;
            if node.hardware_ids()?.iter().any(|id| id.eq_ignore_ascii_case(driver.hardware_id)) {
                found.push(device(&node)?);
            }
        }
        found.sort_by(|one, other| one.instance.cmp(&other.instance));
        Ok(found)
    }

    fn create_device(&self, driver: &Driver) -> Result<String> {
        calls::create_root_device(driver.class, GUID::from_u128(driver.class_guid), driver.hardware_id)
    }

    fn remove_device(&self, instance: &str) -> Result<Restart> {
        let Some(nodes) = calls::device(instance)? else {
            return Ok(Restart::NotNeeded);
        };
        nodes.only()?.uninstall()
    }

    fn bind(&self, driver: &Driver, package: &Staged) -> Result<Restart> {
        calls::update_driver(driver.hardware_id, &packages::installed(package)?)
    }

    fn await_device(&self, _: &Driver, instance: &str, within: Duration) -> Result<Option<Device>> {
        let look = || match calls::device(instance)? {
            Some(nodes) => device(&nodes.only()?).map(Some),
            None => Ok(None),
        };
        let bell = Bell::new();
        let _ringing = bell.of_device(instance)?;
        let settled = || Ok(look()?.filter(|device| device.started || device.problem != 0));
        until(&bell, within, settled)?.map_or_else(look, |device| Ok(Some(device)))
    }

    fn loaded(&self, driver: &Driver) -> Result<bool> {
        calls::is_service_running(driver.name)
    }

    fn interface(&self, guid: &str) -> Result<Option<Interface>> {
        let Some(luid) = calls::luid_of(guid_of(guid)?)? else { return Ok(None) };
        let Some(dad_transmits) = calls::dad_transmits(luid)? else { return Ok(None) };
        let Some(row) = calls::interface_row(luid)? else { return Ok(None) };
        let addresses = calls::addresses()?.into_iter().filter(|one| one.luid == luid).map(|one| one.address);
        Ok(Some(Interface {
            guid: guid.to_owned(),
            luid,
            index: row.index,
            alias: row.alias,
            mac: row.mac,
            up: row.up,
            addresses: addresses.collect(),
            dad_transmits,
        }))
    }

    fn await_interface(&self, guid: &str, within: Duration) -> Result<Option<Interface>> {
        let bell = Bell::new();
        let _ringing = bell.of_interfaces()?;
        until(&bell, within, || self.interface(guid))
    }

    fn named(&self, alias: &str) -> Result<Option<String>> {
        Ok(calls::guid_of_alias(alias)?.map(|guid| braced(&guid)))
    }

    fn rename(&self, guid: &str, alias: &str) -> Result<()> {
        calls::rename_connection(guid_of(guid)?, alias)
    }

    fn set_dad_transmits(&self, luid: u64, count: u32) -> Result<()> {
        calls::set_dad_transmits(luid, count)
    }

    fn holder(&self, address: Ipv4Addr) -> Result<Option<String>> {
        let Some(held) = calls::addresses()?.into_iter().find(|one| one.address == address) else { return Ok(None) };
        let row = calls::interface_row(held.luid)?;
        Ok(Some(row.map_or_else(|| format!("interface {:#x}", held.luid), |row| row.alias)))
    }

    fn add_address(&self, luid: u64, address: Ipv4Addr, bits: u8) -> Result<()> {
        calls::add_address(luid, address, bits)
    }

    fn remove_address(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        calls::remove_address(luid, address)
    }

    fn await_address(&self, luid: u64, address: Ipv4Addr, within: Duration) -> Result<AddressState> {
        let bell = Bell::new();
        let _ringing = bell.of_addresses()?;
        let known = until(&bell, within, || {
            let state = calls::address_state(luid, address)?;
            Ok(Some(state).filter(|state| *state != AddressState::Tentative))
        })?;
        Ok(known.unwrap_or(AddressState::Tentative))
    }

    fn neighbour(&self, luid: u64, address: Ipv4Addr) -> Result<Option<[u8; 6]>> {
        calls::neighbour(luid, address)
    }

    fn set_neighbour(&self, luid: u64, address: Ipv4Addr, mac: [u8; 6]) -> Result<()> {
        calls::set_neighbour(luid, address, mac)
    }

    fn remove_neighbour(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        calls::remove_neighbour(luid, address)
    }

    fn routed(&self, luid: u64, address: Ipv4Addr) -> Result<bool> {
        calls::routed(luid, address)
    }

    fn add_route(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        calls::add_route(luid, address)
    }

    fn remove_route(&self, luid: u64, address: Ipv4Addr) -> Result<()> {
        calls::remove_route(luid, address)
    }

    fn firewall(&self) -> Result<Firewall> {
        Ok(if calls::firewall_is_on()? { Firewall::On } else { Firewall::Off })
    }
}

/// What is to be known of a device.
fn device(node: &calls::Node<'_>) -> Result<Device> {
    let (started, problem) = node.status()?;
    let interface = node.driver_value("NetCfgInstanceId")?.map(|guid| guid.to_uppercase());
    let rdma = node.driver_value("*NetworkDirect")?.map(|value| value.trim() != "0");
    Ok(Device {
        instance: node.instance()?,
        started,
        problem,
        inf: node.inf()?,
        // Before a NIC has run it can have a GUID and no interface.
        interface,
        rdma,
    })
}
