//! What drivers and adapters may not leave behind.

use super::{
    configuration::Configurations, device::ControlDevices, net_buffer::BufferPools, owner::Owner, pool::Pools,
    registration::Miniports, rw_lock::RwLocks, timer::Timers, work_item::WorkItems,
};
use crate::{context::DriverId, report::bug_check, rule::Rule, state::State};

impl State {
    /// A driver is unloaded: nothing of it may be left in NDIS.
    pub fn check_ndis(&self, driver: DriverId, name: &str) {
        if self.locked::<Miniports>().0.contains_key(&driver) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left itself registered as a miniport driver"));
        }
        self.check_ndis_clients(driver, name);
        if self.locked::<ControlDevices>().0.values().any(|device| device.owner == driver) {
            bug_check(Rule::ReferenceLeak, format_args!("driver {name} left a control device"));
        }
        self.check_nothing_left(|owner| owner.driver == driver, name);
    }

    /// Nothing may be left of those that `of` recognises.
    pub fn check_nothing_left(&self, of: impl Fn(Owner) -> bool, name: &str) {
        if self.locked::<Configurations>().0.values().any(|configuration| of(configuration.owner)) {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left its configuration open"));
        }
        if self.locked::<WorkItems>().0.values().any(|item| of(item.owner)) {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left a work item"));
        }
        let site = self.locked::<Timers>().left(&of);
        if let Some(site) = site {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left a timer of NDIS, which was allocated{site}"));
        }
        let site = self.locked::<RwLocks>().left(&of);
        if let Some(site) = site {
            bug_check(Rule::ReferenceLeak, format_args!("{name} left a lock of NDIS, which was allocated{site}"));
        }
        self.locked::<BufferPools>().check_nothing_left(&of, name);
        self.locked::<Pools>().check_nothing_left(of, name);
    }
}
