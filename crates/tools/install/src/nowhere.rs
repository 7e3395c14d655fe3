//! A machine without Windows.

#![expect(clippy::uninhabited_references, reason = "there is no such machine, so nobody has a reference to one")]

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    AddressState, Certificate, Device, Driver, Facts, Firewall, Interface, Machine, Restart, Staged, Store,
    machine::Result,
};

/// The machine that is asked where there is no Windows: there is none, so nothing is ever asked of it.
#[derive(Clone, Copy, Debug)]
pub enum Nowhere {}

impl Machine for Nowhere {
    fn facts(&self) -> Result<Facts> {
        match *self {}
    }

    fn trusts(&self, _: Store, _: &Certificate) -> Result<bool> {
        match *self {}
    }

    fn trust(&self, _: Store, _: &Certificate) -> Result<()> {
        match *self {}
    }

    fn distrust(&self, _: Store, _: &Certificate) -> Result<()> {
        match *self {}
    }

    fn staged(&self, _: &Driver) -> Result<Vec<Staged>> {
        match *self {}
    }

    fn stage(&self, _: &Path) -> Result<()> {
        match *self {}
    }

    fn unstage(&self, _: &Staged) -> Result<()> {
        match *self {}
    }

    fn keep(&self, _: &Driver, _: &Staged) -> Result<PathBuf> {
        match *self {}
    }

    fn drop_kept(&self, _: &Path) -> Result<()> {
        match *self {}
    }

    fn devices(&self, _: &Driver) -> Result<Vec<Device>> {
        match *self {}
    }

    fn create_device(&self, _: &Driver) -> Result<String> {
        match *self {}
    }

    fn remove_device(&self, _: &str) -> Result<Restart> {
        match *self {}
    }

    fn bind(&self, _: &Driver, _: &Staged) -> Result<Restart> {
        match *self {}
    }

    fn await_device(&self, _: &Driver, _: &str, _: Duration) -> Result<Option<Device>> {
        match *self {}
    }

    fn loaded(&self, _: &Driver) -> Result<bool> {
        match *self {}
    }

    fn interface(&self, _: &str) -> Result<Option<Interface>> {
        match *self {}
    }

    fn await_interface(&self, _: &str, _: Duration) -> Result<Option<Interface>> {
        match *self {}
    }

    fn named(&self, _: &str) -> Result<Option<String>> {
        match *self {}
    }

    fn rename(&self, _: &str, _: &str) -> Result<()> {
        match *self {}
    }

    fn set_dad_transmits(&self, _: u64, _: u32) -> Result<()> {
        match *self {}
    }

    fn holder(&self, _: Ipv4Addr) -> Result<Option<String>> {
        match *self {}
    }

    fn add_address(&self, _: u64, _: Ipv4Addr, _: u8) -> Result<()> {
        match *self {}
    }

    fn remove_address(&self, _: u64, _: Ipv4Addr) -> Result<()> {
        match *self {}
    }

    fn await_address(&self, _: u64, _: Ipv4Addr, _: Duration) -> Result<AddressState> {
        match *self {}
    }

    fn neighbour(&self, _: u64, _: Ipv4Addr) -> Result<Option<[u8; 6]>> {
        match *self {}
    }

    fn set_neighbour(&self, _: u64, _: Ipv4Addr, _: [u8; 6]) -> Result<()> {
        match *self {}
    }

    fn remove_neighbour(&self, _: u64, _: Ipv4Addr) -> Result<()> {
        match *self {}
    }

    fn routed(&self, _: u64, _: Ipv4Addr) -> Result<bool> {
        match *self {}
    }

    fn add_route(&self, _: u64, _: Ipv4Addr) -> Result<()> {
        match *self {}
    }

    fn remove_route(&self, _: u64, _: Ipv4Addr) -> Result<()> {
        match *self {}
    }

    fn firewall(&self) -> Result<Firewall> {
        match *self {}
    }
}
