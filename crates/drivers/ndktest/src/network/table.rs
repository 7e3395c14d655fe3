//! Tables of the IP helper.

use core::{ffi::c_void, ptr, slice};

use ndis::{
    AF_UNSPEC, FreeMibTable, GetIfTable2, GetUnicastIpAddressTable, MIB_IF_ROW2, MIB_IF_TABLE2,
    MIB_UNICASTIPADDRESS_ROW, MIB_UNICASTIPADDRESS_TABLE,
};
use ndkpi::NtStatus;

/// A table of the IP helper. Freed when dropped.
///
/// # Invariants
///
/// `memory` is a table that the IP helper gave out, and `rows` the rows in it.
pub struct Table<Row> {
    memory: *const c_void,
    rows: *const Row,
    count: u32,
}

impl<Row> Table<Row> {
    /// The rows.
    pub fn rows(&self) -> &[Row] {
        // SAFETY: the table has as many rows and is not freed (invariant).
        unsafe { slice::from_raw_parts(self.rows, self.count as usize) }
    }
}

impl<Row> Drop for Table<Row> {
    fn drop(&mut self) {
        // SAFETY: the IP helper's own table (invariant), not used again; at `PASSIVE_LEVEL`.
        unsafe { FreeMibTable(self.memory) };
    }
}

/// The unicast addresses of the machine, of both families.
///
/// # Errors
///
/// What the IP helper says.
pub fn addresses() -> Result<Table<MIB_UNICASTIPADDRESS_ROW>, NtStatus> {
    let mut table: *mut MIB_UNICASTIPADDRESS_TABLE = ptr::null_mut();
    // SAFETY: at `PASSIVE_LEVEL`, and the place lives until the call returns.
    unsafe { GetUnicastIpAddressTable(AF_UNSPEC, &raw mut table) }.ok()?;
    // SAFETY: the call has succeeded, so there is a table. Only the address is taken.
    let (count, rows) = unsafe { ((*table).NumEntries, &raw const (*table).Table) };
    Ok(Table { memory: table.cast(), rows: rows.cast(), count })
}

/// The interfaces of the machine.
///
/// # Errors
///
/// What the IP helper says.
pub fn interfaces() -> Result<Table<MIB_IF_ROW2>, NtStatus> {
    let mut table: *mut MIB_IF_TABLE2 = ptr::null_mut();
    // SAFETY: at `PASSIVE_LEVEL`, and the place lives until the call returns.
    unsafe { GetIfTable2(&raw mut table) }.ok()?;
    // SAFETY: the call has succeeded, so there is a table. Only the address is taken.
    let (count, rows) = unsafe { ((*table).NumEntries, &raw const (*table).Table) };
    Ok(Table { memory: table.cast(), rows: rows.cast(), count })
}
